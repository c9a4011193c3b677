"""Log-probabilities as the two forms of OpenAI's API write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zinc_rt.serving.api.textside import TokenLogprob
from zinc_rt.text import Tokenizer


def _token(tokenizer: Tokenizer, token_id: int, logprob: float) -> dict[str, Any]:
    raw = tokenizer.token_bytes(token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[TokenLogprob]) -> dict[str, Any]:
    """`logprobs` of a choice of a chat completion."""
    content = [
        {
            **_token(tokenizer, token.token_id, token.logprob),
            "top_logprobs": [_token(tokenizer, i, value) for i, value in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(tokenizer: Tokenizer, tokens: Iterable[TokenLogprob], offset: int) -> dict[str, Any]:
    """`logprobs` of a choice of a completion. offset: characters of the answer before the first of these tokens."""
    texts: list[str] = []
    values: list[float] = []
    tops: list[dict[str, float]] = []
    offsets: list[int] = []
    for token in tokens:
        text = tokenizer.token_bytes(token.token_id).decode("utf-8", "replace")
        texts.append(text)
        values.append(token.logprob)
        tops.append({tokenizer.token_bytes(i).decode("utf-8", "replace"): value for i, value in token.top})
        offsets.append(offset)
        offset += len(text)
    return {"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}

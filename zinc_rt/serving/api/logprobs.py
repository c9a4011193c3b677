"""Log-probabilities as the two forms of OpenAI's API write them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from zinc_rt.scheduler.messages import Token
from zinc_rt.text import Tokenizer


def token_logprob(tokenizer: Tokenizer, token_id: int, logprob: float | None) -> dict[str, Any]:
    """A token as a list of log-probabilities has it."""
    raw = tokenizer.token_bytes(token_id)
    return {"token": raw.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(raw)}


def chat_logprobs(tokenizer: Tokenizer, tokens: Iterable[Token]) -> dict[str, Any]:
    """`logprobs` of a choice of a chat completion."""
    content = [
        {
            **token_logprob(tokenizer, token.token_id, token.logprob),
            "top_logprobs": [token_logprob(tokenizer, i, value) for i, value in token.top_logprobs or ()],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def text_logprobs(
    tokenizer: Tokenizer, tokens: Iterable[Token], offset: int, first: int | None = None
) -> tuple[dict[str, Any], int]:
    """`logprobs` of a choice of a completion, and the characters of the answer up to their end.

    offset: characters before the first of these tokens. first: a token before them that has no log-probability, as
    nothing comes before it.
    """
    texts: list[str] = []
    values: list[float | None] = []
    tops: list[dict[str, float] | None] = []
    offsets: list[int] = []

    def add(token_id: int, logprob: float | None, top: dict[str, float] | None) -> None:
        nonlocal offset
        texts.append(_text(tokenizer, token_id))
        values.append(logprob)
        tops.append(top)
        offsets.append(offset)
        offset += 0 if tokenizer.is_special(token_id) else len(texts[-1])  # those are not in the text

    if first is not None:
        add(first, None, None)
    for token in tokens:
        top: dict[str, float] = {}
        for i, value in token.top_logprobs or ():
            # Of tokens with one text, as parts of characters are, the likeliest stays.
            top.setdefault(_text(tokenizer, i), value)
        add(token.token_id, token.logprob, top)
    return {"tokens": texts, "token_logprobs": values, "top_logprobs": tops, "text_offset": offsets}, offset


def _text(tokenizer: Tokenizer, token_id: int) -> str:
    return tokenizer.token_bytes(token_id).decode("utf-8", "replace")

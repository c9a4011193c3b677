"""What a server said to a request, as far as two answers are compared, and where two of them differ."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from zinc_rt.errors import ZincError


class BadAnswer(ZincError):
    """A server's answer is not in OpenAI's form."""


@dataclass(frozen=True)
class ProbeAnswer:
    """An answer.

    id: as the server calls it. text: the content. finish: why it ended. logprobs: a JSON text for each token, with
    its log-probability and those of the likeliest tokens, whose numbers are as the server wrote them; empty where
    there are none. cached: tokens of the prompt that were in the server's cache, None where it does not say.
    """

    id: str
    text: str
    finish: str
    logprobs: tuple[str, ...]
    cached: int | None = None
    reasoning: str = ""


@dataclass(frozen=True)
class AnswerDifference:
    """The first place where two answers differ. part: text, log-probabilities, length or finish_reason; at: the byte
    of the text, or the token; first, second: what stands there.
    """

    part: str
    at: int
    first: str
    second: str

    def __str__(self) -> str:
        where = f"{self.part} differ at token {self.at}" if self.part == "log-probabilities" else self.part
        where = f"text differs at byte {self.at}" if self.part == "text" else where
        return f"{where}: {self.first!r} and {self.second!r}"


def read_answer(body: bytes) -> ProbeAnswer:
    """An answer to a chat or to a completion. Raises `BadAnswer`."""
    try:
        tree = json.loads(body, parse_float=_Number, parse_int=_Number)
        choice = tree["choices"][0]
        message = choice.get("message", {})
        text = message.get("content") or "" if "message" in choice else choice["text"]
        details = (tree.get("usage") or {}).get("prompt_tokens_details") or {}
        cached = details.get("cached_tokens")
        if not isinstance(text, str) or isinstance(text, _Number):
            raise BadAnswer("the answer's text is no text")
        return ProbeAnswer(
            str(tree.get("id") or ""),
            text,
            str(choice.get("finish_reason")),
            _logprobs(choice.get("logprobs")),
            None if cached is None else int(cached),
            str(message.get("reasoning_content") or message.get("reasoning") or ""),
        )
    except (ValueError, KeyError, IndexError, TypeError, AttributeError, RecursionError) as error:
        raise BadAnswer(f"the answer is not in OpenAI's form: {type(error).__name__} {str(error)[:80]}") from None


class _Number(str):
    """A number as its JSON has it: its text, so that nothing of it is rounded."""

    __slots__ = ()


def _logprobs(found: Any) -> tuple[str, ...]:
    """Those of an answer, one text for each token."""
    if not found:
        return ()
    if isinstance(found.get("content"), list):
        tokens = [
            [one["token"], one["logprob"], [[top["token"], top["logprob"]] for top in one.get("top_logprobs") or ()]]
            for one in found["content"]
        ]
    else:
        top = found.get("top_logprobs") or [None] * len(found.get("tokens") or ())
        tokens = [
            [token, logprob, sorted((likely or {}).items())]
            for token, logprob, likely in zip(found.get("tokens") or (), found.get("token_logprobs") or (), top)
        ]
    return tuple(json.dumps(token, ensure_ascii=False) for token in tokens)


def first_difference(one: ProbeAnswer, other: ProbeAnswer) -> AnswerDifference | None:
    """Where two answers to the same request differ first; None where every byte is equal."""
    for at, (left, right) in enumerate(zip(one.logprobs, other.logprobs)):
        if left != right:
            return AnswerDifference("log-probabilities", at, *_apart(left, right))
    if one.text != other.text:
        texts = [answer.text.encode(errors="surrogatepass") for answer in (one, other)]
        at = next((i for i, (a, b) in enumerate(zip(*texts)) if a != b), min(map(len, texts)))
        shown = [text[at : at + 24].decode(errors="replace") for text in texts]
        return AnswerDifference("text", at, *shown)
    if one.reasoning != other.reasoning:
        return AnswerDifference("reasoning", -1, one.reasoning[:24], other.reasoning[:24])
    if len(one.logprobs) != len(other.logprobs):
        return AnswerDifference("count of tokens", -1, str(len(one.logprobs)), str(len(other.logprobs)))
    if one.finish != other.finish:
        return AnswerDifference("finish_reason", -1, one.finish, other.finish)
    return None


def _apart(left: str, right: str) -> tuple[str, str]:
    """What differs between two tokens: their names, or their numbers."""
    one, other = json.loads(left), json.loads(right)
    if one[:2] != other[:2]:
        return f"{one[0]} {one[1]}", f"{other[0]} {other[1]}"
    for a, b in zip(one[2], other[2]):
        if a != b:
            return f"{a[0]} {a[1]}", f"{b[0]} {b[1]}"
    return f"{len(one[2])} likely tokens", f"{len(other[2])} likely tokens"

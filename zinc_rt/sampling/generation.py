"""The results of a generation: its pieces, the whole, its speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

import msgspec

_Bytes = bytes
TopLogprobs = tuple[tuple[int, float], ...]


class TokenLogprob(tuple[int, float]):
    """A token that could have been chosen: the pair (id, logprob), which also has the token's text.

    Args:
        id: of the token.
        logprob: natural logarithm of its probability in the model's own distribution.
        bytes: what it adds to the text; a part of a character may be all.
    """

    bytes: _Bytes

    def __new__(cls, id: int, logprob: float, bytes: _Bytes) -> Self:
        made = super().__new__(cls, (id, logprob))
        made.bytes = bytes
        return made

    def __getnewargs__(self) -> tuple[int, float, _Bytes]:
        return (*self, self.bytes)

    @property
    def id(self) -> int:
        """The token's id."""
        return self[0]

    @property
    def logprob(self) -> float:
        """Natural logarithm of its probability."""
        return self[1]

    @property
    def text(self) -> str:
        """Its bytes as text, with U+FFFD for what is no whole character."""
        return self.bytes.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"TokenLogprob(id={self.id}, logprob={self.logprob:.4f}, text={self.text!r})"


@dataclass(frozen=True)
class Stats:
    """Counts in tokens and wall times in seconds of one generation.

    cached_tokens: prompt tokens whose keys and values were still in the cache and were not computed again.
    decode_seconds: the steps after the prompt's, from the first generated token to the last; n tokens take n - 1 steps,
    or fewer where guesses were right. drafted_tokens, accepted_tokens: guesses of speculation, and right ones.
    """

    prompt_tokens: int
    completion_tokens: int
    prefill_seconds: float
    decode_seconds: float
    cached_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0

    @property
    def prefill_tokens_per_second(self) -> float:
        """Prompt tokens computed per second, 0 where no time was taken."""
        return (self.prompt_tokens - self.cached_tokens) / self.prefill_seconds if self.prefill_seconds > 0 else 0.0

    @property
    def decode_tokens_per_second(self) -> float:
        """Tokens per second behind the first one, 0 where there was none."""
        steps = self.completion_tokens - 1
        return steps / self.decode_seconds if steps > 0 and self.decode_seconds > 0 else 0.0


class Chunk(msgspec.Struct, frozen=True):  # one is made a token: a struct takes a tenth of a dataclass's time
    """One piece of a stream.

    text: ready to show; may be empty while a character or a possible stop string is incomplete.
    token_id, logprob, top_logprobs: the token behind it; the log-probabilities where they were asked for.
    token_text, token_bytes: that token by itself, where text shows what is ready.
    finish_reason, stats, seed: on the last chunk only, which has no token. "stop": the model or a stop string ended it;
    "length": max_tokens; "context": no room is left. seed: the one in use, drawn if none was given.
    """

    text: str
    token_id: int | None = None
    logprob: float | None = None
    top_logprobs: tuple[TokenLogprob, ...] | None = None
    finish_reason: str | None = None
    stats: Stats | None = None
    seed: int | None = None
    token_bytes: bytes | None = None

    @property
    def token_text(self) -> str | None:
        """`token_bytes` as text, with U+FFFD for what is no whole character."""
        return None if self.token_bytes is None else self.token_bytes.decode("utf-8", "replace")

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Generation:
    """A whole generation; `seed` makes it again. `str` of it is the text.

    token_ids, token_bytes: without the token that ended it. logprobs, top_logprobs: one entry a token, where they were
    asked for. finish_reason: as in `Chunk`.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    top_logprobs: tuple[tuple[TokenLogprob, ...], ...] | None
    finish_reason: str
    stats: Stats
    seed: int | None
    token_bytes: tuple[bytes, ...] = ()

    @property
    def token_texts(self) -> tuple[str, ...]:
        """Each token's text by itself, with U+FFFD for what is no whole character."""
        return tuple(piece.decode("utf-8", "replace") for piece in self.token_bytes)

    def __str__(self) -> str:
        return self.text

    def _repr_markdown_(self) -> str:
        """The text for notebooks."""
        return self.text

    def __repr__(self) -> str:
        tokens = f"{len(self.token_ids)} tokens"
        return f"<Generation {self.text!r}, {tokens}, finish_reason={self.finish_reason!r}, seed={self.seed}>"

    @classmethod
    def collect(cls, chunks: Iterable[Chunk]) -> Generation:
        """Read a stream to its end. Raises `ValueError` for one that was cut off."""
        text, tokens, last = [], [], None
        for chunk in chunks:
            text.append(chunk.text)
            if chunk.token_id is not None:
                tokens.append(chunk)
            last = chunk
        if last is None or last.finish_reason is None or last.stats is None:
            raise ValueError("the stream has no last chunk")
        logprobs = tuple(c.logprob for c in tokens if c.logprob is not None)
        tops = tuple(c.top_logprobs for c in tokens if c.top_logprobs is not None)
        return cls(
            text="".join(text),
            token_ids=tuple(c.token_id for c in tokens if c.token_id is not None),
            logprobs=logprobs if len(logprobs) == len(tokens) and tokens else None,
            top_logprobs=tops if len(tops) == len(tokens) and tokens else None,
            finish_reason=last.finish_reason,
            stats=last.stats,
            seed=last.seed,
            token_bytes=tuple(c.token_bytes for c in tokens if c.token_bytes is not None),
        )

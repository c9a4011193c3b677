"""What a generation gives: its pieces, its whole, its speed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

TopLogprobs = tuple[tuple[int, float], ...]


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


@dataclass(frozen=True)
class Chunk:
    """One piece of a stream.

    text: ready to show; may be empty while a character or a possible stop string is incomplete.
    token_id, logprob, top_logprobs: the token behind it; the log-probabilities where they were asked for.
    finish_reason, stats, seed: on the last chunk only, which has no token. "stop": the model or a stop string ended it;
    "length": max_tokens; "context": no room is left. seed: the one in use, drawn if none was given.
    """

    text: str
    token_id: int | None = None
    logprob: float | None = None
    top_logprobs: TopLogprobs | None = None
    finish_reason: str | None = None
    stats: Stats | None = None
    seed: int | None = None


@dataclass(frozen=True)
class Generation:
    """A whole generation; `seed` makes it again.

    token_ids excludes the token that ended it; logprobs are there where they were asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    logprobs: tuple[float, ...] | None
    top_logprobs: tuple[TopLogprobs, ...] | None
    finish_reason: str
    stats: Stats
    seed: int | None

    @classmethod
    def collect(cls, chunks: Iterable[Chunk]) -> Generation:
        """Read a stream to its end."""
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
        )

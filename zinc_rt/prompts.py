"""Prompts as token ids: which ones an engine can take."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from zinc_rt.errors import UsageError
from zinc_rt.rows import known_tokens


class EmptyPrompt(UsageError):
    """A prompt without a token."""


class PromptTooLong(UsageError):
    """A prompt that leaves no room in the context for a single generated token."""


def check_ids(tokens: Iterable[int], n_vocab: int) -> list[int]:
    """A prompt's ids as a list, at least one. Raises `EmptyPrompt`, and what `known_tokens` raises."""
    ids = known_tokens(tokens, n_vocab)
    if not ids:
        raise EmptyPrompt("there are no tokens; at least one is needed")
    return ids


def check_fits(ids: Sequence[int], n_ctx: int) -> None:
    """Raise `PromptTooLong` unless the context has room for the prompt and a token."""
    if len(ids) >= n_ctx:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens, the context holds {n_ctx} with the answer;"
            " shorten it or load with a larger context (n_ctx, -c)"
        )

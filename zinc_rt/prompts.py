"""Prompts as token ids: which ones an engine can take."""

from __future__ import annotations

from collections.abc import Sequence

from zinc_rt.checks import show
from zinc_rt.errors import UsageError
from zinc_rt.kernels.errors import TokenOutOfRange


class EmptyPrompt(UsageError):
    """A prompt without a token."""


class PromptTooLong(UsageError):
    """A prompt that leaves no room in the context for a single generated token."""


def check_ids(ids: Sequence[int], n_vocab: int) -> None:
    """Raise `EmptyPrompt` for no ids, `TokenOutOfRange` for one outside the vocabulary."""
    if not ids:
        raise EmptyPrompt("there are no tokens; at least one is needed")
    for token in ids:
        if not 0 <= token < n_vocab:
            raise TokenOutOfRange(f"token id {show(token)} is outside the vocabulary of {n_vocab}")


def check_fits(ids: Sequence[int], n_ctx: int) -> None:
    """Raise `PromptTooLong` unless the context has room for the prompt and a token."""
    if len(ids) >= n_ctx:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens, the context holds {n_ctx} with the answer;"
            " shorten it or load with a larger context (n_ctx, -c)"
        )

"""Prompts as token ids: which ones an engine can take."""

from __future__ import annotations

from zinc_rt.errors import UsageError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.utils.checks import show, whole_numbers


class EmptyPrompt(UsageError):
    """A prompt without a token."""


class PromptTooLong(UsageError):
    """A prompt that leaves no room in the context for a single generated token."""


def known_tokens(
    tokens: object, n_vocab: int, name: str = "token ids", where: str = "", *, pictures: bool = False
) -> list[int]:
    """Ids that a vocabulary has. name: what the ids are called; where: what an error about one of them begins with.
    pictures: rows of pictures, which are below 0, are ids, too.

    Raises `UsageError` for what is no sequence of whole numbers, `TokenOutOfRange`.
    """
    ids = whole_numbers(name, tokens)
    wrong = next((token for token in ids if token >= n_vocab or (token < 0 and not pictures)), None)
    if wrong is not None:
        raise TokenOutOfRange(f"{where}token id {show(wrong)} is outside the vocabulary of {n_vocab}")
    return ids


def check_ids(tokens: object, n_vocab: int, *, pictures: bool = False) -> list[int]:
    """A prompt's ids as a list, at least one. Raises `EmptyPrompt`, and what `known_tokens` raises."""
    ids = known_tokens(tokens, n_vocab, pictures=pictures)
    if not ids:
        raise EmptyPrompt("there are no tokens; at least one is needed")
    return ids


def check_prompt(tokens: object, n_vocab: int, n_ctx: int, *, pictures: bool = False) -> list[int]:
    """A prompt's ids as a list, where the context has room for them and a token. Raises `PromptTooLong`, and what
    `check_ids` raises.
    """
    ids = check_ids(tokens, n_vocab, pictures=pictures)
    if len(ids) >= n_ctx:
        raise PromptTooLong(
            f"the prompt has {len(ids)} tokens, the context holds {n_ctx} with the answer;"
            " shorten it or load with a larger context (n_ctx, -c)"
        )
    return ids

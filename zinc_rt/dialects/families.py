"""The families, and which of them a model belongs to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from zinc_rt.dialects.record import Dialect

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer

PLAIN: Final = Dialect("plain")


def dialect_of(tokenizer: Tokenizer, template: str | None) -> Dialect:
    """The dialect of a model, from its vocabulary and the text of its chat template (None: it has none).

    A model whose template takes no tools makes no calls; `plain` has no reasoning either.
    """
    raise NotImplementedError

"""From `Speculation` to a drafter: what it needs of the model before that is loaded, and the drafter itself."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from zinc_rt.engine import Engine
from zinc_rt.checks import printable
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition, architecture_of, define_draft_head
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.speculation.draft_head import DraftHead
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.speculation.heads import HeadDrafter
from zinc_rt.speculation.ngram import NgramDrafter
from zinc_rt.speculation.options import SpecKind, Speculation

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer


def prepared(wish: Speculation, file: GGUFFile, definition: ModelDefinition) -> ModelDefinition:
    """The model as its drafter needs it: heads may want outputs beside the logits. Called before the engine loads it.

    Raises `UsageError` where the model has no heads, and heads are wanted.
    """
    if wish.kind is not SpecKind.mtp:
        return definition
    _head(file)
    return hidden_beside(definition)


def _head(file: GGUFFile) -> ModelDefinition:
    """The block of a model that drafts. Raises `UsageError` where there is none."""
    head = define_draft_head(file)
    if head is None:
        raise UsageError(
            f"spec is 'mtp', but {printable(file.path)} of architecture {architecture_of(file)!r} has no block that"
            " drafts (nextn) which could be used; use ngram, draft or off"
        )
    return head


def open_drafter(
    wish: Speculation,
    engine: Engine,
    file: GGUFFile,
    definition: ModelDefinition,
    tokenizer: Tokenizer,
    *,
    notify: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Drafter | None:
    """The drafter of an engine that has loaded its model; None where nothing is to be guessed.

    definition: what `prepared` returned. Raises what loading the draft model raises, and `UsageError` where its
    vocabulary is another one.
    """
    if wish.kind is SpecKind.off:
        return None
    if wish.kind is SpecKind.ngram:
        return NgramDrafter(wish.draft_max, wish.draft_min)
    if wish.kind is SpecKind.mtp:
        head = DraftHead(engine, file, _head(file), wish.draft_max)
        if notify is not None:
            notify(f"drafts: a block of the model itself; {head.plan.summary}")
        return HeadDrafter(head, wish.draft_min)
    raise UsageError(f"spec is {wish.kind.value!r}, which this model has nothing for; use ngram, draft or off")

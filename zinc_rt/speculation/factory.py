"""Makes a drafter from `DraftOptions`: first the parts that it needs of the model before loading, then the drafter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from zinc_rt.engine.engine import Engine
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.hidden import ends_hidden
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.speculation.ngram import NgramDrafter
from zinc_rt.speculation.options import DraftOptions, SpecKind

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer


def prepared(wish: DraftOptions, file: GGUFFile, definition: ModelDefinition) -> ModelDefinition:
    """The model as its drafter needs it: heads may want outputs beside the logits. Called before the engine loads it.

    Raises `UsageError` where the model has no heads and heads are wanted, and what is wrong with a draft model's file.
    """
    if wish.kind is SpecKind.draft:
        with _draft_file(wish) as draft:
            _definition(draft)
    if wish.kind is not SpecKind.mtp:
        return definition
    from zinc_rt.speculation.heads import with_hidden

    return with_hidden(file, definition, wish.draft_model)


def _draft_file(wish: DraftOptions) -> GGUFFile:
    assert wish.draft_model is not None
    return GGUFFile.open(str(wish.draft_model))


def _definition(file: GGUFFile) -> ModelDefinition:
    """A draft model's. Raises `ModelError`, `UsageError`."""
    definition = define(file)
    if ends_hidden(definition.graph):
        raise UsageError(f"{file.path} embeds texts and cannot draft any; give a model that generates")
    return definition


def open_drafter(
    wish: DraftOptions,
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
    if engine.plan is not None and engine.plan.streamed:
        raise UsageError(
            f"spec is {wish.kind.value!r}, but the model is larger than --memory and leaves no room for weights that"
            " draft; use ngram or off, or allow more memory"
        )
    if wish.kind is SpecKind.mtp:
        from zinc_rt.speculation.heads import open_head, open_other

        if wish.draft_model is not None:
            return open_other(engine, file, definition.info, wish.draft_model, wish.draft_max, wish.draft_min, notify)
        return open_head(engine, file, wish.draft_max, wish.draft_min, notify)
    if wish.kind is SpecKind.draft:
        return _open_model(wish, engine, tokenizer, notify, progress)
    raise UsageError(f"spec is {wish.kind.value!r}, which this model has nothing for; use ngram, draft or off")


def _open_model(
    wish: DraftOptions,
    engine: Engine,
    tokenizer: Tokenizer,
    notify: Callable[[str], None] | None,
    progress: Callable[[int, int], None] | None,
) -> Drafter:
    from zinc_rt.speculation.draft_model import ModelDrafter, check_vocabulary
    from zinc_rt.text import Tokenizer

    assert engine.sizes is not None
    sizes, own = engine.sizes, None
    file = _draft_file(wish)
    try:
        definition = _definition(file)
        theirs = Tokenizer.from_metadata(file.metadata)
        check_vocabulary(theirs, tokenizer)
        options = replace(
            engine.options,
            n_ctx=min(sizes.n_ctx, definition.info.n_ctx_train),
            n_batch=sizes.n_rows,
            fast_n_batch=None,
            n_logits=sizes.n_slots,
            n_slots=sizes.n_slots,
            kv_tokens=sizes.n_pages * PAGE_TOKENS,
            kv_memory=None,
            drafts=False,
        )
        own = Engine(options, notify=notify, progress=progress, shares_device_of=engine)
        own.load(file, definition)
        n_vocab = min(tokenizer.n_vocab, theirs.n_vocab)
        return ModelDrafter(own, file, n_vocab, wish.draft_max, wish.draft_min)
    except BaseException:
        if own is not None:
            own.close()
        file.close()
        raise

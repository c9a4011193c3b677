"""`load`: from a GGUF file to a `Model` that is ready to run."""

from __future__ import annotations

import dataclasses
import importlib
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, Unpack

from zinc_rt.backends.devices import device_from_env, parse_device
from zinc_rt.backends.select import Kernels
from zinc_rt.engine.engine import Engine, Options
from zinc_rt.engine.options import LARGE_BATCH, CacheOptions, DeviceOptions, context_of
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.metadata import Metadata
from zinc_rt.hub.resolve import AUTO, model_path, projectors_beside
from zinc_rt.lang.target import host_targets
from zinc_rt.llm.adapters import Lora, adapter_slots
from zinc_rt.llm.embedding import Pooling, embedding_options, parse_pooling, pooling_of
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.hidden import ends_hidden, hidden_states
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.speculation.factory import open_drafter, prepared
from zinc_rt.speculation.options import DraftOptions, SpecKind, refuse_embedding
from zinc_rt.utils.aside import Aside
from zinc_rt.utils.checks import function_or_none, path_text, show, true_or_false
from zinc_rt.utils.notices import Waiting

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model
    from zinc_rt.models.towers.tower import Tower
    from zinc_rt.text import Tokenizer
    from zinc_rt.vision.projector import Projector

BUILT_IN = "zinc-story.gguf"
_N_SLOTS = 8


def built_in_model() -> Path:
    """The model file inside the package."""
    return Path(__file__).parents[1] / "data" / BUILT_IN


class LoadOptions(TypedDict, total=False):
    """Keyword arguments of `load`: the three records of options, each field of theirs by name, and more."""

    where: DeviceOptions
    cache: CacheOptions
    drafts: DraftOptions
    embeddings: bool | None
    pooling: str | None
    mmproj: str | Path | None
    lora: Lora
    lora_slots: int | None
    max_lora_rank: int | None
    notify: Callable[[str], None] | None
    progress: Callable[[int, int], None] | None
    planned: Callable[[MemoryPlan, bool], None] | None
    tier: str | None

    device: str | None
    threads: int | None
    kernels: str | None
    isa: str | None
    cache_dir: str | Path | None
    gpu: str | None
    resident: str | None
    memory: int | None

    n_ctx: int | None
    n_batch: int | None
    n_slots: int | None
    kv: str | None
    kv_tokens: int | None
    kv_memory: int | None
    state_memory: int | None

    spec: str | None
    draft_model: str | Path | None
    draft_max: int | None
    draft_min: int | None


def load(path: str | Path | None = None, **given: Unpack[LoadOptions]) -> Model:
    """Open a GGUF file, plan and check memory, and lower it onto a device.

    Args:
        path: the file, or a downloaded model by its name ("qwen3-0.6b", `zinc_rt.pull`); None for the model inside the
            package.
        where: `DeviceOptions`: where the model runs, and by which code.
        cache: `CacheOptions`: the length of texts, the number of texts computed at once, and the memory of the KV
            cache.
        drafts: `DraftOptions`: who guesses the next tokens.
        device, threads, kernels, isa, cache_dir, gpu, resident, memory: fields of `where` by name, in place of those
            of the record; None leaves what that says.
        n_ctx, n_batch, n_slots, kv, kv_tokens, kv_memory, state_memory: the same of `cache`.
        spec, draft_model, draft_max, draft_min: the same of `drafts`.
        embeddings: load to `embed` texts, not to generate (None: where the file is an embedding model). A file that
            ranks is loaded to `rerank`, and takes None alone.
        pooling: "mean", "cls" or "last", how a text's rows become its vector (None: the file's, else "last").
        mmproj: the file of the model's projector, with which it reads pictures; "auto" for the one beside the model's
            file, where there is one that fits.
        lora: adapters: a file, a file and its scale, a list of these; or files by name. Those without a name of the
            caller's are for all texts; `Model.with_adapter` chooses others.
        lora_slots: room for so many more, for `Model.load_adapter`.
        max_lora_rank: of an adapter that is loaded later (None: as those of `lora`, at least 16).
        notify: gets lines worth showing (None: the logger "zinc_rt" of `logging` does, at level INFO).
        progress: gets the bytes of weights loaded so far, and in all.
        planned: see `Engine`.
        tier: the older name of `device`.

    Returns:
        The model, which holds memory and the file until it is closed.

    Raises:
        HubError, UnknownModel: a name of a model that is not here, or none.
        GGUFError: the file cannot be read; `FileChanged` where it was written to meanwhile.
        ModelError, TokenizerError: what is in it cannot be run.
        MemoryPlanError: it does not fit.
        UsageError: an argument is wrong, or its name is unknown.
        DeviceUnavailable: the device cannot be used, with the reason.
        LangError: the kernels could not be compiled.
    """
    if unknown := sorted(given.keys() - LoadOptions.__annotations__.keys()):
        raise UsageError(f"load has no {', '.join(unknown)}; known: {', '.join(LoadOptions.__annotations__)}")
    notify, progress, planned = given.get("notify"), given.get("progress"), given.get("planned")
    embeddings, pooling, mmproj = given.get("embeddings"), given.get("pooling"), given.get("mmproj")
    function_or_none("notify", notify)
    function_or_none("progress", progress)
    function_or_none("planned", planned)
    where, cache = _record("where", DeviceOptions, given), _record("cache", CacheOptions, given)
    if (tier := given.get("tier")) is not None:
        if where.device is not None:
            raise UsageError(f"device is {where.device!r} and tier is {tier!r}; give device only")
        where = replace(where, device=tier)
    wish = _record("drafts", DraftOptions, given)
    if wish.draft_model is not None:
        wish = replace(wish, draft_model=model_path(str(wish.draft_model)))
    notify = _log if notify is None else notify
    path = built_in_model() if path is None else model_path(path_text("path", path))
    if mmproj is not None:
        mmproj = path_text("mmproj", mmproj)
    wanted = None if pooling is None else parse_pooling(pooling)
    if embeddings is not None:
        true_or_false("embeddings", embeddings)
    options = _engine_options(where, cache, wish, notify)
    # What is needed after the weights is made and imported while they are loaded, which needs no interpreter: it
    # starts when that does. Do not start earlier: it would compete with the load for the interpreter.
    reading: Aside[Tokenizer] = Aside("zinc-tokenizer")
    file: GGUFFile | None = None

    def loading(done: int, total: int) -> None:
        reading.start()
        if file is not None:
            file.check_unwritten()
        if progress is not None:
            progress(done, total)

    engine: Engine | None = None
    drafter: Drafter | None = None
    projector: Projector | None = None
    shown: GGUFFile | None = None
    try:
        file = GGUFFile.open(path)  # a file that cannot be used is told before anything is said of devices
        definition = define(file)
        _refuse_tokenizer(file.metadata)
        found = pooling_of(file, definition)
        if definition.ranking is not None and (embeddings is not None or wanted is not None):
            asked = "generates none" if embeddings is False else "has no vectors to pool" if wanted else "embeds none"
            raise UsageError(f"{file.path} ranks texts and {asked}; use `zinc rerank`, or Model.rerank")
        if embeddings is False and ends_hidden(definition.graph):
            raise UsageError(
                f"architecture {definition.info.architecture!r} embeds texts and cannot generate any; use `zinc embed`,"
                " or Model.embed without embeddings=False"
            )
        if embeddings or (embeddings is None and (found is not None or ends_hidden(definition.graph))):
            definition = hidden_states(definition)
            refuse_embedding(wish)
            options, wanted = embedding_options(options, definition, cache.n_batch), wanted or found or Pooling.LAST
        elif wanted is not None:
            raise UsageError(f"pooling is {pooling!r}, but the model is loaded to generate; add embeddings=True")
        elif cache.n_slots is None and cache.kv_tokens is None and cache.kv_memory is None:
            options = shared_slots(options, definition)
        if mmproj is not None and not ends_hidden(definition.graph):
            reads = open_projector(mmproj, str(path), file, definition, notify)
            if reads is not None:
                shown, tower, definition = reads
        definition = prepared(wish, file, definition)
        adapters = adapter_slots(definition, file, given)
        if adapters is not None:
            definition = adapters.definition
        engine = Engine(options, notify=notify, progress=loading, planned=planned)
        reading.work = partial(_tokenizer, file.metadata)
        try:
            engine.load(file, definition)
        finally:
            reading.join()
        tokenizer = reading.result()
        if adapters is not None:
            adapters.write = engine.write_constant
        if tokenizer.n_vocab > definition.info.n_vocab:
            from zinc_rt.text import TokenizerError

            raise TokenizerError(
                f"the tokenizer has {tokenizer.n_vocab} tokens,"
                f" the model's embedding only {definition.info.n_vocab} rows"
            )
        drafter = open_drafter(wish, engine, file, definition, tokenizer, notify=notify, progress=progress)
        if shown is not None:
            from zinc_rt.vision.projector import Projector

            projector = Projector(shown, tower, engine.backend)
        file.metadata.forget()  # the decoded vocabulary: the tokenizer has its own
        file.check_unchanged()
        from zinc_rt.llm.model import Model

        return Model(file, definition, tokenizer, engine, notify, wanted, drafter, projector, adapters)
    except BaseException:
        with suppress(ZincError):  # the first error is the one to tell
            if projector is not None:
                projector.close()
            if drafter is not None:
                drafter.close()
            if engine is not None:
                engine.close()
        for opened in (file, shown):
            if opened is not None:
                opened.close()
        raise


Record = TypeVar("Record", DeviceOptions, CacheOptions, DraftOptions)


def _record(name: str, kind: type[Record], given: Mapping[str, object]) -> Record:
    """The record of a name, with the fields that are given by their own names in place of its. Raises `UsageError`."""
    record = given.get(name, kind())
    if not isinstance(record, kind):
        raise UsageError(f"{name} is {show(record)}, it must be a {kind.__name__}")
    named: dict[str, Any] = {f.name: given[f.name] for f in dataclasses.fields(kind) if given.get(f.name) is not None}
    return replace(record, **named)


def _engine_options(
    where: DeviceOptions, cache: CacheOptions, drafts: DraftOptions, notify: Callable[[str], None]
) -> Options:
    """What the records say, with the engine's own defaults where they leave it open. Raises `UsageError`."""
    choice = device_from_env() if where.device is None else parse_device(where.device)
    said: dict[str, Any] = {
        f.name: value
        for record, kind in ((where, DeviceOptions), (cache, CacheOptions))
        for f in dataclasses.fields(kind)
        if (value := getattr(record, f.name)) is not None
    }
    said |= {"device": choice.device, "card": choice.card, "kernels": where.kernels or _kernels(where.isa, notify)}
    if cache.n_batch is None:
        said["fast_n_batch"] = LARGE_BATCH
    return Options(**said, n_logits=Options.n_batch, drafts=drafts.kind is not SpecKind.off)


def open_projector(
    mmproj: str, path: str, file: GGUFFile, definition: ModelDefinition, notify: Callable[[str], None]
) -> tuple[GGUFFile, Tower, ModelDefinition] | None:
    """A projector's file, its tower, and the model's definition with pictures; None where `AUTO` finds none that fits.

    Raises `GGUFError`, `ModelError`.
    """
    from zinc_rt.vision.projector import with_projector

    candidates = projectors_beside(path) if mmproj == AUTO else [Path(mmproj)]
    reasons: list[str] = []
    for candidate in candidates:
        shown: GGUFFile | None = None
        try:
            shown = GGUFFile.open(candidate)
            return shown, *with_projector(definition, file, shown)
        except BaseException as error:
            if shown is not None:
                shown.close()
            if mmproj != AUTO or not isinstance(error, ZincError):
                raise
            reasons.append(str(error))
    if reasons:
        notify(f"no pictures: {reasons[0]}")
    return None


def shared_slots(options: Options, definition: ModelDefinition) -> Options:
    """The options of an engine whose caller did not say how many texts there will be at once."""
    if any(state.sequence_bytes for state in definition.states):
        return options
    n_ctx = context_of(options.n_ctx, definition.info.n_ctx_train)
    return replace(options, n_slots=_N_SLOTS, kv_tokens=n_ctx)


def _refuse_tokenizer(metadata: Metadata) -> None:
    """Raise `TokenizerError` for a tokenizer that is not known here, before any weight is loaded."""
    from zinc_rt.text.kinds import read_kind

    read_kind(metadata)


def _tokenizer(metadata: Metadata) -> Tokenizer:
    # Here, while weights are loaded: it takes a while.
    importlib.import_module("zinc_rt.llm.model")
    from zinc_rt.text import Tokenizer, TokenizerError

    tokenizer = Tokenizer.from_metadata(metadata)
    with suppress(TokenizerError):  # the caller of `tokenize` gets the error
        tokenizer.encode(" a", add_special=False)  # a merge to look for
    return tokenizer


def _log(line: str) -> None:
    """To the logger of the package. At a terminal and in a notebook no log is shown, so the reason of a long wait is
    printed.
    """
    import logging

    logger = logging.getLogger("zinc_rt")
    logger.info(line)
    watched = "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())
    if isinstance(line, Waiting) and watched and not logger.isEnabledFor(logging.INFO):
        print(f"zinc_rt: {line}", file=sys.stderr, flush=True)


def _kernels(isa: str | None, notify: Callable[[str], None]) -> Kernels:
    """The kernels to run with if the caller names none: native kernels, unless no level fits this machine."""
    if isa is not None or host_targets():
        return "native"
    notify("no native kernels for this processor (`zinc check` says why); using the reference kernels")
    return "reference"

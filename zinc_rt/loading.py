"""`load`: from a GGUF file to a `Model` that is ready to run."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, cast

from zinc_rt.aside import Aside
from zinc_rt.backends.devices import Device, device_from_env, parse_device
from zinc_rt.backends.select import Kernels
from zinc_rt.checks import function_or_none, path_text, true_or_false
from zinc_rt.embedding import Pooling, embedding_options, parse_pooling, pooling_of
from zinc_rt.engine import DEFAULT_N_CTX, LARGE_BATCH, Engine, Options
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.metadata import Metadata
from zinc_rt.hub.resolve import model_path
from zinc_rt.lang.target import host_targets
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.cache_format import parse_cache_format
from zinc_rt.models.hidden import ends_hidden, hidden_states
from zinc_rt.speculation.drafter import Drafter
from zinc_rt.speculation.opening import open_drafter, prepared
from zinc_rt.speculation.options import SpecKind, refuse_embedding, speculation

if TYPE_CHECKING:
    from zinc_rt.backends.devices import ResidentUse
    from zinc_rt.model import Model
    from zinc_rt.text import Tokenizer

BUILT_IN = "zinc-story.gguf"
_N_SLOTS = 8


def built_in_model() -> Path:
    """The model file inside the package."""
    return Path(__file__).parent / "data" / BUILT_IN


def load(
    path: str | Path | None = None,
    *,
    device: str | None = None,
    n_ctx: int | None = None,
    n_batch: int | None = None,
    threads: int | None = None,
    kernels: str | None = None,
    isa: str | None = None,
    cache_dir: str | Path | None = None,
    notify: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    embeddings: bool | None = None,
    pooling: str | None = None,
    kv: str | None = None,
    n_slots: int | None = None,
    kv_tokens: int | None = None,
    kv_memory: int | None = None,
    gpu: str | None = None,
    resident: str | None = None,
    tier: str | None = None,
    spec: str | None = None,
    draft_model: str | Path | None = None,
    draft_max: int | None = None,
    draft_min: int | None = None,
) -> Model:
    """Open a GGUF file, plan and check memory, and lower it onto a device.

    Args:
        path: the file, or a downloaded model by its name ("qwen3-0.6b", `zinc_rt.pull`); None for the model inside the
            package.
        device: "cpu", "gpu", "gpu:kfd", "gpu:cs", "gpu:umq", "emu" or "auto", the best that works; a card may follow,
            as in "gpu@03:00.0" or "gpu:cs@renderD129". None follows ZINC_RT_TIER, else "auto".
        n_ctx: tokens of a prompt and its text (None: the model's own, at most 4096).
        n_batch: rows of a step with prompts (None: 512 with native kernels of a CPU and on a GPU, else 64).
        threads: None for the physical cores that this process may use, control-group limits included.
        kernels: "native" or "reference": the same bits, slowly; None is native where this machine has a level for it.
        isa: the native kernels' instruction-set level (None: the best that this machine runs).
        cache_dir: where compiled kernels are kept (None: the user's cache folder).
        notify: gets lines worth showing (None: the logger "zinc_rt" of `logging` does, at level INFO).
        progress: gets the bytes of weights loaded so far, and in all.
        embeddings: load to `embed` texts, not to generate (None: where the file is an embedding model).
        pooling: "mean", "cls" or "last", how a text's rows become its vector (None: the file's, else "last").
        kv: what the KV cache holds, "f16" or "q8_0", which takes half the memory (None: "f16").
        n_slots: texts computed at once, where more are asked for (None: 8 that share the memory of one context; 1 where
            each needs recurrent state of its own).
        kv_tokens: positions that all texts together may have (None: n_ctx for each).
        kv_memory: the same in bytes.
        gpu: with the device "emu", the card that is emulated (None: "r9700").
        resident: when a step on a GPU is one program, "auto", "always" or "never" (None: "auto", see docs/amd.md).
        tier: the older name of `device`.
        spec: who guesses the next tokens, which changes no text and may make it faster: "off", "ngram" (prompt and text
            so far), "draft" (a small model of the same vocabulary) or "mtp" (the model's own heads). None is "draft"
            with a draft model, else "off".
        draft_model: the draft model, as for path.
        draft_max: guesses at once at the most (None: 16).
        draft_min: guesses at once at the least (None: 0).

    Returns:
        The model, which holds memory and the file until it is closed.

    Raises:
        NotDownloaded, UnknownModel: a name of a model that is not here, or none.
        GGUFError: the file cannot be read; `FileChanged` where it was written to meanwhile.
        ModelError, TokenizerError: what is in it cannot be run.
        MemoryPlanError: it does not fit.
        UsageError: an argument is wrong.
        DeviceUnavailable: the device cannot be used, with the reason.
        LangError: the kernels could not be compiled.
    """
    function_or_none("notify", notify)
    draft = None if draft_model is None else model_path(path_text("draft_model", draft_model))
    wish = speculation(spec, draft, draft_max, draft_min)
    function_or_none("progress", progress)
    notify = _log if notify is None else notify
    path = built_in_model() if path is None else model_path(path_text("path", path))
    if device is not None and tier is not None:
        raise UsageError(f"device is {device!r} and tier is {tier!r}; give device only")
    named = device if device is not None else tier
    wanted = None if pooling is None else parse_pooling(pooling)
    if embeddings is not None:
        true_or_false("embeddings", embeddings)
    choice = device_from_env() if named is None else parse_device(named)
    options = Options(
        device=choice.device,
        card=choice.card,
        n_ctx=n_ctx,
        n_batch=Options.n_batch if n_batch is None else n_batch,
        n_logits=Options.n_batch,
        threads=threads,
        kernels=_kernels(isa, notify) if kernels is None else cast("Kernels", kernels),  # Options looks at all
        isa=isa,
        cache_dir=cast("Path | None", cache_dir),
        kv=Options.kv if kv is None else parse_cache_format(kv),
        n_slots=1 if n_slots is None else n_slots,
        kv_tokens=kv_tokens,
        kv_memory=kv_memory,
        gpu=gpu,
        drafts=wish.kind is not SpecKind.off,
        resident=Options.resident if resident is None else cast("ResidentUse", resident),  # open_backend looks at it
    )
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
    try:
        file = GGUFFile.open(path)  # a file that cannot be used is told before anything is said of devices
        definition = define(file)
        _refuse_tokenizer(file.metadata)
        found = pooling_of(file)
        if embeddings is False and ends_hidden(definition.graph):
            raise UsageError(
                f"architecture {definition.info.architecture!r} embeds texts and cannot generate any; use `zinc embed`,"
                " or Model.embed without embeddings=False"
            )
        if embeddings or (embeddings is None and (found is not None or ends_hidden(definition.graph))):
            definition = hidden_states(definition)
            refuse_embedding(wish)
            options, wanted = embedding_options(options, definition, n_batch), wanted or found or Pooling.LAST
        elif wanted is not None:
            raise UsageError(f"pooling is {pooling!r}, but the model is loaded to generate; add embeddings=True")
        elif n_slots is None and kv_tokens is None and kv_memory is None:
            options = shared_slots(options, definition)
        definition = prepared(wish, file, definition)
        engine = Engine(options, notify=notify, progress=loading)
        if n_batch is None and not ends_hidden(definition.graph) and _wants_many(engine):
            engine.options = replace(options, n_batch=LARGE_BATCH)
        reading.work = partial(_tokenizer, file.metadata)
        try:
            engine.load(file, definition)
        finally:
            reading.join()
        tokenizer = reading.result()
        if tokenizer.n_vocab > definition.info.n_vocab:
            from zinc_rt.text import TokenizerError

            raise TokenizerError(
                f"the tokenizer has {tokenizer.n_vocab} tokens,"
                f" the model's embedding only {definition.info.n_vocab} rows"
            )
        drafter = open_drafter(wish, engine, file, definition, tokenizer, notify=notify, progress=progress)
        file.metadata.forget()  # the decoded vocabulary: the tokenizer has its own
        file.check_unchanged()
        from zinc_rt.model import Model

        return Model(file, definition, tokenizer, engine, notify, wanted, drafter)
    except BaseException:
        with suppress(ZincError):  # the first error is the one to tell
            if drafter is not None:
                drafter.close()
            if engine is not None:
                engine.close()
        if file is not None:
            file.close()
        raise


def shared_slots(options: Options, definition: ModelDefinition) -> Options:
    """The options of an engine whose caller did not say how many texts there will be at once."""
    if any(state.sequence_bytes for state in definition.states):
        return options
    n_ctx = options.n_ctx or min(definition.info.n_ctx_train, DEFAULT_N_CTX)
    return replace(options, n_slots=_N_SLOTS, kv_tokens=n_ctx)


def _refuse_tokenizer(metadata: Metadata) -> None:
    """Raise `TokenizerError` for a tokenizer that is not known here, before any weight is loaded."""
    from zinc_rt.text.kinds import read_kind

    read_kind(metadata)


def _tokenizer(metadata: Metadata) -> Tokenizer:
    # Here, while weights are loaded: it takes a while.
    importlib.import_module("zinc_rt.model")
    from zinc_rt.text import Tokenizer, TokenizerError

    tokenizer = Tokenizer.from_metadata(metadata)
    with suppress(TokenizerError):  # the caller of `tokenize` gets the error
        tokenizer.encode(" a", add_special=False)  # a merge to look for
    return tokenizer


def _wants_many(engine: Engine) -> bool:
    """Whether prompts are fastest in large steps: not on what is slow anyway, which stops between them."""
    return engine.features.kernels == "native" or engine.device is Device.gpu


def _log(line: str) -> None:
    import logging

    logging.getLogger("zinc_rt").info(line)


def _kernels(isa: str | None, notify: Callable[[str], None]) -> Kernels:
    """What to run with where nobody said: native kernels, unless no level fits this machine."""
    if isa is not None or host_targets():
        return "native"
    notify("no native kernels for this processor (`zinc check` says why); using the reference kernels")
    return "reference"

"""`open_core`: from a model file to an `EngineCore`, as a server's engine is started."""

from __future__ import annotations

from typing import Unpack

import numpy as np

from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.gguf.errors import FileChanged
from zinc_rt.llm.load import LoadOptions, load
from zinc_rt.llm.model import Model
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Sampler
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.options import CoreOptions


def open_core(
    path: str | None = None,
    *,
    max_step_ms: float | None = None,
    stamps: list[list[int]] | None = None,
    **options: Unpack[LoadOptions],
) -> EngineCore:
    """Load a model and put a core on its engine; closing the core closes both.

    Args:
        path: the file; None for the model inside the package.
        max_step_ms: see `CoreOptions`; None for its default.
        stamps: `Model.stamps` of the files that are meant, None for any: the engine that is started in the place of
            one that ended must have the same weights.
        options: see `load`.

    Raises:
        UsageError: the model generates no text.
        FileChanged: another file is at the path, or it was written to.
        What `load` raises.
    """
    model = load(path, **options)
    try:
        if stamps is not None and model.stamps != stamps:
            changed = "is another file, or was written to, since the server was started"
            raise FileChanged(changed, path=model.file.path, hint="start the server again")
        _warm(model)
        core = model.make_core(CoreOptions() if max_step_ms is None else CoreOptions(max_step_ms=max_step_ms))
        model.grammar_vocabulary.prepare()
        return core
    except BaseException:
        model.close()
        raise


def _warm(model: Model) -> None:
    """Compute and choose a token, and the rows of a picture: no request then waits for a compiler, which would look
    like an engine that hangs.
    """
    if model.embedder is not None:
        return
    engine, token = model.engine, next(iter(model.tokenizer.stop_ids), 0)
    seq_id = engine.open_sequence(salt=None)
    sampler = Sampler(SamplingParams(temperature=1.0), model.tokenizer.n_vocab)
    engine.step([SequenceChunk(seq_id, 0, [token], logits_indices=[0])], [SamplingRequest(sampler, [token])]).token()
    engine.close_sequence(seq_id)
    if (projector := model.projector) is not None:  # one tile, since some towers make many of any picture
        work = projector.start(projector.tower.tiles(np.zeros((64, 64, 3), np.uint8))[:1])
        while not work.advance():
            pass

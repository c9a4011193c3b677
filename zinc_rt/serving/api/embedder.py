"""`EmbeddingClient`: a model that embeds or ranks, on a second thread; it takes no requests for text."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from zinc_rt.scheduler.messages import (
    CancelReason,
    EngineInfo,
    EngineStatus,
    Failed,
    Fault,
    LoadAdapter,
    TenantShare,
    UnloadAdapter,
)
from zinc_rt.scheduler.output import RequestOutput, T
from zinc_rt.serving.request_log import AdapterRefused, LiveRequest

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from zinc_rt.llm.model import Model


class EmbeddingClient:
    """An `EngineClient` whose engine embeds or ranks. load: opens the model; it runs on the engine's thread."""

    def __init__(self, load: Callable[[], Model]) -> None:
        self._load = load
        self._pool = ThreadPoolExecutor(1, "zinc-embed")
        self._model: Model | None = None
        self._running = self._steps = 0

    async def start(self) -> EngineInfo:
        """See `EngineClient`."""
        self._model = model = await asyncio.get_running_loop().run_in_executor(self._pool, self._load)
        options, sizes = model.engine.options, model.engine.sizes
        assert sizes is not None
        return EngineInfo(model.device.value, model.n_ctx, 1, sizes.n_rows, str(options.kv), options.kv_tokens or 0)

    @property
    def dimensions(self) -> int | None:
        """Elements of a vector, once the model is loaded; None for one that ranks."""
        if self._model is None or self._model.embedder is None or self._model.ranker is not None:
            return None
        return self._model.embedder.n_out

    async def embed(self, texts: Sequence[Sequence[int]], dimensions: int | None) -> npt.NDArray[np.float32]:
        """Vectors of texts, f32[n_texts, dimensions or all]. Raises what `Model.embed` raises."""
        return await self._run(lambda model: model.embed(list(texts), dimensions=dimensions))

    async def scores(self, pairs: Sequence[Sequence[int]]) -> npt.NDArray[np.float32]:
        """Scores of pairs, f32[n_pairs]. Raises what `Ranker.scores` raises."""

        def work(model: Model) -> npt.NDArray[np.float32]:
            assert model.ranker is not None
            return model.ranker.scores(pairs)

        return await self._run(work)

    async def _run(self, work: Callable[[Model], npt.NDArray[np.float32]]) -> npt.NDArray[np.float32]:
        model = self._model
        assert model is not None
        self._running += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._pool, work, model)
        finally:
            self._running -= 1
            self._steps += 1

    async def change_adapters(self, message: LoadAdapter | UnloadAdapter) -> None:
        """See `EngineClient`."""
        raise AdapterRefused("the model generates no text, and takes no adapters")

    def submit(self, output: RequestOutput[T]) -> LiveRequest[T]:
        """See `EngineClient`."""
        live = LiveRequest(output, 0.0, lambda _: None)
        message = "the model generates no text"
        live.take(Failed(output.request.id, Fault.wrong_kind_of_model, message))
        return live

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """See `EngineClient`. A call that embeds runs to its end."""

    def share(self, tenant: TenantShare) -> None:
        """See `EngineClient`. Calls are served in the order in which they come."""

    @property
    def status(self) -> EngineStatus:
        """See `EngineClient`."""
        queued = max(0, self._running - 1)
        return EngineStatus(queued=queued, prefilling=self._running - queued, n_slots=1, steps=self._steps)

    @property
    def restarts(self) -> int:
        """See `EngineClient`. A thread is not started anew."""
        return 0

    @property
    def healthy(self) -> str | None:
        """See `EngineClient`."""
        return None if self._model is not None else "loading"

    async def close(self) -> None:
        """See `EngineClient`."""
        self._pool.shutdown(wait=True, cancel_futures=True)
        if self._model is not None:
            self._model.close()
            self._model = None

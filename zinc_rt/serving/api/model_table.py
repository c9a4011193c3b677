"""`ModelTable`: the models that one server can have. A request names one, which is loaded then. It is unloaded when it
has been idle, or when another one needs its memory.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import Final

import msgspec

from zinc_rt.errors import ZincError
from zinc_rt.mem.plan import HEADROOM, format_bytes
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.fitting import FittedModel
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.requests import read_json
from zinc_rt.serving.api.served_model import ANY_NAME, fingerprint
from zinc_rt.serving.api.service import AskedModel, Naming, Service
from zinc_rt.serving.api.sse import comment
from zinc_rt.serving.background import Background
from zinc_rt.serving.wire import Planned

Admit = Callable[[Planned], Awaitable[None]]
OpenModel = Callable[[FittedModel, Admit, Metrics], Service]
"""Makes a model's service, which is not started; it gets what admits the plan, and the model's metrics."""

LATEST: Final = ":latest"
"""What Ollama's clients put behind names."""
_QUICK: Final = 1.0
"""Seconds that a load may take before a stream tells of it; then it tells as often again."""
_RETRY: Final = 10.0
_LOOK: Final = 1.0
"""Seconds from one look for idle models to the next at the most."""


@dataclass(eq=False, slots=True)
class HostedModel:
    """One model of a server, loaded or not.

    fitted: what its file and the command line say of it. service: None while it is not loaded. users: requests that
    have it, or wait for it. used: when the last one ended. idle: seconds after that until it is unloaded, infinite for
    never. taken: bytes of memory that its plan has; on_gpu: whether they are a GPU's.
    """

    fitted: FittedModel
    service: Service | None = None
    idle: float = math.inf
    loading: asyncio.Task[Service] | None = None
    users: int = 0
    used: float = 0.0
    taken: int = 0
    on_gpu: bool = False
    metrics: Metrics = field(default_factory=Metrics)

    @property
    def name(self) -> str:
        """The name that answers carry."""
        return self.fitted.names[0]

    @property
    def state(self) -> str:
        """In a word, as llama.cpp's server has it."""
        return "loaded" if self.service is not None else "loading" if self.loading is not None else "unloaded"


class ModelTable:
    """Belongs to the event loop's thread.

    Args:
        front: what answers requests that need no model.
        models: the first one serves requests that name none.
        open: makes their services, on another thread than the event loop's.
        budget: bytes of memory that the plans of all loaded models may have together, None for any; plans of a GPU's
            memory are compared with what is free there.
        idle: seconds without a request after which a model is unloaded, None for never; a request may say otherwise
            (`keep`).
    """

    def __init__(
        self,
        front: Service,
        models: Iterable[FittedModel],
        open: OpenModel,
        budget: int | None = None,
        idle: float | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.models = [HostedModel(model) for model in models]
        self._open, self._front, self._budget, self._clock = open, front, budget, clock
        self._idle = math.inf if idle is None else idle
        self._room = asyncio.Lock()  # held while models are unloaded: what they took is free when it is given back
        self._left_alone = asyncio.Event()  # a model has no requests any more
        self._reading = 0
        self._described: set[Service] = set()  # of models that are not loaded
        self._describing = asyncio.Lock()  # a tokenizer takes much memory
        front.table = self

    @property
    def loaded(self) -> list[Service]:
        """The services of models that are loaded."""
        return [model.service for model in self.models if model.service is not None]

    @property
    def names(self) -> list[str]:
        """Of the models, the one of each that answers carry."""
        return [model.name for model in self.models]

    @property
    def read_pictures(self) -> bool:
        """Whether one of the models reads pictures."""
        return any(model.fitted.pictures for model in self.models)

    @cached_property
    def fingerprint(self) -> str:
        """Changes with the weights of any model."""
        return fingerprint(*(model.fitted.file.path for model in self.models))

    def find(self, name: str | None) -> HostedModel:
        """The model of a name, or of an adapter's name; the first one for None. Raises `ApiError`."""
        if name is None:
            return self.models[0]
        if (found := self.known(name)) is not None:
            return found
        if ANY_NAME in self._front.config.alias:
            return self.models[0]
        known = ", ".join(self.names)
        said = f"the model {name[:80]!r} does not exist; this server has {known[:2000]}"
        raise ApiError(404, said, param="model", code="model_not_found")

    def known(self, name: str) -> HostedModel | None:
        """The model of a name, or of an adapter's name, also as Ollama's clients write them."""
        for model in self.models:
            if name in (*model.fitted.names, *model.fitted.adapters):
                return model
            if model.service is not None and model.service.model.adapters.find(name) is not None:
                return model
        return self.known(name.removesuffix(LATEST)) if name.endswith(LATEST) else None

    def lend(self, name: str) -> Service | None:
        """See `Service.lend`."""
        model = self.known(name)
        if model is None or model.service is None:
            return None
        model.users += 1
        return model.service

    async def enter(self, call: Call, streams: bool, naming: Naming | None, loads: bool = True) -> Service:
        """See `Service.of`. `leave` must follow. Reads the body, of so many requests at once as may wait."""
        if self._reading > self._front.tenants.limits.queue:
            raise ApiError(503, "too many requests arrive at once", code="server_busy", retry_after=1)
        self._reading += 1
        try:
            asked = await (naming or _named_in_body)(self._front, call)
        finally:
            self._reading -= 1
        name = asked.model if asked.model is not None else asked.name if call.path.startswith("/api/") else None
        model = self.find(name if isinstance(name, str) else None)
        call.facts["model"] = model.name
        if asked.unloads is True and model.state == "unloaded":
            return self._front
        if not loads and model.service is None:
            return await self._describe(model)
        model.users += 1
        began = self._clock()
        try:
            async with call.attended():
                service = await self._wait(model, call if streams and asked.stream is True else None)
        except BaseException:
            self._left(model)
            raise
        call.load_seconds = self._clock() - began
        return service

    async def _describe(self, model: HostedModel) -> Service:
        """The service of a model that is not loaded, which `leave` ends. Raises `ApiError`."""
        try:
            async with self._describing:
                service = await asyncio.to_thread(self._open, model.fitted, partial(self._admit, model), Metrics())
        except ZincError as error:
            raise _not_loaded(model, error) from None
        self._described.add(service)
        return service

    def leave(self, service: Service) -> None:
        """A request that `enter` let in is over."""
        for model in self.models:
            if model.service is service:
                self._left(model)
        if service in self._described:
            self._described.remove(service)
            self._front.background.task("described", service.end())

    def _left(self, model: HostedModel) -> None:
        model.users -= 1
        model.used = self._clock()
        if not model.users:
            self._left_alone.set()

    def keep(self, service: Service, seconds: float) -> None:
        """See `Service.keep`."""
        for model in self.models:
            if model.service is service:
                model.idle = seconds

    def seconds_left(self, model: HostedModel) -> float:
        """Until a loaded model is unloaded if no request comes, infinite for never."""
        return model.idle if model.users else model.used + model.idle - self._clock()

    async def load(self, name: str) -> HostedModel:
        """Load a model, if it is not loaded. Raises `ApiError`."""
        model = self.find(name)
        await self._wait(model, None)
        return model

    async def unload(self, name: str) -> HostedModel:
        """Unload a model, if it is loaded. Raises `ApiError` while it has requests."""
        model = self.find(name)
        async with self._room:
            if model.users or model.loading is not None:
                said = f"the model {model.name!r} has requests, or is being loaded; unload it when that is over"
                raise ApiError(409, said, code="model_busy", retry_after=_RETRY)
            await self._unload(model)
        return model

    async def _wait(self, model: HostedModel, streaming: Call | None) -> Service:
        """The model's service, loaded. streaming: a request whose stream tells of the load."""
        if model.service is not None:
            return model.service
        if (no := self._front.unready()) is not None:
            raise no
        if model.loading is None:
            model.loading = asyncio.create_task(self._load(model), name="zinc-load")
            model.loading.add_done_callback(partial(_loaded, model))
        task, limits = model.loading, self._front.tenants.limits
        while streaming is not None and not (await asyncio.wait({task}, timeout=_QUICK))[0]:
            await comment(streaming, limits, f"loading {model.name}")
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():
                raise
            raise ApiError(503, "the server ends", code="shutting_down", retry_after=5) from None

    async def _load(self, model: HostedModel) -> Service:
        """Start the model's engine. Raises `ApiError`."""
        async with self._room:
            pass  # its last engine may still end
        began = self._clock()
        opening = asyncio.create_task(
            asyncio.to_thread(self._open, model.fitted, partial(self._admit, model), model.metrics)
        )
        try:
            service = await asyncio.shield(opening)
            if service.embedder is not None:  # it is loaded in this process, which tells no plan
                await self._admit(model, Planned(model.fitted.file.size + HEADROOM, None, False))
            service.loaded(await service.client.start())
        except BaseException as error:
            model.taken = 0
            with suppress(Exception):  # `error`, where it did not open; a thread goes on where its task is cancelled
                await (await opening).end()
            if isinstance(error, ZincError) and not isinstance(error, ApiError):
                raise _not_loaded(model, error) from None
            raise
        tell(self._front.log, "loaded", model=model.name, bytes=model.taken, seconds=round(self._clock() - began, 3))
        service.draining = self._front.draining
        model.service, model.used, model.idle = service, self._clock(), self._idle
        return service

    async def _admit(self, model: HostedModel, plan: Planned) -> None:
        """Make room for a plan: unload models without requests, the least recently used first. Raises `ApiError`."""
        async with self._room:
            model.on_gpu, freed = plan.on_gpu, 0
            others = [one for one in self.models if one is not model and one.on_gpu == plan.on_gpu]
            while not self._fits(plan, others, freed):
                idle = [one for one in others if one.service is not None and not one.users]
                if not idle:
                    raise self._no_room(model, plan, sum(one.taken for one in others))
                victim = min(idle, key=lambda one: one.used)
                freed += victim.taken
                await self._unload(victim)
            model.taken = plan.total

    def _fits(self, plan: Planned, others: Sequence[HostedModel], freed: int) -> bool:
        """Whether there is room for a plan. others: models in the same memory. freed: bytes of those just unloaded."""
        # Those that still load have their room, but may not have touched it when the plan was made.
        loading = sum(one.taken for one in others if one.service is None) if plan.on_gpu else 0
        there = plan.available is None or plan.total + loading <= plan.available + freed
        fits = self._budget is None or plan.total + sum(one.taken for one in others) <= self._budget
        return there and (plan.on_gpu or fits)

    def _no_room(self, model: HostedModel, plan: Planned, others: int) -> ApiError:
        limit = plan.available if plan.on_gpu or self._budget is None else self._budget
        said = f"the model {model.name!r} needs {format_bytes(plan.total)}, of {format_bytes(limit or 0)}"
        if not others:
            return ApiError(503, f"{said}; start the server with a smaller -c or -np", code="no_room")
        said += f" the models with requests have {format_bytes(others)}; try again later"
        return ApiError(503, said, code="no_room", retry_after=_RETRY)

    async def _unload(self, model: HostedModel) -> None:
        """End a model's engine; `_room` must be held."""
        service, model.service = model.service, None
        if service is not None:
            await service.end()
            tell(self._front.log, "unloaded", model=model.name, bytes=model.taken)
        model.taken = 0

    def watch(self, background: Background) -> None:
        """Unload models that are idle, from now on."""
        background.task("idle-models", self._watch())

    async def _watch(self) -> None:
        while True:
            free = [model for model in self.models if model.service is not None and not model.users]
            soonest = min((self.seconds_left(model) for model in free), default=_LOOK)
            with suppress(TimeoutError):
                async with asyncio.timeout(min(max(soonest, 0.0), _LOOK)):
                    await self._left_alone.wait()
            self._left_alone.clear()
            async with self._room:
                for model in self.models:
                    if model.service is not None and not model.users and self.seconds_left(model) <= 0:
                        await self._unload(model)

    async def close(self) -> None:
        """End all engines."""
        loads = [model.loading for model in self.models if model.loading is not None]
        for task in loads:
            task.cancel()
        await asyncio.gather(*loads, return_exceptions=True)
        async with self._room:
            await asyncio.gather(*(self._unload(model) for model in self.models))


def table_of(service: Service) -> ModelTable | None:
    """The table of a server with several models, from its front; None where there is one model."""
    table = service.table
    assert table is None or isinstance(table, ModelTable)
    return table


def _loaded(model: HostedModel, task: asyncio.Task[Service]) -> None:
    model.loading = None
    if not task.cancelled():
        task.exception()  # told to who waits, if any


def _not_loaded(model: HostedModel, error: ZincError) -> ApiError:
    return ApiError(500, f"the model {model.name!r} cannot be loaded: {error}", code="model_not_loaded")


async def _named_in_body(front: Service, call: Call) -> AskedModel:
    """What a request's body says of its model, or else its query. Raises `ApiError` for a body that is no object."""
    if not (body := await call.body()):
        return AskedModel(call.query.get("model"))
    try:
        asked = msgspec.json.decode(body, type=AskedModel)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        known = {key: value for key, value in read_json(body).items() if key in AskedModel.__struct_fields__}
        asked = msgspec.convert(known, AskedModel)
    asked.unloads = None  # a client's own field of this name says nothing
    return asked

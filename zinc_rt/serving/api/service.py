"""`Service`: shared by all requests: the engine, the model, tenants, places, metrics, and the running requests."""

from __future__ import annotations

import dataclasses
import enum
import hmac
import logging
import math
import os
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

import msgspec

from zinc_rt.llm.ranking import NO_RANKER
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import EngineInfo, Grammar, Submit
from zinc_rt.serving.api.admission import AdmissionControl, Ticket
from zinc_rt.serving.api.call import Call
from zinc_rt.serving.api.choice import AnswerChoice
from zinc_rt.serving.api.config import DEFAULT_TENANT, ServerConfig, TenantConfigs
from zinc_rt.serving.api.embedder import EmbeddingClient
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.keys import ApiKeys, key_of
from zinc_rt.serving.api.limits import LargeBodies
from zinc_rt.serving.api.logs import tell
from zinc_rt.serving.api.metrics import Metrics
from zinc_rt.serving.api.recording import RequestRecorder, ServerRecords
from zinc_rt.serving.api.responses_store import ResponseStore
from zinc_rt.serving.api.served_adapters import LoraScale
from zinc_rt.serving.api.served_model import ServedModel
from zinc_rt.serving.api.usage import cached_tokens, prompt_tokens
from zinc_rt.serving.background import Background
from zinc_rt.serving.client import EngineClient
from zinc_rt.vision.shown import ShownPicture

_RECENT: Final = 1000
"""Requests that ended and can still be asked for."""
_BROKEN: Final = 256
"""Streams whose clients left and can still go on where they were."""
_STUCK: Final = 30.0
"""Seconds without a step, while requests run, after which the server calls itself unhealthy."""


class Gives(enum.Enum):
    """What requests can have of a model."""

    TEXT = "text"
    VECTORS = "vectors"
    SCORES = "scores"


_WRONG_KIND: Final = {
    Gives.TEXT: "generates text; start it with --embeddings to embed",
    Gives.VECTORS: "embeds texts and generates none",
    Gives.SCORES: "ranks texts and neither generates nor embeds any; ask /v1/rerank",
}
"""What is said of a model that is asked for something else, unless that is scores."""


class AskedModel(msgspec.Struct):
    """What a request says of its model, of types that are not checked yet. name: the model's older name at Ollama's
    paths. stream: whether it asks for one. unloads: it asks for nothing but that the model is not loaded.
    """

    model: Any = None
    name: Any = None
    stream: Any = None
    unloads: Any = None


Naming = Callable[["Service", Call], Awaitable[AskedModel]]
"""Finds which of several models a request asks for; gets the front. Raises `ApiError`."""


class HostedServices(Protocol):
    """What several services have in common: `ModelTable`."""

    @property
    def loaded(self) -> list[Service]: ...
    @property
    def names(self) -> list[str]: ...
    @property
    def read_pictures(self) -> bool: ...
    @property
    def fingerprint(self) -> str: ...
    def lend(self, name: str) -> Service | None: ...
    async def enter(self, call: Call, streams: bool, naming: Naming | None, loads: bool) -> Service: ...
    def leave(self, service: Service) -> None: ...
    def keep(self, service: Service, seconds: float) -> None: ...
    def watch(self, background: Background) -> None: ...
    async def close(self) -> None: ...


class SpanSender(Protocol):
    """What sends requests that are over as traces: `RequestTracer`, which is imported where it is asked for."""

    def add(self, service: Service, call: Call, outcome: str) -> str: ...
    def close(self) -> None: ...
    def tell_lost(self) -> None: ...


class Service:
    """One model for all requests. Belongs to the event loop's thread.

    front: where a server has several models, the service that answers what needs none; it has the `table` of the
    others, and neither a client nor a model. Requests, tenants' rates and what is kept of requests are shared with it.
    tracer: gets the requests that are over, None for no traces.
    """

    client: EngineClient
    model: ServedModel

    def __init__(
        self,
        config: ServerConfig,
        client: EngineClient | None,
        model: ServedModel | None,
        log: logging.Logger,
        tenants: TenantConfigs | None = None,
        keys: ApiKeys | None = None,
        recorder: RequestRecorder | None = None,
        metrics: Metrics | None = None,
        background: Background | None = None,
        front: Service | None = None,
        records: ServerRecords | None = None,
        tracer: SpanSender | None = None,
    ) -> None:
        """records: all that is kept; by default where `recorder` writes."""
        self.config, self.log, self.front = config, log, front
        self.table: HostedServices | None = None
        self.tenants = tenants or TenantConfigs()
        self.keys = keys
        self.recorder = recorder
        self.records = recorder.records if recorder is not None else records
        self.metrics = metrics or Metrics()
        self.background = background or Background(log)
        self.tracer = tracer
        if client is not None and model is not None:
            self.client, self.model = client, model
            self.metrics.status = lambda: client.status
            self.metrics.restarts = lambda: client.restarts
        self.admission: AdmissionControl = AdmissionControl(
            self.tenants, self.metrics.status, shares_rates_of=None if front is None else front.admission
        )
        self.running: dict[str, Call] = {}
        self.broken: OrderedDict[str, tuple[str, tuple[int, ...], int]] = OrderedDict()  # as `broken_off` has it
        self.recent: OrderedDict[str, dict[str, Any]] = OrderedDict()
        self.responses = ResponseStore()
        self.large = LargeBodies()
        self.embedder = client if isinstance(client, EmbeddingClient) else None
        self.loading: str | None = None  # why nothing can be answered yet
        self.draining = False
        self._secret = os.urandom(32)
        self._steps = -1
        self._stepped = time.monotonic()
        if front is not None:
            self.running, self.broken, self.recent = front.running, front.broken, front.recent
            self.responses, self.large, self.draining = front.responses, front.large, front.draining

    async def start(self) -> EngineInfo | None:
        """Load the model; None for the front of several, which are loaded when asked for. Raises `ZincError`."""
        if self.table is not None:
            self.loading = None
            self.table.watch(self.background)
            return None
        info = await self.client.start()
        self.loaded(info)
        return info

    async def of(self, call: Call, streams: bool, naming: Naming | None = None, loads: bool = True) -> Service:
        """The service of the model that a request names, loaded; this one where it is the only one. streams: whether
        the endpoint can answer with events, which then tell of a load. naming: how it names its model, None for the
        usual way; where it has nothing to do but to unload one that is not loaded, this is the front. loads: False
        where a service that is not started is enough, which knows what the model's file says. Raises `ApiError`,
        `ClientGone`.
        """
        service = self if self.table is None else await self.table.enter(call, streams, naming, loads)
        if service.table is None:
            call.model = service.model.fingerprint
        return service

    def lend(self, name: str) -> Service | None:
        """The service of a model by its name, None where it is not loaded; `left` must follow."""
        return self if self.table is None else self.table.lend(name)

    def left(self) -> None:
        """What `of` or `lend` gave this service for is over."""
        if self.front is not None and self.front.table is not None:
            self.front.table.leave(self)

    def keep(self, seconds: float) -> None:
        """Have one of several models unloaded when it has had no request for so many seconds, infinite for never."""
        if self.front is not None and self.front.table is not None:
            self.front.table.keep(self, seconds)

    def drain(self) -> None:
        """Take no new requests, of any model."""
        for service in {self, *self.engines}:
            service.draining = True

    @property
    def engines(self) -> list[Service]:
        """The services with an engine: those of all models that are loaded."""
        return [self] if self.table is None else self.table.loaded

    @property
    def reads_pictures(self) -> bool:
        """Whether requests may have pictures."""
        return self.model.pictures is not None if self.table is None else self.table.read_pictures

    def loaded(self, info: EngineInfo) -> None:
        """The engine has its model: requests are answered from now on."""
        self.loading = None
        dimensions = self.embedder.dimensions if self.embedder is not None else None
        self.model = dataclasses.replace(self.model, n_ctx=info.n_ctx, dimensions=dimensions)
        if self.recorder is not None:
            self.recorder.loaded(info.kv)
        for name, tenant in self.tenants.named.items():
            self.client.share(tenant.share(name))

    async def close(self) -> None:
        """End all engines, close the models' files, write records that wait, and end what runs beside requests."""
        await (self.end() if self.table is None else self.table.close())
        if self.records is not None:
            await self.records.close()
        if self.tracer is not None:
            self.background.thread("traces", self.tracer.close)
        await self.background.close()
        if self.tracer is not None:
            self.tracer.tell_lost()

    async def end(self) -> None:
        """End the engine and close the model's file."""
        await self.client.close()
        self.model.close()

    def replace(self, tenants: TenantConfigs, keys: ApiKeys | None) -> None:
        """Other tenants and keys from now on."""
        for service in {self, *self.engines}:
            service.tenants, service.keys = tenants, keys
            service.admission.replace(tenants)
        for service in self.engines:
            for name, tenant in tenants.named.items():
                service.client.share(tenant.share(name))

    def salt(self, tenant: str) -> bytes:
        """The salt that keeps a tenant's prefix cache apart from all others."""
        return hmac.digest(self._secret, tenant.encode(), "sha256")[:16]

    def submit_of(
        self,
        call: Call,
        index: int,
        prompt: tuple[int, ...],
        params: SamplingParams,
        seed: int,
        grammar: Grammar | None = None,
        echo: int | None = None,
        pictures: tuple[ShownPicture, ...] = (),
    ) -> Submit:
        """The request for one choice, within the limits of the tenant. index: of the choice."""
        return Submit(
            id=call.id if not index else f"{call.id}-{index}",
            prompt=prompt,
            params=params,
            seed=seed,
            tenant=call.tenant,
            qos=self.tenants.get(call.tenant).qos,
            salt=self.salt(call.tenant),
            grammar=grammar,
            echo=echo,
            pictures=pictures,
            adapters=call.adapters,
        )

    def choose(self, call: Call, name: str | None, lora: Sequence[LoraScale] | None = None) -> None:
        """Check the model that a request names, and note the adapters that it has. Raises `ApiError`."""
        self.model.check_name(name)
        call.adapters = self.model.adapters.chosen(name, lora)
        call.adapter_hashes = self.model.adapters.hashes(call.adapters)
        adapter = self.model.adapters.find(name)
        call.served = "" if adapter is None else adapter.name

    def name_of(self, call: Call) -> str:
        """The name of the model, or of the adapter, that a request chose, as its answer has it."""
        return call.served or self.model.name

    def step_age(self) -> float:
        """Seconds since the engine's number of steps, or its work on pictures, was last seen to grow."""
        steps = self.client.status.steps + self.client.status.encoded
        if steps != self._steps:
            self._steps, self._stepped = steps, time.monotonic()
        return time.monotonic() - self._stepped

    def unready(self) -> ApiError | None:
        """Why no request would be taken now, or None."""
        if self.draining:
            return ApiError(503, "the server ends; send the request elsewhere", code="shutting_down", retry_after=5)
        if self.loading is not None:
            return ApiError(503, "the model is being loaded", code="loading", retry_after=5)
        if self.table is not None:
            return None
        if (wrong := self.client.healthy) is not None:
            return ApiError(503, f"no request can be computed now: {wrong}", code="engine_unavailable", retry_after=5)
        return self.admission.why_full()

    def stuck(self) -> bool:
        """Whether requests are in the engine and no step has ended for long."""
        return self.client.status.n_requests > 0 and self.step_age() > _STUCK

    def broken_off(self, call: Call) -> tuple[tuple[int, ...], int]:
        """The tokens of a stream that a client left lately and now resumes, as far as they are known, and how many of
        them it gave itself.
        """
        tenant, tokens, given = self.broken.get(call.id, ("", (), 0))
        return (tokens, given) if tenant == call.tenant else ((), 0)

    def began(self, call: Call, choice: AnswerChoice) -> None:
        """The engine begins with a choice."""
        qos = self.tenants.get(call.tenant).qos
        self.metrics.queue.labels(qos).observe(choice.queue_seconds)
        if call.ticket is not None and all(a.begun for a in call.choices):
            self.admission.admitted(call.ticket)

    def timed(self, call: Call, choice: AnswerChoice) -> None:
        """A token of a choice has come."""
        now, qos = time.monotonic(), choice.request.qos
        if choice.first is None:
            choice.first = now
            self.metrics.ttft.labels(qos).observe(now - call.started)
        else:
            self.metrics.inter_token.observe(now - choice.last, qos)
        choice.last = now

    @property
    def gives(self) -> Gives:
        """What requests can have of the model."""
        if self.model.pairs is not None:
            return Gives.SCORES
        return Gives.TEXT if self.embedder is None else Gives.VECTORS

    def enter(self, call: Call, wanted: Gives | None = Gives.TEXT) -> Ticket:
        """Reserve a place for a request. wanted: what it asks for; None for nothing that the model computes.

        Raises `ApiError`.
        """
        if wanted is not None and wanted is not self.gives:
            said = NO_RANKER if wanted is Gives.SCORES else _WRONG_KIND[self.gives]
            raise ApiError(400, f"the model {said}", param="model", code="wrong_kind_of_model")
        if (no := self.unready()) is not None:
            raise no
        if not self.admission.inside:
            self._stepped = time.monotonic()  # it had nothing to do until now
        if (old := self.running.get(call.id)) is not None:  # the client noticed first that the connection is dead
            if old.tenant == call.tenant:
                old.leave()
            raise ApiError(409, f"{call.id} still runs; send the request again", code="still_running", retry_after=1)
        call.ticket = self.admission.enter(call.tenant)
        self.running[call.id] = call
        return call.ticket

    def ticket(self, call: Call) -> Ticket:
        """The place of a request that has entered."""
        assert call.ticket is not None
        return call.ticket

    def seconds(self, call: Call) -> float | None:
        """Seconds that a request may take: its header `X-Request-Timeout`, else its tenant's. Raises `ApiError`."""
        said = call.header("x-request-timeout")
        if not said:
            return self.tenants.get(call.tenant).seconds
        try:
            seconds = float(said)
        except ValueError:
            seconds = math.nan
        if not 0 < seconds < math.inf:
            raise invalid(f"X-Request-Timeout is {said[:20]!r}; it must be seconds, more than 0", "x-request-timeout")
        if self.admission.wait() > seconds:
            raise ApiError(503, f"the queue takes longer than {seconds:g} s", code="server_busy", retry_after=seconds)
        return seconds

    def max_tokens(self, call: Call, asked: int | None, param: str, default: int | None) -> int | None:
        """Tokens that an answer may have; None: as the context allows. default: where none are asked for.

        Raises `ApiError`.
        """
        limit = self.tenants.get(call.tenant).max_tokens
        if asked is not None and limit is not None and asked > limit:
            raise invalid(f"{param} is {asked}; this key allows {limit}", param)
        if asked is None:
            return default if limit is None else limit if default is None else min(limit, default)
        return asked

    def count(self, call: Call, prompts: Sequence[Sequence[int]], param: str) -> None:
        """Check the lengths of prompts and reserve room for them. Raises `ApiError`."""
        for prompt in prompts:
            self.model.check_fits(len(prompt), param, self.tenants.get(call.tenant).max_context)
        self.admission.count(self.ticket(call), sum(map(len, prompts)))

    def fitted(self, call: Call, params: SamplingParams, prompt: Sequence[int]) -> SamplingParams:
        """The parameters with no more tokens than the tenant's context has room for behind the prompt."""
        context = self.tenants.get(call.tenant).max_context
        if context is None or context >= self.model.n_ctx:
            return params
        room = context - len(prompt)
        return dataclasses.replace(
            params, max_tokens=room if params.max_tokens is None else min(room, params.max_tokens)
        )

    def tenant_of(self, call: Call) -> str:
        """The tenant whose key a request has. Raises `ApiError`."""
        if self.keys is None:
            return DEFAULT_TENANT
        return self.keys.tenant(key_of(call.header("authorization"), call.header("x-api-key")))

    def knows(self, call: Call) -> bool:
        """Whether a request has a key that is known; without keys every request counts so."""
        try:
            self.tenant_of(call)
        except ApiError:
            return False
        return True

    def is_admin(self, call: Call) -> bool:
        """Whether the request's key is an administrator's; without keys everyone is one."""
        return self.keys is None or self.tenants.get(call.tenant).admin

    def check_admin(self, call: Call) -> None:
        """Refuse all but administrators. Raises `ApiError`."""
        if not self.is_admin(call):
            raise ApiError(403, "this needs the key of an administrator (admin = true)", code="forbidden")

    def may_see(self, call: Call, tenant: str) -> bool:
        """Whether a request may read of requests of this tenant."""
        return call.tenant == tenant or self.is_admin(call)

    def note_prompt(self, call: Call, prompt: Any) -> None:
        """Put a prompt into the log, where its tenant allows that."""
        if self.tenants.get(call.tenant).may_log_prompts:
            call.facts["prompt"] = prompt

    @property
    def fingerprint(self) -> str:
        """`system_fingerprint`: what the bits of an answer depend on besides the request."""
        return f"zinc-{self.model.fingerprint}"

    def finished(self, call: Call) -> None:
        """Account for a request that is over, whatever its end."""
        used = [a.usage for a in call.choices if a.usage is not None]
        generated = sum(a.n_tokens - a.n_resumed for a in call.choices)
        engine_seconds = sum(u.engine_seconds for u in used)
        if call.ticket is not None:
            done = time.monotonic() - call.started if used else None
            self.admission.leave(call.ticket, generated, done)
        metrics, qos = self.metrics, self.tenants.get(call.tenant).qos
        outcome = call.outcome or "ok"
        if self.recorder is not None and call.choices:
            self.recorder.add(call, self.tenants.get(call.tenant).records, outcome)
        if call.choices:
            prompt, cached = prompt_tokens(call.choices), cached_tokens(call.choices)
            for kind, n in (("prompt", prompt), ("cached", cached), ("generated", generated)):
                metrics.tokens.labels(call.tenant, kind).inc(n)
            metrics.engine_seconds.labels(call.tenant).inc(engine_seconds)
            metrics.seconds.labels(qos).observe(time.monotonic() - call.started)
            for usage in used:
                metrics.prefill.labels(qos).observe(usage.prefill_seconds)
                metrics.decode.labels(qos).observe(usage.decode_seconds)
            metrics.lengths.labels("prompt").observe(prompt)
            for answer in call.choices:
                metrics.lengths.labels("generated").observe(answer.n_tokens - answer.n_resumed)
                metrics.answers.labels(answer.finish or "abort").inc()
            call.facts |= {"prompt_tokens": prompt, "cached_tokens": cached, "completion_tokens": generated}
            call.facts |= {"engine_seconds": round(engine_seconds, 6), "seed": call.choices[0].request.seed}
            if outcome in ("client_gone", "cancelled", "shutting_down", "deadline_exceeded"):
                metrics.cancelled.labels(outcome, call.phase).inc()
        elif call.status in (401, 403, 413, 429, 503):
            metrics.refused.labels(call.tenant, outcome).inc()
        metrics.requests.labels(call.tenant, call.endpoint, outcome).inc()
        if outcome == "client_gone" and len(call.choices) == 1:
            answer = call.choices[0]
            self.broken[call.id] = call.tenant, tuple(answer.tokens), min(answer.given, len(answer.tokens))
            while len(self.broken) > _BROKEN:
                self.broken.popitem(last=False)
        if self.tracer is not None and (trace_id := self.tracer.add(self, call, outcome)):
            call.facts["trace_id"] = trace_id
        self._remember(call, outcome)

    def _remember(self, call: Call, outcome: str) -> None:
        seconds = round(time.monotonic() - call.started, 6)
        line = {"id": call.id, "tenant": call.tenant, "endpoint": call.endpoint, "status": call.status}
        facts = {**line, "outcome": outcome, "seconds": seconds, **call.facts}
        if call.choices:
            self.recent[call.id] = facts
            while len(self.recent) > _RECENT:
                self.recent.popitem(last=False)
        tell(self.log, "request", **facts)

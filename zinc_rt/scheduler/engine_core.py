"""`EngineCore`: many requests on one engine, a turn of its loop at a time.

    core = EngineCore(engine, Vocabulary(n_vocab, stop_ids))
    core.submit(request)
    while not core.idle:
        report = core.turn()

A turn admits requests, plans one step, runs it, and reports what came of it. A row's bits depend on its own text alone,
so a request gets the same tokens whatever else runs, however often it was preempted, and wherever it was resumed.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from zinc_rt.engine.engine import Engine
from zinc_rt.engine.prompts import check_fits, check_ids
from zinc_rt.errors import IntegrityError, UsageError, ZincError
from zinc_rt.mem.kv_pages import pages_for
from zinc_rt.sampling.processors import Processors
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import NoToken, Sampled
from zinc_rt.scheduler.admission import Admission
from zinc_rt.scheduler.batch import BatchKind, RequestConfig, TenantId
from zinc_rt.scheduler.core_errors import DuplicateRequest, PromptNeverFits
from zinc_rt.scheduler.fair import FairScheduler
from zinc_rt.scheduler.integrity import check_held, check_place
from zinc_rt.scheduler.messages import (
    Admitted,
    CancelReason,
    EngineInfo,
    EngineStatus,
    Event,
    Finished,
    FinishReason,
    StepReport,
    Submit,
    TenantShare,
    Token,
    Usage,
)
from zinc_rt.scheduler.options import CoreOptions, Vocabulary
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.slots import Slots
from zinc_rt.scheduler.speculative import Drafting
from zinc_rt.scheduler.steps import Choice, Part, StepPlanner, charge, echoed, tokens_of
from zinc_rt.scheduler.tenants import Tenants
from zinc_rt.scheduler.timing import Timing
from zinc_rt.speculation.drafter import Drafter


class EngineCore:
    """Requests of one engine. Belongs to one thread; nothing else may step the engine's sequences meanwhile.

    Args:
        engine: with a model that generates. Its free sequences and KV pages are the core's from now on.
        vocabulary: of the model.
        options: of the loop; None for the defaults.
        clock: seconds, from any point.
        notify: gets lines worth showing.
        close: called by `close`.
        drafter: guesses tokens, which changes no text; None for no guesses.
        failed: gets the exceptions behind `Failed`, by the requests' ids.

    Raises:
        UsageError: the engine has no model, or one that generates no text.
    """

    def __init__(
        self,
        engine: Engine,
        vocabulary: Vocabulary,
        options: CoreOptions | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        notify: Callable[[str], None] | None = None,
        close: Callable[[], None] | None = None,
        drafter: Drafter | None = None,
        failed: Callable[[str, ZincError], None] = lambda *_: None,
    ) -> None:
        if (sizes := engine.sizes) is None:
            raise UsageError("the engine has no model; load one before requests are served")
        if not engine.generates:
            raise UsageError("the engine's model gives hidden states and generates no text; load one that generates")
        self.at_work: Callable[[tuple[str, ...]], None] = lambda ids: None
        """Called with requests without a token, before what one of them may end the process with."""
        self._clock, self._notify, self._close, self._failed = clock, notify, close, failed
        self._timing = Timing(clock)
        self._engine, self._vocabulary, self._sizes = engine, self._timing.watched(vocabulary), sizes
        self._scheduler = FairScheduler(sizes.n_slots, (options or CoreOptions()).max_tenants)
        self._tenants = Tenants(self._scheduler)
        self._slots = Slots(engine, sizes)
        self._planner = StepPlanner(self._scheduler, engine, sizes, options or CoreOptions())
        self._admission = Admission(self._scheduler, self._tenants, self._slots)
        self._drafting = Drafting(drafter, engine, sizes, self._slots, self._timing, clock)
        self._waiting = self._admission.waiting
        self._untouched: Iterator[None] | None = None
        self._live: dict[str, Request] = {}
        self._running: dict[int, Request] = {}  # by the scheduler's slot
        self._work: Counter[TenantId] = Counter()  # requests of each tenant that has some
        self._deadlines: dict[str, float] = {}
        self._broken: list[Request] = []  # of a step that did not come to its end
        self._events: list[Event] = []
        self._turns = self._steps = self._preemptions = self._arrivals = 0

    # -- what callers ask for

    @property
    def info(self) -> EngineInfo:
        """The engine behind it."""
        sizes, options = self._sizes, self._engine.options
        return EngineInfo(
            how=self._engine.how,
            n_ctx=sizes.n_ctx,
            n_slots=sizes.n_slots,
            n_batch=sizes.n_rows,
            kv=str(options.kv),
            kv_tokens=self._slots.n_tokens,
        )

    @property
    def idle(self) -> bool:
        """Whether a turn would have nothing to do."""
        return not self._live and not self._events

    def rest(self) -> bool:
        """Use a few milliseconds in which nothing is asked for: get memory that steps would wait for. Returns whether
        there is more of it.
        """
        if self._untouched is None:
            self._untouched = self._engine.touch_states()
        return next(self._untouched, True) is None

    def submit(self, request: Submit, processors: Processors = ()) -> None:
        """Queue a request. One that cannot be served, or whose processors raise, ends with `Failed` in a report."""
        now = self._clock()
        try:
            if request.id in self._live:
                raise DuplicateRequest(f"request {request.id} runs already; ids must be unique")
            if request.grammar is not None:
                self.at_work((request.id,))  # compiled by a library
            made = self._checked(request, now, processors)
        except ZincError as error:
            self._tell_failure(request.id, error)
            return
        self._live[request.id] = made
        if request.seconds is not None:
            self._deadlines[request.id] = now + request.seconds
        if not self._work[made.tenant]:
            self._scheduler.accounts.lift(made.tenant, [tenant for tenant, n in self._work.items() if n])
        self._work[made.tenant] += 1
        self._waiting.push(made.level, made.tenant, made)
        self._end_if_over(made)

    def _checked(self, request: Submit, now: float, processors: Processors) -> Request:
        check_ids(request.prompt, self._vocabulary.n_vocab)
        check_fits(request.prompt, self._sizes.n_ctx)
        if request.resume:
            check_ids(request.resume, self._vocabulary.n_vocab)
        tenant = self._tenants.id(request.tenant)
        pages, most = pages_for(len(request.prompt)), self._admission.most_pages(tenant)
        if pages > most:
            raise PromptNeverFits(
                f"the prompt of {len(request.prompt)} tokens needs {pages} KV pages, tenant {request.tenant} may have"
                f" {most} of {self._slots.n_pages}; shorten it, or serve with more KV memory"
            )
        self._arrivals += 1
        return Request.make(request, tenant, self._vocabulary, self._arrivals, now, processors)

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """End a request; `Finished` is in the next turn's report. Unknown ids are ignored."""
        request = self._live.get(request_id)
        if request is not None:
            self._finish(request, FinishReason.cancelled, cancelled=reason)

    def share(self, tenant: TenantShare) -> None:
        """How a tenant is served from now on. Raises `InvalidTenantLimits`, `TooManyTenants`."""
        self._tenants.share(tenant)

    def ledger(self) -> dict[str, float]:
        """Seconds of the engine that each tenant has had."""
        return {name: self._scheduler.accounts.seconds(tenant) for name, tenant in self._tenants.names().items()}

    def queue_depth(self, tenant: str) -> int:
        """How many requests of a tenant wait."""
        return self._waiting.depth(self._tenants.id(tenant))

    def collect(self) -> tuple[Event, ...]:
        """The events that are there without a turn, as after `cancel`. No report has them again."""
        events, self._events = tuple(self._events), []
        return events

    def cached_tokens(self, tokens: Sequence[int], salt: bytes = b"") -> int:
        """How many of a prompt's first tokens would not be computed, if it came now."""
        return self._slots.cached(tokens, salt)

    def borrow(self, tokens: Sequence[int], n_tokens: int) -> int:
        """A sequence for rows outside of requests, with room for `n_tokens` in all; requests are preempted for it.

        Returns its slot. It holds the tokens but for the last one as far as they are known: `Engine.length` says it.
        `give_back` it before the next turn. Raises `EngineError` for more tokens than the KV cache has room for.
        """
        pages = self._slots.pages_of(n_tokens)
        while (taken := self._slots.take(tokens, b"", pages)) is None:
            self._preempt(self._victim())
        return taken[0]

    def give_back(self, slot: int) -> None:
        """End what `borrow` began. What the sequence holds is kept for a text that begins alike."""
        self._slots.keep(slot, self._engine.length(slot), b"")

    def close(self) -> None:
        """End the engine behind it."""
        if self._close is not None:
            self._close()

    def check_integrity(self) -> None:
        """Raise an integrity error unless the books of requests, slots and pages add up."""
        self._scheduler.check_integrity()
        self._engine.check_integrity()
        for place, request in self._running.items():
            check_place(request, place, self._scheduler.slot(place), returns=self._engine.keeps_recurrent_state)
            if request not in self._broken:
                check_held(request, self._engine.length(request.slot))
        waiting = set(self._waiting)
        if len(waiting) + len(self._running) != len(self._live) or self._slots.n_running != len(self._running):
            raise IntegrityError(
                f"{len(self._live)} requests are known, {len(waiting)} wait and {len(self._running)} run"
            )

    # -- a turn

    def turn(self) -> StepReport:
        """Admit what there is room for, run one step, and say what came of it.

        Raises:
            IntegrityError: requests wait or run, and nothing could be done for any of them.
            BackendError: the device failed; the engine is lost, as a rule.
        """
        return self._report(*self._turn())

    def advance(self) -> tuple[Event, ...]:
        """A `turn` of whose report only the events are wanted. Raises what `turn` raises."""
        self._turn()
        self._timing.take(0.0)
        return self.collect()

    def _turn(self) -> tuple[list[Part], float, float]:
        before = (len(self._events), self._slots.given_back, len(self._live))
        self._turns += 1
        self._repair()
        self._expire(now := self._clock())
        self._admit(now)
        parts = self._plan()
        seconds, chosen = self._compute(parts) if parts else (0.0, 0.0)
        if before[2] and not parts and before == (len(self._events), self._slots.given_back, len(self._live)):
            raise IntegrityError(
                f"{len(self._waiting)} requests wait and {len(self._running)} run, but none can go on;"
                f" {self._engine.free_pages} of {self._slots.n_pages} KV pages are free"
            )
        return parts, seconds, chosen

    def _report(self, parts: list[Part], seconds: float, chosen: float) -> StepReport:
        prompts = sum(part.end - part.start for part in parts if part.kind is BatchKind.prefill)
        decode = sum(part.n_rows for part in parts if part.kind is BatchKind.decode)
        times = self._timing.take(chosen)
        return StepReport(self._turns, self.collect(), self.status, seconds, prompts, decode, times=times)

    @property
    def status(self) -> EngineStatus:
        """Counts of requests and KV pages now, and running totals."""
        cache, held = self._engine.cache_stats(), self._slots.held_pages()
        prefilling = sum(request.computed < request.admitted_tokens for request in self._running.values())
        return EngineStatus(
            queued=len(self._live) - len(self._running),
            prefilling=prefilling,
            decoding=len(self._running) - prefilling,
            n_slots=self._sizes.n_slots,
            pages_free=cache.free,
            pages_cached=cache.cached + cache.used - held,
            pages_used=held,
            steps=self._steps,
            preemptions=self._preemptions,
            prefix_hit_tokens=cache.hits,
            prefix_miss_tokens=cache.misses,
            drafted_tokens=self._drafting.drafted,
            accepted_tokens=self._drafting.accepted,
        )

    def _expire(self, now: float) -> None:
        for request_id in [key for key, at in self._deadlines.items() if at <= now]:
            self._finish(self._live[request_id], FinishReason.cancelled, cancelled=CancelReason.deadline)

    # -- admission

    def _admit(self, now: float) -> None:
        self._admission.begin()
        while any(self._admitted(request, now) for request in self._admission.candidates(self._running.values())):
            pass

    def _admitted(self, request: Request, now: float) -> bool:
        """Give a request that waits a sequence and pages; whether there were any."""
        if not self._has_sequence(request):
            return False
        taken = self._slots.take(request.known, request.submit.salt, self._slots.needed(len(request.tokens)))
        if taken is None:
            return False
        self._start(request, *taken, now)
        return True

    def _has_sequence(self, request: Request) -> bool:
        """Whether there is a sequence for a request that waits: a free one, or one that another request gives up."""
        if self._slots.n_running < self._slots.n_slots:
            return True
        chosen = self._admission.slot_victim(request, list(self._running.values()), self._work)
        if chosen is not None:
            self._preempt(chosen)
        return chosen is not None

    def _start(self, request: Request, slot: int, held: int, now: float) -> None:
        request.slot, request.computed, request.admitted_tokens = slot, held, len(request.tokens)
        request.queue_seconds += now - request.queued
        self._admission.admitted(request)
        self._place(request)
        if request.admitted is None:
            request.begun(now, held)
            self._events.append(Admitted(request.id, request.cached_tokens, request.queue_seconds))
        self._engine.checkpoint(slot)
        self._drafting.begin(request, held)

    def _place(self, request: Request) -> None:
        """Give the scheduler a request whose sequence holds the first of its tokens, not all."""
        config = RequestConfig(request.tenant, len(request.tokens), request.remaining)
        request.place = self._scheduler.place(config, request.level)
        self._running[request.place] = request
        if request.computed:
            self._scheduler.advance_prefill(request.place, request.computed)

    # -- a step

    def _plan(self) -> list[Part]:
        n_prompts = sum(request.computed < request.admitted_tokens for request in self._running.values())
        decode = [self._running[entry.slot_id] for entry in self._planner.decode(n_prompts)]
        for request in decode:
            if request.place >= 0:
                self._grow(request)
        parts = self._planner.decode_parts(request for request in decode if request.place >= 0)
        return self._drafting.add_to(parts + self._planner.prompts(parts, self._running))

    def _grow(self, request: Request) -> None:
        """See that a request has the page of its next row: others are preempted for it, or it for others."""
        pages = pages_for(len(request.tokens))
        while pages > self._slots.pages(request.slot) and not self._slots.grow(request.slot, pages):
            if len(self._running) == 1:
                self._finish(request, FinishReason.context, detail=f"all {self._slots.n_pages} KV pages are used")
                return
            chosen = self._victim()
            self._preempt(chosen)
            if chosen is request:
                return

    def _victim(self) -> Request:
        return self._admission.page_victim(list(self._running.values()), self._work)

    def _preempt(self, request: Request) -> None:
        """Take a request's sequence; it waits before all others of its tenant and class, with its tokens."""
        self._leave(request, keep=False)
        request.preemptions += 1
        self._preemptions += 1
        request.queued = self._clock()
        self._waiting.push(request.level, request.tenant, request, front=True)

    def _compute(self, parts: list[Part]) -> tuple[float, float]:
        """Run a step and take its tokens; returns its seconds, and those of choosing tokens among them."""
        started = self._clock()
        sampling: list[SamplingRequest] = []
        for part in [part for part in parts if part.wanted or part.echoes]:
            try:
                sampling += part.sampling(self._timing.sampling(part.request))
            except ZincError as error:  # of a grammar: the others go on
                self._fail(part.request, error)
                parts.remove(part)
        if not parts:
            return 0.0, 0.0
        self._broken = [part.request for part in parts]
        if fresh := tuple(part.request.id for part in parts if part.request.is_fresh):
            self.at_work(fresh)
        step = self._engine.step([part.rows() for part in parts], sampling)
        chosen = tokens_of(step, len(sampling))
        seconds = self._clock() - started
        charge(self._scheduler, parts, seconds)
        self._drafting.stepped(parts, seconds)
        rest = echoed(parts, step, list(zip(sampling, chosen, strict=True)), self._events)
        taken = self._drafting.settle(parts, rest)
        for part in parts:
            if part.kind is BatchKind.prefill:
                self._scheduler.advance_prefill(part.request.place, part.end - part.start)
            if part.checkpoint:
                self._engine.checkpoint(part.request.slot)
        self._broken = []
        self._steps += 1
        now = self._clock()
        for request, tokens in taken:
            self._take_all(request, tokens, now)
        return seconds, step.seconds

    def _take_all(self, request: Request, tokens: Sequence[Choice], now: float) -> None:
        for how, token in tokens:
            if isinstance(token, NoToken):
                self._fail(request, token)
            elif request.place >= 0:
                request.sampler.n_nan, request.sampler.step = how.sampler.n_nan, how.sampler.step
                self._take(request, token, now)

    def _take(self, request: Request, token: Sampled, now: float) -> None:
        """A request's next token was chosen."""
        request.took(now)
        if request.sampler.n_nan and not request.told_nan:
            self._tell_nan(request)
        if token.token_id in request.stop_ids:
            self._finish(request, FinishReason.stop, token_id=token.token_id)
            return
        if (refused := request.refusal(token.token_id)) is not None:
            self._fail(request, refused)
            return
        request.tokens.append(token.token_id)
        self._events.append(Token(request.id, token.token_id, token.logprob, token.top_logprobs))
        if not self._end_if_over(request):
            self._scheduler.record_decode_token(request.place)

    def _end_if_over(self, request: Request) -> bool:
        """End a request that may not have another token; whether it was so."""
        if request.matcher is not None and request.matcher.is_done:
            self._finish(request, FinishReason.stop)
        elif request.remaining <= 0:
            self._finish(request, FinishReason.length)
        elif len(request.tokens) > self._sizes.n_ctx:
            self._finish(request, FinishReason.context)
        else:
            return False
        return True

    def _tell_nan(self, request: Request) -> None:
        request.told_nan = True
        if self._notify is not None:
            self._notify(request.nan_line())

    def _repair(self) -> None:
        """After a step that broke off, go on with what its sequences still hold."""
        broken, self._broken = self._broken, []
        for request in broken:
            if request.place < 0:
                continue
            known = min(request.computed, len(request.tokens) - 1)
            request.computed = self._engine.truncate(request.slot, known)
            self._drafting.went_back(request)
            del self._running[request.place]
            self._scheduler.preempt(request.place)
            request.admitted_tokens = len(request.tokens)
            self._place(request)

    # -- the end of a request

    def _finish(self, request: Request, reason: FinishReason, **about: Any) -> None:  # fields of `Finished`
        self._forget(request)
        self._events.append(Finished(request.id, reason, request.usage(), **about))

    def _fail(self, request: Request, error: ZincError) -> None:
        self._forget(request, keep=False)
        self._tell_failure(request.id, error, request.usage())

    def _tell_failure(self, request_id: str, error: ZincError, usage: Usage | None = None) -> None:
        from zinc_rt.scheduler.faults import failed

        self._events.append(failed(request_id, error, usage))
        self._failed(request_id, error)

    def _forget(self, request: Request, *, keep: bool = True) -> None:
        del self._live[request.id]
        self._deadlines.pop(request.id, None)
        self._work[request.tenant] -= 1
        if request.place >= 0:
            self._leave(request, keep=keep)
        else:
            self._waiting.remove(request.level, request.tenant, request)

    def _leave(self, request: Request, *, keep: bool) -> None:
        """Free a request's sequence. keep: its text stays, for one that begins alike."""
        self._drafting.forget(request)
        self._scheduler.preempt(request.place)
        del self._running[request.place]
        if keep and request not in self._broken:
            self._slots.keep(request.slot, request.computed, request.submit.salt)
        else:
            self._slots.close(request.slot)
        request.slot = request.place = -1
        request.computed = 0

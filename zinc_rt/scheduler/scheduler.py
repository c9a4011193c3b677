"""`Scheduler`: decides which requests run and what the next step computes, and gives its tokens to the requests.

    batch = scheduler.schedule()
    tokens = engine.step(batch.chunks, batch.sampling)
    scheduler.postprocess(batch, tokens)

A request waits until there are a sequence and KV pages for it, then runs. `schedule` admits requests, preempts others
where it must, and makes a batch of prompts and of texts that decode. Fair shares among tenants and classes of service
matter only when there is too little for all requests.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from zinc_rt.adapters.slots import AdapterSlots
from zinc_rt.backends.base import Capacity
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.errors import IntegrityError, ZincError
from zinc_rt.numerics import pages_for
from zinc_rt.sampling.request import SampledStep, SamplingRequest
from zinc_rt.sampling.sampler import NoToken, Sampled
from zinc_rt.scheduler.admission import AdmissionOrder, WaitingQueue
from zinc_rt.scheduler.batch import Batch, BatchBuilder, ScheduledChunk, costs
from zinc_rt.scheduler.cost import CostModel
from zinc_rt.scheduler.messages import Admitted, CancelReason, Event, Finished, FinishReason, Token, Usage
from zinc_rt.scheduler.options import CoreOptions
from zinc_rt.scheduler.pictures import PictureEncoding
from zinc_rt.scheduler.preemption import excess, sequence_victim, victim
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.sequence_pool import SequencePool
from zinc_rt.scheduler.speculative import Speculation
from zinc_rt.scheduler.tenants import TenantAccounts
from zinc_rt.scheduler.timing import Timing
from zinc_rt.speculation.drafter import Drafter

_PICTURE_SHARE = 0.5
"""Of the time of a step: how long pictures are worked on before it, while texts decode."""
_LEARN_EVERY = 8
"""Steps of one text alone are alike: of so many, one teaches what its row costs."""


class Scheduler:
    """The requests of one engine. Belongs to one thread.

    Args:
        cache: the engine's; its free sequences and KV pages are the scheduler's from now on.
        sizes: of the engine.
        options: of the loop.
        timing: gets the seconds of grammars' masks.
        clock: seconds, from any point.
        notify: gets lines worth showing.
        drafter: drafts tokens, which changes no text; None for no drafts.
        failed: gets the exceptions behind `Failed`, by the requests' ids.
        encoding: makes rows of pictures; None for a model that reads none.

    Attributes:
        requests: all that wait or run, by id.
        waiting, running: the same, apart. Those that run are in the order of their admission.
        events: what happened, until somebody takes it.
        tenants: of the requests.
        pool: the engine's sequences.
        speculation: None without a drafter.
        steps, preemptions, encoded: how many there were; encoded: turns that worked on a picture.
    """

    def __init__(
        self,
        cache: KVCacheManager,
        sizes: Capacity,
        options: CoreOptions,
        timing: Timing,
        clock: Callable[[], float],
        notify: Callable[[str], None] | None,
        drafter: Drafter | None,
        failed: Callable[[str, ZincError], None],
        encoding: PictureEncoding | None = None,
        adapters: AdapterSlots | None = None,
    ) -> None:
        self._cache, self._clock, self._timing = cache, clock, timing
        self._notify, self._failed, self._options = notify, failed, options
        self._encoding, self._adapters = encoding, adapters
        self.requests: dict[str, Request] = {}
        self.waiting = WaitingQueue()
        self.running: list[Request] = []
        self.events: list[Event] = []
        self.tenants = TenantAccounts(options.max_tenants)
        self.pool = SequencePool(cache, sizes)
        self.speculation: Speculation | None = None
        if drafter is not None:
            self.speculation = Speculation(drafter, cache, sizes, self.pool, timing, clock)
        self.steps = self.preemptions = self.encoded = 0
        self._cost = CostModel()
        self._admission = AdmissionOrder(self.waiting, self.pool, self._cost)
        self._builder = BatchBuilder(self._cost, cache, sizes, options, self.pool.promised, self._grow, encoding)
        self._deadlines: dict[str, float] = {}
        self._unsettled: Sequence[ScheduledChunk] = ()  # of a step that has not come to its end

    def add(self, request: Request) -> None:
        """A new request waits from now on. One that may not have a token ends at once."""
        self.requests[request.id] = request
        if request.submit.seconds is not None:
            self._deadlines[request.id] = request.queued + request.submit.seconds
        self.tenants.begin_request(request.tenant)
        self.waiting.push(request)
        if (reason := request.end_reason()) is not None:
            self.finish(request, reason)

    # -- before a step

    def schedule(self) -> Batch:
        """What the next step computes; a batch without chunks where there is nothing.

        Raises `IntegrityError` where requests wait or run, and nothing could be done for any of them.
        """
        before = len(self.events), self.pool.given_back, len(self.requests)
        encodes = self._encoding is not None and self._encode(self._encoding)
        if self._unsettled:
            self._repair()
        if self._deadlines:
            self._expire()
        if len(self.running) < len(self.requests):
            self._admit()
        batch = Batch(self._clock())
        self.encoded += encodes
        for chunk in self._choose():
            request, first = chunk.request, None
            try:
                if chunk.end == len(request.tokens) or request.submit.echo is not None:
                    # The n-th token takes the n-th random number, also after a step that broke off.
                    request.sampler.step = len(request.tokens) - request.n_prompt
                    first = request.free if request.matcher is None else self._masked(request)
            except ZincError as error:  # of a grammar: the others go on
                self.fail(request, error)
            else:
                batch.add(chunk, first)
        self._unsettled = batch.chunks
        if (
            before[2]
            and not batch.chunks
            and not encodes
            and before == (len(self.events), self.pool.given_back, len(self.requests))
        ):
            raise IntegrityError(
                f"{len(self.waiting)} requests wait and {len(self.running)} run, but none can go on;"
                f" {self._cache.free_pages} of {self.pool.n_pages} KV pages are free"
            )
        return batch

    def _encode(self, encoding: PictureEncoding) -> bool:
        """Work on pictures between two steps: a while that texts which decode hardly notice; whether there were any."""
        decodes = any(request.computed >= request.admitted_tokens for request in self.running)
        ms = _PICTURE_SHARE * self._options.max_step_ms if decodes else self._options.max_prefill_ms
        return encoding.advance(self.running, ms / 1000, self.fail)

    def _choose(self) -> list[ScheduledChunk]:
        chunks = self._builder.decode(self.running)
        if len(chunks) < len(self.running):
            chunks += self._builder.prefill(chunks, self.running)
        if self.speculation is not None:
            self.speculation.add_drafts(chunks)
        return chunks

    def _masked(self, request: Request) -> SamplingRequest:
        """How to choose a request's next token by its grammar. Raises what a grammar raises."""
        with self._timing.masks():
            return request.masked()

    def _repair(self) -> None:
        """After a step that broke off, go on with what its sequences still hold."""
        chunks, self._unsettled = self._unsettled, ()
        for request in (chunk.request for chunk in chunks if chunk.request.seq_id >= 0):
            request.computed = self._cache.truncate(request.seq_id, min(request.computed, len(request.tokens) - 1))
            request.admitted_tokens = len(request.tokens)
            if self.speculation is not None:
                self.speculation.went_back(request)

    def _expire(self) -> None:
        now = self._clock()
        for request_id in [key for key, at in self._deadlines.items() if at <= now]:
            self.finish(self.requests[request_id], FinishReason.cancelled, cancelled=CancelReason.deadline)

    # -- admission and preemption

    def _admit(self) -> None:
        self._admission.begin()
        while any(self._admitted(request) for request in self._admission.candidates(self.running)):
            pass

    def _admitted(self, request: Request) -> bool:
        """Give a request that waits a sequence and pages; whether there were any."""
        if not self._has_sequence(request):
            return False
        taken = self.pool.take(request.known, request.salt, self.pool.needed(len(request.tokens)))
        if taken is None:
            return False
        seq_id, held = taken
        first = request.admitted is None
        request.admit(seq_id, held, self._clock())
        self._admission.admitted(request)
        self.running.append(request)
        if first:
            self.events.append(Admitted(request.id, request.cached_tokens, request.queue_seconds))
        self._cache.checkpoint(seq_id)
        if self.speculation is not None:
            self.speculation.begin(request, held)
        return True

    def _has_sequence(self, request: Request) -> bool:
        """Whether there is a sequence for a request that waits: a free one, or one that another request gives up."""
        if self.pool.n_running < self.pool.n_slots:
            return True
        working = self.tenants.working()
        a_weight = self.pool.n_slots / sum(tenant.weight for tenant in working)
        chosen = sequence_victim(request, self.running, {tenant: tenant.weight * a_weight for tenant in working})
        if chosen is not None:
            self.preempt(chosen)
        return chosen is not None

    def _grow(self, request: Request) -> None:
        """See that a request has the page of its next row: for it others may be preempted, or it may be preempted
        itself.
        """
        pages = pages_for(len(request.tokens))
        while not self.pool.grow(request.seq_id, pages):
            if len(self.running) == 1:
                self.finish(request, FinishReason.context)
                return
            chosen = self.page_victim()
            self.preempt(chosen)
            if chosen is request:
                return

    def page_victim(self) -> Request:
        """The request that gives up its KV pages where there are too few, of one or more."""
        if len(self.running) == 1:
            return self.running[0]
        return victim(self.running, excess(self._admission.pages_by_tenant(self.running), self.tenants.working()))

    def preempt(self, request: Request) -> None:
        """Take a request's sequence; it waits before all others of its tenant and class, with its tokens."""
        self._leave(request, keep=False)
        request.preemptions += 1
        self.preemptions += 1
        request.queued = self._clock()
        self.waiting.push(request, front=True)

    # -- after a step

    def postprocess(self, batch: Batch, sampled: SampledStep) -> None:
        """Take a step's tokens: charge for it, accept drafts, and make events of each token and of requests that end.

        sampled: what the engine gave of the batch.
        """
        tokens: Sequence[Sampled | NoToken] = ()
        try:
            if batch.sampling:
                tokens = sampled.tokens()
        except NoToken:
            tokens = [_token(sampled, row) for row in range(len(batch.sampling))]
        now = self._clock()
        batch.seconds, batch.sampling_seconds = now - batch.began, sampled.seconds
        self._charge(batch)
        if self.speculation is not None:
            self.speculation.stepped(batch)
        taken, at = [], 0
        for chunk in batch.chunks:
            request = chunk.request
            if request.submit.echo is not None and (n := len(chunk.echoes)):
                self.events.append(chunk.told(sampled.logits[at : at + n]))
                at += n
            end = at + chunk.n_draft + (chunk.end == len(request.tokens))
            own = end
            if chunk.n_draft and self.speculation is not None:
                own = at + self.speculation.accept(chunk, tokens[at:end])
            else:
                request.computed = chunk.end
            if chunk.checkpoint:
                self._cache.checkpoint(request.seq_id)
            taken.append((request, at, own))
            at = end
        self._unsettled = ()
        self.steps += 1
        for request, at, own in taken:
            for i in range(at, own):
                self._take(request, batch.sampling[i], tokens[i], now)

    def _charge(self, batch: Batch) -> None:
        """The step took its time: its tenants and requests are charged, and the cost of rows is learned."""
        chunks, ms = batch.chunks, 1000 * batch.seconds
        alone = len(chunks) == 1
        parts = () if alone else costs(chunks)
        shares = (1.0,) if alone else self._cost.shares(parts)
        for chunk, share in zip(chunks, shares, strict=True):
            request, tenant = chunk.request, chunk.request.tenant
            request.engine_ms += share * ms
            tenant.ms += share * ms
            tenant.service += share * ms / tenant.weight
        if not alone or chunks[0].prefill or self.steps % _LEARN_EVERY == 0:
            self._cost.learn(parts or costs(chunks), ms)

    def _take(self, request: Request, sampling: SamplingRequest, token: Sampled | NoToken, now: float) -> None:
        """A request's next token was chosen, or none could be."""
        if request.seq_id < 0:  # it ended with a token before
            return
        if isinstance(token, NoToken):
            self.fail(request, token)
            return
        sampler, token_id = request.sampler, token.token_id
        sampler.n_nan, sampler.step = sampling.sampler.n_nan, sampling.sampler.step
        request.last_token = now
        if request.first_token is None:
            request.begin_text(now)
        if sampler.n_nan and not request.told_nan:
            request.told_nan = True
            if self._notify is not None:
                self._notify(request.nan_line())
        if token_id in request.stop_ids:
            self.finish(request, FinishReason.stop, token_id=token_id)
            return
        if request.matcher is not None and (refused := request.refusal(token_id)) is not None:
            self.fail(request, refused)
            return
        request.tokens.append(token_id)
        if request.words is not request.tokens:  # which have rows of pictures
            request.words.append(token_id)
        self.events.append(Token(request.id, token_id, token.logprob, token.top_logprobs))
        ends = request.matcher is not None or len(request.tokens) >= request.longest
        if ends and (reason := request.end_reason()) is not None:
            self.finish(request, reason)

    # -- the end of a request

    def finish(self, request: Request, reason: FinishReason, **about: Any) -> None:  # fields of `Finished`
        """End a request that waits or runs."""
        self._forget(request)
        self.events.append(Finished(request.id, reason, request.usage(), **about))

    def fail(self, request: Request, error: ZincError) -> None:
        """End a request that cannot go on."""
        self._forget(request, keep=False)
        self.tell_failure(request.id, error, request.usage())

    def tell_failure(self, request_id: str, error: ZincError, usage: Usage | None = None) -> None:
        """Tell why a request cannot go on."""
        from zinc_rt.scheduler.faults import failed

        self.events.append(failed(request_id, error, usage))
        self._failed(request_id, error)

    def _forget(self, request: Request, *, keep: bool = True) -> None:
        del self.requests[request.id]
        self._deadlines.pop(request.id, None)
        request.tenant.n_requests -= 1
        if self._adapters is not None:
            self._adapters.release(request.adapters)
        if request.seq_id >= 0:
            self._leave(request, keep=keep)
        else:
            self.waiting.remove(request)

    def _leave(self, request: Request, *, keep: bool) -> None:
        """Free a request's sequence. keep: its text stays, for one that begins alike."""
        if self.speculation is not None:
            self.speculation.forget(request)
        self.running.remove(request)
        if keep and not any(chunk.request is request for chunk in self._unsettled):
            self.pool.keep(request.seq_id, request.computed, request.salt)
        else:
            self.pool.close(request.seq_id)
        request.seq_id = -1
        request.computed = 0

    def check_integrity(self) -> None:
        """Raise an integrity error unless requests, sequences and pages add up."""
        self._cache.check_integrity()
        unsettled = [chunk.request for chunk in self._unsettled]
        for request in self.running:
            held = self._cache.length(request.seq_id)
            if held != request.computed and request not in unsettled:
                raise IntegrityError(
                    f"request {request.id} has {request.computed} tokens computed, its sequence holds {held}"
                )
        waiting, running = set(self.waiting), set(self.running)
        if waiting & running or waiting | running != set(self.requests.values()):
            raise IntegrityError(f"{len(self.requests)} requests are known, {len(waiting)} wait and {len(running)} run")
        if {request.seq_id for request in running} != self.pool.promised.keys():
            raise IntegrityError(f"requests run on {len(running)} of {self.pool.n_running} sequences")
        for tenant in self.tenants.all():
            if tenant.n_requests != sum(request.tenant is tenant for request in self.requests.values()):
                raise IntegrityError(f"tenant {tenant.name} has not {tenant.n_requests} requests")


def _token(sampled: SampledStep, row: int) -> Sampled | NoToken:
    """The token of a step's wanted row, or why it has none."""
    try:
        return sampled.token(row)
    except NoToken as error:
        return error

"""`EngineCore`: many requests on one engine, a turn of its loop at a time.

    core = EngineCore(engine, CoreVocabulary(n_vocab, stop_ids))
    core.submit(request)
    while not core.idle:
        report = core.turn()

A turn schedules one step, runs it, and reports the result. A row's bits depend on its own text alone, so a request gets
the same tokens whatever else runs, however often it was preempted, and wherever it was resumed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from zinc_rt.adapters.slots import AdapterRequest, AdapterSlots, AdapterUse
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.prompts import check_ids, check_prompt
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.mem.disk import ReadFailed
from zinc_rt.numerics import pages_for
from zinc_rt.sampling.processors import Processors
from zinc_rt.scheduler.batch import Batch
from zinc_rt.scheduler.errors import DuplicateRequest, PicturesUnavailable, PromptNeverFits
from zinc_rt.scheduler.messages import (
    CancelReason,
    EngineInfo,
    EngineStatus,
    Event,
    FinishReason,
    StepReport,
    Submit,
    TenantShare,
)
from zinc_rt.scheduler.options import CoreOptions, CoreVocabulary
from zinc_rt.scheduler.pictures import PictureEncoding
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.scheduler import Scheduler
from zinc_rt.scheduler.timing import Timing
from zinc_rt.speculation.drafter import Drafter

if TYPE_CHECKING:
    from zinc_rt.vision.projector import Projector


class EngineCore:
    """Requests of one engine. Belongs to one thread; nothing else may step the engine's sequences meanwhile.

    Args:
        engine: with a model that generates. Its free sequences and KV pages are the core's from now on.
        vocabulary: of the model.
        options: of the loop; None for the defaults.
        clock: seconds, from any point.
        notify: gets lines worth showing.
        close: called by `close`.
        drafter: drafts tokens, which changes no text; None for no drafts.
        failed: gets the exceptions behind `Failed`, by the requests' ids.
        projector: makes rows of pictures; None where requests have none.
        adapters: that requests may name; None where the model was loaded without room for any.

    Attributes:
        scheduler: has the requests.
        at_work: called with the ids of requests without a token, before work in which one of them may end the process.

    Raises:
        UsageError: the engine has no model, or one that generates no text.
    """

    def __init__(
        self,
        engine: Engine,
        vocabulary: CoreVocabulary,
        options: CoreOptions | None = None,
        *,
        clock: Callable[[], float] = time.perf_counter,
        notify: Callable[[str], None] | None = None,
        close: Callable[[], None] | None = None,
        drafter: Drafter | None = None,
        failed: Callable[[str, ZincError], None] = lambda *_: None,
        projector: Projector | None = None,
        adapters: AdapterSlots | None = None,
    ) -> None:
        if (sizes := engine.sizes) is None:
            raise UsageError("the engine has no model; load one before requests are served")
        if not engine.generates:
            raise UsageError("the engine's model gives hidden states and generates no text; load one that generates")
        self.at_work: Callable[[tuple[str, ...]], None] = lambda ids: None
        self._engine, self._sizes, self._clock, self._close = engine, sizes, clock, close
        self._timing = Timing(clock)
        self._vocabulary = self._timing.watched(vocabulary)
        self._encoding: PictureEncoding | None = None
        if projector is not None and engine.cache.pictures is not None:
            self._encoding = PictureEncoding(projector, engine.cache.pictures)
        self.scheduler = Scheduler(
            engine.cache,
            sizes,
            options or CoreOptions(),
            self._timing,
            clock,
            notify,
            drafter,
            failed,
            self._encoding,
            adapters,
        )
        self._adapters = adapters
        self._untouched: Iterator[None] | None = None
        self._turns = self._arrivals = 0

    # -- what callers ask for

    @property
    def info(self) -> EngineInfo:
        """The engine behind it."""
        sizes, options = self._sizes, self._engine.options
        return EngineInfo(
            description=self._engine.description,
            n_ctx=sizes.n_ctx,
            n_slots=sizes.n_slots,
            n_batch=sizes.n_rows,
            kv=str(options.kv),
            kv_tokens=self.scheduler.pool.n_tokens,
        )

    @property
    def idle(self) -> bool:
        """Whether a turn would have nothing to do."""
        return not self.scheduler.requests and not self.scheduler.events

    def rest(self) -> bool:
        """Use a few milliseconds in which nothing is asked for: get memory that steps would wait for. Returns whether
        there is more of it.
        """
        if self._untouched is None:
            self._untouched = self._engine.touch_states()
        return next(self._untouched, True) is None

    def check_prompt(self, tokens: object, *, pictures: bool = False) -> list[int]:
        """A prompt's ids as a list, where `submit` takes them. pictures: rows of some are among them. Any thread may
        ask.

        Raises `EmptyPrompt`, `PromptTooLong`, `TokenOutOfRange`, and `UsageError` for what are no token ids.
        """
        return check_prompt(tokens, self._vocabulary.n_vocab, self._sizes.n_ctx, pictures=pictures)

    def submit(self, request: Submit, processors: Processors = ()) -> None:
        """Queue a request. If it cannot be served, or its processors raise, it ends with `Failed` in a report."""
        try:
            if request.id in self.scheduler.requests:
                raise DuplicateRequest(f"request {request.id} runs already; ids must be unique")
            if request.grammar is not None:
                self.at_work((request.id,))  # compiled by a library
            made = self._checked(request, processors)
        except ZincError as error:
            self.scheduler.tell_failure(request.id, error)
        else:
            self.scheduler.add(made)

    def _checked(self, request: Submit, processors: Processors) -> Request:
        now = self._clock()
        self.check_prompt(request.prompt, pictures=bool(request.pictures))
        if request.pictures:
            if self._encoding is None:
                raise PicturesUnavailable("the request has pictures, and this engine was opened without a projector")
            if request.echo is not None:
                raise UsageError("log-probabilities of a prompt with pictures are not computed; leave out echo")
            self._encoding.register(request.pictures)
        if request.resume:
            check_ids(request.resume, self._vocabulary.n_vocab)
        tenant = self.scheduler.tenants.get(request.tenant)
        pages, n_pages = pages_for(len(request.prompt)), self.scheduler.pool.n_pages
        if pages > (most := tenant.most_pages(n_pages)):
            raise PromptNeverFits(
                f"the prompt of {len(request.prompt)} tokens needs {pages} KV pages, tenant {request.tenant} may have"
                f" {most} of {n_pages}; shorten it, or serve with more KV memory"
            )
        self._arrivals += 1
        made = Request.make(request, tenant, self._vocabulary, self._sizes.n_ctx, self._arrivals, now, processors)
        if request.adapters:
            slots = self._room()
            made.adapters = slots.acquire(request.adapters)
            made.salt = slots.salt(request.salt, made.adapters)
        return made

    def _room(self) -> AdapterSlots:
        if self._adapters is None:
            raise UsageError("the model was loaded without room for adapters; load it with lora or lora_slots")
        return self._adapters

    def load_adapter(self, path: str, name: str | None = None, scale: float = 0.0) -> None:
        """Load an adapter into free room; see `AdapterRequest`. Raises `AdapterError`, `GGUFError`, `UsageError`; then
        all is as before.
        """
        self._room().load(AdapterRequest(Path(path), name, scale))

    def unload_adapter(self, name: str) -> None:
        """Forget an adapter once the requests that use it have ended. Raises `UnknownAdapter`, `UsageError`."""
        self._room().unload(name)

    def cancel(self, request_id: str, reason: CancelReason = CancelReason.caller) -> None:
        """End a request; `Finished` is in the next turn's report. Unknown ids are ignored."""
        request = self.scheduler.requests.get(request_id)
        if request is not None:
            self.scheduler.finish(request, FinishReason.cancelled, cancelled=reason)

    def share(self, tenant: TenantShare) -> None:
        """How a tenant is served from now on. Raises `UsageError`, `TooManyTenants`."""
        self.scheduler.tenants.share(tenant)

    def collect(self) -> Sequence[Event]:
        """The events that are there without a turn, as after `cancel`. No report has them again."""
        events, self.scheduler.events = self.scheduler.events, []
        return events

    def cached_tokens(self, tokens: Sequence[int], salt: bytes = b"") -> int:
        """How many of a prompt's first tokens would not be computed, if it came now."""
        return self.scheduler.pool.cached(tokens, salt)

    @contextmanager
    def adapted(
        self, wanted: Sequence[tuple[str, float]], salt: bytes = b""
    ) -> Iterator[tuple[tuple[AdapterUse, ...], bytes]]:
        """Adapters by name and scale for rows outside of requests, and the salt of their part of the prefix cache.

        Raises `UnknownAdapter`, `UsageError`.
        """
        uses = self._room().acquire(wanted) if wanted else ()
        try:
            yield uses, salt if not uses else self._room().salt(salt, uses)
        finally:
            if uses:
                self._room().release(uses)

    def borrow(self, tokens: Sequence[int], n_tokens: int, salt: bytes = b"") -> int:
        """A sequence for rows outside of requests, with room for `n_tokens` in all; requests are preempted for it.

        Returns its id. It holds the tokens but for the last one as far as they are known: `cache.length` says it.
        `give_back` it before the next turn. Raises `EngineError` for more tokens than the KV cache has room for.
        """
        scheduler, pool = self.scheduler, self.scheduler.pool
        pages = pool.pages_of(n_tokens)
        while (taken := pool.take(tokens, salt, pages)) is None:
            scheduler.preempt(scheduler.page_victim())
        return taken[0]

    def give_back(self, seq_id: int, salt: bytes = b"") -> None:
        """End what `borrow` began. What the sequence holds is kept for a text that begins alike."""
        self.scheduler.pool.keep(seq_id, self._engine.cache.length(seq_id), salt)

    def close(self) -> None:
        """End the engine behind it."""
        if self._close is not None:
            self._close()

    def check_integrity(self) -> None:
        """Raise an integrity error unless requests, sequences and pages add up."""
        self.scheduler.check_integrity()

    # -- a turn

    def turn(self) -> StepReport:
        """Admit the requests that there is room for, run one step, and report the result.

        Raises:
            IntegrityError: requests wait or run, and nothing could be done for any of them.
            BackendError: the device failed; the engine is lost, as a rule. Weights that could not be read from the disk
                end the requests of the step and nothing else.
        """
        batch = self._step()
        return StepReport(
            seq=self._turns,
            events=tuple(self.collect()),
            status=self.status,
            seconds=batch.seconds,
            prefill_rows=batch.prefill_rows,
            decode_rows=batch.decode_rows,
            times=self._timing.take(batch.sampling_seconds),
        )

    def advance(self) -> Sequence[Event]:
        """A `turn` of whose report only the events are wanted. Raises what `turn` raises."""
        self._step()
        if self._timing.compiles:
            self._timing.take(0.0)
        return self.collect()

    def _step(self) -> Batch:
        """The loop's body."""
        self._turns += 1
        if self._encoding is not None and (waiting := self._encoding.lacking(self.scheduler.running)):
            self.at_work(tuple(waiting))
        batch = self.scheduler.schedule()
        if batch.chunks:
            if batch.fresh:
                self.at_work(tuple(batch.fresh))
            try:
                tokens = self._engine.step(batch.chunks, batch.sampling)
            except ReadFailed as error:  # the engine can run other steps
                for chunk in batch.chunks:
                    self.scheduler.fail(chunk.request, error)
            else:
                self.scheduler.postprocess(batch, tokens)
        return batch

    @property
    def status(self) -> EngineStatus:
        """Counts of requests and KV pages now, and running totals."""
        scheduler, cache = self.scheduler, self._engine.cache.stats()
        kept, drafts = scheduler.pool.kept_pages(), scheduler.speculation
        prefilling = sum([request.computed < request.admitted_tokens for request in scheduler.running])
        return EngineStatus(
            queued=len(scheduler.waiting),
            prefilling=prefilling,
            decoding=len(scheduler.running) - prefilling,
            n_slots=self._sizes.n_slots,
            pages_free=cache.free,
            pages_cached=cache.cached + kept,
            pages_used=cache.used - kept,
            steps=scheduler.steps,
            encoded=scheduler.encoded,
            preemptions=scheduler.preemptions,
            prefix_hit_tokens=cache.hits,
            prefix_miss_tokens=cache.misses,
            drafted_tokens=0 if drafts is None else drafts.drafted,
            accepted_tokens=0 if drafts is None else drafts.accepted,
        )

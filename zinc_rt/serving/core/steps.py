"""Rows of the next step: texts that are generated first, then prompts in the time that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from zinc_rt.backends.base import Capacity
from zinc_rt.engine import Engine, Rows
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.request import SampledStep
from zinc_rt.sampling.sampler import DegenerateLogits, Sampled
from zinc_rt.sched.cost import CostPart
from zinc_rt.sched.fair import FairScheduler
from zinc_rt.sched.request import Batch, BatchKind
from zinc_rt.serving.core.options import CoreOptions
from zinc_rt.serving.core.request import Request


@dataclass(frozen=True, slots=True)
class Part:
    """What a step computes of a request: its tokens from `start` to `end` - 1. checkpoint: whether the state of
    recurrent layers is kept then.
    """

    request: Request
    kind: BatchKind
    start: int
    end: int
    checkpoint: bool = False

    @property
    def wanted(self) -> bool:
        """Whether the next token is chosen behind it."""
        return self.end == len(self.request.tokens)

    def rows(self) -> Rows:
        """As the engine takes it."""
        tokens = self.request.tokens[self.start : self.end]
        return Rows(self.request.slot, self.start, tokens, (len(tokens) - 1,) if self.wanted else ())

    def cost(self) -> CostPart:
        """As the cost model takes it."""
        return CostPart(self.kind, self.end - self.start, self.end - 1)


class StepPlanner:
    """Chooses rows with a scheduler's turns. `cost` of the scheduler says how many fit into the time."""

    def __init__(self, scheduler: FairScheduler, engine: Engine, sizes: Capacity, options: CoreOptions) -> None:
        self._scheduler, self._engine, self._sizes, self._options = scheduler, engine, sizes, options
        self._beside = PAGE_TOKENS  # rows of prompts in the last step that had some beside texts that are generated

    def decode(self, n_prompts: int) -> Batch:
        """Requests whose next token is to be computed; a fifth of the rows is left where prompts are not done."""
        most = min(self._sizes.n_rows, self._sizes.n_logits)
        return self._scheduler.select_decode_batch(max(1, most * 4 // 5) if n_prompts and most > 1 else most)

    def decode_part(self, request: Request) -> Part:
        """The row of a request that generates."""
        return Part(request, BatchKind.decode, request.computed, len(request.tokens))

    def prompts(self, decode: list[Part], requests: Mapping[int, Request]) -> list[Part]:
        """Parts of prompts beside a step's other rows. requests: all that run, by the scheduler's slot."""
        depths = [r.computed for r in requests.values() if r.computed < r.admitted_tokens]
        if not depths:
            return []
        found, n_logits = [], self._sizes.n_logits - len(decode)
        for entry in self._scheduler.select_prefill_batch(self._budget(decode, max(depths))):
            part = self._prompt_part(requests[entry.slot_id], entry.tokens, n_logits)
            if part is not None:
                n_logits -= part.wanted
                found.append(part)
        if decode and found:
            self._beside = max(sum(part.end - part.start for part in found), PAGE_TOKENS)
        return found

    def _budget(self, decode: list[Part], depth: int) -> int:
        """Rows of prompts: what fits into the time, and into the step; a page at least, so that all prompts end."""
        cost, options = self._scheduler.cost, self._options
        limit = options.max_step_ms if decode else options.max_prefill_ms
        left = limit - cost.step_ms([part.cost() for part in decode])
        rows = max(int(left / cost.row_ms(BatchKind.prefill, depth)), PAGE_TOKENS)
        if decode:  # what was learned of a row may be far too little: one step's rows bound the next one's
            rows = min(rows, 2 * self._beside)
        return min(rows, self._sizes.n_rows - len(decode))

    def _prompt_part(self, request: Request, most: int, n_logits: int) -> Part | None:
        """The next rows of a prompt, at most so many: to its end, or to a page's edge where there is one in reach."""
        start, n = request.computed, len(request.tokens)
        end = min(start + most, n)
        if end == n and not n_logits:
            end -= 1
        at = self._engine.next_checkpoint(start, n)
        if at is not None:
            end = min(end, at)
        elif end < n and end // PAGE_TOKENS * PAGE_TOKENS > start:
            end = end // PAGE_TOKENS * PAGE_TOKENS
        return Part(request, BatchKind.prefill, start, end, end == at) if end > start else None


def costs(parts: Iterable[Part]) -> list[CostPart]:
    """Parts as the cost model takes them."""
    return [part.cost() for part in parts]


def tokens_of(step: SampledStep, n: int) -> list[Sampled | DegenerateLogits]:
    """The tokens of a step's wanted rows, and why a row has none."""
    if not n:
        return []
    try:
        return [*step.tokens()]
    except DegenerateLogits:
        return [_token(step, row) for row in range(n)]


def _token(step: SampledStep, row: int) -> Sampled | DegenerateLogits:
    try:
        return step.token(row)
    except DegenerateLogits as error:
        return error

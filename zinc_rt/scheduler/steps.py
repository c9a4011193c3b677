"""Rows of the next step: texts that are generated first, then prompts in the time that is left."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.engine import Engine, SequenceChunk
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SampledStep, SamplingRequest
from zinc_rt.sampling.sampler import Mask, NoToken, Sampled, Sampler, logprobs
from zinc_rt.scheduler.batch import Batch, BatchKind
from zinc_rt.scheduler.cost import CostPart
from zinc_rt.scheduler.fair import FairScheduler
from zinc_rt.scheduler.messages import Event, PromptLogprobs
from zinc_rt.scheduler.options import CoreOptions
from zinc_rt.scheduler.request import Request

Choice = tuple[SamplingRequest, Sampled | NoToken]
"""How a token was to be chosen, and what came of it."""

_OVER = 0.25
"""Of the time of a step: how much longer one may take for a page of prompts, so that they go on beside many texts."""
_MANY_PROMPTS = 1.75
"""Times as long a step may take where more prompts wait than texts are generated: they all wait for each other."""
_OVER_AT_ONCE = 0.4  # the same for the rest of a prompt whose tenant has nothing else in the step
_FIRST_ROWS = 4 * PAGE_TOKENS
"""Rows of prompts in the very first step, which teaches what a row costs."""


@dataclass(frozen=True, slots=True)
class Part:
    """What a step computes of a request: its tokens from `start` to `end` - 1. checkpoint: whether the state of
    recurrent layers is kept then. draft: guesses of what follows, computed, too; a token is chosen behind each,
    with the mask of a grammar where there are masks.
    """

    request: Request
    kind: BatchKind
    start: int
    end: int
    checkpoint: bool = False
    draft: tuple[int, ...] = ()
    masks: tuple[Mask | None, ...] = ()

    @property
    def wanted(self) -> bool:
        """Whether the next token is chosen behind it."""
        return self.end == len(self.request.tokens)

    @property
    def echoes(self) -> range:
        """Positions behind which the prompt's next token is told of. They want logits, as the last one may."""
        if self.request.submit.echo is None:
            return range(0)
        end = min(self.end, len(self.request.submit.prompt) - 1)
        return range(min(max(self.start, self.request.echoed), end), end)

    def told(self, logits: npt.NDArray[np.float32]) -> PromptLogprobs:
        """The log-probabilities of the tokens behind `echoes`. logits: f32[len(echoes), n_vocab]."""
        request, at = self.request, self.echoes
        n_top, n_vocab = request.submit.echo or 0, request.sampler.n_vocab
        found = [
            logprobs(row.astype(np.float64), request.tokens[i + 1], n_top) for i, row in zip(at, logits, strict=True)
        ]
        request.echoed = at.stop
        tops = tuple(tuple(one for one in top if one[0] < n_vocab) for _, top in found)
        return PromptLogprobs(request.id, at.start + 1, tuple(value for value, _ in found), tops)

    @property
    def n_rows(self) -> int:
        """Rows of the step."""
        return self.end - self.start + len(self.draft)

    @property
    def n_wanted(self) -> int:
        """Rows behind which a token is chosen."""
        return len(self.draft) + self.wanted

    def sampling(self, first: SamplingRequest) -> list[SamplingRequest]:
        """How to choose the tokens behind its wanted rows. first: behind the text's last token. Behind a guess it is as
        if that was generated; behind `echoes` the tokens are known, and what is chosen counts for nothing.
        """
        found: list[SamplingRequest] = []
        if n := len(self.echoes):
            found = [SamplingRequest(Sampler(SamplingParams(temperature=0), first.sampler.n_vocab), ())] * n
        if not self.wanted:
            return found
        found.append(first)
        params, history = first.sampler.params, first.history
        if params.has_penalties and params.repeat_last_n > 0:
            history = history[-params.repeat_last_n :]
        for i in range(1, len(self.draft) + 1):
            seen = [*history, *self.draft[:i]] if params.has_penalties else history
            mask = self.masks[i - 1] if self.masks else None
            found.append(replace(first, sampler=first.sampler.ahead(i), history=seen, mask=mask))
        return found

    def rows(self) -> SequenceChunk:
        """As the engine takes it."""
        tokens = self.request.tokens[self.start : self.end]
        if self.draft:
            tokens += self.draft
            return SequenceChunk(
                self.request.slot, self.start, tokens, range(self.end - self.start - 1, len(tokens)), len(self.draft)
            )
        wanted = [i - self.start for i in self.echoes]
        return SequenceChunk(
            self.request.slot, self.start, tokens, (*wanted, len(tokens) - 1) if self.wanted else wanted
        )

    def cost(self) -> CostPart:
        """As the cost model takes it."""
        return CostPart(self.kind, self.n_rows, self.start + self.n_rows - 1)


class StepPlanner:
    """Chooses rows with a scheduler's turns. `cost` of the scheduler says how many fit into the time."""

    def __init__(self, scheduler: FairScheduler, engine: Engine, sizes: Capacity, options: CoreOptions) -> None:
        self._scheduler, self._engine, self._sizes, self._options = scheduler, engine, sizes, options
        self._beside = PAGE_TOKENS  # rows of prompts in the last step that had some beside texts that are generated

    def decode(self, n_prompts: int) -> Batch:
        """Requests whose next token is to be computed; a fifth of the rows is left where prompts are not done."""
        most = min(self._sizes.n_rows, self._sizes.n_logits)
        return self._scheduler.select_decode_batch(max(1, most * 4 // 5) if n_prompts and most > 1 else most)

    def decode_parts(self, requests: Iterable[Request]) -> list[Part]:
        """The rows of requests that generate: one each, and those of tokens that have to be computed again after a
        wrong guess, as far as the step has room.
        """
        found, left = [], self._sizes.n_rows
        for request in requests:
            start, end = request.computed, len(request.tokens)
            if left:
                found.append(Part(request, BatchKind.decode, start, min(end, start + left)))
                left -= found[-1].n_rows
        return found

    def prompts(self, decode: list[Part], requests: Mapping[int, Request]) -> list[Part]:
        """Parts of prompts beside a step's other rows. requests: all that run, by the scheduler's slot."""
        depths = [r.computed for r in requests.values() if r.computed < r.admitted_tokens]
        if not depths:
            return []
        found: list[Part] = []
        n_logits = self._sizes.n_logits - len(decode)
        batch = self._scheduler.select_prefill_batch(self._budget(decode, depths))
        free = self._sizes.n_rows - sum(part.n_rows for part in decode) - batch.n_tokens
        for entry in batch:
            request, most = requests[entry.slot_id], entry.tokens
            rest = request.admitted_tokens - request.computed
            if decode and not found and most < rest <= most + free and self._ends_at_once(request, decode):
                most = rest
            part = self._prompt_part(request, most, n_logits)
            if part is not None:
                n_logits -= part.wanted + len(part.echoes)
                found.append(part)
        if decode and found:
            self._beside = max(sum(part.end - part.start for part in found), PAGE_TOKENS)
        return found

    def _budget(self, decode: list[Part], depths: list[int]) -> int:
        """Rows of prompts: what fits into the time, and into the step; about a page at least, so that all prompts end.

        A page that takes far more than the time is cut, too: others wait for the step. Where more prompts wait than
        texts are generated, the step takes longer. depths: positions at which the prompts go on.
        """
        cost, options, depth = self._scheduler.cost, self._options, max(depths)
        limit = options.max_step_ms if decode else options.max_prefill_ms
        if decode:
            limit *= min(max(len(depths) / len(decode), 1.0), _MANY_PROMPTS)
        left = max(limit - cost.step_ms(costs(decode)), 0.0)
        row_ms = cost.row_ms(BatchKind.prefill, depth)
        rows = max(int(left / row_ms), min(int((left + _OVER * limit) / row_ms), PAGE_TOKENS), 1)
        if not cost.learned:  # of a large model, a full step could take a quarter of a minute
            rows = min(rows, _FIRST_ROWS)
        if decode:  # what was learned of a row may be far too little: one step's rows bound the next one's
            rows = min(rows, 2 * self._beside)
        return min(rows, self._sizes.n_rows - sum(part.n_rows for part in decode))

    def _ends_at_once(self, request: Request, decode: list[Part]) -> bool:
        """Whether a prompt is done in this step though it takes more time than is left: its tenant has nothing else in
        the step, and others have. So a short question does not wait for two steps full of another tenant's texts.
        """
        if any(part.request.tenant == request.tenant for part in decode):
            return False
        rest = Part(request, BatchKind.prefill, request.computed, request.admitted_tokens)
        rows = rest.end - rest.start
        ms = self._scheduler.cost.step_ms(costs([*decode, rest]))
        return rows <= 2 * self._beside and ms <= (1 + _OVER_AT_ONCE) * self._options.max_step_ms

    def _prompt_part(self, request: Request, most: int, n_logits: int) -> Part | None:
        """The next rows of a prompt, at most so many: to its end, or to a page's edge that leaves most of them."""
        start, n = request.computed, len(request.tokens)
        end = min(start + most, n)
        if request.submit.echo is not None:
            end = min(end, max(start, request.echoed) + n_logits)
        if end == n and not n_logits:
            end -= 1
        at = self._engine.cache.next_checkpoint(start, n)
        if at is not None:
            end = min(end, at)
        elif end < n and end // PAGE_TOKENS * PAGE_TOKENS - start > (end - start) // 2:
            end = end // PAGE_TOKENS * PAGE_TOKENS
        return Part(request, BatchKind.prefill, start, end, end == at) if end > start else None


def charge(scheduler: FairScheduler, parts: Sequence[Part], seconds: float) -> None:
    """A step took so long: its tenants and requests are charged."""
    charged = scheduler.charge(costs(parts), [part.request.tenant for part in parts], 1000 * seconds)
    for part, ms in zip(parts, charged, strict=True):
        part.request.engine_ms += ms


def costs(parts: Iterable[Part]) -> list[CostPart]:
    """Parts as the cost model takes them."""
    return [part.cost() for part in parts]


def echoed(parts: Iterable[Part], step: SampledStep, chosen: Sequence[Choice], events: list[Event]) -> list[Choice]:
    """What was chosen behind the wanted rows that are no `echoes`; events: get what there is to tell of those."""
    rest: list[Choice] = []
    at = 0
    for part in parts:
        if n := len(part.echoes):
            events.append(part.told(step.logits[at : at + n]))
        rest += chosen[at + n : at + n + part.n_wanted]
        at += n + part.n_wanted
    return rest


def tokens_of(step: SampledStep, n: int) -> list[Sampled | NoToken]:
    """The tokens of a step's wanted rows, and why a row has none."""
    if not n:
        return []
    try:
        return [*step.tokens()]
    except NoToken:
        return [_token(step, row) for row in range(n)]


def _token(step: SampledStep, row: int) -> Sampled | NoToken:
    try:
        return step.token(row)
    except NoToken as error:
        return error

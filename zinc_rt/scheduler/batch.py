"""`Batch`: the rows of one step. `BatchBuilder` chooses texts that decode first, then prompts in the time left."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import Self

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.batch import SequenceChunk
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import Mask, Sampler, logprobs
from zinc_rt.scheduler.cost import CostModel, CostPart
from zinc_rt.scheduler.fair_share import FairShare
from zinc_rt.scheduler.messages import PromptLogprobs
from zinc_rt.scheduler.options import CoreOptions
from zinc_rt.scheduler.pictures import PictureEncoding
from zinc_rt.scheduler.request import Request

_OVER = 0.25
"""Of the time of a step: how much longer one may take for a page of prompts, so that they go on beside many texts."""
_BESIDE = 0.5
"""Of the time that texts take: what prompts may take beside them, though a step of texts alone is too long already."""
_MANY_PROMPTS = 1.75
"""Times as long a step may take where more prompts wait than texts are generated: they all wait for each other."""
_OVER_AT_ONCE = 0.4  # the same for the rest of a prompt whose tenant has nothing else in the step
_FIRST_ROWS = 4 * PAGE_TOKENS
"""Rows of prompts in the very first step, which teaches what a row costs."""


@dataclass(eq=False, slots=True)
class ScheduledChunk(SequenceChunk):
    """The chunk of a request: its tokens from `start` to `end` - 1, and draft tokens behind them.

    Attributes:
        request: whose tokens they are.
        prefill: whether the request is in prefill.
        checkpoint: whether the state of recurrent layers is kept after the step.
        masks: of a grammar, behind each draft token; empty without a grammar.
    """

    tokens: list[int]
    _: KW_ONLY
    request: Request
    end: int
    prefill: bool
    checkpoint: bool = False
    masks: tuple[Mask | None, ...] = ()

    @classmethod
    def make(cls, request: Request, end: int, *, prefill: bool, checkpoint: bool = False) -> Self:
        """The rows of a request from the first token that is not computed."""
        start, n = request.computed, len(request.tokens)
        wanted = (end - start - 1,) if end == n else ()
        tokens = request.tokens[start:end]
        made = cls(
            request.seq_id,
            start,
            tokens,
            wanted,
            adapters=request.adapters,
            request=request,
            end=end,
            prefill=prefill,
            checkpoint=checkpoint,
        )
        if request.submit.echo is not None:
            made.logits_indices = (*(i - start for i in made.echoes), *wanted)
        return made

    def add_draft(self, draft: Sequence[int], masks: tuple[Mask | None, ...]) -> None:
        """Add tokens that may follow the request's last one. A token is chosen behind each."""
        last = len(self.tokens) - 1
        self.tokens += draft
        self.n_draft, self.masks = len(draft), masks
        self.logits_indices = range(last, len(self.tokens))

    @property
    def draft(self) -> list[int]:
        """The draft tokens."""
        return self.tokens[len(self.tokens) - self.n_draft :]

    @property
    def wanted(self) -> bool:
        """Whether the request's next token is chosen behind it."""
        return self.end == len(self.request.tokens)

    @property
    def echoes(self) -> range:
        """Positions behind which the log-probability of the prompt's next token is told. Their rows want logits."""
        if self.request.submit.echo is None:
            return range(0)
        end = min(self.end, self.request.n_prompt - 1)
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

    def sampling(self, first: SamplingRequest) -> list[SamplingRequest]:
        """How to choose the tokens behind its wanted rows.

        Behind a draft token it is as if that was generated. Behind `echoes` the tokens are known: what is chosen there
        counts for nothing.

        Args:
            first: how to choose the one behind the request's last token.
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
        for i in range(1, self.n_draft + 1):
            seen = [*history, *self.draft[:i]] if params.has_penalties else history
            mask = self.masks[i - 1] if self.masks else None
            found.append(replace(first, sampler=first.sampler.ahead(i), history=seen, mask=mask))
        return found

    def cost(self) -> CostPart:
        """As the cost model takes it."""
        n_rows = len(self.tokens)
        return CostPart(self.prefill, n_rows, self.start + n_rows - 1)


@dataclass(eq=False, slots=True)
class Batch:
    """One step: a chunk of each request that takes part.

    Attributes:
        sampling: how to choose a token behind each wanted row.
        fresh: ids of the requests in prefill, which have no token since they were admitted.
        prefill_rows, decode_rows: of requests in prefill, and of those that decode.
        began: when its masks were begun, by the scheduler's clock.
        seconds: what it took, masks and choosing tokens included; 0 until it is over.
        sampling_seconds: of choosing tokens on the processor.
    """

    began: float
    chunks: list[ScheduledChunk] = field(default_factory=list)
    sampling: list[SamplingRequest] = field(default_factory=list)
    fresh: list[str] = field(default_factory=list)
    prefill_rows: int = 0
    decode_rows: int = 0
    seconds: float = 0.0
    sampling_seconds: float = 0.0

    def add(self, chunk: ScheduledChunk, first: SamplingRequest | None) -> None:
        """Add a chunk. first: how to choose its request's next token; None where no row of it wants logits."""
        self.chunks.append(chunk)
        if chunk.prefill:
            self.fresh.append(chunk.request.id)
            self.prefill_rows += len(chunk.tokens)
        else:
            self.decode_rows += len(chunk.tokens)
        if first is not None:
            if chunk.n_draft or chunk.request.submit.echo is not None:
                self.sampling += chunk.sampling(first)
            else:
                self.sampling.append(first)


class BatchBuilder:
    """Chooses the rows of steps. The cost model says how many rows fit into the time, `FairShare` which requests get
    them.

    Args:
        cost: of rows, as far as it is known.
        cache: says where prompts have checkpoints.
        sizes: of the engine.
        options: of the loop.
        promised: KV pages promised to each sequence.
        grow: gets a request one more page; if there is none, this or another request is preempted.
        encoding: says how far prompts with pictures can be computed.
    """

    def __init__(
        self,
        cost: CostModel,
        cache: KVCacheManager,
        sizes: Capacity,
        options: CoreOptions,
        promised: Mapping[int, int],
        grow: Callable[[Request], None],
        encoding: PictureEncoding | None = None,
    ) -> None:
        self._cost, self._cache, self._sizes, self._options = cost, cache, sizes, options
        self._promised, self._grow, self._encoding = promised, grow, encoding
        self._share = FairShare(cost)
        self._most_texts = min(sizes.n_rows, sizes.n_logits)
        self._beside = PAGE_TOKENS  # rows of prompts in the last step that had some beside texts that decode

    def decode(self, running: Sequence[Request]) -> list[ScheduledChunk]:
        """The rows of requests that decode: one each, and those of tokens that have to be computed again after a wrong
        draft token, as far as the step has room. A fifth of the rows is left where prompts are not done.
        """
        texts = []
        for request in running:
            if request.computed >= request.admitted_tokens:
                texts.append(request)
        most = self._most_texts
        if len(texts) < len(running) and most > 1:
            most = most * 4 // 5
        if len(texts) > most:
            texts = list(self._share.rows(texts, max(1, most), prefill=False))
        for request in texts:
            if request.seq_id >= 0 and len(request.tokens) > self._promised[request.seq_id] * PAGE_TOKENS:
                self._grow(request)
        found, left = [], self._sizes.n_rows
        for request in texts:
            if request.seq_id >= 0 and left:
                start, n = request.computed, len(request.tokens)
                end = n if n - start <= left else start + left
                kept = self._cache.wants_checkpoint(end)
                found.append(ScheduledChunk.make(request, end, prefill=False, checkpoint=kept))
                left -= end - start
        return found

    def prefill(self, decode: list[ScheduledChunk], running: Iterable[Request]) -> list[ScheduledChunk]:
        """Chunks of prompts beside a step's other rows."""
        prompts = [request for request in running if request.computed < self._known(request)]
        if not prompts:
            return []
        found: list[ScheduledChunk] = []
        n_logits = self._sizes.n_logits - len(decode)
        given = self._share.rows(prompts, self._budget(decode, prompts), prefill=True)
        free = self._sizes.n_rows - sum(len(chunk.tokens) for chunk in decode) - sum(given.values())
        for request, most in given.items():
            rest = request.admitted_tokens - request.computed
            if decode and not found and most < rest <= most + free and self._ends_at_once(request, decode):
                most = rest
            chunk = self._prompt_chunk(request, most, n_logits, most + free)
            if chunk is not None:
                n_logits -= chunk.wanted + len(chunk.echoes)
                free -= max(0, len(chunk.tokens) - most)
                found.append(chunk)
        if decode and found:
            self._beside = max(sum(len(chunk.tokens) for chunk in found), PAGE_TOKENS)
        return found

    def _known(self, request: Request) -> int:
        """How many tokens of a prompt can be computed now."""
        if self._encoding is None or not request.submit.pictures:
            return request.admitted_tokens
        return min(request.admitted_tokens, self._encoding.limit(request))

    def _budget(self, decode: list[ScheduledChunk], prompts: Sequence[Request]) -> int:
        """Rows of prompts: what fits into the time, and into the step; about a page at least, so that all prompts end.

        A page that takes far more than the time is cut, too: others wait for the step. Where more prompts wait than
        texts decode, the step takes longer.
        """
        cost, depth = self._cost, max(request.computed for request in prompts)
        texts_ms = cost.step_ms(costs(decode))
        limit = self._options.max_prefill_ms
        if decode:
            limit = self._limit_ms(texts_ms) * min(max(len(prompts) / len(decode), 1.0), _MANY_PROMPTS)
        left = max(limit - texts_ms, 0.0)
        row_ms = cost.row_ms(depth, prefill=True)
        rows = max(int(left / row_ms), min(int((left + _OVER * limit) / row_ms), PAGE_TOKENS), 1)
        if not cost.learned:  # of a large model, a full step could take a quarter of a minute
            rows = min(rows, _FIRST_ROWS)
        if decode:  # what was learned of a row may be far too little: one step's rows bound the next one's
            rows = min(rows, 2 * self._beside)
        return min(rows, self._sizes.n_rows - sum(len(chunk.tokens) for chunk in decode))

    def _limit_ms(self, texts_ms: float) -> float:
        """Milliseconds of a step in which prompts stand beside texts that take so much."""
        return max(self._options.max_step_ms, (1 + _BESIDE) * texts_ms)

    def _ends_at_once(self, request: Request, decode: list[ScheduledChunk]) -> bool:
        """Whether a prompt is done in this step though it takes more time than is left: its tenant has nothing else in
        the step, and others have. So a short question does not wait for two steps full of another tenant's texts.
        """
        if any(chunk.request.tenant is request.tenant for chunk in decode):
            return False
        rest = ScheduledChunk.make(request, request.admitted_tokens, prefill=True)
        texts = costs(decode)
        ms, limit = self._cost.step_ms([*texts, rest.cost()]), self._limit_ms(self._cost.step_ms(texts))
        return len(rest.tokens) <= 2 * self._beside and ms <= (1 + _OVER_AT_ONCE) * limit

    def _prompt_chunk(self, request: Request, max_rows: int, n_logits: int, room: int) -> ScheduledChunk | None:
        """The next rows of a prompt, at most so many: to its end, or to a page's edge that leaves most of them.

        room: rows that there can be for a picture that has to be whole.
        """
        start, n = request.computed, len(request.tokens)
        end = min(start + max_rows, n)
        if request.submit.echo is not None:
            end = min(end, max(start, request.echoed) + n_logits)
        if end == n and not n_logits:
            end -= 1
        at = self._cache.next_checkpoint(start, n)
        if at is not None:
            end = min(end, at)
        elif end < n and end // PAGE_TOKENS * PAGE_TOKENS - start > (end - start) // 2:
            end = end // PAGE_TOKENS * PAGE_TOKENS
        if self._encoding is not None and request.submit.pictures:
            end = self._encoding.cut(request, start, min(end, self._encoding.limit(request)), room)
        return ScheduledChunk.make(request, end, prefill=True, checkpoint=end == at) if end > start else None


def costs(chunks: Iterable[ScheduledChunk]) -> list[CostPart]:
    """Chunks as the cost model takes them."""
    return [chunk.cost() for chunk in chunks]

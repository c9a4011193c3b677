"""`Speculation`: draft tokens become rows of a step, and the step's tokens say which of them were right.

The token behind a draft token is chosen as if the draft token had been generated: with the text's own random number for
that position, and with penalties that count the draft tokens before it. Draft tokens are right up to the first one that
differs from the chosen token. That chosen token stays, too, since all before it is right. The rows behind it are
dropped. So a text does not depend on its drafts.

Example: the draft is "sat on my", and the tokens chosen are "sat", "on", "the". Two draft tokens were right, and the
text gets three tokens. docs/how/scheduler.md has the drawing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.errors import ZincError
from zinc_rt.numerics import PAGE_TOKENS, pages_for
from zinc_rt.sampling.sampler import Mask, NoToken, Sampled
from zinc_rt.scheduler.batch import Batch, ScheduledChunk
from zinc_rt.scheduler.options import GrammarMatcher
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.sequence_pool import SequencePool
from zinc_rt.scheduler.timing import Timing
from zinc_rt.speculation.drafter import Drafter, DraftText
from zinc_rt.speculation.pace import DraftRecord, Pace, Wish


class Speculation:
    """The scheduler's part of speculation: asks for drafts before a step, and accepts draft tokens after it.

    Attributes:
        drafted, accepted: draft tokens so far, and those that were right.
    """

    def __init__(
        self,
        drafter: Drafter,
        cache: KVCacheManager,
        sizes: Capacity,
        pool: SequencePool,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self._drafter, self._timing = drafter, timing
        self._cache, self._sizes, self._pool, self._clock = cache, sizes, pool, clock
        self._pace = Pace(returns=cache.keeps_recurrent_state)
        self._records: dict[int, DraftRecord] = {}
        self._drafted_before: set[int] = set()
        self.drafted = self.accepted = 0

    # -- before a step

    def begin(self, request: Request, held: int) -> None:
        """A request has a sequence, which holds its first tokens."""
        self._drafter.begin(_text(request, 0), held)
        self._records.setdefault(request.number, self._pace.record())

    def add_drafts(self, chunks: list[ScheduledChunk]) -> None:
        """Give chunks drafts where they pay. There are none beside prompts, which use the time better."""
        if any(chunk.prefill for chunk in chunks):
            return
        asked = [(chunk.request, n) for chunk in chunks if chunk.wanted and (n := self._room(chunk.request))]
        n_rows = sum(len(chunk.tokens) for chunk in chunks)
        left = min(self._sizes.n_rows - n_rows, self._sizes.n_logits - len(chunks))
        if not asked or left <= 0:
            return
        drafts = self._drafts(asked, n_rows, left)
        for chunk in chunks:
            if draft := drafts.get(chunk.request.number):
                self._add_draft(chunk, draft)

    def _add_draft(self, chunk: ScheduledChunk, draft: tuple[int, ...]) -> None:
        """Give a chunk a draft, as far as that fits a grammar and does not end it, with its masks."""
        masks: tuple[Mask | None, ...] = ()
        if chunk.request.matcher is not None:
            with self._timing.masks():
                masks = tuple(_masks(chunk.request, chunk.request.matcher.copy(), draft))
            draft = draft[: len(masks)]
        chunk.add_draft(draft, masks)

    def _room(self, request: Request) -> int:
        """How many draft tokens a text can have: the last token that it may have is never one."""
        if request.free.processors:
            return 0  # they may keep count of their calls
        n = len(request.tokens)
        return max(0, min(self._drafter.draft_max, request.longest - n - 1, self._cache.draft_room(n)))

    def _drafts(self, asked: Sequence[tuple[Request, int]], n_rows: int, left: int) -> dict[int, tuple[int, ...]]:
        """Drafts by the requests' numbers, at most so many tokens in all."""
        drafter = self._drafter
        requests = [request for request, _ in asked]
        limits = [n for _, n in asked]
        if not drafter.free:
            limits = self._lengths(requests, limits, n_rows, left)
        texts = [_text(request, n) for request, n in zip(requests, limits, strict=True) if n]
        if not texts:
            return {}
        began = self._clock()
        found = dict(zip((text.number for text in texts), drafter.draft(texts), strict=True))
        if not drafter.free:
            numbers = {text.number for text in texts}
            if numbers <= self._drafted_before:  # else it read prompts
                self._pace.learn_guesses(max(text.draft_max for text in texts), 1000 * (self._clock() - began))
            self._drafted_before |= numbers
        cut = [
            self._usable(request, found.get(request.number, ()), n) for request, n in zip(requests, limits, strict=True)
        ]
        if drafter.free:
            lengths = self._lengths(requests, [len(draft) for draft in cut], n_rows, left)
            cut = [draft[:n] for draft, n in zip(cut, lengths, strict=True)]
        return {r.number: self._with_pages(r, draft) for r, draft in zip(requests, cut, strict=True)}

    def _lengths(self, requests: Sequence[Request], limits: Sequence[int], n_rows: int, left: int) -> list[int]:
        wishes = [Wish(self._records[r.number], n) for r, n in zip(requests, limits, strict=True)]
        found = self._pace.lengths(wishes, n_rows, n_rows + left, free=self._drafter.free)
        return [n if n >= self._drafter.draft_min else 0 for n in found]

    def _usable(self, request: Request, draft: Sequence[int], limit: int) -> tuple[int, ...]:
        """A draft up to a token that ends the text."""
        at = next((i for i, token in enumerate(draft) if token in request.stop_ids), len(draft))
        return tuple(map(int, draft[: min(at, limit)]))

    def _with_pages(self, request: Request, draft: tuple[int, ...]) -> tuple[int, ...]:
        """A draft as far as there are KV pages for it; nobody gives up a page for it."""
        n = len(request.tokens) + len(draft)
        if not draft or self._pool.grow(request.seq_id, max(pages_for(n), self._pool.promised[request.seq_id])):
            return draft
        return draft[: max(0, self._pool.promised[request.seq_id] * PAGE_TOKENS - len(request.tokens))]

    # -- after it

    def stepped(self, batch: Batch) -> None:
        """A step is over."""
        self._drafter.stepped(batch.chunks)
        if not any(chunk.prefill for chunk in batch.chunks):
            self._pace.costs.learn(batch.decode_rows, 1000 * batch.seconds)

    def accept(self, chunk: ScheduledChunk, chosen: Sequence[Sampled | NoToken]) -> int:
        """Compare a chunk's draft with the tokens that were chosen in its place; the sequence keeps what was right.

        Returns how many of the chosen tokens are the text's. What the request has computed is right then.
        """
        draft, request = chunk.draft, chunk.request
        right = 0
        for drafted, token in zip(draft, chosen, strict=False):
            if isinstance(token, NoToken) or token.token_id != drafted:
                break
            right += 1
        request.computed = self._cache.accept_drafts(request.seq_id, chunk.end + right)
        self._drafter.kept(request.seq_id, request.computed)
        self._pace.learn(self._records[request.number], len(draft), right)
        self.drafted += len(draft)
        self.accepted += right
        request.drafted += len(draft)
        request.accepted += right
        return right + 1

    def went_back(self, request: Request) -> None:
        """A step broke off, and the request's sequence holds what is computed."""
        self._drafter.kept(request.seq_id, request.computed)

    def forget(self, request: Request) -> None:
        """A request gives up its sequence."""
        self._drafter.forget(request.number)
        self._drafted_before.discard(request.number)
        self._records.pop(request.number, None)


def _masks(request: Request, ahead: GrammarMatcher, draft: Sequence[int]) -> list[Mask | None]:
    """The tokens that may follow each draft token, up to one that does not fit the grammar or ends it; None:
    everything.
    """
    masks: list[Mask | None] = []
    try:
        for token in draft:
            if not ahead.consume(token) or ahead.is_done:
                break
            mask = None
            if not ahead.is_free:
                assert request.bound is not None
                mask = np.zeros_like(request.bound.mask)
                ahead.fill_mask(mask)
            masks.append(mask)
    except ZincError:  # too much work: the text itself may never come there
        pass
    return masks


def _text(request: Request, draft_max: int) -> DraftText:
    return DraftText(
        request.number,
        request.seq_id,
        request.words,
        request.sampler,
        request.n_generated,
        draft_max,
        request.submit.salt,
        bool(request.pictures),
    )

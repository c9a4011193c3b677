"""`Drafting`: guesses of a drafter become rows of a step, and the step's tokens say which of them were right.

The token behind a guess is chosen as it would be if the guess was generated: with the text's own random number for that
place, and penalties that count the guesses before it. As long as tokens and guesses are the same, the tokens are those
of the text; the first that differs is the text's, too, and what is behind it was computed in vain. So a text does not
depend on guesses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.errors import ZincError
from zinc_rt.numerics import PAGE_TOKENS, pages_for
from zinc_rt.sampling.sampler import Mask, NoToken
from zinc_rt.scheduler.batch import BatchKind
from zinc_rt.scheduler.options import Matcher
from zinc_rt.scheduler.request import Request
from zinc_rt.scheduler.slots import Slots
from zinc_rt.scheduler.steps import Choice, Part
from zinc_rt.scheduler.timing import Timing
from zinc_rt.speculation.drafter import Drafter, DraftText
from zinc_rt.speculation.pace import Pace, Record, Wish


class Drafting:
    """What a core does about guesses. drafter: None where there are none; then nothing here does anything.

    drafted, accepted: tokens guessed so far, and those that were right.
    """

    def __init__(
        self,
        drafter: Drafter | None,
        cache: KVCacheManager,
        sizes: Capacity,
        slots: Slots,
        timing: Timing,
        clock: Callable[[], float],
    ) -> None:
        self.drafter, self._timing = drafter, timing
        self._cache, self._sizes, self._slots, self._clock = cache, sizes, slots, clock
        self._pace = Pace(returns=drafter is not None and cache.keeps_recurrent_state)
        self._records: dict[int, Record] = {}
        self._drafted_before: set[int] = set()
        self.drafted = self.accepted = 0

    # -- before a step

    def begin(self, request: Request, held: int) -> None:
        """A request has a sequence, which holds its first tokens."""
        if self.drafter is not None:
            self.drafter.begin(_text(request, 0), held)
            self._records.setdefault(request.number, self._pace.record())

    def add_to(self, parts: list[Part]) -> list[Part]:
        """A step's parts with drafts where they pay. There are none beside prompts, which use the time better."""
        if self.drafter is None or any(part.kind is BatchKind.prefill for part in parts):
            return parts
        asked = [(part, n) for part in parts if part.wanted and (n := self._room(part.request))]
        n_rows = sum(part.end - part.start for part in parts)
        left = min(self._sizes.n_rows - n_rows, self._sizes.n_logits - len(parts))
        if not asked or left <= 0:
            return parts
        drafts = self._guess(asked, n_rows, left)
        return [self._with_draft(part, drafts.get(part.request.number, ())) for part in parts]

    def _with_draft(self, part: Part, draft: tuple[int, ...]) -> Part:
        """A part with a draft, as far as that fits a grammar and does not end it, with its masks."""
        if not draft or part.request.matcher is None:
            return replace(part, draft=draft)
        with self._timing.masks():
            masks = _masks(part.request, part.request.matcher.copy(), draft)
        return replace(part, draft=draft[: len(masks)], masks=tuple(masks))

    def _room(self, request: Request) -> int:
        """How many guesses a text can have: the last token that it may have is never one."""
        assert self.drafter is not None
        if request.free.processors:
            return 0  # they may keep count of their calls
        n = len(request.tokens)
        return max(0, min(self.drafter.most, request.remaining - 1, self._sizes.n_ctx - n))

    def _guess(self, asked: Sequence[tuple[Part, int]], n_rows: int, left: int) -> dict[int, tuple[int, ...]]:
        """Drafts by the requests' numbers, at most so many tokens in all."""
        drafter = self.drafter
        assert drafter is not None
        requests = [part.request for part, _ in asked]
        most = [n for _, n in asked]
        if not drafter.free:
            most = self._lengths(requests, most, n_rows, left)
        texts = [_text(request, n) for request, n in zip(requests, most, strict=True) if n]
        if not texts:
            return {}
        began = self._clock()
        found = dict(zip((text.number for text in texts), drafter.draft(texts), strict=True))
        if not drafter.free:
            numbers = {text.number for text in texts}
            if numbers <= self._drafted_before:  # else it read prompts
                self._pace.learn_guesses(max(text.most for text in texts), 1000 * (self._clock() - began))
            self._drafted_before |= numbers
        cut = [
            self._usable(request, found.get(request.number, ()), n) for request, n in zip(requests, most, strict=True)
        ]
        if drafter.free:
            lengths = self._lengths(requests, [len(draft) for draft in cut], n_rows, left)
            cut = [draft[:n] for draft, n in zip(cut, lengths, strict=True)]
        return {r.number: self._with_pages(r, draft) for r, draft in zip(requests, cut, strict=True)}

    def _lengths(self, requests: Sequence[Request], most: Sequence[int], n_rows: int, left: int) -> list[int]:
        assert self.drafter is not None
        wishes = [Wish(self._records[r.number], n) for r, n in zip(requests, most, strict=True)]
        found = self._pace.lengths(wishes, n_rows, n_rows + left, free=self.drafter.free)
        return [n if n >= self.drafter.least else 0 for n in found]

    def _usable(self, request: Request, draft: Sequence[int], most: int) -> tuple[int, ...]:
        """A draft up to a token that ends the text."""
        at = next((i for i, token in enumerate(draft) if token in request.stop_ids), len(draft))
        return tuple(map(int, draft[: min(at, most)]))

    def _with_pages(self, request: Request, draft: tuple[int, ...]) -> tuple[int, ...]:
        """A draft as far as there are KV pages for it; nobody gives up a page for a guess."""
        n = len(request.tokens) + len(draft)
        if not draft or self._slots.grow(request.slot, max(pages_for(n), self._slots.pages(request.slot))):
            return draft
        return draft[: max(0, self._slots.pages(request.slot) * PAGE_TOKENS - len(request.tokens))]

    # -- after it

    def stepped(self, parts: Sequence[Part], seconds: float) -> None:
        """A step is over, and took so long."""
        if self.drafter is None:
            return
        self.drafter.stepped([part.rows() for part in parts])
        if all(part.kind is BatchKind.decode for part in parts):
            self._pace.costs.learn(sum(part.n_rows for part in parts), 1000 * seconds)

    def settle(self, parts: Sequence[Part], chosen: Sequence[Choice]) -> list[tuple[Request, Sequence[Choice]]]:
        """Compare a step's drafts with the tokens that were chosen in their place; sequences keep what was right.

        Returns which of the chosen tokens are each request's. What a request has computed is right then.
        """
        taken, at = [], 0
        for part in parts:
            end = at + part.n_wanted
            taken.append((part.request, chosen[at : at + self._settle(part, chosen[at:end])]))
            at = end
        return taken

    def _settle(self, part: Part, chosen: Sequence[Choice]) -> int:
        """How many of a part's tokens are the text's."""
        draft, request = part.draft, part.request
        if not draft or self.drafter is None:
            request.computed = part.end
            return part.n_wanted
        right = 0
        for guess, (_, token) in zip(draft, chosen, strict=False):
            if isinstance(token, NoToken) or token.token_id != guess:
                break
            right += 1
        request.computed = self._cache.accept_drafts(request.slot, part.end + right)
        self.drafter.kept(request.slot, request.computed)
        self._pace.learn(self._records[request.number], len(draft), right)
        self.drafted += len(draft)
        self.accepted += right
        request.drafted += len(draft)
        request.accepted += right
        return right + 1

    def went_back(self, request: Request) -> None:
        """A step broke off, and the request's sequence holds what is computed."""
        if self.drafter is not None:
            self.drafter.kept(request.slot, request.computed)

    def forget(self, request: Request) -> None:
        """A request gives up its sequence."""
        if self.drafter is not None:
            self.drafter.forget(request.number)
            self._drafted_before.discard(request.number)
            self._records.pop(request.number, None)


def _masks(request: Request, ahead: Matcher, draft: Sequence[int]) -> list[Mask | None]:
    """What may follow each guess, up to one that does not fit the grammar or ends it; None: everything."""
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


def _text(request: Request, most: int) -> DraftText:
    return DraftText(
        request.number,
        request.slot,
        request.tokens,
        request.sampler,
        request.n_generated,
        most,
        request.submit.salt,
    )

"""The cache of sequences against a cache that is only pretended: who reads what, and who may write where.

The pretended device keeps a token for each position of each page, and for recurrent layers all tokens that a state has
seen. So every row can look whether its sequence's past is really there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.batch import EngineError, SequenceChunk
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.engine.page_pool import root_key
from zinc_rt.engine.recurrent_state import Snapshots
from zinc_rt.errors import IntegrityError
from zinc_rt.mem.errors import PagesExhausted

PAGE = 16
N_SLOTS, N_PAGES, N_CTX, N_ROWS = 4, 12, 96, 80


@dataclass
class State:
    tokens: tuple[int, ...]
    n_bytes: int = 8
    closed: bool = False

    def close(self) -> None:
        self.closed = True


class Pretended:
    """Pages, states and inputs of a device, and the sequences over them."""

    def __init__(self, *, recurrent: bool, limit: int = 4, n_pages: int = N_PAGES) -> None:
        self.pages = np.full((n_pages, PAGE), -1)
        self.states: list[tuple[int, ...]] = [()] * N_SLOTS
        self.inputs = {name: np.zeros(N_ROWS, np.int32) for name in ("token_ids", "positions", "slots", "logit_rows")}
        self.table = np.zeros((N_SLOTS, N_CTX // PAGE), np.int32)
        self.inputs["page_table"] = self.table
        sizes = Capacity(N_ROWS, N_ROWS, N_CTX, N_SLOTS, n_pages)
        self.snapshots = Snapshots(self, SimpleNamespace(), limit, limit) if recurrent else None  # type: ignore[arg-type]
        self.cache = KVCacheManager(
            self,  # type: ignore[arg-type]
            SimpleNamespace(inputs=self.inputs, caches={}),  # type: ignore[arg-type]
            sizes,
            self.snapshots,
            lambda salt: root_key(b"model", salt),
        )

    def drain(self) -> None:
        """No step is ever left running."""

    def save_state(self, _lowered: object, slot: int, _into: object = None) -> State:
        return State(self.states[slot])

    def load_state(self, _lowered: object, slot: int, state: State) -> None:
        assert not state.closed
        self.states[slot] = state.tokens

    def step(self, rows: list[SequenceChunk], breaks_after: int | None = None) -> None:
        """Run rows; of a step that breaks off the first few have been computed."""
        n_rows, _ = self.cache.write_batch(rows)
        self.cache.begin_step(rows)
        references = Counter(page for slot in range(N_SLOTS) for page in self.cache._pages.pages(slot))
        for i in range(n_rows if breaks_after is None else min(n_rows, breaks_after)):
            token, at, slot = (int(self.inputs[name][i]) for name in ("token_ids", "positions", "slots"))
            page = int(self.table[slot, at // PAGE])
            assert references[page] == 1
            self.pages[page, at % PAGE] = token
            self.states[slot] = (self.states[slot] if at else ()) + (token,)
            if self.snapshots is not None:
                assert self.states[slot] == tuple(self.read(slot, at + 1))
        if breaks_after is None:
            self.cache.end_step(rows)

    def read(self, slot: int, n: int) -> list[int]:
        """The tokens of a sequence's first positions, as its kernels would find them."""
        return [int(self.pages[self.table[slot, at // PAGE], at % PAGE]) for at in range(n)]


# Texts that often begin alike: pages of a few kinds, and always as long as a sequence can be.
def text(*kinds: int) -> list[int]:
    return [100 * kind + i for kind in (*kinds, *[9] * 6) for i in range(PAGE)][:N_CTX]


TEXTS = st.builds(text, st.integers(0, 1), st.integers(0, 1), st.integers(0, 1), st.integers(0, 1))
PICKS = st.integers(0, N_SLOTS - 1)
PIECES = st.sampled_from([0, 5, 11, 16, 21, 32, 37, 48])


class Machine(RuleBasedStateMachine):
    """Sequences on their way along texts that others go along as well."""

    recurrent = False

    @initialize(limit=st.integers(0, 5), goals=st.lists(TEXTS, min_size=2, max_size=N_SLOTS))
    def begin(self, limit: int, goals: list[list[int]]) -> None:
        self.device = Pretended(recurrent=self.recurrent, limit=limit)
        self.cache = self.device.cache
        self.texts: dict[int, list[int]] = {}  # what each open sequence holds
        self.goals: dict[int, list[int]] = {}
        self.salts: dict[int, bytes | None] = {}
        self.computed: set[tuple[bytes, tuple[int, ...]]] = set()  # beginnings that full pages were computed of
        for goal in goals:
            self.open(b"", goal)

    def picked(self, pick: int) -> int:
        """One of the open sequences."""
        return sorted(self.texts)[pick % len(self.texts)]

    @rule(salt=st.sampled_from([b"", b"", b"", b"tenant", None]), goal=TEXTS)
    def open(self, salt: bytes | None, goal: list[int]) -> None:
        if len(self.texts) == N_SLOTS:
            with pytest.raises(EngineError, match="all 4 sequences"):
                self.cache.open_sequence(salt=salt)
            return
        slot = self.cache.open_sequence(salt=salt)
        assert slot not in self.texts
        self.texts[slot], self.salts[slot], self.goals[slot] = [], salt, goal
        self.adopt(slot, goal, N_CTX)

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS, goal=TEXTS, n=st.sampled_from([1, 16, 17, 50, 80, N_CTX]))
    def turn(self, pick: int, goal: list[int], n: int) -> None:
        self.adopt(self.picked(pick), goal, n)

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS)
    def adopt_again(self, pick: int) -> None:
        slot = self.picked(pick)
        self.adopt(slot, self.goals[slot], N_CTX)

    def adopt(self, slot: int, goal: list[int], n_tokens: int) -> None:
        before, salt, ids = self.texts[slot], self.salts[slot], goal[:n_tokens]
        common = next((i for i, (a, b) in enumerate(zip(before, ids[:-1], strict=False)) if a != b), None)
        own = self.cache.resumable(slot, min(len(before), len(ids) - 1) if common is None else common)
        offered = self.cache.cached_prefix(ids, salt)
        n = self.cache.attach_prefix(slot, ids)
        assert max(own, offered) == n <= len(ids) - 1
        if n > own:
            assert n % PAGE == 0
            assert (salt, tuple(ids[:n])) in self.computed
        self.texts[slot], self.goals[slot] = ids[:n], goal

    @precondition(lambda self: self.texts)
    @rule(pieces=st.tuples(PIECES, PIECES, PIECES, PIECES), breaks=st.sampled_from([None, None, None, None, 0, 3, 30]))
    def step(self, pieces: tuple[int, ...], breaks: int | None) -> None:
        rows, room = [], N_ROWS
        for slot, n in zip(sorted(self.texts), pieces, strict=False):
            held = self.texts[slot]
            lost = self.device.snapshots is not None and self.device.snapshots.position(slot) is None
            more = self.goals[slot][len(held) :][: min(n, room)]
            if more and not lost:
                rows += [
                    SequenceChunk(slot, len(held), more[:3]),
                    SequenceChunk(slot, len(held) + len(more[:3]), more[3:]),
                ]
                room -= len(more)
        if not rows:
            return
        needed = sum(-(-(p.start + len(p.tokens)) // PAGE) for p in rows[1::2])
        needed -= sum(-(-p.start // PAGE) for p in rows[::2])
        table, free = self.device.table.copy(), self.cache.free_pages
        for part in rows[::2]:  # pages that a step which broke off has left
            free += len(self.cache._pages.pages(part.seq_id)) + -len(self.texts[part.seq_id]) // PAGE
        if needed > free:
            with pytest.raises(PagesExhausted):
                self.device.step(rows)
            assert (self.device.table == table).all()
            return
        self.device.step(rows, breaks)
        if breaks is not None:
            return
        assert self.cache.free_pages >= free - needed  # more where two computed one text
        for part in rows:
            self.texts[part.seq_id] = self.texts[part.seq_id] + list(part.tokens)
            self.note(part.seq_id)

    @precondition(lambda self: self.texts)
    @rule(n=st.sampled_from([16, 24, 48]))
    def all_go_on(self, n: int) -> None:
        self.step((n,) * N_SLOTS, None)

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS, goal=TEXTS)
    def next_request(self, pick: int, goal: list[int]) -> None:
        """As a server does: close, open for another text, compute some of it and keep the state."""
        self.close(pick)
        self.open(b"", goal)
        self.all_go_on(32)
        self.checkpoint(pick)

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS, n=st.integers(1, 20), k=st.integers(1, 20), right=st.integers(0, 20), settles=st.booleans())
    def guess(self, pick: int, n: int, k: int, right: int, settles: bool) -> None:
        """A step whose last rows are guesses, of which the first few are right."""
        slot = self.picked(pick)
        held, snapshots = self.texts[slot], self.device.snapshots
        more = self.goals[slot][len(held) :][: n + k]
        if len(more) < 2 or (snapshots is not None and snapshots.position(slot) is None):
            return
        k = min(k, len(more) - 1)
        right = min(right, k)
        sure = len(held) + len(more) - k
        tokens = more[: len(more) - k + right] + [7] * (k - right)
        try:
            self.device.step([SequenceChunk(slot, len(held), tokens, n_draft=k)])
        except PagesExhausted:
            return
        self.texts[slot] = held + tokens
        if right == k and not settles:  # what goes on behind them will confirm them
            self.note(slot)
            return
        with pytest.raises(EngineError, match="drafts cannot be accepted"):
            self.cache.accept_drafts(slot, sure + k + 1)
        back = self.recurrent and right < k
        assert self.cache.accept_drafts(slot, sure + right) == (len(held) if back else sure + right)
        del self.texts[slot][len(held) if back else sure + right :]
        self.note(slot)

    def note(self, slot: int, n_tokens: int = N_CTX) -> None:
        salt, held = self.salts[slot], self.texts[slot][:n_tokens]
        if salt is not None:
            self.computed |= {(salt, tuple(held[:n])) for n in range(PAGE, len(held) + 1, PAGE)}

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS, back=st.sampled_from([1, 10, 17, 40, N_CTX]))
    def truncate(self, pick: int, back: int) -> None:
        slot = self.picked(pick)
        n = max(0, len(self.texts[slot]) - back)
        want = self.cache.resumable(slot, n)
        assert self.cache.truncate(slot, n) == want <= n
        if not self.recurrent:
            assert want >= n // PAGE * PAGE
        del self.texts[slot][want:]

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS, back=st.integers(1, 20))
    def step_back(self, pick: int, back: int) -> None:
        """Rows that overwrite what the sequence holds, where that is allowed."""
        slot = self.picked(pick)
        held = self.texts[slot]
        start = max(0, len(held) - back)
        try:
            self.device.step([SequenceChunk(slot, start, [7])])
        except EngineError:
            assert start
            assert self.recurrent or start % PAGE
        except PagesExhausted:
            assert not self.cache.free_pages
        else:
            self.texts[slot] = [*held[:start], 7]
            self.goals[slot] = [*self.texts[slot], *self.goals[slot][start + 1 :]]
            self.note(slot)

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS)
    def fork(self, pick: int) -> None:
        slot = self.picked(pick)
        if len(self.texts) == N_SLOTS:
            with pytest.raises(EngineError, match="all 4 sequences"):
                self.cache.fork(slot)
            return
        free = self.cache.free_pages
        other = self.cache.fork(slot)
        n = len(self.cache.tokens(other))
        assert self.cache.free_pages == free
        assert n % PAGE == 0
        if not self.recurrent:
            guessed = self.cache._open[slot].n_draft  # what may turn out to be wrong is not passed on
            assert n == (len(self.texts[slot]) - guessed) // PAGE * PAGE
        self.texts[other], self.salts[other], self.goals[other] = (
            self.texts[slot][:n],
            self.salts[slot],
            self.goals[slot],
        )

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS)
    def checkpoint(self, pick: int) -> None:
        slot = self.picked(pick)
        self.cache.checkpoint(slot)
        snapshots = self.device.snapshots
        if snapshots is not None and snapshots.limit and snapshots.position(slot) is not None:
            assert self.cache.resumable(slot, N_CTX) == len(self.texts[slot])

    @precondition(lambda self: self.texts)
    @rule(pick=PICKS)
    def close(self, pick: int) -> None:
        slot = self.picked(pick)
        self.cache.close_sequence(slot)
        del self.texts[slot], self.salts[slot], self.goals[slot]
        with pytest.raises(EngineError, match="not open"):
            self.cache.truncate(slot, 0)

    @invariant()
    def the_books_add_up(self) -> None:
        if not hasattr(self, "device"):
            return
        self.cache.check_integrity()
        snapshots = self.device.snapshots
        for slot, held in self.texts.items():
            assert self.cache.tokens(slot) == held == self.device.read(slot, len(held))
            if snapshots is not None and snapshots.position(slot) is not None:
                assert snapshots.position(slot) == len(held)
                assert not held or self.device.states[slot] == tuple(held)
        stats = self.cache.stats()
        used = {int(p) for slot, held in self.texts.items() for p in self.device.table[slot, : -(-len(held) // PAGE)]}
        assert stats.free + stats.cached + stats.used == N_PAGES
        assert stats.used >= len(used)
        assert stats.collisions == 0


class RecurrentMachine(Machine):
    recurrent = True


Machine.TestCase.settings = settings(max_examples=15, stateful_step_count=30, deadline=None)
RecurrentMachine.TestCase.settings = Machine.TestCase.settings
TestSequences = Machine.TestCase
TestRecurrentSequences = RecurrentMachine.TestCase


def test_a_text_that_is_found_has_no_guesses() -> None:
    """Whatever the sequence held before: its pages are passed on, and it settles where it ends."""
    device = Pretended(recurrent=False)
    text, cache = list(range(2 * PAGE)), device.cache
    device.step([SequenceChunk(cache.open_sequence(), 0, text)])
    slot = cache.open_sequence()
    device.step([SequenceChunk(slot, 0, [90, 91, 92], n_draft=2)])
    assert cache.attach_prefix(slot, [*text, 7]) == 2 * PAGE
    assert cache.tokens(cache.fork(slot)) == text
    with pytest.raises(EngineError, match="drafts cannot be accepted"):
        cache.accept_drafts(slot, 2 * PAGE - 1)
    cache.check_integrity()


def test_a_state_of_as_many_positions_of_another_text() -> None:
    """What a slot's recurrent layers hold is not taken for what a page's copy holds."""
    device = two_sequences()
    device.cache.close_sequence(1)
    assert device.cache.attach_prefix(0, text(1)) == 32
    assert device.states[0] == tuple(text(1)[:32])
    device.step([SequenceChunk(0, 32, text(1)[32:40])])


def two_sequences() -> Pretended:
    device = Pretended(recurrent=True)
    for slot in (device.cache.open_sequence(), device.cache.open_sequence()):
        device.step([SequenceChunk(slot, 0, text(slot)[:32])])
        device.cache.checkpoint(slot)
    device.cache.check_integrity()
    return device


def change_a_token(device: Pretended) -> None:
    device.cache.tokens(0)[20] += 1


def lose_a_token(device: Pretended) -> None:
    device.cache.tokens(0).pop()


def hold_more_than_there_is_room(device: Pretended) -> None:
    device.cache.tokens(1).append(5)


def forget_to_release(device: Pretended) -> None:
    del device.cache._open[1]


def keep_a_state_of_no_page(device: Pretended) -> None:
    device.snapshots._kept[11] = device.save_state(None, 0)


def keep_too_many_states(device: Pretended) -> None:
    device.snapshots.limit = 1


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (change_a_token, "KV page 1 does not hold the tokens of sequence 0"),
        (lose_a_token, "KV page 1 does not hold the tokens of sequence 0"),
        (hold_more_than_there_is_room, "sequence 1 has 2 KV pages, which its positions do not fit"),
        (forget_to_release, "sequence 1 has 2 KV pages, which its positions do not fit"),
        (keep_a_state_of_no_page, r"3 copies of states, at most 4 are planned; of unknown KV pages: \[11\]"),
        (keep_too_many_states, "2 copies of states, at most 1 are planned"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_planted_corruption_is_found(damage: Callable[[Pretended], None], message: str) -> None:
    device = two_sequences()
    damage(device)
    with pytest.raises(IntegrityError, match=message):
        device.cache.check_integrity()

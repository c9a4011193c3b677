"""Pools: first fit, merging, books that add up; against a plain model."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from tests.amdgpu.queue.fake import FakeInterface
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.pool import ALIGNMENT, GpuMemory, Pool
from zinc_rt.amdgpu.ranges import Ranges
from zinc_rt.errors import BackendError

CHUNK = 64 << 10


class Pools(RuleBasedStateMachine):
    """Random allocations and frees of a pool with little memory; live pieces never overlap and keep what they hold."""

    def __init__(self) -> None:
        super().__init__()
        self.interface = FakeInterface(limit=5 * CHUNK)
        self.returned: list[int] = []
        self.pool = Pool(
            self.interface, "gtt", "pool", chunk=CHUNK, before_release=lambda buffer: self.returned.append(buffer.va)
        )
        self.live: list[GpuMemory] = []

    @rule(size=st.one_of(st.integers(1, 2000), st.integers(1, 3 * CHUNK)))
    def allocate(self, size: int) -> None:
        """It fails only when the interface has no memory for the piece."""
        reserved = self.pool.reserved
        try:
            memory = self.pool.allocate(size, f"{size} bytes")
        except InterfaceError:
            assert reserved + size > self.interface.limit - 4096
            return
        assert memory.va % ALIGNMENT == 0
        assert (memory.size, memory.freed) == (size, False)
        self.live.append(memory)

    @precondition(lambda self: bool(self.live))
    @rule(data=st.data())
    def free(self, data: st.DataObject) -> None:
        """Any of the live ones, once."""
        memory = self.live.pop(data.draw(st.integers(0, len(self.live) - 1)))
        self.pool.free(memory)
        with pytest.raises(BackendError, match="freed before"):
            self.pool.free(memory)

    @invariant()
    def books(self) -> None:
        """They add up, and the driver's view is the pool's."""
        self.pool.check_integrity()
        assert set(self.interface.live) == set(self.pool.buffers)
        assert len(self.returned) == len(set(self.returned))
        spans = sorted((memory.va, memory.va + memory.size) for memory in self.live)
        assert all(a[1] <= b[0] for a, b in pairwise(spans))
        for memory in self.live:
            assert memory.buffer.va <= memory.va
            assert memory.va + memory.size <= memory.buffer.va + memory.buffer.size
        pages = [-(-memory.size // 4096) * 4096 for memory in self.live if memory.size > CHUNK]
        small = [-(-memory.size // ALIGNMENT) * ALIGNMENT for memory in self.live if memory.size <= CHUNK]
        assert self.pool.used == sum(pages) + sum(small)


TestPools = Pools.TestCase
TestPools.settings = settings(max_examples=40, stateful_step_count=40, deadline=None)


def test_one_buffer_serves_many_pieces() -> None:
    interface = FakeInterface()
    pool = Pool(interface, "vram", "weights", chunk=1 << 20)
    pieces = [pool.allocate(1000, "x") for _ in range(1000)]
    assert len(interface.live) == 1
    assert len({piece.va for piece in pieces}) == 1000
    for piece in pieces[::2] + pieces[1::2]:
        pool.free(piece)
    assert pool.allocate(1 << 20, "all of it").va == pieces[0].va, "neighbours were merged"


def test_a_large_piece_gets_a_buffer_of_its_size() -> None:
    interface = FakeInterface()
    pool = Pool(interface, "vram", "weights", chunk=1 << 20)
    assert pool.allocate(5_000_000, "large").buffer.size == 5_001_216
    assert pool.allocate(1, "small").buffer.size == 1 << 20


def test_short_memory_takes_a_smaller_buffer() -> None:
    interface = FakeInterface(limit=8192)
    pool = Pool(interface, "gtt", "pool", chunk=1 << 20)
    assert pool.allocate(5000, "x").buffer.size == 8192
    with pytest.raises(InterfaceError, match="errno 12"):
        pool.allocate(5000, "y")
    pool.check_integrity()


def test_one_empty_buffer_is_kept() -> None:
    interface = FakeInterface()
    pool = Pool(interface, "gtt", "pool", chunk=4096)
    a, b = pool.allocate(4096, "a"), pool.allocate(4096, "b")
    pool.free(a)
    assert len(interface.live) == 2
    pool.free(b)
    assert len(interface.live) == 1


def test_wrong_use() -> None:
    pool, other = Pool(FakeInterface(), "gtt", "one", chunk=4096), Pool(FakeInterface(), "gtt", "two", chunk=4096)
    piece = pool.allocate(1, "x")
    with pytest.raises(BackendError, match="another pool"):
        other.free(piece)
    for size in (0, -1):
        with pytest.raises(BackendError, match="at least 1"):
            pool.allocate(size, "nothing")


@pytest.mark.parametrize("break_", range(6))
def test_broken_books_are_found(break_: int) -> None:
    pool = Pool(FakeInterface(), "gtt", "pool", chunk=4096)
    pieces = [pool.allocate(512, "x") for _ in range(3)]
    pool.free(pieces[1])
    pool.check_integrity()
    chunk = pool.chunk_of(pieces[0])
    ranges = chunk.ranges
    breaks: list[Callable[[], object]] = [
        ranges._free.pop,
        lambda: ranges._free.append((0, 512)),
        lambda: ranges._used.__setitem__(512, 256),
        lambda: chunk.owned.pop(0),
        lambda: setattr(pieces[0], "offset", 256),
        lambda: ranges._free.__setitem__(slice(1, 2), [(1536, 512), (2048, 2048)]),
    ]
    breaks[break_]()
    with pytest.raises(BackendError, match=r"^pool(:| at 0x)"):
        pool.check_integrity()


def test_the_integrity_check_says_what_is_wrong_with_a_range() -> None:
    ranges = Ranges(0, 0x1000, "addresses")
    ranges.take(0x100)
    ranges._free[:] = [(0x200, 0xE00)]
    with pytest.raises(BackendError, match=r"addresses: 0x100..0x200 is lost"):
        ranges.check_integrity()
    ranges._free[:] = [(0x80, 0xF80)]
    with pytest.raises(BackendError, match=r"addresses: 0x80..0x100 is in two parts"):
        ranges.check_integrity()


def test_ranges_align_and_keep_the_gap() -> None:
    ranges = Ranges(0x1000, 0x10000, "addresses")
    assert ranges.take(0x100, 0x1000) == 0x1000
    assert ranges.take(0x1000, 0x4000) == 0x4000
    assert ranges.take(0x100) == 0x1100, "the gap before it can be used"
    assert ranges.take(0x10000) is None
    assert ranges.take(0x11000 - 0x5000 + 1) is None
    assert ranges.take(0x11000 - 0x5000) == 0x5000, "the longest free part"
    assert ranges.give(0x5000) == 0x11000 - 0x5000
    assert [ranges.give(at) for at in (0x1000, 0x4000, 0x1100)] == [0x100, 0x1000, 0x100]
    with pytest.raises(BackendError, match="not in use"):
        ranges.give(0x4000)
    ranges.check_integrity()
    assert ranges.take(0x10000) == 0x1000

"""User rings: pointers, wrapping, calls, fences."""

from __future__ import annotations

import pytest

from amdgpu_emu.cp import PacketFault, PacketHang
from amdgpu_emu.gpu import IDLE, POLLING, PROGRESS
from tests.amdgpu.pm4.raw import words_raw
from tests.amdgpu_emu.cp.rig import CODE, DATA, IB, IB2, UNCACHED, Rig, dispatch
from zinc_rt.amdgpu.pm4.builder import PacketBuilder

RING, SIZE = UNCACHED, 64  # dwords
FENCE = UNCACHED + 0x3000


class UserRing:
    """The side of the program: writes packets, moves the write pointer."""

    def __init__(self, rig: Rig, at: int = RING) -> None:
        self.rig, self.write, self.read, self.at = rig, 0, [], at
        self.steps = rig.processor.ring(rig.vm, at, 4 * SIZE, lambda: self.write, self.read.append)

    def put(self, build, *, ring: bool = True) -> None:
        builder = PacketBuilder([0] * SIZE)
        build(builder)
        for i, word in enumerate(builder.written()):
            self.rig.poke(self.at + 4 * ((self.write + i) % SIZE), word)
        if ring:
            self.write += builder.cursor

    def until_idle(self) -> list[str]:
        states = []
        for state in self.steps:
            states.append(state)
            if state != PROGRESS:
                break
        return states


@pytest.fixture
def ring() -> UserRing:
    return UserRing(Rig())


def test_an_empty_ring_is_idle(ring):
    assert ring.until_idle() == [IDLE]
    assert ring.read == []


def test_the_read_pointer_follows_packet_by_packet(ring):
    ring.put(lambda b: (b.write_nop(3), b.write_data32(DATA, 1), b.write_nop(1)))
    assert ring.until_idle() == [PROGRESS] * 3 + [IDLE]
    assert ring.read == [4, 9, 11]
    assert ring.rig.peek(DATA) == 1


def test_the_doorbell_decides_what_is_there(ring):
    ring.put(lambda b: b.write_data32(DATA, 1), ring=False)
    assert ring.until_idle() == [IDLE]
    ring.write += 5
    assert ring.until_idle() == [PROGRESS, IDLE]
    assert ring.rig.peek(DATA) == 1


def test_pointers_never_wrap_and_packets_may(ring):
    for i in range(40):
        ring.put(lambda b, i=i: (b.write_data32(DATA + 4, i), b.release_mem_signal(FENCE, i + 1)))
        ring.until_idle()
        assert ring.rig.peek(FENCE) == i + 1
        assert ring.rig.peek(DATA + 4) == i
    assert ring.read[-1] == ring.write == 40 * 13


def test_a_full_ring(ring):
    ring.put(lambda b: b.write_nop(SIZE - 1))
    assert ring.until_idle() == [PROGRESS, IDLE]


@pytest.mark.parametrize(("move", "text"), [(SIZE + 1, "the ring has 0x40 dwords"), (-1, "write pointer is -0x1")])
def test_pointers_that_cannot_be(ring, move, text):
    ring.write = move
    with pytest.raises(PacketHang, match=text):
        ring.until_idle()


def test_a_packet_beyond_the_write_pointer(ring):
    ring.put(lambda b: b.write_data64(DATA, 1))
    ring.write -= 1
    with pytest.raises(PacketHang, match="5 body dwords; 4 are left"):
        ring.until_idle()


def test_errors_count_from_the_ring_s_start(ring):
    for _ in range(20):
        ring.put(lambda b: b.write_nop(9))
        ring.until_idle()
    ring.put(lambda b: (b.write_nop(1), words_raw(b, [0x80000000])))
    with pytest.raises(PacketHang, match="packet 21 at dword 202 of ring queue") as caught:
        ring.until_idle()
    assert (caught.value.index, caught.value.offset) == (21, 202)


def test_a_call_comes_back(ring):
    n = ring.rig.place(lambda b: (b.write_data32(DATA, 1), b.write_nop(4)), IB)
    ring.put(lambda b: (b.indirect_buffer(IB, n), b.write_data32(DATA + 4, 2)))
    assert ring.until_idle() == [PROGRESS] * 4 + [IDLE]
    assert (ring.rig.peek(DATA), ring.rig.peek(DATA + 4)) == (1, 2)
    assert ring.read == [4, 9]


def test_a_called_buffer_may_chain(ring):
    at = IB + 0x1000
    second = ring.rig.place(lambda b: b.write_data32(DATA + 4, 2), at)
    first = ring.rig.place(lambda b: (b.write_data32(DATA, 1), b.indirect_buffer(at, second, chain=True)), IB)
    ring.put(lambda b: (b.indirect_buffer(IB, first), b.write_data32(DATA + 8, 3)))
    ring.until_idle()
    assert [ring.rig.peek(DATA + i) for i in (0, 4, 8)] == [1, 2, 3]


def test_a_ring_cannot_chain(ring):
    ring.put(lambda b: b.indirect_buffer(IB, 4, chain=True))
    with pytest.raises(PacketHang, match="a ring cannot chain"):
        ring.until_idle()


def test_errors_in_a_called_buffer_name_the_buffer(ring):
    n = ring.rig.place(lambda b: (b.write_nop(1), b.write_data32(0x5000, 1)), IB)
    ring.put(lambda b: b.indirect_buffer(IB, n))
    with pytest.raises(PacketFault, match=f"packet 1 at dword 2 of the indirect buffer at {IB:#x}"):
        ring.until_idle()


def test_a_wait_in_the_ring_lets_others_run(ring):
    ring.put(lambda b: (b.wait_mem(DATA, 1), b.write_data32(DATA + 0x1000, 2)))
    assert ring.until_idle() == [POLLING]
    ring.rig.gpu.caches.store(ring.rig.buffers[DATA], 0, ring.rig.buffers[CODE].bytes[:4] | 1, through=True)
    assert ring.until_idle() == [PROGRESS, PROGRESS, IDLE]
    assert ring.rig.peek(DATA + 0x1000) == 2


def test_the_ring_is_read_from_memory_every_time(ring):
    """No acquire comes before the packets of a ring: they are never old."""
    for value in range(1, 12):
        ring.put(lambda b, value=value: b.write_data32(DATA, value))
        ring.until_idle()
        assert ring.rig.peek(DATA) == value


def test_a_ring_that_the_l2_keeps_is_read_old():
    """The block that was fetched with the first packets holds what lay behind them then."""
    ring = UserRing(Rig(), IB2)
    ring.put(lambda b: b.write_data32(DATA, 1))
    ring.until_idle()
    ring.put(lambda b: b.write_data32(DATA, 2))
    with pytest.raises(PacketHang, match="type 0"):
        ring.until_idle()
    assert ring.rig.peek(DATA) == 1
    assert ring.rig.kinds == ["stale-ring"]
    assert "AMDGPU_VM_MTYPE_UC" in ring.rig.machine.findings[0][1]


def test_a_fence_that_the_l2_keeps_does_not_arrive(ring):
    ring.put(lambda b: b.release_mem_signal(DATA, 1))
    ring.until_idle()
    assert ring.rig.peek(DATA) == 0
    assert ring.rig.copy(DATA, UNCACHED + 0x2000) == 1


def test_waves_and_fences_are_done_when_the_ring_is_empty(ring):
    ring.rig.machine.shader.add(CODE, lambda d, m: m.write(DATA, b"\7\0\0\0"))
    ring.put(lambda b: (dispatch(b), b.release_mem_signal(FENCE, 1)))
    ring.until_idle()
    assert (ring.rig.peek(DATA), ring.rig.peek(FENCE)) == (7, 1)


def test_late_fences(ring):
    ring.rig.gpu.fence_delay = 0.02
    ring.put(lambda b: b.release_mem_signal(FENCE, 1))
    assert ring.until_idle() == [PROGRESS, POLLING]
    assert ring.rig.peek(FENCE) == 0
    states = [POLLING]
    while states[-1] == POLLING:
        states = ring.until_idle()
    assert ring.rig.peek(FENCE) == 1

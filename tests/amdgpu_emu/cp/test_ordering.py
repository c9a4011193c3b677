"""Litmus tests: with the barrier that hardware needs the right value, without it the old one, every time.

Each test runs in variants; a variant leaves one thing out. Values differ from round to round, so that an old value
cannot look right.
"""

from __future__ import annotations

import pytest

from amdgpu_emu.cp import CommandProcessor, PacketHang
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.gpu import POLLING
from amdgpu_emu.models import R9700, RX7900XTX
from tests.amdgpu_emu.cp.rig import CODE, DATA, FENCE, IB2, UNCACHED, Rig, acquire_all, dispatch
from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST, ACQUIRE_KERNEL, RELEASE_CONTROL

X, Y, Z = DATA, DATA + 0x1000, DATA + 0x2000  # pages of their own
GLI, GLK, GLV, GL2_INV, GL2_WB = 1 << 0, 1 << 7, 1 << 8, 1 << 14, 1 << 15
STORE, LOAD = CODE, CODE + 0x100
"""Programs: write user word 2 to the address in words 0 and 1; copy from there to the address in words 2 and 3."""


def number(data) -> int:
    return int.from_bytes(data.tobytes(), "little")


def address(d, slot: int) -> int:
    return d.user_data[slot] | d.user_data[slot + 1] << 32


@pytest.fixture
def rig() -> Rig:
    rig = Rig()
    shader = rig.machine.shader
    shader.add(STORE, lambda d, m: m.write(address(d, 0), d.user_data[2].to_bytes(4, "little")))
    shader.add(LOAD, lambda d, m: m.write(address(d, 2), m.read(address(d, 0), 4)))
    return rig


def store(b, va: int, value: int) -> None:
    """A dispatch that writes."""
    b.set_sh_reg(0x240, [va & 0xFFFFFFFF, va >> 32, value])
    dispatch(b, STORE)


def load(b, source: int, target: int, program: int = LOAD) -> None:
    """A dispatch that copies."""
    b.set_user_data64(0, source)
    b.set_user_data64(2, target)
    dispatch(b, program)


@pytest.mark.parametrize("mem_sync", [True, False])
def test_host_writes_need_an_acquire(rig, mem_sync):
    rig.poke(X, 1)
    assert rig.copy(X) == 1
    rig.poke(X, 2)
    rig.run(lambda b: b.copy_data32(X, FENCE), mem_sync=mem_sync)
    assert rig.peek(FENCE) == (2 if mem_sync else 1)


@pytest.mark.parametrize(("gcr", "seen"), [(ACQUIRE_HOST, 2), (GL2_INV | GL2_WB, 2), (GL2_WB, 1), (ACQUIRE_KERNEL, 1)])
def test_which_acquire_shows_host_writes_to_the_command_processor(rig, gcr, seen):
    rig.poke(X, 1)
    rig.copy(X)
    rig.poke(X, 2)
    rig.run(lambda b: (b.acquire_mem(gcr), b.copy_data32(X, FENCE)), mem_sync=False)
    assert rig.peek(FENCE) == seen


@pytest.mark.parametrize(
    ("gcr", "seen"), [(ACQUIRE_HOST, 2), (GL2_INV | GL2_WB, 1), (GLV, 1), (GL2_INV | GL2_WB | GLV, 2)]
)
def test_which_acquire_shows_host_writes_to_shaders(rig, gcr, seen):
    """The L2 and the cache in front of it both hold the old value."""
    rig.poke(X, 1)
    rig.run(lambda b: load(b, X, Y))
    rig.poke(X, 2)
    rig.run(lambda b: (b.acquire_mem(gcr), load(b, X, Y)), mem_sync=False)
    assert rig.peek(Y) == seen


@pytest.mark.parametrize("left_out", ["", "flush", "acquire"])
@pytest.mark.parametrize("warm", [True, False])
def test_from_kernel_to_kernel(rig, left_out, warm):
    rig.poke(X, 1)

    def build(b):
        if warm:  # the vector cache holds the old page
            load(b, X, Z)
            b.cs_partial_flush()
        store(b, X, 2)
        if left_out != "flush":
            b.cs_partial_flush()
        if left_out != "acquire":
            b.acquire_mem(ACQUIRE_KERNEL)
        load(b, X, Y)

    rig.run(build)
    right = left_out == "" or (left_out == "acquire" and not warm)
    assert rig.peek(Y) == (2 if right else 1)
    assert rig.peek(X) == 2


@pytest.mark.parametrize(("gcr", "seen"), [(GLK, 2), (GLV, 1), (0, 1)])
def test_scalar_reads_need_their_own_invalidate(rig, gcr, seen):
    rig.machine.shader.add(LOAD, lambda d, m: m.write(address(d, 2), m.scalar(address(d, 0), 4)))
    rig.poke(X, 1)

    def build(b):
        load(b, X, Z)
        b.cs_partial_flush()
        store(b, X, 2)
        b.cs_partial_flush()
        b.acquire_mem(gcr)
        load(b, X, Y)

    rig.run(build)
    assert rig.peek(Y) == seen


@pytest.mark.parametrize(("gcr", "seen"), [(ACQUIRE_HOST, 2), (ACQUIRE_HOST & ~GLI, 1)])
def test_rewritten_programs_need_an_invalidate_of_instructions(rig, gcr, seen):
    rig.machine.shader.add(LOAD, lambda d, m: m.write(address(d, 2), m.code(CODE + 0x1000, 4)))
    rig.poke(CODE + 0x1000, 1)
    rig.run(lambda b: load(b, X, Y))
    rig.poke(CODE + 0x1000, 2)
    rig.run(lambda b: (b.acquire_mem(gcr), load(b, X, Y)), mem_sync=False)
    assert rig.peek(Y) == seen


@pytest.mark.parametrize("flush", [True, False])
def test_the_command_processor_reads_what_shaders_wrote_after_a_flush(rig, flush):
    def build(b):
        store(b, X, 7)
        if flush:
            b.cs_partial_flush()
        b.copy_data32(X, Y)

    rig.run(build)
    assert rig.peek(Y) == (7 if flush else 0)


@pytest.mark.parametrize("flush", [True, False])
def test_counts_of_an_indirect_dispatch_need_a_flush(rig, flush):
    rig.poke(X, 1, 1, 1)

    def build(b):
        store(b, X, 9)
        if flush:
            b.cs_partial_flush()
        b.dispatch_indirect(X, 5)

    rig.run(build)
    assert rig.dispatches[-1].groups == (9 if flush else 1, 1, 1)


def test_a_sentinel_by_write_data_does_not_wait_for_waves(rig):
    def build(b):
        store(b, X, 7)
        b.write_data64(FENCE, 1)

    rig.run(build, finish=False)
    assert (rig.peek(FENCE), rig.peek(X)) == (1, 0)
    rig.finish()
    assert rig.peek(X) == 7


@pytest.mark.parametrize(
    ("control", "seen"), [(RELEASE_CONTROL, 7), (0x0070F514, 7), (RELEASE_CONTROL & ~(1 << 21), 0), (0x514, 0)]
)
def test_the_host_reads_what_shaders_wrote_after_a_release_with_write_back(rig, control, seen):
    """The fence comes either way; what it announces is in memory only when the L2 was written back."""

    def build(b):
        store(b, X, 7)
        b.release_mem(UNCACHED, 5, control=control)
        b.wait_mem(UNCACHED, 5)

    rig.run(build, finish=False)
    assert (rig.peek(UNCACHED), rig.peek(X)) == (5, seen)


@pytest.mark.parametrize("wait", [True, False])
def test_a_release_alone_stops_nobody(rig, wait):
    rig.poke(X, 1)

    def build(b):
        store(b, X, 2)
        b.release_mem_signal(FENCE, 5)
        if wait:
            b.wait_mem(FENCE, 5)
        b.acquire_mem(ACQUIRE_KERNEL)
        load(b, X, Y)

    rig.run(build)
    assert rig.peek(FENCE) == 5
    assert rig.peek(Y) == (2 if wait else 1)


def test_a_dispatch_sees_its_own_writes(rig):
    seen = []

    def program(d, m):
        m.write(X, b"\5\0\0\0")
        seen.append(number(m.read(X, 4)))

    rig.machine.shader.add(CODE, program)
    rig.run(dispatch)
    assert seen == [5]


@pytest.mark.parametrize("flush", [True, False])
def test_writes_to_one_place_need_a_flush_between(rig, flush):
    def build(b):
        store(b, X, 1)
        if flush:
            b.cs_partial_flush()
        store(b, X, 2)

    rig.run(build)
    assert rig.peek(X) == (2 if flush else 1)


@pytest.mark.parametrize("flush", [True, False])
@pytest.mark.parametrize("writer", ["dispatch", "packet"])
def test_a_write_after_a_read_needs_a_flush_between(rig, flush, writer):
    rig.poke(X, 1)

    def build(b):
        load(b, X, Y)
        if flush:
            b.cs_partial_flush()
        if writer == "dispatch":
            store(b, X, 2)
        else:
            b.write_data32(X, 2)

    rig.run(build)
    assert rig.peek(Y) == (1 if flush else 2)
    assert rig.peek(X) == 2


def test_dispatches_that_share_nothing_need_no_flush(rig):
    rig.run(lambda b: [store(b, X + 4 * i, i) for i in range(1, 9)])
    assert [rig.peek(X + 4 * i) for i in range(9)] == list(range(9))
    assert [d.user_data[2] for d in rig.dispatches] == list(range(1, 9))


@pytest.mark.parametrize("level", ["processor", "shader"])
def test_uncached_memory_needs_no_acquire(rig, level):
    for value in (1, 2):
        rig.poke(UNCACHED, value)
        build = (lambda b: load(b, UNCACHED, Y)) if level == "shader" else (lambda b: b.copy_data32(UNCACHED, Y))
        rig.run(build, mem_sync=False)
        assert rig.peek(Y) == value


def test_uncached_memory_needs_no_write_back(rig):
    rig.run(lambda b: (store(b, UNCACHED, 7), b.cs_partial_flush()), finish=False)
    assert rig.peek(UNCACHED) == 7


def test_writes_to_the_l2_stay_there(rig):
    rig.words(0xC0033700, 0x00100200, X & 0xFFFFFFFF, X >> 32, 8, finish=False)
    assert rig.peek(X) == 0
    assert rig.copy(X) == 8
    rig.run(lambda b: b.acquire_mem(GL2_WB), finish=False)
    assert rig.peek(X) == 8


def test_host_writes_beside_gpu_writes_survive_the_write_back(rig):
    """A write-back writes the bytes that were written, not the page around them."""
    rig.run(lambda b: (store(b, X, 7), b.cs_partial_flush()), finish=False)
    rig.poke(X + 4, 9)
    rig.finish()
    assert (rig.peek(X), rig.peek(X + 4)) == (7, 9)


def test_a_write_through_is_not_undone_by_an_older_one(rig):
    rig.words(0xC0033700, 0x00100200, X & 0xFFFFFFFF, X >> 32, 1, finish=False)  # L2
    rig.run(lambda b: b.write_data32(X, 2), mem_sync=False, finish=False)  # memory
    assert rig.peek(X) == 2
    rig.poke(X, 3)  # nothing of the GPU's is on its way any more
    rig.finish()
    assert rig.peek(X) == 3


def test_an_invalidate_without_write_back_loses_writes_and_is_found(rig):
    rig.run(lambda b: (store(b, X, 7), b.cs_partial_flush(), b.acquire_mem(GL2_INV)))
    assert rig.peek(X) == 0
    assert rig.kinds == ["lost-writes"]


@pytest.mark.parametrize("mem_sync", [True, False])
def test_rewritten_indirect_buffers_need_an_acquire(rig, mem_sync):
    for value in (1, 2):
        n = rig.place(lambda b, value=value: b.write_data32(X, value), IB2)
        list(rig.processor.indirect(rig.vm, IB2, n, mem_sync=mem_sync))
    assert rig.peek(X) == (2 if mem_sync else 1)
    assert rig.kinds == ([] if mem_sync else ["stale-packets"])
    if not mem_sync:
        assert f"the indirect buffer at {IB2:#x} was rewritten from dword 4 on" in rig.machine.findings[0][1]


@pytest.mark.parametrize(
    ("model", "at", "policy", "goes_on"),
    [
        (R9700, X, v.Temporal.RT, False),
        (R9700, X, v.Temporal.LU, False),
        (R9700, UNCACHED, v.Temporal.RT, True),
        (RX7900XTX, X, v.CachePolicy.LRU, False),
        (RX7900XTX, X, v.CachePolicy.BYPASS, True),
    ],
)
def test_a_wait_for_the_host_is_hidden_by_the_l2(model, at, policy, goes_on):
    """On gfx12 no bits of the packet help: 3 is a last use there, not a way past the L2."""
    rig = Rig(model)
    rig.copy(at)
    rig.poke(at, 5)
    steps = rig.steps(lambda b: b.wait_mem(at, 5, temporal=policy), mem_sync=False)
    assert (POLLING not in [state for state, _ in zip(steps, range(3), strict=False)]) == goes_on
    if not goes_on:
        with pytest.raises(PacketHang, match="memory holds 0x5, which the L2 hides"):
            steps.throw(GpuHang("no progress"))


def test_buffers_that_are_gone_leave_nothing_behind(rig):
    rig.run(lambda b: (store(b, X, 7), b.cs_partial_flush()), finish=False)
    bo = rig.buffers[DATA]
    rig.gpu.release(bo)
    assert bo not in rig.gpu.caches._l2
    rig.finish()
    assert rig.peek(X) == 0


def test_a_reset_loses_what_was_not_written_back(rig):
    rig.run(lambda b: (store(b, X, 7), b.cs_partial_flush()), finish=False)
    rig.gpu.caches.reset()
    rig.finish()
    assert rig.peek(X) == 0


def test_two_queues_share_the_l2(rig):
    rig.run(lambda b: (store(b, X, 7), b.release_mem(FENCE, 1, control=0x514)), finish=False)
    other = CommandProcessor(rig.gpu, "other")
    n = rig.place(lambda b: (b.wait_mem(FENCE, 1), b.copy_data32(X, Y)), IB2)
    steps = other.indirect(rig.vm, IB2, n, mem_sync=False)
    assert next(steps) == POLLING  # the first queue's fence has not come
    list(rig.processor.end_of_pipe())
    assert POLLING not in list(steps)
    assert rig.peek(Y) == 7


# Redundant barriers.


def listed(rig: Rig, build) -> list[str]:
    rig.machine.report_redundant = []
    rig.run(build)
    return [line.removeprefix("queue: ") for line in rig.machine.report_redundant]


def test_needed_barriers_are_not_listed(rig):
    rig.poke(X, 1)
    rig.run(lambda b: load(b, X, Z))

    def build(b):
        store(b, X, 2)
        b.cs_partial_flush()
        b.acquire_mem(GLV)
        load(b, X, Y)

    rig.machine.report_redundant = []
    rig.run(build, mem_sync=False)
    assert rig.machine.report_redundant == []
    assert rig.peek(Y) == 2


def test_redundant_barriers_are_listed(rig):
    def build(b):
        b.cs_partial_flush()
        store(b, X, 2)
        b.cs_partial_flush()
        b.cs_partial_flush()
        acquire_all(b)
        b.acquire_mem(GL2_WB | GL2_INV | GLV | GLK | GLI)

    assert listed(rig, build) == [
        "CS_PARTIAL_FLUSH with no waves running",
        "CS_PARTIAL_FLUSH with no waves running",
        "ACQUIRE_MEM: invalidate of the L2",  # what it holds otherwise than memory is what it wrote back
        "ACQUIRE_MEM: invalidate of the vector cache",
        "ACQUIRE_MEM: invalidate of the scalar cache",
        "ACQUIRE_MEM: invalidate of the instruction cache",
        "ACQUIRE_MEM: write-back of the L2",
        "ACQUIRE_MEM: invalidate of the L2",
        "ACQUIRE_MEM: invalidate of the vector cache",
        "ACQUIRE_MEM: invalidate of the scalar cache",
        "ACQUIRE_MEM: invalidate of the instruction cache",
    ]


def test_nothing_is_listed_by_default(rig):
    rig.run(lambda b: b.cs_partial_flush())
    assert rig.machine.report_redundant is None

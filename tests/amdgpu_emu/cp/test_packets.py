"""What each packet does when all is well."""

from __future__ import annotations

import pytest

from amdgpu_emu.errors import GpuHang
from amdgpu_emu.gpu import POLLING
from amdgpu_emu.models import RX7900XTX
from tests.amdgpu.pm4.raw import words_raw
from tests.amdgpu_emu.cp.rig import CODE, DATA, FENCE, IB2, LEFT, UNCACHED, Rig, dispatch
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.builder import CS_W32_EN, RELEASE_CONTROL, USE_THREAD_DIMENSIONS, PacketBuilder


@pytest.fixture
def rig() -> Rig:
    return Rig()


def wait_register(b: PacketBuilder, register: int, value: int) -> None:
    """Stop until a register, by its dword address, has a value."""
    mask = 0xFFFFFFFF
    b.packet("WAIT_REG_MEM", function=v.Compare.EQUAL, register=register, reference=value, mask=mask, poll_interval=4)


def uconfig(b: PacketBuilder, offset: int, value: int) -> None:
    """Write a register of the user-configuration space."""
    b.packet("SET_UCONFIG_REG", register=offset, values=(value,))


def test_copy_and_sentinel_as_the_seed_has_them(rig):
    for round_ in range(3):
        rig.poke(DATA, 41 + round_)

        def build(b, round_=round_):
            b.write_nop(1)
            b.copy_data32(DATA, DATA + 0x1000)
            b.write_data64(FENCE, 0x5A494E4352541001 + round_)
            b.pad_to_alignment(64)

        rig.run(build)
        assert rig.peek(DATA + 0x1000) == 41 + round_
        assert rig.peek(FENCE) | rig.peek(FENCE + 4) << 32 == 0x5A494E4352541001 + round_
    assert rig.machine.findings == []


def test_a_dispatch_has_what_its_registers_say(rig):
    def build(b):
        b.set_sh_reg(0x20C, [CODE >> 8 & 0xFFFFFFFF, CODE >> 40])
        b.set_sh_reg(0x212, [0xE0000001, 0x90 | 1 << 11 | 3 << 15])
        b.set_sh_regs(LEFT)
        b.set_sh_reg(0x207, [32, 2, 1])
        b.set_user_data64(0, DATA)
        b.set_sh_reg(0x242, [7, 8])
        b.dispatch_direct_initiator(4, 3, 2, 5 | CS_W32_EN)

    rig.run(build)
    (d,) = rig.dispatches
    assert (d.address, d.groups, d.threads, d.grid) == (CODE, (4, 3, 2), (32, 2, 1), (128, 6, 2))
    assert (d.start, d.wave32, d.lds_bytes, d.scratch) == ((0, 0, 0), True, 1536, None)
    assert d.user_data[:4] == (DATA & 0xFFFFFFFF, DATA >> 32, 7, 8)
    assert (d.rsrc1, d.rsrc2, d.rsrc3, d.n_user_sgprs) == (0xE0000001, 0x90 | 1 << 11 | 3 << 15, 0, 8)
    assert d.gfx == (12, 0, 1)
    assert str(d) == f"program {CODE:#x}, 4x3x2 groups of 32x2x1 threads, wave32"
    assert rig.machine.findings == []


def test_dimensions_in_threads(rig):
    def build(b):
        dispatch(b, r207=64, r208=2)
        b.dispatch_direct_initiator(130, 3, 1, 5 | USE_THREAD_DIMENSIONS)

    rig.run(build)
    assert rig.dispatches[1].groups == (3, 2, 1)
    assert rig.dispatches[1].grid == (130, 3, 1)


def test_partial_groups(rig):
    def build(b):
        dispatch(b, r207=64 | 10 << 16, r208=2, r209=1)
        b.dispatch_direct_initiator(3, 2, 1, 5 | 2)

    rig.run(build)
    assert [d.grid for d in rig.dispatches] == [(64, 2, 1), (138, 4, 1)]


def test_a_dispatch_from_another_group_on(rig):
    rig.run(lambda b: dispatch(b, initiator=1, r204=5, r205=6, r206=7))
    assert rig.dispatches[0].start == (5, 6, 7)


def test_scratch(rig):
    rig.run(lambda b: dispatch(b, r213=0x91, r218=2 | 16 << 12, r210=DATA >> 8 & 0xFFFFFFFF, r211=DATA >> 40))
    scratch = rig.dispatches[0].scratch
    assert (scratch.base, scratch.bytes_per_wave, scratch.waves) == (DATA, 4096, 2)


def test_registers_live_as_long_as_the_queue(rig):
    rig.run(lambda b: b.set_sh_reg(0x240, [1, 2]))
    rig.run(lambda b: b.set_sh_reg_one(0x241, 3))
    assert rig.processor.registers[0x240] == 1
    assert rig.processor.registers[0x241] == 3
    rig.run(dispatch)
    assert rig.dispatches[0].user_data[:2] == (1, 3)


def test_registers_from_memory(rig):
    rig.poke(DATA + 8, 5, 6, 7)
    rig.run(lambda b: b.packet("LOAD_SH_REG_INDEX", address=DATA + 8, register=reg.USER_DATA_0 + 1, n_registers=3))
    assert [rig.processor.registers.get(0x240 + i) for i in range(5)] == [None, 5, 6, 7, None]


def test_counts_from_memory(rig):
    rig.poke(DATA, 3, 2, 1)
    rig.run(lambda b: (dispatch(b), b.dispatch_indirect(DATA, 5)))
    assert rig.dispatches[1].groups == (3, 2, 1)
    rig.poke(DATA, 3, 0, 1)
    rig.run(lambda b: b.dispatch_indirect(DATA, 5))
    assert len(rig.dispatches) == 2


@pytest.mark.parametrize(("flag", "runs"), [(0, False), (1, True), (0x80000000, True)])
def test_conditional_packets(rig, flag, runs):
    rig.poke(DATA, flag)

    def build(b):
        b.cond_exec(DATA, 5)
        b.write_data32(DATA + 4, 1)
        b.write_data32(DATA + 8, 2)

    rig.run(build)
    assert (rig.peek(DATA + 4), rig.peek(DATA + 8)) == (int(runs), 2)


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((0xC0043700, 0x00100500), (1, 2)),  # async memory
        ((0xC0043700, 0x00110500), (2, 0)),  # all to one address
        ((0xC0043700, 0x00000500), (1, 2)),  # without confirmation
        ((0xC0043700, 0x00100200), (1, 2)),  # L2, written back by the kernel's fence
        ((0xC0043700, 0x00100100), (0, 0)),  # through GRBM: dead
    ],
)
def test_write_data(rig, words, expected):
    rig.words(*words, DATA & 0xFFFFFFFF, DATA >> 32, 1, 2)
    assert (rig.peek(DATA), rig.peek(DATA + 4)) == expected
    assert rig.kinds == (["dead-write"] if words[1] == 0x00100100 else [])


@pytest.mark.parametrize(
    ("control", "source", "expected"),
    [
        (0x00100501, (0xFFFFFFFF & DATA, DATA >> 32), (0x11, 0)),  # 32 bits of memory
        (0x00110501, (0xFFFFFFFF & DATA, DATA >> 32), (0x11, 0x22)),  # 64 bits
        (0x00110502, (0xFFFFFFFF & DATA, DATA >> 32), (0x11, 0x22)),  # through the L2
        (0x00110505, (0xAB, 0xCD), (0xAB, 0xCD)),  # immediate
        (0x00110500, (0x2C00 + 0x240, 0), (0x77, 0x88)),  # registers
        (0x00110504, (0, 0), (0, 0)),  # a performance counter, which stands still
    ],
)
def test_copy_data(rig, control, source, expected):
    rig.poke(DATA, 0x11, 0x22)
    target = DATA + 0x100

    def build(b):
        b.set_sh_reg(0x240, [0x77, 0x88])
        words_raw(b, [0xC0044000, control, *source, target & 0xFFFFFFFF, target >> 32])

    rig.run(build)
    assert (rig.peek(target), rig.peek(target + 4)) == expected


def test_copy_to_registers(rig):
    rig.words(0xC0044000, 0x00110005, 9, 10, 0x2C00 + 0x242, 0)
    assert rig.processor.registers[0x242] == 9
    assert rig.processor.registers[0x243] == 10


def test_clocks_run(rig):
    clock = {"src_sel": v.CopySrc.GPU_CLOCK, "dst_sel": v.CopyDst.MEMORY, "count_sel": 1, "wr_confirm": 1}
    rig.run(lambda b: [b.packet("COPY_DATA", **clock, target=at) for at in (DATA, DATA + 8)])
    first, second = (rig.peek(DATA + at) | rig.peek(DATA + at + 4) << 32 for at in (0, 8))
    assert 0 < first <= second


@pytest.mark.parametrize(
    ("function", "passes"),
    [
        (v.Compare.ALWAYS, (4, 5, 6)),
        (v.Compare.LESS, (4,)),
        (v.Compare.LESS_EQUAL, (4, 5)),
        (v.Compare.EQUAL, (5,)),
        (v.Compare.NOT_EQUAL, (4, 6)),
        (v.Compare.GREATER_EQUAL, (5, 6)),
        (v.Compare.GREATER, (6,)),
    ],
)
def test_waits_compare_the_masked_value(rig, function, passes):
    for value in (4, 5, 6):
        rig.poke(UNCACHED, 0xABC0_0000 | value)
        states = list(zip(rig.steps(lambda b: b.wait_mem(UNCACHED, 5, function, 0xFF)), range(4), strict=False))
        assert (POLLING not in {state for state, _ in states}) == (value in passes)


def test_a_wait_goes_on_when_memory_changes(rig):
    steps = rig.steps(lambda b: (b.wait_mem(UNCACHED, 3), b.write_data32(DATA, 1)))
    assert [next(steps) for _ in range(5)] == [POLLING] * 5
    rig.poke(UNCACHED, 3)
    assert POLLING not in list(steps)
    assert rig.peek(DATA) == 1


def test_a_wait_that_loses_patience_says_for_what(rig):
    rig.poke(UNCACHED, 2)
    steps = rig.steps(lambda b: (b.write_nop(1), b.wait_mem(UNCACHED, 3)))
    assert POLLING in [next(steps) for _ in range(2)]
    with pytest.raises(
        GpuHang, match=r"packet 1 at dword 2 of .*WAIT_REG_MEM.*no progress.*value is 0x2, wanted is >= 0x3"
    ):
        steps.throw(GpuHang("no progress for 1 s"))


def test_hdp_flush(rig):
    rig.run(lambda b: b.hdp_flush())
    steps = Rig().steps(lambda b: wait_register(b, reg.HDP_FLUSH_DONE, 0xFFFFFFFF))
    assert next(steps) == POLLING


def test_other_registers_are_kept(rig):
    rig.run(lambda b: (uconfig(b, 0x40, 0x55), wait_register(b, 0xC040, 0x55), b.write_data32(DATA, 1)))
    assert rig.peek(DATA) == 1


@pytest.mark.parametrize(
    ("data", "interrupt", "written", "rings"),
    [
        (v.ReleaseData.WORD64, v.ReleaseInt.NONE, (0xBBBBBBBB, 0xA), []),
        (v.ReleaseData.LOW32, v.ReleaseInt.NONE, (0xBBBBBBBB, 0), []),
        (v.ReleaseData.LOW32, v.ReleaseInt.AFTER_WRITE, (0xBBBBBBBB, 0), [77]),
        (v.ReleaseData.NONE, v.ReleaseInt.INTERRUPT, (0, 0), [77]),
        (v.ReleaseData.NONE, v.ReleaseInt.NONE, (0, 0), []),
    ],
)
def test_fences(rig, data, interrupt, written, rings):
    rig.run(lambda b: b.release_mem(FENCE, 0xA_BBBBBBBB, data=data, interrupt=interrupt, context_id=77))
    assert (rig.peek(FENCE), rig.peek(FENCE + 4)) == written
    assert rig.interrupts == rings


def test_a_fence_with_the_clock(rig):
    rig.run(lambda b: b.release_mem(FENCE, 0, data=v.ReleaseData.GPU_CLOCK))
    assert rig.peek(FENCE) | rig.peek(FENCE + 4)


def test_a_fence_of_a_shader(rig):
    control = RELEASE_CONTROL & ~0xFFF | v.EventType.CS_DONE | v.EventIndex.END_OF_SHADER << 8
    rig.run(lambda b: b.release_mem(FENCE, 5, control=control))
    assert rig.peek(FENCE) == 5


def test_a_chain(rig):
    n = rig.place(lambda b: b.write_data32(DATA + 4, 2), IB2)

    def build(b):
        b.write_data32(DATA, 1)
        b.indirect_buffer(IB2, n, chain=True)
        b.write_data32(DATA + 8, 3)  # behind the jump: never

    rig.run(build)
    assert [rig.peek(DATA + at) for at in (0, 4, 8)] == [1, 2, 0]


def test_nops_of_every_length(rig):
    def build(b):
        words_raw(b, [0xFFFF1000, 0xFFFF1000])
        b.write_nop(1)
        b.write_nop(500)
        b.write_data32(DATA, 1)

    rig.run(build)
    assert rig.peek(DATA) == 1


def test_shader_type_is_allowed_where_runtimes_set_it(rig):
    def build(b):
        dispatch(b)
        at = b.cursor - 5
        b.words[at] = int(b.words[at]) | 2

    rig.run(build)
    assert len(rig.dispatches) == 1


def test_a_dispatch_that_is_switched_off(rig):
    rig.run(lambda b: dispatch(b, initiator=4))
    assert rig.dispatches == []
    assert rig.kinds == ["dispatch-disabled"]


def test_registers_that_are_none_of_compute(rig):
    rig.run(lambda b: (b.set_sh_reg_one(0x10, 1), b.set_sh_reg_one(0x10, 1), b.set_sh_reg_one(0x23F, 1)))
    assert rig.kinds == ["unknown-register"] * 2


def test_reserved_bits_of_registers(rig):
    rig.run(lambda b: dispatch(b, r228=1 << 12))
    assert rig.kinds == ["reserved-bits"]
    assert "COMPUTE_PGM_RSRC3" in rig.machine.findings[0][1]


def test_another_generation():
    rig = Rig(RX7900XTX)
    rig.run(lambda b: dispatch(b, r213=1 | 0x90, r218=1 | 1 << 12, r210=DATA >> 8 & 0xFFFFFFFF, r211=DATA >> 40))
    assert rig.dispatches[0].gfx == (11, 0, 0)
    assert rig.dispatches[0].scratch.bytes_per_wave == 256


def test_programs_stand_in_for_machine_code(rig):
    def double(d, memory):
        target = d.user_data[0] | d.user_data[1] << 32
        value = int.from_bytes(memory.read(target, 4).tobytes(), "little")
        memory.write(target, (2 * value).to_bytes(4, "little"))

    rig.machine.shader.add(CODE, double, wave32=False)
    rig.poke(DATA, 21)
    rig.run(lambda b: (b.set_user_data64(0, DATA), dispatch(b)))
    assert rig.peek(DATA) == 42

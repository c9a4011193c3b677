"""Exchanges between lanes, masks, pairs, wave64, matrices, LDS; and what other emulators are known to get wrong."""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from amdgpu_emu.core.local_memory import Lds
from amdgpu_emu.core.program import Program
from amdgpu_emu.core.state import EXEC, M0, VCC, Group
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.isa.decoder import decode
from tests.amdgpu_emu.core.one import (
    NORMAL,
    Encoding,
    Instruction,
    Operand,
    OperandKind,
    execute,
    group,
    literal,
    sgpr,
    value,
    vgpr,
)
from tests.amdgpu_emu.core.stage import S_ENDPGM, Stage

LANE = np.arange(32, dtype=np.uint32)
OLD = 0xAAAA0000
FULL = {"row_mask": 15, "bank_mask": 15}


def moved(ctrl: int, exec_mask: int = 0xFFFFFFFF, **how: int) -> list[int]:
    """v_mov_b32_dpp v0, v1 where v1 holds 100 + lane and v0 OLD + lane."""
    g = group()
    g.put(1, 100 + LANE)
    g.put(0, OLD + LANE)
    g.put_s(EXEC, np.uint32(exec_mask))
    modifiers = {"dpp_ctrl": ctrl, **FULL, **how}
    execute(g, Instruction(0, 8, Encoding.VOP1, "v_mov_b32", (vgpr(0),), (vgpr(1),), modifiers))
    return [int(x) for x in g.v[0][0]]


def quad(i: int, select: int) -> int:
    return (i & ~3) + (select >> 2 * (i & 3) & 3)


@pytest.mark.parametrize(("ctrl", "source"), [
    (0x1B, lambda i: quad(i, 0x1B)), (0x00, lambda i: i & ~3), (0x103, lambda i: i + 3 if (i & 15) + 3 < 16 else None),
    (0x113, lambda i: i - 3 if (i & 15) >= 3 else None), (0x125, lambda i: (i & 16) + ((i & 15) - 5) % 16),
    (0x140, lambda i: (i & 16) + 15 - (i & 15)), (0x141, lambda i: (i & ~7) + 7 - (i & 7)),
    (0x157, lambda i: (i & 16) + 7), (0x16B, lambda i: i ^ 0xB),
])  # fmt: skip
def test_dpp16(ctrl: int, source: object) -> None:
    assert callable(source)
    for bound in (0, 1):
        want = []
        for i in range(32):
            j = source(i)
            want.append(100 + j if j is not None else 0 if bound else OLD + i)
        assert moved(ctrl, bound_ctrl=bound) == want


def test_dpp_with_lanes_off_and_masks() -> None:
    mask = 0x0F0F3355
    on = [mask >> i & 1 for i in range(32)]
    for bound in (0, 1):
        for fi in (0, 1):
            want = []
            for i in range(32):
                j = i ^ 3
                reads = 100 + j if on[j] or fi else 0 if bound else OLD + i
                want.append(reads if on[i] else OLD + i)
            assert moved(0x163, mask, bound_ctrl=bound, fi=fi) == want, (bound, fi)
    want = [100 + (i ^ 1) if i < 16 and (i >> 2 & 3) in (1, 3) else OLD + i for i in range(32)]
    assert moved(0x161, row_mask=1, bank_mask=0b1010, bound_ctrl=1) == want


def test_dpp8_of_a_sum_in_vop3() -> None:
    """DPP8, and DPP on VOP3: the lane exchange goes to the first source, here with a sign."""
    select = [7, 6, 5, 4, 3, 2, 1, 0]
    word = sum(s << 3 * i for i, s in enumerate(select))
    g = group()
    g.put(1, (LANE + 1).astype(np.float32).view(np.uint32))
    g.put(2, np.float32(0.5).view(np.uint32))
    source = vgpr(1, neg=True)
    execute(g, Instruction(0, 12, Encoding.VOP3, "v_add_f32", (vgpr(0),), (source, vgpr(2)), {"dpp8": word}))
    assert g.f[0][0].tolist() == [0.5 - ((i & ~7) + 7 - (i & 7) + 1) for i in range(32)]


def test_dpp_of_comparisons_and_carries() -> None:
    g = group()
    g.put(1, LANE)
    modifiers = {"dpp_ctrl": 0x161, **FULL, "bound_ctrl": 1}
    for mask in (0xFFFFFFFF, 0x0F0FFFFF):
        g.put_s(EXEC, np.uint32(mask))
        execute(
            g,
            Instruction(
                0, 8, Encoding.VOPC, "v_cmp_gt_u32", (Operand(OperandKind.VCC),), (vgpr(1), vgpr(1)), modifiers
            ),
        )
        assert g.s[VCC][0] == 0x55555555 & mask, "of neighbours the even lane reads the greater number"
    g.put_s(EXEC, np.uint32(0xFFFFFFFF))
    ops, dst = (vgpr(1), literal(0xFFFFFFF0)), (vgpr(0), sgpr(4))
    execute(g, Instruction(0, 12, Encoding.VOP3SD, "v_add_co_u32", dst, ops, modifiers))
    assert g.s[4][0] == sum(((i ^ 1) >= 16) << i for i in range(32))


def test_the_condition_code_as_a_wide_source() -> None:
    g = group()
    g.put_scc(True)
    one = Operand(OperandKind.LITERAL, 0, 2, 0x3FF0 << 48, bits=64)
    execute(
        g, Instruction(0, 8, Encoding.VOP3, "v_add_f64", (vgpr(0, 64),), (Operand(OperandKind.SCC, 0, 2, bits=64), one))
    )
    assert (g.v[0][0] == 0).all()
    assert (g.v[1][0] == 0x3FF00000).all(), "the least subnormal is lost in the sum"


def test_dpp_on_a_packed_dot_product() -> None:
    g = group()
    g.put(1, LANE * np.uint32(0x01010101))
    g.put(2, np.uint32(0x01010101))
    ops = (vgpr(1, op_sel=2), vgpr(2, op_sel=2), Operand(OperandKind.INTEGER, value=0))
    modifiers = {"dpp_ctrl": 0x161, **FULL, "bound_ctrl": 1}
    execute(g, Instruction(0, 12, Encoding.VOP3P, "v_dot4_u32_u8", (vgpr(0),), ops, modifiers))
    assert g.v[0][0].tolist() == [4 * (i ^ 1) for i in range(32)]


def test_permlane() -> None:
    select = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7, 9, 15]
    low, high = (sum(s << 4 * i for i, s in enumerate(part)) for part in (select[:8], select[8:]))
    for name, other in (("v_permlane16_b32", 0), ("v_permlanex16_b32", 16)):
        g = group()
        g.put(1, 100 + LANE)
        ops = (vgpr(1), literal(low), literal(high))
        execute(g, Instruction(0, 8, Encoding.VOP3, name, (vgpr(0),), ops))
        assert g.v[0][0].tolist() == [100 + (i & 16 ^ other) + select[i & 15] for i in range(32)]


def test_single_lanes() -> None:
    g = group()
    g.put(1, 100 + LANE)
    g.put_s(EXEC, np.uint32(0xF0))
    execute(g, Instruction(0, 4, Encoding.VOP1, "v_readfirstlane_b32", (sgpr(3),), (vgpr(1),)))
    execute(g, Instruction(0, 8, Encoding.VOP3, "v_readlane_b32", (sgpr(4),), (vgpr(1), literal(33))))
    execute(g, Instruction(0, 8, Encoding.VOP3, "v_writelane_b32", (vgpr(1),), (literal(7), literal(9))))
    assert (g.s[3][0], g.s[4][0]) == (104, 101), "the first lane that is on; lane numbers count modulo 32"
    assert g.v[1][0].tolist() == [7 if i == 9 else 100 + i for i in range(32)], "writes a lane that is off"


def test_lanes_that_hold_what_was_never_written() -> None:
    """They can be moved there and back; the value is an error where it is used."""
    read = Instruction(0, 8, Encoding.VOP3, "v_readlane_b32", (sgpr(4),), (vgpr(1), literal(9)))
    for source, defined in ((5, False), (6, True)):
        g = group()
        g.put(1, 100 + LANE)
        g.put_s(6, np.uint32(77))
        execute(g, Instruction(0, 8, Encoding.VOP3, "v_writelane_b32", (vgpr(1),), (sgpr(source), literal(9))))
        execute(g, read)
        assert (g.v_defined[1, 0, 9], g.s_defined[4, 0], not g.undef_s >> 4 & 1) == (defined,) * 3
        assert g.v_defined[1, 0, :9].all()
        assert not defined or g.s[4][0] == 77
    g = group()
    g.put_s(4, np.uint32(0))
    execute(g, read)
    assert not g.s_defined[4, 0]
    (_, used), *_ = Program(lambda *_: b"", 32, 32)._registers(
        Instruction(0, 4, Encoding.SOP1, "s_mov_b32", (sgpr(0),), (sgpr(4),))
    )
    assert used & g.undef_s


def test_comparisons_write_masks() -> None:
    g = group()
    g.put(1, LANE)
    g.put_s(VCC, np.uint32(0xFFFFFFFF))
    g.put_s(EXEC, np.uint32(0x0000FFFF))
    compare = Instruction(0, 4, Encoding.VOPC, "v_cmp_gt_u32", (Operand(OperandKind.VCC),), (literal(4), vgpr(1)))
    execute(g, compare)
    assert g.s[VCC][0] == 0xF, "0 in lanes that are off"
    execute(g, replace(compare, name="v_cmpx_gt_u32", dst=(Operand(OperandKind.EXEC),)))
    assert g.s[EXEC][0] == 0xF
    assert g.active().sum() == 4


def test_lanes_that_are_off_keep_their_registers() -> None:
    g = group()
    g.put(0, LANE)
    g.put_s(EXEC, np.uint32(0xFF00FF00))
    execute(g, Instruction(0, 4, Encoding.VOP1, "v_mov_b32", (vgpr(0),), (literal(5),)))
    assert g.v[0][0].tolist() == [5 if i & 8 else i for i in range(32)]


def test_saveexec() -> None:
    g = group()
    g.put_s(2, np.uint32(0x0F))
    execute(g, Instruction(0, 4, Encoding.SOP1, "s_and_saveexec_b32", (sgpr(4),), (sgpr(2),)))
    assert (g.s[4][0], g.s[EXEC][0], g.scc[0]) == (0xFFFFFFFF, 0xF, True)
    execute(g, Instruction(0, 4, Encoding.SOP1, "s_and_not1_saveexec_b32", (sgpr(5),), (sgpr(2),)))
    assert (g.s[5][0], g.s[EXEC][0], g.scc[0]) == (0xF, 0, False)
    assert not g.active().any()


def test_pairs_read_before_either_writes() -> None:
    """v_dual_mov_b32 v0, v1 :: v_dual_mov_b32 v1, v0 swaps."""
    g = group()
    g.put(0, LANE)
    g.put(1, 100 + LANE)
    half = Instruction(0, 8, Encoding.VOPD, "v_dual_mov_b32", (vgpr(1),), (vgpr(0),))
    execute(g, Instruction(0, 8, Encoding.VOPD, "v_dual_mov_b32", (vgpr(0),), (vgpr(1),), second=half))
    assert (g.v[0][0] == 100 + LANE).all()
    assert (g.v[1][0] == LANE).all()


def test_wave64() -> None:
    lane = np.arange(64, dtype=np.uint32)
    g = group(lanes=64)
    g.put(1, lane)
    vcc = Operand(OperandKind.VCC, 0, 2)
    execute(g, Instruction(0, 4, Encoding.VOPC, "v_cmp_lt_u32", (vcc,), (literal(40), vgpr(1))))
    assert (g.s[VCC][0], g.s[VCC + 1][0]) == (0, 0xFFFFFE00)
    for name, want in (("v_mbcnt_lo_u32_b32", np.minimum(lane, 32)), ("v_mbcnt_hi_u32_b32", np.maximum(lane, 32) - 32)):
        ops = (Operand(OperandKind.INTEGER, value=0xFFFFFFFF), Operand(OperandKind.INTEGER, value=0))
        execute(g, Instruction(0, 8, Encoding.VOP3, name, (vgpr(0),), ops))
        assert (g.v[0][0] == want).all()
    execute(g, Instruction(0, 4, Encoding.VOP1, "v_permlane64_b32", (vgpr(0),), (vgpr(1),)))
    assert (g.v[0][0] == (lane ^ 32)).all()
    execute(g, Instruction(0, 4, Encoding.SOP1, "s_and_saveexec_b64", (sgpr(4, 2),), (vcc,)))
    assert g.active().sum() == 23
    # A whole dispatch: v1 = 4 * id, stored at base + v1.
    stage = Stage()
    out = stage.buffer(1024)
    code = stage.code(
        [0x30020082, 0xEE068000, 0, 1, S_ENDPGM]
    )  # v_lshlrev_b32 v1, 2, v0; global_store_b32 v1, v0, s[0:1]
    stage.dispatch(code, threads=(256, 1, 1), user_data=(out & 0xFFFFFFFF, out >> 32), wave32=False)
    assert (stage.read(out, np.uint32, 256) == np.arange(256)).all()


# LDS.


class _Shared:
    def __init__(self, g: Group, size: int) -> None:
        self.lds = Lds(1, size, False)
        g.shared = self


def ds(g: Group, name: str, dst: tuple[Operand, ...], *src: Operand, **how: int) -> None:
    execute(g, Instruction(0, 8, Encoding.DS, f"ds_{name}", dst, src, how))


def test_lds_loads_and_stores() -> None:
    g = group()
    shared = _Shared(g, 4096)
    g.put(1, LANE * np.uint32(16))
    for k in range(4):
        g.put(4 + k, 0x81828384 + LANE * np.uint32(0x01000001) + np.uint32(k))
    ds(g, "store_b128", (), vgpr(1), vgpr(4, 128), offset=32)
    raw = shared.lds.data[32 : 32 + 512].view(np.uint32).reshape(32, 4)
    assert (g.v[4:8, 0] == raw.T).all()
    ds(g, "load_b64", (vgpr(10, 64),), vgpr(1), offset=36)
    assert (g.v[10:12, 0] == g.v[5:7, 0]).all()
    ds(g, "load_i8", (vgpr(10),), vgpr(1), offset=35)
    assert (g.i[10][0] == (g.v[4][0] >> 24).astype(np.uint8).view(np.int8)).all()
    g.put(10, 0x77777777)
    ds(g, "load_u16_d16_hi", (vgpr(10),), vgpr(1), offset=32)
    assert (g.v[10][0] == (g.v[4][0] << np.uint32(16) | np.uint32(0x7777))).all()
    ds(g, "store_2addr_b32", (), vgpr(1), vgpr(4), vgpr(5), offset0=200, offset1=202)
    assert (shared.lds.data[800 : 800 + 512].view(np.uint32).reshape(32, 4)[:, 0] == g.v[4][0]).all()
    ds(g, "load_2addr_stride64_b32", (vgpr(10, 64),), vgpr(1), offset0=1, offset1=0) if shared.lds.written[
        :4
    ].all() else None
    ds(g, "store_b8", (), vgpr(1), vgpr(4), offset=2048)
    ds(g, "store_b8_d16_hi", (), vgpr(1), vgpr(4), offset=2049)
    assert (shared.lds.data[2048 : 2048 + 512 : 16] == (g.v[4][0] & 255)).all()
    assert (shared.lds.data[2049 : 2049 + 512 : 16] == (g.v[4][0] >> 16 & 255)).all()


@pytest.mark.parametrize(("name", "define"), [
    ("add", lambda o, d: o + d), ("sub", lambda o, d: o - d), ("rsub", lambda o, d: d - o),
    ("inc", lambda o, d: 0 if o >= d else o + 1), ("dec", lambda o, d: d if o == 0 or o > d else o - 1),
    ("min", min), ("max", max),
])  # fmt: skip
def test_lds_atomics(name: str, define: object) -> None:
    assert callable(define)
    g = group()
    shared = _Shared(g, 64)
    shared.lds.written[:] = True
    shared.lds.data[:] = np.frombuffer(struct.pack("<16I", *([5, 0, 0xFFFFFFFF, 7] * 4)), np.uint8)
    g.put(1, (LANE & np.uint32(3)) * np.uint32(4))
    data = [(7 * i + 1) % 13 for i in range(32)]
    g.put(2, np.array(data, np.uint32))
    ds(g, f"{name}_rtn_u32", (vgpr(3),), vgpr(1), vgpr(2))
    memory = [5, 0, 0xFFFFFFFF, 7]
    for i in range(32):
        assert g.v[3][0][i] == memory[i & 3]
        memory[i & 3] = define(memory[i & 3], data[i]) & 0xFFFFFFFF
    assert shared.lds.data[:16].view(np.uint32).tolist() == memory


def test_exchanges_through_the_crossbar() -> None:
    g = group()
    _Shared(g, 0)
    g.put(1, (31 - LANE) * np.uint32(4) + np.uint32(128 * 3 + 1))
    g.put(2, 100 + LANE)
    ds(g, "bpermute_b32", (vgpr(3),), vgpr(1), vgpr(2))
    assert (g.v[3][0] == 131 - LANE).all(), "numbers count modulo 32, the low two bits do not"
    g.put_s(EXEC, np.uint32(0xFFFF))
    ds(g, "bpermute_b32", (vgpr(3),), vgpr(1), vgpr(2))
    assert (g.v[3][0][:16] == 0).all(), "lanes that are off give 0"
    ds(g, "permute_b32", (vgpr(4),), vgpr(1), vgpr(2))
    assert (g.v[4][0][:16] == 0).all(), "nobody sends there"
    g.put_s(EXEC, np.uint32(0xFFFFFFFF))
    ds(g, "permute_b32", (vgpr(4),), vgpr(1), vgpr(2))
    assert (g.v[4][0] == 131 - LANE).all()
    ds(g, "swizzle_b32", (vgpr(5),), vgpr(2), offset=0x041F)  # and 31, or 0, xor 1
    assert (g.v[5][0] == 100 + (LANE ^ 1)).all()
    ds(g, "swizzle_b32", (vgpr(5),), vgpr(2), offset=0x801B)
    assert g.v[5][0].tolist() == [100 + quad(i, 0x1B) for i in range(32)]


# Known mistakes of emulators.


def test_the_constant_one_over_two_pi() -> None:
    ins = decode(struct.pack("<I", 0x7E0002F8))  # v_mov_b32 v0, 1/(2 pi)
    g = group()
    execute(g, ins)
    assert value(int(g.v[0][0][0]), 32) == np.float32(0.15915494309189535)


def test_modes_are_followed_and_can_be_read() -> None:
    g = group()
    execute(g, decode(struct.pack("<I", 0xBF910005)))  # s_round_mode 5
    execute(g, decode(struct.pack("<I", 0xBF920000)))  # s_denorm_mode 0
    assert g.mode == 5
    execute(g, decode(struct.pack("<I", 0xB8800000 | 1 | 3 << 11)))
    assert g.s[0][0] == 5, "s_getreg_b32 s0, hwreg(HW_REG_MODE, 0, 4)"


def test_atomics_with_return_write_their_result() -> None:
    stage = Stage()
    x = stage.buffer(np.array([41], np.uint32))
    y = stage.buffer(128)
    # v2 = 0, v3 = 1; v4 = atomic add; wait; v5 = 4 * id; store v4
    add = (0xEE0D4000, 0x01900004, 0x00000002)  # global_atomic_add_u32 v4, v2, v3, s[0:1] th:TH_ATOMIC_RETURN
    store = (0xEE068002, 0x02000000, 0x00000005)  # global_store_b32 v5, v4, s[2:3]
    code = [0x7E040280, 0x7E060281, *add, 0x300A0082, 0xBFC00000, *store, S_ENDPGM]
    assert decode(struct.pack("<3I", *add)).dst, "it returns the old number"
    where = (x & 0xFFFFFFFF, x >> 32, y & 0xFFFFFFFF, y >> 32)
    stage.dispatch(stage.code(code), user_data=where)
    assert sorted(stage.read(y, np.uint32, 32)) == list(range(41, 73))
    assert stage.read(x, np.uint32, 1)[0] == 73


def test_the_program_counter_can_be_read_and_jumped_to() -> None:
    stage = Stage()
    # s_getpc_b64 s[0:1]; s_add_co_u32 s0, s0, 12; s_setpc_b64 s[0:1]; (s_code_end); s_endpgm
    code = [0xBE804700, 0x80008C00, 0xBE804800, 0xBF9F0000, S_ENDPGM]
    stage.dispatch(stage.code(code))


def test_calls_return() -> None:
    stage = Stage()
    # s_call_b64 s[0:1], +1; s_endpgm; s_setpc_b64 s[0:1]
    call = 0xBA000001
    assert decode(struct.pack("<I", call)).name == "s_call_b64"
    counters = stage.dispatch(stage.code([call, S_ENDPGM, 0xBE804800]))
    assert counters.wave_instructions == 3


def test_sleep_and_m0() -> None:
    g = group()
    g.put_s(M0, np.uint32(8))
    shared = _Shared(g, 1024)
    g.put(1, LANE)
    ds(g, "store_addtid_b32", (), vgpr(1), offset=16)
    assert (shared.lds.data[24 : 24 + 128].view(np.uint32) == LANE).all()
    assert g.mode == NORMAL


def test_partial_workgroups() -> None:
    stage = Stage()
    out = stage.buffer(1024)
    code = stage.code([0x30020082, 0xEE068000, 0, 1, S_ENDPGM])
    with pytest.raises(GpuHang, match="v1"):
        stage.dispatch(code, threads=(40, 1, 1), user_data=(out & 0xFFFFFFFF, out >> 32), rsrc1=0xF0000, n_user=0)
    stage.dispatch(code, threads=(40, 1, 1), user_data=(out & 0xFFFFFFFF, out >> 32), grid=(37, 1, 1))
    assert stage.read(out, np.uint32, 256).tolist() == [*range(37), *[0] * 219]

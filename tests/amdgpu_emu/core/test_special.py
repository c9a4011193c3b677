"""Instructions whose results depend on more than a row of numbers: other lanes, masks, EXEC, MODE, M0, pairs."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.state import EXEC, M0, VCC, Group
from tests.amdgpu_emu.core.defined import conversions, floats, integers, packed  # noqa: F401
from tests.amdgpu_emu.core.defined.harness import DEFINED, OPCODES, defines, equal, final, perform
from tests.amdgpu_emu.core.defined.integers import M
from tests.amdgpu_emu.core.one import (
    INTEGERS32,
    SPECIAL32,
    Encoding,
    Instruction,
    Operand,
    OperandKind,
    group,
    literal,
    rows,
    sgpr,
    signed,
    vgpr,
)

FULL = {"row_mask": 15, "bank_mask": 15}
HOLES = 0xF3A5_0FF7_5BD9_36EB


def wave(lanes: int, n: int = 2, exec_mask: int = HOLES) -> Group:
    """Waves with v1 = 1000 wave + lane + 7, v0 = old numbers, EXEC with holes."""
    g = group(n, lanes)
    for w in range(n):
        g.v[0][w] = 0xAA00 + w
        g.v[1][w] = 1000 * w + np.arange(lanes) + 7
    for r in (0, 1):
        g.define(r)
    for k in range(2):
        g.put_s(EXEC + k, np.uint32(exec_mask >> 32 * k & M))
    return g


def on(lane: int, exec_mask: int = HOLES) -> bool:
    return bool(exec_mask >> lane & 1)


def words_of(g: Group, index: int) -> list[int]:
    return [int(low) | int(high) << 32 for low, high in zip(g.s[index], g.s[index + 1], strict=True)]


# EXEC and masks.

SAVE: dict[str, Callable[[int, int], int]] = {
    "and": lambda s, e: s & e, "or": lambda s, e: s | e, "xor": lambda s, e: s ^ e, "nand": lambda s, e: ~(s & e),
    "nor": lambda s, e: ~(s | e), "xnor": lambda s, e: ~(s ^ e), "and_not0": lambda s, e: ~s & e,
    "or_not0": lambda s, e: ~s | e, "and_not1": lambda s, e: s & ~e, "or_not1": lambda s, e: s | ~e,
}  # fmt: skip


@defines(
    *(f"s_{op}_saveexec_b{n}" for op in SAVE for n in (32, 64)),
    *(f"s_{op}_wrexec_b{n}" for op in ("and_not0", "and_not1") for n in (32, 64)),
)
def test_operations_that_save_exec() -> None:
    masks = (0, 1, M, 0x0F0F0F0F, 0xFFFFFFFFFFFFFFFF, 0x8000000000000001, HOLES)
    for bits in (32, 64):
        full = (1 << bits) - 1
        for op, how in (*((op, "saveexec") for op in SAVE), ("and_not0", "wrexec"), ("and_not1", "wrexec")):
            for before in masks:
                g = group(len(masks), bits)
                for k in range(2):
                    g.put_s(EXEC + k, np.uint32(before >> 32 * k & M))
                    g.put_s(2 + k, np.array([m >> 32 * k & M for m in masks], np.uint32))
                n = bits // 32
                perform(g, Instruction(0, 4, Encoding.SOP1, f"s_{op}_{how}_b{bits}", (sgpr(4, n),), (sgpr(2, n),)))
                for w, s in enumerate(masks):
                    new = SAVE[op](s & full, before & full) & full
                    saved = words_of(g, 4)[w] & full
                    assert words_of(g, EXEC)[w] & full == new
                    assert saved == (new if how == "wrexec" else before & full)
                    assert g.scc[w] == (new != 0)
                    assert g.active()[w].tolist() == [bool(new >> i & 1) for i in range(bits)]


@defines(*(f"v_{op}_co{ci}_u32" for op in ("add", "sub", "subrev") for ci in ("", "_ci")))
def test_carries() -> None:
    a, b = rows(INTEGERS32, 2, 32, 5)
    for lanes, clamp, op, ci in product((32, 64), (0, 1), ("add", "sub", "subrev"), ("", "_ci")):
        n = -(-len(a) // lanes)
        padded = [np.array([*c, *[0] * (n * lanes - len(c))], np.uint32).reshape(n, lanes) for c in (a, b)]
        g = group(n, lanes)
        g.put(2, padded[0])
        g.put(3, padded[1])
        g.put_bits(VCC, (np.arange(n * lanes) % 3 == 0).reshape(n, lanes))
        mask = (np.arange(n * lanes) % 5 != 1).reshape(n, lanes)
        g.put(0, 77)
        g.put_bits(EXEC, mask)
        vcc = Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes)
        ops = (vgpr(2), vgpr(3), *((vcc,) if ci else ()))
        name = f"v_{op}_co{ci}_u32"
        perform(g, Instruction(0, 8, Encoding.VOP3SD, name, (vgpr(0), vcc), ops, {"clamp": clamp}))
        out, carry = g.v[0].reshape(-1), g.bits(VCC).reshape(-1)
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if not mask.reshape(-1)[i]:
                assert (out[i], carry[i]) == (77, False)
                continue
            c = int(i % 3 == 0) if ci else 0
            x, y = (y, x) if op == "subrev" else (x, y)
            r = x + y + c if op == "add" else x - y - c
            assert carry[i] == (not 0 <= r <= M)
            assert out[i] == (max(0, min(r, M)) if clamp else r & M), (name, hex(x), hex(y), c)


@defines("v_mad_co_u64_u32", "v_mad_co_i64_i32")
def test_products_and_sums_of_64_bits() -> None:
    wide = (0, 1, M, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x8000000100000000)
    a, b, c = (list(x) for x in zip(*product(INTEGERS32[::2], INTEGERS32[1::2], wide), strict=True))
    for is_signed, clamp in product((False, True), (0, 1)):
        name = "v_mad_co_i64_i32" if is_signed else "v_mad_co_u64_u32"
        n = -(-len(a) // 32)
        g = group(n)
        for r, column, shift in ((2, a, 0), (3, b, 0), (4, c, 0), (5, c, 32)):
            values = [x >> shift & M for x in column] + [0] * (n * 32 - len(a))
            g.put(r, np.array(values, np.uint32).reshape(n, 32))
        dst = (vgpr(0, 64), Operand(OperandKind.VCC))
        perform(g, Instruction(0, 8, Encoding.VOP3SD, name, dst, (vgpr(2), vgpr(3), vgpr(4, 64)), {"clamp": clamp}))
        low, high, mask = g.v[0].reshape(-1), g.v[1].reshape(-1), g.bits(VCC).reshape(-1)
        bottom, top = (-(1 << 63), (1 << 63) - 1) if is_signed else (0, (1 << 64) - 1)
        for i in range(len(a)):
            of = signed if is_signed else (lambda x, k: x)
            r = of(a[i], 32) * of(b[i], 32) + of(c[i], 64)
            assert mask[i] == r >> 64 & 1
            r = max(bottom, min(r, top)) if clamp else r
            assert int(low[i]) | int(high[i]) << 32 == r & (1 << 64) - 1


@defines("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")
def test_bits_of_lower_lanes() -> None:
    for lanes in (32, 64):
        for mask, name in product((0, M, 0x8000_0001, 0x5A5A_1234), ("v_mbcnt_lo_u32_b32", "v_mbcnt_hi_u32_b32")):
            g = wave(lanes)
            perform(g, Instruction(0, 8, Encoding.VOP3, name, (vgpr(0),), (literal(mask), vgpr(1))))
            for lane in range(lanes):
                below = min(lane, 32) if "_lo_" in name else max(lane - 32, 0)
                want = (mask & (1 << below) - 1).bit_count() + 1007 + lane if on(lane) else 0xAA01
                assert g.v[0][1][lane] == want


# Between lanes.


@defines("v_permlane16_b32", "v_permlanex16_b32", "v_permlane16_var_b32", "v_permlanex16_var_b32")
def test_permutations_of_rows() -> None:
    rng = np.random.default_rng(3)
    for lanes, other, var, fi, bound in product((32, 64), (0, 16), (False, True), (0, 1), (0, 1)):
        name = f"v_permlane{'x' if other else ''}16{'_var' if var else ''}_b32"
        g = wave(lanes)
        select = rng.integers(0, 16, lanes if var else 16)
        g.put_s(EXEC, np.uint32(M))
        g.put_s(EXEC + 1, np.uint32(M))
        g.put(2, np.array(select + 16 * 5, np.uint32) if var else np.uint32(0))
        for k in range(2):
            g.put_s(EXEC + k, np.uint32(HOLES >> 32 * k & M))
            g.put_s(
                8 + k, np.uint32(0 if var else sum(int(s) << 4 * i for i, s in enumerate(select[8 * k : 8 * k + 8])))
            )
        ops = (vgpr(1), vgpr(2)) if var else (vgpr(1), sgpr(8), sgpr(9))
        perform(g, Instruction(0, 8, Encoding.VOP3, name, (vgpr(0),), ops, {"op_sel": fi | bound << 1}))
        for w, lane in product(range(2), range(lanes)):
            source = (lane & ~15 ^ other) + int(select[lane if var else lane & 15])
            want = 0xAA00 + w
            if on(lane) and (fi or on(source)):
                want = 1000 * w + source + 7
            elif on(lane) and bound:
                want = 0
            assert g.v[0][w][lane] == want, (name, lane, fi, bound)


@defines("v_permlane64_b32")
def test_halves_of_a_wave() -> None:
    for lanes in (32, 64):
        g = wave(lanes)
        perform(g, Instruction(0, 4, Encoding.VOP1, "v_permlane64_b32", (vgpr(0),), (vgpr(1),)))
        for lane in range(lanes):
            want = 7 + (lane ^ 32) if lanes == 64 and on(lane) else 0xAA00
            assert g.v[0][0][lane] == want, "with 32 lanes nothing happens"


@defines("v_readfirstlane_b32", "v_readlane_b32", "v_writelane_b32")
def test_one_lane() -> None:
    for lanes, exec_mask in product((32, 64), (HOLES, 0, 1 << 31 | 1 << 63, 0xFFFFFF00_00000000)):
        g = wave(lanes, 3, exec_mask)
        active = [i for i in range(lanes) if on(i, exec_mask)]
        perform(g, Instruction(0, 4, Encoding.VOP1, "v_readfirstlane_b32", (sgpr(3),), (vgpr(1),)))
        assert g.s[3].tolist() == [1000 * w + 7 + (active[0] if active else 0) for w in range(3)]
        numbers = np.array([5, 33, 200], np.uint32)
        g.put_s(8, numbers)
        g.put_s(9, np.array([70, 71, 72], np.uint32))
        perform(g, Instruction(0, 8, Encoding.VOP3, "v_readlane_b32", (sgpr(4),), (vgpr(1), sgpr(8))))
        assert g.s[4].tolist() == [1000 * w + 7 + int(n) % lanes for w, n in enumerate(numbers)]
        before = g.v[1].copy()
        perform(g, Instruction(0, 8, Encoding.VOP3, "v_writelane_b32", (vgpr(1),), (sgpr(9), sgpr(8))))
        for w, n in enumerate(numbers):
            before[w][int(n) % lanes] = 70 + w
        assert (g.v[1] == before).all()


@defines("v_swap_b32")
def test_swaps() -> None:
    for lanes in (32, 64):
        g = wave(lanes)
        perform(g, Instruction(0, 4, Encoding.VOP1, "v_swap_b32", (vgpr(0),), (vgpr(1),)))
        for lane in range(lanes):
            pair = (0xAA00, 7 + lane)
            assert (g.v[0][0][lane], g.v[1][0][lane]) == (pair[::-1] if on(lane) else pair)
        for a, b in product((0, 1), (0, 1)):
            g = wave(lanes)
            before = g.halves[:2, 0].copy()
            ops = (vgpr(0, 16, op_sel=a),), (vgpr(1, 16, op_sel=b),)
            perform(g, Instruction(0, 4, Encoding.VOP1, "v_swap_b16", *ops))
            for lane in range(lanes):
                want = before[:, lane].copy()
                if on(lane):
                    want[0, a], want[1, b] = before[1, lane, b], before[0, lane, a]
                assert (g.halves[:2, 0, lane] == want).all()


# Numbers of registers from M0.


def numbered(lanes: int, m0: list[int]) -> Group:
    """v10 … v40 hold 100 register + lane, s10 … s40 hold 100 register + wave."""
    g = group(len(m0), lanes)
    for r in range(10, 41):
        g.put(r, 100 * np.uint32(r) + np.arange(lanes, dtype=np.uint32))
        g.put_s(r, 100 * np.uint32(r) + np.arange(len(m0), dtype=np.uint32))
    g.put_s(M0, np.array(m0, np.uint32))
    for k in range(2):
        g.put_s(EXEC + k, np.uint32(HOLES >> 32 * k & M))
    return g


@defines("v_movreld_b32", "v_movrels_b32", "v_movrelsd_b32", "v_movrelsd_2_b32", "v_swaprel_b32")
def test_relative_vector_registers() -> None:
    for lanes, name in product((32, 64), ("movreld", "movrels", "movrelsd", "movrelsd_2", "swaprel")):
        two = name in ("movrelsd_2", "swaprel")
        m0 = [3 | 5 << 16, 0, 7 | 9 << 16] if two else [3, 0, 7]
        g = numbered(lanes, m0)
        before = g.v.copy()
        perform(g, Instruction(0, 4, Encoding.VOP1, f"v_{name}_b32", (vgpr(20),), (vgpr(12),)))
        for w, m in enumerate(m0):
            move = (m & 0x3FF, m >> 16 & 0x3FF) if two else (m, m)
            source = 12 + (move[0] if name != "movreld" else 0)
            target = 20 + (move[1] if name != "movrels" else 0)
            want = before[:, w].copy()
            for lane in range(lanes):
                if on(lane):
                    want[target, lane] = before[source, w, lane]
                    if name == "swaprel":
                        want[source, lane] = before[target, w, lane]
            assert (g.v[:, w] == want).all(), (name, w)


@defines("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32")
def test_relative_scalar_registers() -> None:
    for name in ("movrels_b32", "movrels_b64", "movreld_b32", "movreld_b64", "movrelsd_2_b32"):
        two, n = "_2_" in name, 2 if name.endswith("64") else 1
        m0 = [4 | 6 << 16, 0, 8 | 2 << 16] if two else [4, 0, 8]
        g = numbered(32, m0)
        before = g.s.copy()
        perform(g, Instruction(0, 4, Encoding.SOP1, f"s_{name}", (sgpr(20, n),), (sgpr(12, n),)))
        for w, m in enumerate(m0):
            move = (m & 0x3FF, m >> 16) if two else (m, m)
            source, target = 12 + (0 if "reld" in name else move[0]), 20 + (0 if "rels_" in name else move[1])
            want = before[:, w].copy()
            want[target : target + n] = before[source : source + n, w]
            assert (g.s[:, w] == want).all(), name


def test_relative_registers_that_are_not_there() -> None:
    g = numbered(32, [50])
    with pytest.raises(ShaderError, match="M0 moves v20 to v70, beyond the 64 registers"):
        perform(g, Instruction(0, 4, Encoding.VOP1, "v_movreld_b32", (vgpr(20),), (vgpr(12),)))
    with pytest.raises(ShaderError, match="v62 is read and was never written"):
        perform(g, Instruction(0, 4, Encoding.VOP1, "v_movrels_b32", (vgpr(20),), (vgpr(12),)))
    g = numbered(32, [90])
    with pytest.raises(ShaderError, match="M0 moves s20 to s110, beyond the 106 registers"):
        perform(g, Instruction(0, 4, Encoding.SOP1, "s_movreld_b32", (sgpr(20),), (sgpr(12),)))
    g = numbered(32, [30])
    with pytest.raises(ShaderError, match="s42 is read and was never written"):
        perform(g, Instruction(0, 4, Encoding.SOP1, "s_movrels_b32", (sgpr(20),), (sgpr(12),)))
    g = numbered(32, [3])
    g.pend_v, g.pend_s = 1 << 15 | 1 << 23, 1 << 15 | 1 << 23
    for form, letter in ((Encoding.VOP1, "v"), (Encoding.SOP1, "s")):
        a, b = (vgpr(20), vgpr(12)) if letter == "v" else (sgpr(20), sgpr(12))
        with pytest.raises(ShaderError, match=f"{letter}15 is used before a load"):
            perform(g, Instruction(0, 4, form, f"{letter}_movrels_b32", (a,), (b,)))
        with pytest.raises(ShaderError, match=f"{letter}23 is overwritten before a load"):
            perform(g, Instruction(0, 4, form, f"{letter}_movreld_b32", (a,), (b,)))
    with pytest.raises(Unsupported, match="DPP with v_movrels_b32"):
        perform(g, Instruction(0, 8, Encoding.VOP1, "v_movrels_b32", (vgpr(20),), (vgpr(12),), {"dpp8": 0}))


# Pairs, and what does nothing.


@defines(*(n for n in OPCODES if n.startswith("v_dual_")))
def test_pairs() -> None:
    """Both halves give what the instruction alone gives."""
    rng = np.random.default_rng(7)
    names = [n for n in OPCODES if n.startswith("v_dual_")]
    constant = 0x40490FDB
    for first, second in product(names, names[::3]):
        g = group(1)
        values = [[int(SPECIAL32[i]) for i in rng.integers(0, len(SPECIAL32), 32)] for _ in range(6)]
        for r, column in enumerate(values):
            g.put(10 + r, np.array(column, np.uint32))
        g.put(20, np.array(values[4], np.uint32))
        g.put(21, np.array(values[5], np.uint32))
        mask = 0x3C5A_F00F
        g.put_s(VCC, np.uint32(mask))
        g.put_s(EXEC, np.uint32(HOLES & M))
        halves = []
        for k, name in enumerate((first, second)):
            _, op = OPCODES[name]
            registers = iter((10 + 2 * k, 11 + 2 * k))
            ops = [
                literal(constant)
                if t.place == "k"
                else Operand(OperandKind.VCC)
                if t.kind == "m"
                else vgpr(next(registers))
                for t in op.src
            ]
            halves.append(Instruction(0, 8, Encoding.VOPD, name, (vgpr(20 + k),), tuple(ops)))
        joined = Instruction(0, 8, Encoding.VOPD, first, halves[0].dst, halves[0].src, second=halves[1])
        perform(g, joined)
        for k, name in enumerate((first, second)):
            _, op = OPCODES[name]
            call = DEFINED[name.replace("v_dual_", "v_")].call
            for lane in range(32):
                old = values[4 + k][lane]
                columns = iter((values[2 * k][lane], values[2 * k + 1][lane]))
                row = [
                    constant if t.place == "k" else mask >> lane & 1 if t.kind == "m" else next(columns) for t in op.src
                ]
                if "fmac" in name:
                    row.append(old)
                want = final(call(*row), 32) if on(lane) else old
                assert equal(int(g.v[20 + k][0][lane]), want, 32, "f"), (first, second, name, lane)


@defines("v_nop", "v_pipeflush")
def test_nothing() -> None:
    for name in ("v_nop", "v_pipeflush"):
        g = wave(32)
        v, s = g.v.copy(), g.s.copy()
        assert perform(g, Instruction(0, 4, Encoding.VOP1, name)) is None
        assert (g.v == v).all()
        assert (g.s == s).all()


# Jumps, and signs of dot products.


@defines("s_getpc_b64", "s_setpc_b64", "s_swappc_b64", "s_call_b64")
def test_where_jumps_go() -> None:
    at, there = 0x1_2345_6000, 0xABCD_1234_5678
    for name, source, target in (
        ("s_getpc_b64", False, None),
        ("s_setpc_b64", True, there),
        ("s_swappc_b64", True, there),
        ("s_call_b64", False, at + 4 - 8),
    ):
        g = group(2)
        for k in range(2):
            g.put_s(2 + k, np.uint32(there >> 32 * k & M))
            g.put_s(4 + k, np.uint32(77))
        form = OPCODES[name][0]
        dst = () if name == "s_setpc_b64" else (sgpr(4, 2),)
        went = perform(g, Instruction(at, 4, form, name, dst, (sgpr(2, 2),) if source else (), {"simm16": -2}))
        assert went == target
        assert words_of(g, 4) == [77 | 77 << 32 if name == "s_setpc_b64" else at + 4] * 2


def test_signs_of_integer_dot_products() -> None:
    """neg says "signed", for each factor on its own; clamp saturates the sum."""
    numbers = (0, 0x7F7F7F7F, 0x80808080, M, 0x01FF807F, 0x77777777, 0x88888888)
    a, b, c = rows(numbers, 3, 32, 14, limit=400, random=80)
    n = len(a) // 32
    for (name, bits), x_signed, y_signed, clamp in product(
        (("v_dot4_i32_iu8", 8), ("v_dot8_i32_iu4", 4)), (False, True), (False, True), (0, 1)
    ):
        g = group(n)
        for r, column in enumerate((a, b, c)):
            g.put(2 + r, np.array(column[: 32 * n], np.uint32).reshape(n, 32))
        ops = (vgpr(2, neg=x_signed, op_sel=2), vgpr(3, neg=y_signed, op_sel=2), vgpr(4, op_sel=2))
        perform(g, Instruction(0, 8, Encoding.VOP3P, name, (vgpr(0),), ops, {"clamp": clamp}))
        for i, got in enumerate(g.v[0].reshape(-1).tolist()):
            total = packed.dot(a[i], b[i], signed(c[i], 32), bits, (x_signed, y_signed))
            total = max(-(1 << 31), min(total, (1 << 31) - 1)) if clamp else total
            assert got == total & M


# MODE.


def hwreg(register: int, offset: int, size: int) -> Operand:
    return Operand(OperandKind.HWREG, register, value=register | offset << 6 | size - 1 << 11)


@defines("s_getreg_b32", "s_setreg_b32", "s_setreg_imm32_b32")
def test_mode_is_read_and_written_in_parts() -> None:
    for before, offset, size, number in product((0x00, 0xF0, 0x5A), (0, 2, 4), (1, 2, 4), (0, 5, 0xFFFFFFFF)):
        field = (1 << size) - 1 << offset
        for name in ("s_setreg_b32", "s_setreg_imm32_b32"):
            g = group(2, mode=before)
            g.put_s(3, np.uint32(number))
            source = sgpr(3) if name == "s_setreg_b32" else literal(number)
            perform(g, Instruction(0, 4, Encoding.SOPK, name, (hwreg(1, offset, size),), (source,)))
            assert g.mode == before & ~field & 0xFF | number << offset & field & 0xFF
        g = group(2, mode=before)
        perform(g, Instruction(0, 4, Encoding.SOPK, "s_getreg_b32", (sgpr(4),), (hwreg(1, offset, size),)))
        assert (g.s[4] == (before >> offset & (1 << size) - 1)).all()


def test_other_hardware_registers_are_refused() -> None:
    with pytest.raises(ShaderError, match="FP16_OVFL"):
        perform(group(), Instruction(0, 4, Encoding.SOPK, "s_setreg_imm32_b32", (hwreg(1, 23, 1),), (literal(1),)))
    with pytest.raises(Unsupported, match="s_getreg_b32 of hardware register 6"):
        perform(group(), Instruction(0, 4, Encoding.SOPK, "s_getreg_b32", (sgpr(4),), (hwreg(6, 0, 8),)))
    with pytest.raises(Unsupported, match="s_setreg_b32 of hardware register 2"):
        perform(group(), Instruction(0, 4, Encoding.SOPK, "s_setreg_b32", (hwreg(2, 0, 8),), (sgpr(4),)))

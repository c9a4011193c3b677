"""WMMA and SWMMAC against sums of exact products, for every kind of element, in waves of 32 and 64 lanes."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.state import EXEC, Group
from tests.amdgpu_emu.core.defined.conversions import small_float
from tests.amdgpu_emu.core.defined.harness import OPCODES, defines, perform
from tests.amdgpu_emu.core.one import Encoding, Instruction, Operand, OperandKind, group, rounded, signed, value, vgpr

BITS = {"f16": 16, "bf16": 16, "fp8": 8, "bf8": 8, "iu8": 8, "iu4": 4}
WMMA = [n for n in OPCODES if n.startswith("v_wmma")]
SWMMAC = [n for n in OPCODES if n.startswith("v_swmmac")]
LOW, HIGH = -(1 << 31), (1 << 31) - 1


def parsed(name: str) -> tuple[str, int, str, str]:
    """OperandKind of D, K, kinds of A and B."""
    _, _, d, shape, *kinds = name.split("_")
    return d, int(shape.split("x")[2]), kinds[0], kinds[-1]


def bits_of(x: float, kind: str) -> int:
    if kind == "f16":
        return rounded(Fraction(x), 16, 0, math.copysign(1, x) < 0)
    whole = rounded(Fraction(x), 32, 0, math.copysign(1, x) < 0)
    return whole if kind == "f32" else whole + 0x7FFF + (whole >> 16 & 1) >> 16


def number_of(bits: int, kind: str, is_signed: bool = False) -> Any:
    if kind == "f16":
        return value(bits, 16)
    if kind == "bf16":
        return value(bits << 16, 32)
    if kind == "f32":
        return value(bits, 32)
    if kind in ("fp8", "bf8"):
        return small_float(bits, 3 if kind == "fp8" else 2)
    return signed(bits, BITS[kind]) if is_signed else bits


def put_fields(g: Group, register: int, lane_fields: list[list[int]], bits: int) -> None:
    """Fields of each lane, the lowest first, in as many registers as they need."""
    per = 32 // bits
    count = len(lane_fields[0])
    for r in range(-(-count // per)):
        words = [sum(f << bits * i for i, f in enumerate(fields[r * per : (r + 1) * per])) for fields in lane_fields]
        g.put(register + r, np.array(words, np.uint32))


def lanes_of(matrix: Callable[[int, int], int], k: int, lanes: int) -> list[list[int]]:
    """matrix(row or column, k): a lane has one row, and of its numbers a part that is contiguous."""
    each = k // (lanes // 16)
    return [[matrix(lane % 16, lane // 16 * each + i) for i in range(each)] for lane in range(lanes)]


def put_tile(g: Group, register: int, c: list[list[int]], short: bool, lanes: int) -> None:
    per = 16 // (lanes // 16)
    fields = [[c[lane // 16 * per + r][lane % 16] for r in range(per)] for lane in range(lanes)]
    put_fields(g, register, fields, 16 if short else 32)


def tile(g: Group, register: int, short: bool, lanes: int) -> list[list[int]]:
    per = 16 // (lanes // 16)
    out = [[0] * 16 for _ in range(16)]
    for lane in range(lanes):
        for r in range(per):
            word = int(g.v[register + (r // 2 if short else r)][0][lane])
            out[lane // 16 * per + r][lane % 16] = word >> 16 * (r % 2) & 0xFFFF if short else word
    return out


def some(kind: str, rng: np.random.Generator, shape: tuple[int, ...], whole: bool) -> Any:
    """Bits. whole: small whole numbers, for which the order of a sum does not matter."""
    if kind in ("iu8", "iu4"):
        return rng.integers(0, 1 << BITS[kind], shape)
    if kind in ("fp8", "bf8"):
        codes = [
            c
            for c in range(256)
            if math.isfinite(x := small_float(c, 3 if kind == "fp8" else 2))
            and (not whole or (x == int(x) and abs(x) <= 8))
        ]
        return rng.choice(codes, shape)
    numbers = rng.integers(-8, 9, shape).astype(float) if whole else rng.normal(0, 3, shape)
    return np.vectorize(lambda x: bits_of(float(x), kind), otypes=[np.int64])(numbers)


UNIT = 1 << 149
"""Of this number's inverse all elements are multiples: exact sums of whole numbers are faster than of fractions."""


def in_units(x: Any) -> int:
    whole = Fraction(x) * UNIT
    assert whole.denominator == 1
    return whole.numerator


def accumulate(start: Any, products: list[list[int]], d: str) -> Any:
    """Groups of products of units that are added at once; the sum is rounded to D's kind after each."""
    total = Fraction(start)
    for part in products:
        total += Fraction(sum(part), UNIT * UNIT)
        total = Fraction(value(rounded(total, 32), 32))
        if d in ("f16", "bf16"):
            total = Fraction(number_of(bits_of(float(total), d), d))
    return total


def operand(register: int, bits: int, **how: Any) -> Operand:
    return vgpr(register, bits, **how)


@defines(*WMMA)
@pytest.mark.parametrize("lanes", [32, pytest.param(64, marks=pytest.mark.slow)])
def test_dense_products(lanes: int) -> None:
    rng = np.random.default_rng(lanes)
    for name in WMMA:
        d, k, kind_a, kind_b = parsed(name)
        integer, short = d == "i32", d in ("f16", "bf16")
        _, op = OPCODES[name]
        sizes = [max(t.bits * 32 // lanes, 32) for t in (*op.src[:2], *op.dst)]
        a, b = some(kind_a, rng, (16, k), False), some(kind_b, rng, (16, k), False)
        for constant, x, y, z, clamp in (
            (None, 0, 0, 0, 0),
            (None, 1, 0, 1, 0),
            (None, 0, 1, 2, 0),
            (None, 1, 1, 3, 0),
            (0, 0, 0, 0, 0),
            (1, 1, 0, 0, 0),
            (None, 1, 1, 0, 1),
            (None, 0, 0, 0, 1),
        ):
            if clamp and not integer:
                continue
            flags_a = {"neg": bool(x), "abs": bool(y)} if kind_a in ("f16", "bf16") else {"neg": bool(x and integer)}
            flags_b = {"neg": bool(y), "abs": bool(x)} if kind_b in ("f16", "bf16") else {"neg": bool(y and integer)}
            flags_c = {"neg": bool(z & 1), "abs": bool(z & 2)} if not integer else {}
            c = rng.integers(0, 1 << 32, (16, 16)).tolist() if integer else some(d, rng, (16, 16), False).tolist()
            if integer:
                c[0], c[1] = [HIGH - 5] * 16, [LOW & 0xFFFFFFFF] * 16
            g = group(1, lanes)
            put_fields(g, 4, lanes_of(lambda i, j: int(a[i, j]), k, lanes), BITS[kind_a])  # noqa: B023
            put_fields(g, 8, lanes_of(lambda i, j: int(b[i, j]), k, lanes), BITS[kind_b])  # noqa: B023
            third: Operand = operand(20, sizes[2], **flags_c)
            if constant is None:
                put_tile(g, 20, c, short, lanes)
            else:  # inline 0, and the inline 1 or 1.0 at the operand's width
                code = {"i32": 1, "f32": 0x3F800000, "f16": 0x3C00, "bf16": 0x3F80}[d] if constant else 0
                third = Operand(OperandKind.INTEGER if integer or not constant else OperandKind.FLOAT, value=code)
                c = [[code] * 16 for _ in range(16)]
            ops = (operand(4, sizes[0], **flags_a), operand(8, sizes[1], **flags_b), third)
            perform(g, Instruction(0, 8, Encoding.VOP3P, name, (operand(40, sizes[2]),), ops, {"clamp": clamp}))
            got = tile(g, 40, short, lanes)

            def element(m: Any, i: int, j: int, kind: str, flags: dict[str, bool]) -> Any:
                found = number_of(int(m[i, j]), kind, flags["neg"])
                changed = kind in ("f16", "bf16") and flags["abs" if j % 2 else "neg"]
                return -found if changed else found

            exact = int if integer else in_units
            rows = [[exact(element(a, i, j, kind_a, flags_a)) for j in range(k)] for i in range(16)]
            cols = [[exact(element(b, i, j, kind_b, flags_b)) for j in range(k)] for i in range(16)]
            for i in range(16):
                for j in range(16):
                    products = [p * q for p, q in zip(rows[i], cols[j], strict=True)]
                    if integer:
                        total = signed(c[i][j], 32)
                        for half in (products[: k // 2], products[k // 2 :]):
                            total += sum(half)
                            total = max(LOW, min(total, HIGH)) if clamp else total
                        assert got[i][j] == total & 0xFFFFFFFF, (name, i, j)
                        continue
                    start = number_of(c[i][j], d)
                    start = abs(start) if z & 2 and constant is None else start
                    start = -start if z & 1 and constant is None else start
                    want = accumulate(start, [products[at : at + 4] for at in range(0, k, 4)], d)
                    assert number_of(got[i][j], d) == want, (name, lanes, i, j, constant, z)


@defines(*SWMMAC)
def test_sparse_products() -> None:
    """Of every four places of a row of A two are there; a lane's bits tell which."""
    rng = np.random.default_rng(9)
    for name in SWMMAC:
        d, k, kind_a, kind_b = parsed(name)
        integer, short = d == "i32", d in ("f16", "bf16")
        _, op = OPCODES[name]
        whole = kind_a not in ("fp8", "bf8")
        for x, y, key, clamp in ((0, 0, 0, 0), (1, 0, 1, 0), (0, 1, 0, 0), (1, 1, 1, 1)):
            if (clamp and not integer) or (key and k == 64):
                continue
            a, b = some(kind_a, rng, (16, k // 2), whole), some(kind_b, rng, (16, k), whole)
            places = np.array([[sorted(rng.choice(4, 2, replace=False)) for _ in range(k // 4)] for _ in range(16)])
            flags = [{"neg": bool(x), "abs": bool(y)}, {"neg": bool(y), "abs": bool(x)}]
            if kind_a in ("fp8", "bf8"):
                flags = [{}, {}]
            c = rng.integers(0, 1 << 32, (16, 16)).tolist() if integer else some(d, rng, (16, 16), True).tolist()
            if integer:
                c[0], c[1] = [HIGH - 5] * 16, [LOW & 0xFFFFFFFF] * 16
            g = group(1)
            put_fields(g, 4, lanes_of(lambda i, j: int(a[i, j]), k // 2, 32), BITS[kind_a])  # noqa: B023
            put_fields(g, 8, lanes_of(lambda i, j: int(b[i, j]), k, 32), BITS[kind_b])  # noqa: B023
            put_tile(g, 40, c, short, 32)
            index = lanes_of(lambda i, j: int(places[i, j // 2, j % 2]), k // 2, 32)  # noqa: B023
            words = [sum(p << 2 * n for n, p in enumerate(fields)) for fields in index]
            unused = 0xC3A5 << (0 if key else 16) if k == 32 else 0
            g.put(16, np.array([w << 16 * key | unused for w in words], np.uint32))
            ops = (operand(4, op.src[0].bits, **flags[0]), operand(8, op.src[1].bits, **flags[1]), vgpr(16))
            how = {"clamp": clamp, "op_sel": key}
            perform(g, Instruction(0, 8, Encoding.VOP3P, name, (operand(40, op.dst[0].bits),), ops, how))
            got = tile(g, 40, short, 32)
            exact, turn = int if integer else in_units, -1 if not integer and whole and (x + y) % 2 else 1
            rows = [[exact(number_of(int(n), kind_a, bool(x))) for n in row] for row in a]
            cols = [[exact(number_of(int(n), kind_b, bool(y))) * turn for n in row] for row in b]
            at = (4 * np.arange(k // 4)[:, None] + places).reshape(16, -1).tolist()
            for i in range(16):
                for j in range(16):
                    products = [p * cols[j][n] for p, n in zip(rows[i], at[i], strict=True)]
                    if integer:
                        total = signed(c[i][j], 32)
                        for half in (products[: k // 4], products[k // 4 :]):
                            total += sum(half)
                            total = max(LOW, min(total, HIGH)) if clamp else total
                        assert got[i][j] == total & 0xFFFFFFFF, (name, i, j)
                        continue
                    want = accumulate(number_of(c[i][j], d), [products[n : n + 4] for n in range(0, k // 2, 4)], d)
                    assert number_of(got[i][j], d) == want, (name, i, j, x, y)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_infinities_and_nans(kind: str) -> None:
    """They reach the row and the column that they stand in, and no other."""
    inf, nan, one, tiny = {"f16": (0x7C00, 0x7D00, 0x3C00, 1), "bf16": (0x7F80, 0x7F81, 0x3F80, 0x80)}[kind]
    a, b = [[one] * 16 for _ in range(16)], [[one] * 16 for _ in range(16)]
    a[3][5], a[7][0], a[9] = inf, nan, [tiny] * 16
    b[2][5], b[4][15], b[6] = 0, inf | 0x8000, [tiny] * 16
    g = group()
    put_fields(g, 4, lanes_of(lambda i, j: a[i][j], 16, 32), 16)
    put_fields(g, 8, lanes_of(lambda i, j: b[i][j], 16, 32), 16)
    ops = (vgpr(4, 128), vgpr(8, 128), Operand(OperandKind.INTEGER, value=0))
    perform(g, Instruction(0, 8, Encoding.VOP3P, f"v_wmma_f32_16x16x16_{kind}", (vgpr(40, 256),), ops))
    got = [[value(x, 32) for x in row] for row in tile(g, 40, False, 32)]
    small = number_of(tiny, kind)
    for i in range(16):
        for j in range(16):
            where = (i, j, got[i][j])
            if i == 7 or (i, j) in ((3, 2), (3, 4)):  # inf * 0, inf - inf
                assert math.isnan(got[i][j]), where
            elif i == 3 or j == 4:
                assert got[i][j] == (math.inf if i == 3 else -math.inf), where
            else:
                factor = small ** ((i == 9) + (j == 6))
                ones = 15 if j == 2 else 16
                assert got[i][j] == value(rounded(Fraction(factor) * ones, 32), 32), where


def test_what_is_refused() -> None:
    ops = (vgpr(4, 64), vgpr(8, 128), vgpr(16))
    ins = Instruction(0, 8, Encoding.VOP3P, "v_swmmac_f32_16x16x32_f16", (vgpr(40, 128),), ops)
    with pytest.raises(Unsupported, match="v_swmmac_f32_16x16x32_f16 with 64 lanes"):
        perform(group(1, 64), ins)
    g = group(2)
    g.put_s(EXEC, np.array([0xFFFFFFFF, 0xFFFFFFFE], np.uint32))
    for r in range(32):
        g.put(r, 0)
    ops = (vgpr(4, 128), vgpr(8, 128), Operand(OperandKind.INTEGER, value=0))
    with pytest.raises(ShaderError, match="needs all lanes of EXEC"):
        perform(g, Instruction(0, 8, Encoding.VOP3P, "v_wmma_f32_16x16x16_f16", (vgpr(40, 256),), ops))

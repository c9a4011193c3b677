"""Mixed precision, numbers of eight bits, the scaling of divisions, parts of 2/pi."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import islice, product
from typing import Any

import numpy as np

from amdgpu_emu.core.state import EXEC, VCC
from tests.amdgpu_emu.core.defined import conversions, floats, integers, packed  # noqa: F401
from tests.amdgpu_emu.core.defined.floats import fma
from tests.amdgpu_emu.core.defined.harness import Real, defines, equal, final, flushed, keeps, perform
from tests.amdgpu_emu.core.defined.integers import M
from tests.amdgpu_emu.core.one import (
    NORMAL,
    SPECIAL16,
    SPECIAL32,
    SPECIAL64,
    Encoding,
    Instruction,
    Operand,
    OperandKind,
    group,
    rounded,
    value,
    vgpr,
)

HOLES = 0xF3A5_0FF7_5BD9_36EB


def on(lane: int) -> bool:
    return bool(HOLES >> lane & 1)


def widened16(x: int) -> int:
    """The bits of a binary16 as binary32."""
    found = value(x, 16)
    if not math.isfinite(found):
        return (x & 0x8000) << 16 | 0x7F800000 | (x & 0x3FF) << 13
    return rounded(Fraction(found), 32, 0, bool(x >> 15))


@defines("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
def test_mixed_precision() -> None:
    """Each source a half or a whole, with its sign; the result is rounded once, to the destination's type."""
    rng = np.random.default_rng(22)

    columns = [[int(SPECIAL32[i]) for i in rng.integers(0, len(SPECIAL32), 64)] for _ in range(3)]
    columns = [
        [
            x if k % 2 else int(SPECIAL16[x % len(SPECIAL16)]) | int(SPECIAL16[x // 7 % len(SPECIAL16)]) << 16
            for k, x in enumerate(c)
        ]
        for c in columns
    ]
    names = ("v_fma_mix_f32", "v_fma_mixlo_f16", "v_fma_mixhi_f16")
    every = product(names, product((0, 1, 2), repeat=3), (0, 1), (0, 1), (0, 1))
    for name, kinds, negative, absolute, clamp in islice(every, 0, None, 3):  # all kinds, each with some of the flags
        g = group(2)
        g.put(0, 0x1234ABCD)
        ops = []
        for k, (column, kind) in enumerate(zip(columns, kinds, strict=True)):
            g.put(10 + k, np.array(column, np.uint32).reshape(2, 32))
            how: dict[str, Any] = {"neg": bool(negative), "abs": bool(absolute)} if k == 1 else {}
            ops.append(vgpr(10 + k, 16 if kind else 32, op_sel=int(kind == 2), **how))
        width = 32 if name == "v_fma_mix_f32" else 16
        perform(g, Instruction(0, 8, Encoding.VOP3P, name, (vgpr(0, width),), tuple(ops), {"clamp": clamp}))
        shift = 16 if "hi" in name else 0
        for i, row in enumerate(zip(*columns, strict=True)):
            values = [
                x if not kind else widened16(x >> 16 * (kind - 1) & 0xFFFF) for x, kind in zip(row, kinds, strict=True)
            ]
            values[1] = (values[1] & 0x7FFFFFFF if absolute else values[1]) ^ (0x80000000 if negative else 0)
            want = fma(*values, 32)
            want = want if isinstance(want, (Real, float)) else floats.infinity(width, bool(want >> 31))
            done = final(want, width)
            if clamp:
                none = isinstance(done, float) or done >> width - 1
                done = 0 if none else min(int(done), floats.one(width))
            got = int(g.v[0].reshape(-1)[i])
            assert equal(got >> shift & (1 << width) - 1, done, width, "f"), (name, kinds, [hex(v) for v in values])
            if width == 16:
                assert got >> (16 - shift) & 0xFFFF == 0x1234ABCD >> (16 - shift) & 0xFFFF


def test_mixed_precision_in_modes() -> None:
    """Halves follow MODE's bits for binary16, wholes those for binary32, and so does the result."""
    halves, wholes = (x for x in (SPECIAL16, SPECIAL32))
    columns = [[x for x in halves for _ in wholes], [y for _ in halves for y in wholes]]
    n = len(columns[0]) // 32
    for mode in (0xF0, 0xB0, 0x70, 0xE0, 0xD0, 0x00, 0xF5, 0xFA, 0xFF):
        for name, width in (("v_fma_mix_f32", 32), ("v_fma_mixlo_f16", 16)):
            g = group(n, mode=mode)
            for k, column in enumerate(columns):
                g.put(2 + k, np.array(column[: 32 * n], np.uint32).reshape(n, 32))
            ops = (vgpr(2, 16), vgpr(3), Operand(OperandKind.FLOAT, value=0x80000001))
            perform(g, Instruction(0, 8, Encoding.VOP3P, name, (vgpr(0, width),), ops))
            for i, (x, y) in enumerate(zip(*columns, strict=True)):
                if i >= 32 * n:
                    break
                x = x if keeps(mode, 16, False) else flushed(x, 16)
                y, z = (v if keeps(mode, 32, False) else flushed(v, 32) for v in (y, 0x80000001))
                found = fma(widened16(x), y, z, 32)
                found = found if isinstance(found, (Real, float)) else floats.infinity(width, bool(found >> 31))
                want = final(found, width, mode)
                want = want if isinstance(want, float) or keeps(mode, width, True) else flushed(want, width)
                got = int(g.v[0].reshape(-1)[i]) & (1 << width) - 1
                assert equal(got, want, width, "f"), (name, hex(mode), hex(x), hex(y), hex(got), want)


@defines("v_cvt_pk_fp8_f32", "v_cvt_pk_bf8_f32", "v_cvt_sr_fp8_f32", "v_cvt_sr_bf8_f32")
def test_to_eight_bits() -> None:
    rng = np.random.default_rng(5)
    near = []  # every code, the middle to the next, and a little beside both
    for mantissa in (3, 2):
        for code in range(0x7F):
            x, y = (conversions.small_float(c, mantissa) for c in (code, code + 1))
            if math.isfinite(x) and math.isfinite(y):
                for point in (x, (x + y) / 2):
                    bits = rounded(Fraction(point), 32)
                    near += [max(bits - 1, 0), bits, bits + 1]
    columns = [*SPECIAL32, *near, 0x43E80000, 0x43E80001, 0x47700000, 0x476FFFFF]
    columns += [x | 0x80000000 for x in columns] + [int(x) for x in rng.integers(0, 1 << 32, 300)]
    n = -(-len(columns) // 32)
    columns += [0] * (n * 32 - len(columns))
    other = [int(x) for x in rng.permutation(columns)]
    seeds = [int(rng.choice([0, M, 1 << 31, 0x12345678, int(x)])) for x in rng.integers(0, 1 << 32, len(columns))]
    for kind, mantissa in (("fp8", 3), ("bf8", 2)):
        for how, place in (("pk", 0), ("pk", 8), ("sr", 0), ("sr", 4), ("sr", 8), ("sr", 12)):
            g = group(n)
            g.put(0, 0x99887766)
            g.put(1, np.array(columns, np.uint32).reshape(n, 32))
            g.put(2, np.array(other if how == "pk" else seeds, np.uint32).reshape(n, 32))
            g.put_s(EXEC, np.uint32(HOLES & M))
            ops = (vgpr(1, neg=True), vgpr(2, abs=how == "pk"))
            perform(g, Instruction(0, 8, Encoding.VOP3, f"v_cvt_{how}_{kind}_f32", (vgpr(0),), ops, {"op_sel": place}))
            for i, (a, b, seed) in enumerate(zip(columns, other, seeds, strict=True)):
                a, at = a ^ 0x80000000, 16 * (place >> 3) if how == "pk" else 8 * (place >> 2)
                if how == "pk":
                    bits = conversions.narrowed(a, mantissa) | conversions.narrowed(b & 0x7FFFFFFF, mantissa) << 8
                else:
                    bits = conversions.narrowed(a, mantissa, seed)
                mask = (0xFFFF if how == "pk" else 0xFF) << at
                want = 0x99887766 & ~mask | bits << at if on(i % 32) else 0x99887766
                assert g.v[0].reshape(-1)[i] == want, (how, kind, hex(a), hex(b), hex(seed))


def test_eight_bit_sources_by_byte() -> None:
    """v_cvt_f32_fp8 and its kin: op_sel picks a byte, bit 0 its half and bit 1 the odd one; of pairs the half."""
    for kind, mantissa in (("fp8", 3), ("bf8", 2)):
        words = [k | (255 - k) << 8 | (k ^ 0x55) << 16 | (k * 7 & 255) << 24 for k in range(256)]
        for select in range(4):
            g = group(8)
            g.put(2, np.array(words, np.uint32).reshape(8, 32))
            how = {"op_sel": select}
            perform(g, Instruction(0, 8, Encoding.VOP3, f"v_cvt_f32_{kind}", (vgpr(0),), (vgpr(2),), how))
            for x, got in zip(words, g.v[0].reshape(-1), strict=True):
                want = conversions.widened(x >> 16 * (select & 1) + 8 * (select >> 1), mantissa)
                assert equal(int(got), want, 32, "f")
            moved = how | {"dpp8": sum((7 - i) << 3 * i for i in range(8))}
            perform(g, Instruction(0, 12, Encoding.VOP3, f"v_cvt_f32_{kind}", (vgpr(1),), (vgpr(2),), moved))
            assert (g.v[1] == g.v[0].reshape(8, 4, 8)[:, :, ::-1].reshape(8, 32)).all(), "of the lane that DPP reads"
            if select < 2:
                perform(g, Instruction(0, 8, Encoding.VOP3, f"v_cvt_pk_f32_{kind}", (vgpr(0, 64),), (vgpr(2),), how))
                for x, low, high in zip(words, g.v[0].reshape(-1), g.v[1].reshape(-1), strict=True):
                    for k, got in enumerate((low, high)):
                        assert equal(int(got), conversions.widened(x >> 16 * select + 8 * k, mantissa), 32, "f")


@defines("v_div_scale_f32", "v_div_scale_f64")
def test_scaling_of_a_division() -> None:
    """The cases of the ISA document in its order; where both the reciprocal and the quotient are subnormal, the
    denominator goes down, which is what makes the sequence's result right.
    """
    for width, special in ((32, SPECIAL32), (64, SPECIAL64)):
        step, near, tiny, fraction = {32: (64, 96, 23, 23), 64: (128, 768, 53, 52)}[width]
        least = Fraction(2) ** {32: -126, 64: -1022}[width]
        finite = [x for x in special if math.isfinite(value(x, width))]
        d, n = (list(x) for x in zip(*product(finite, finite), strict=True))
        count, top = len(d), (1 << width) - 1
        for first in ("d", "n"):
            waves = -(-count // 32)
            g = group(waves)
            for k, column in enumerate((d if first == "d" else n, d, n)):
                for w in range(width // 32):
                    values = [x >> 32 * w & M for x in column] + [0] * (waves * 32 - count)
                    g.put(10 + 2 * k + w, np.array(values, np.uint32).reshape(waves, 32))
            name, dst = f"v_div_scale_f{width}", (vgpr(0, width), Operand(OperandKind.VCC))
            perform(g, Instruction(0, 8, Encoding.VOP3SD, name, dst, tuple(vgpr(10 + 2 * k, width) for k in range(3))))
            mask = g.bits(VCC).reshape(-1)
            for i in range(count):
                got = int(g.v[0].reshape(-1)[i]) | (int(g.v[1].reshape(-1)[i]) << 32 if width == 64 else 0)
                bits = d[i] if first == "d" else n[i]
                x, y = Fraction(value(n[i], width)), Fraction(value(d[i], width))
                is_d, is_n = bits == d[i], bits == n[i]
                e = [v >> fraction & (top >> fraction + 1) for v in (n[i], d[i])]
                up = down = flag = False
                if not x or not y:
                    assert math.isnan(value(got, width))
                    assert not mask[i]
                    continue
                quotient = rounded(x / y, width) & top >> 1
                few = 0 < quotient < 1 << fraction
                small = 0 < rounded(1 / y, width) & top >> 1 < 1 << fraction
                if e[0] - e[1] >= near:
                    flag, up = True, is_d
                elif abs(y) < least:
                    up = True
                elif small and few:
                    flag, down = True, is_d
                elif small:
                    down = True
                elif few:
                    flag, up = True, is_n
                elif e[0] <= tiny:
                    up = True
                want = Fraction(value(bits, width)) * Fraction(2) ** (step * (int(up) - int(down)))
                where = (hex(n[i]), hex(d[i]), first)
                assert got == rounded(want, width, 0, bool(bits >> width - 1)), where
                assert mask[i] == flag, where


@defines("v_trig_preop_f64")
def test_parts_of_two_over_pi() -> None:
    """2/pi by the arithmetic-geometric mean in whole numbers, 1201 bits of it."""
    bits = 1400
    unit = 1 << bits
    a, b, t, p = unit, math.isqrt(unit * unit // 2), unit // 4, 1
    for _ in range(12):
        a, b, c = (a + b) // 2, math.isqrt(a * b), a
        t -= p * (c - a) ** 2 // unit
        p *= 2
    pi = (a + b) ** 2 // (4 * t)
    digits = (2 * unit << 1201) // pi
    exponents = (0, 1, 1023, 1077, 1078, 1200, 1967, 1968, 2046, 2047)
    pairs = list(product(exponents, (*range(32), 32, 0xFFFFFFFF)))
    waves = -(-len(pairs) // 32)
    pairs += [(0, 0)] * (waves * 32 - len(pairs))
    g = group(waves)
    g.put(2, np.uint32(12345))
    g.put(3, np.array([e << 20 | (k << 31 & M) for k, (e, _) in enumerate(pairs)], np.uint32).reshape(waves, 32))
    g.put(4, np.array([s for _, s in pairs], np.uint32).reshape(waves, 32))
    perform(g, Instruction(0, 8, Encoding.VOP3, "v_trig_preop_f64", (vgpr(0, 64),), (vgpr(2, 64), vgpr(4))))
    for i, (e, segment) in enumerate(pairs):
        shift = (segment & 31) * 53 + max(0, e - 1077)
        window = (digits << shift) >> (1201 - 53) & (1 << 53) - 1
        want = rounded(window * Fraction(2) ** ((128 if e >= 1968 else 0) - 53 - shift), 64)
        assert int(g.v[0].reshape(-1)[i]) | int(g.v[1].reshape(-1)[i]) << 32 == want, (e, segment)
    assert NORMAL == 0xF0

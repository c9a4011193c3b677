"""One instruction at a time, on register contents of choice; and numbers as integers and fractions for the oracles."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable, Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np

from amdgpu_emu.core.program import Program
from amdgpu_emu.core.state import EXEC, NORMAL_MODE, VCC, Group
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind

NORMAL = NORMAL_MODE


def vgpr(index: int, bits: int = 32, **how: Any) -> Operand:
    return Operand(OperandKind.VGPR, index, max(1, bits // 32), bits=bits, **how)


def sgpr(index: int, dwords: int = 1, **how: Any) -> Operand:
    return Operand(OperandKind.SGPR, index, dwords, bits=32 * dwords, **how)


def literal(value: int, bits: int = 32) -> Operand:
    return Operand(OperandKind.LITERAL, 0, max(1, bits // 32), value, bits=bits)


def group(n: int = 1, lanes: int = 32, mode: int = NORMAL) -> Group:
    """Waves with all lanes on, nothing else written."""
    g = Group(64, lanes, np.arange(n), np.zeros(n, np.int64))
    for k in range(2):
        g.put_s(EXEC + k, np.uint32(0xFFFFFFFF))
    g.mode = mode
    return g


def execute(g: Group, ins: Instruction) -> Any:
    """Compile and run it, without the checks of registers and waits."""
    program = Program(lambda a, n: b"", 64, g.lanes)
    with np.errstate(all="ignore"):
        return program._compile(ins).fn(g)


def vector(
    name: str,
    columns: Sequence[Sequence[int]],
    bits: Sequence[int],
    result: int = 32,
    *,
    form: Encoding = Encoding.VOP3,
    mode: int = NORMAL,
    modifiers: dict[str, int] | None = None,
    sources: Sequence[dict[str, Any]] | None = None,
    vcc_in: Sequence[int] | None = None,
    masks: int = 0,
    old: int = 0,
    extra: Sequence[Operand] = (),
) -> Any:
    """Run on numbers (one column per source, as bits); the result's bits, and with masks the bits of VCC as well."""
    count = len(columns[0])
    waves = -(-count // 32)
    g = group(waves, mode=mode)

    def place(register: int, values: Sequence[int], width: int) -> None:
        padded = np.array([*values, *[values[-1]] * (waves * 32 - count)], np.uint64).reshape(waves, 32)
        for k in range(max(1, width // 32)):
            g.put(register + k, (padded >> np.uint64(32 * k)).astype(np.uint32))

    for k in range(2):
        g.put(k, np.uint32(old))
    ops = []
    for k, (values, width) in enumerate(zip(columns, bits, strict=True)):
        place(10 + 2 * k, values, width)
        ops.append(vgpr(10 + 2 * k, width, **(sources[k] if sources else {})))
    if vcc_in is not None:
        packed = np.zeros((waves, 32), np.bool_)
        packed.reshape(-1)[:count] = np.array(vcc_in, np.bool_)
        g.put_bits(VCC, packed)
        ops.append(Operand(OperandKind.VCC))
    dst = [vgpr(0, result)] if result else []
    if masks:
        dst.append(Operand(OperandKind.VCC))
    execute(g, Instruction(0, 8, form, name, tuple(dst), (*ops, *extra), modifiers or {}))
    out = g.v[0].astype(np.uint64)
    if result == 64:
        out |= g.v[1].astype(np.uint64) << np.uint64(32)
    if result == 16:
        out &= np.uint64(0xFFFF)
    found = [int(x) for x in out.reshape(-1)[:count]]
    return (found, [int(x) for x in g.bits(VCC).reshape(-1)[:count]]) if masks else found


def scalar(
    name: str,
    columns: Sequence[Sequence[int]],
    dwords: Sequence[int],
    result: int = 1,
    *,
    form: Encoding = Encoding.SOP2,
    scc: Sequence[int] | None = None,
    old: Sequence[int] | None = None,
) -> tuple[list[int], list[int]]:
    """A scalar instruction on one wave per row; the results and SCC."""
    count = len(columns[0])
    g = group(count)
    ops = []
    for k, (values, width) in enumerate(zip(columns, dwords, strict=True)):
        for w in range(width):
            g.put_s(10 + 2 * k + w, np.array([v >> 32 * w & 0xFFFFFFFF for v in values], np.uint32))
        ops.append(sgpr(10 + 2 * k, width))
    for w in range(2):
        g.put_s(4 + w, np.array([v >> 32 * w & 0xFFFFFFFF for v in old or [0] * count], np.uint32))
    if scc is not None:
        g.put_scc(np.array(scc, np.bool_))
    dst = (sgpr(4, result),) if result else ()
    execute(g, Instruction(0, 4, form, name, dst, tuple(ops)))
    out = g.s[4].astype(np.uint64)
    if result == 2:
        out |= g.s[5].astype(np.uint64) << np.uint64(32)
    return [int(x) for x in out], [int(x) for x in g.scc]


# Numbers.

FORMATS = {16: (5, 10, "<e", "<H"), 32: (8, 23, "<f", "<I"), 64: (11, 52, "<d", "<Q")}
NAN, INF = math.nan, math.inf


def value(bits: int, width: int) -> float:
    """The number of these bits (binary64 holds all of them)."""
    _, _, f, u = FORMATS[width]
    return float(struct.unpack(f, struct.pack(u, bits))[0])


def rounded(x: Fraction, width: int, mode: int = 0, negative: bool = False) -> int:
    """Bits of an exact number rounded once. mode: 0 nearest even, 1 up, 2 down, 3 to zero. negative: sign of zero."""
    exponent, mantissa, _, _ = FORMATS[width]
    bias = (1 << exponent - 1) - 1
    sign = (x < 0 or (x == 0 and negative)) << (width - 1)
    if x == 0:
        return sign
    top, unit = abs(x.numerator), x.denominator
    e = top.bit_length() - unit.bit_length()
    if top << max(-e, 0) < unit << max(e, 0):
        e -= 1
    e = max(e, 1 - bias)
    steps, rest = divmod(top << max(mantissa - e, 0), unit := unit << max(e - mantissa, 0))
    up = {
        0: rest * 2 > unit or (rest * 2 == unit and steps & 1 == 1),
        1: rest > 0 and x > 0,
        2: rest > 0 and x < 0,
        3: False,
    }[mode]
    code = steps + up
    code += (e + bias - 1) << mantissa if e > 1 - bias or code >> mantissa else 0
    top = ((1 << exponent) - 1) << mantissa
    if code >= top:
        to_inf = mode == 0 or (mode == 1 and x > 0) or (mode == 2 and x < 0)
        code = top if to_inf else top - 1
    return sign | code


def is_nan(bits: int, width: int) -> bool:
    return math.isnan(value(bits, width))


def same(got: int, want: int | float, width: int) -> bool:
    """Equal bits; any NaN for a NaN. want: bits, or nan."""
    if isinstance(want, float):
        return is_nan(got, width)
    return got == want or (is_nan(want, width) and is_nan(got, width))


def signed(x: int, bits: int) -> int:
    """Two's complement."""
    x &= (1 << bits) - 1
    return x - (1 << bits) if x >> (bits - 1) else x


SPECIAL32 = (
    0, 0x80000000, 1, 0x80000001, 0x7FFFFF, 0x800000, 0x80800000, 0x3F800000, 0xBF800000, 0x3F800001, 0x3F7FFFFF,
    0x40490FDB, 0x4B800001, 0x4EFFFFFF, 0x4F000000, 0xCF000000, 0x4F800000, 0x5F000000, 0x7F7FFFFF, 0xFF7FFFFF,
    0x7F800000, 0xFF800000, 0x7FC00000, 0x7F800001, 0x33800000, 0x3EAAAAAB, 0x00C00000, 0x3F000000, 0xC0200000,
)  # fmt: skip
SPECIAL16 = (
    0, 0x8000, 1, 0x8001, 0x3FF, 0x400, 0x8400, 0x3C00, 0xBC00, 0x3C01, 0x3BFF, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
    0x7C01, 0x3555, 0x4248, 0x6400,
)  # fmt: skip
SPECIAL64 = (
    0, 1 << 63, 1, (1 << 52) - 1, 1 << 52, 0x3FF0 << 48, 0xBFF0 << 48, (0x3FF0 << 48) + 1, 0x7FEFFFFFFFFFFFFF,
    0xFFEFFFFFFFFFFFFF, 0x7FF0 << 48, 0xFFF0 << 48, 0x7FF8 << 48, 0x41DFFFFFFFC00000, 0x41E0 << 48, 0xC1E0 << 48,
    0x36A0 << 48, 0x369F << 48, 0x47EFFFFFE0000000, 0x47EFFFFFF0000000, 0x400921FB54442D18,
)  # fmt: skip
SPECIAL = {16: SPECIAL16, 32: SPECIAL32, 64: SPECIAL64}
INTEGERS32 = (0, 1, 2, 3, 31, 32, 33, 0x7F, 0x80, 0xFF, 0x100, 0x7FFF, 0x8000, 0xFFFF, 0x10000, 0x7FFFFF, 0x800000,
              0xFFFFFF, 0x1000000, 0x7FFFFFFF, 0x80000000, 0x80000001, 0xFFFFFFFE, 0xFFFFFFFF, 0xDEADBEEF)  # fmt: skip


def rows(
    choices: Iterable[int], sources: int, bits: int, seed: int, limit: int = 700, random: int = 200
) -> list[list[int]]:
    """Columns: combinations of special values, then random numbers."""
    rng = np.random.default_rng(seed)
    combinations = list(product(choices, repeat=sources))
    if len(combinations) > limit:
        combinations = [combinations[i] for i in sorted(rng.choice(len(combinations), limit, replace=False))]
    more = [[int(x) for x in rng.integers(0, 1 << bits, random, dtype=np.uint64)] for _ in range(sources)]
    return [[c[k] for c in combinations] + more[k] for k in range(sources)]

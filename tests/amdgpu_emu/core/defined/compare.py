"""Comparisons: v_cmp_*, v_cmpx_* and s_cmp_*; classes of floats (RDNA 4 ISA, VOPC, SOPC)."""

from __future__ import annotations

import math
from collections.abc import Callable

from tests.amdgpu_emu.core.defined.harness import OPCODES, Definition, define
from tests.amdgpu_emu.core.one import FORMATS, is_nan, signed, value

CONDITIONS: dict[str, Callable[[float, float], bool]] = {
    "lt": lambda a, b: a < b, "eq": lambda a, b: a == b, "le": lambda a, b: a <= b, "gt": lambda a, b: a > b,
    "lg": lambda a, b: a < b or a > b, "ge": lambda a, b: a >= b, "ne": lambda a, b: a != b,
    "o": lambda a, b: not (math.isnan(a) or math.isnan(b)),
    "u": lambda a, b: math.isnan(a) or math.isnan(b), "nge": lambda a, b: not a >= b,
    "nlg": lambda a, b: not (a < b or a > b), "ngt": lambda a, b: not a > b, "nle": lambda a, b: not a <= b,
    "neq": lambda a, b: a != b, "nlt": lambda a, b: not a < b,
}  # fmt: skip


def number(kind: str) -> Callable[[int], float]:
    width = int(kind[1:])
    if kind[0] == "f":
        return lambda x: value(x, width)
    return (lambda x: signed(x, width)) if kind[0] == "i" else (lambda x: x)


def class_of(bits: int, width: int) -> int:
    """The number of its bit: signalling, quiet NaN, -inf, -normal, -subnormal, -0, +0, +subnormal, +normal, +inf."""
    exponent_bits, fraction, _, _ = FORMATS[width]
    sign, e = bits >> width - 1, bits >> fraction & (1 << exponent_bits) - 1
    if is_nan(bits, width):
        return bits >> fraction - 1 & 1
    if e == (1 << exponent_bits) - 1:
        kind = 0
    elif e:
        kind = 1
    else:
        kind = 2 if bits & (1 << fraction) - 1 else 3
    return 2 + kind if sign else 9 - kind


def _comparison(name: str) -> Definition:
    _, _, condition, kind = name.split("_")
    if condition == "class":
        width = int(kind[1:])
        return lambda a, mask: mask >> class_of(a, width) & 1
    read, call = number(kind), CONDITIONS[condition]
    return lambda a, b: int(call(read(a), read(b)))


VECTOR = {name: _comparison(name) for name in OPCODES if name.startswith(("v_cmp_", "v_cmpx_"))}
define(VECTOR, "m")

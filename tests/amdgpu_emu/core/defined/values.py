"""Numbers to run instructions on: special ones in all combinations, as far as a limit allows, and random ones."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np

from amdgpu_emu.isa.opcodes import OperandType
from tests.amdgpu_emu.core.defined.harness import OPCODES
from tests.amdgpu_emu.core.one import INTEGERS32, SPECIAL, SPECIAL16

ACCUMULATES = ("v_fmac_", "v_pk_fmac_")
WIDE = (0, 1, 2, 63, 64, 0xFFFFFFFF, 1 << 32, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, 0x123456789ABCDEF0)
CLASSES = (0, 0x3FF, *(1 << k for k in range(10)), 0x155)
POWERS = (0, 1, 2, 10, 24, 127, 150, 300, 0xFFFF, 0xFFF6, 0xFFFFFFFF, 0xFFFFFF6A, 0xFFFFFED4, 0x7FFFFFFF, 0x80000000)


def words(choices: tuple[int, ...], seed: int) -> tuple[int, ...]:
    """Pairs of 16 bits."""
    rng = np.random.default_rng(seed)
    return tuple(int(choices[i]) | int(choices[j]) << 16 for i, j in rng.integers(0, len(choices), (40, 2)))


BRAIN = (0, 0x8000, 1, 0x7F, 0x80, 0x3F80, 0xBF80, 0x7F7F, 0xFF7F, 0x7F80, 0xFF80, 0x7FC0, 0x4049, 0x3EAB, 0x4B01)


def choices(name: str, kind: OperandType, place: int) -> tuple[int, ...]:
    """Special values of a source."""
    bits = kind.bits
    if kind.kind == "m":
        return (0, 1)
    if "ldexp" in name and place == 1:
        return POWERS
    if "class" in name and place == 1:
        return CLASSES
    if kind.kind == "f":
        return SPECIAL[bits]
    if kind.kind == "h":
        return words(SPECIAL16, place)
    if kind.kind == "y":
        return words(BRAIN, place) if bits == 32 else BRAIN
    if kind.kind == "w":
        return words(tuple(x & 0xFFFF for x in INTEGERS32), place)
    if bits == 128:
        return tuple(x << 96 | y << 64 | x << 32 | y for x, y in zip(INTEGERS32, INTEGERS32[::-1], strict=True))
    if bits == 64:
        return WIDE
    return tuple(x & (1 << bits) - 1 for x in INTEGERS32)


def kinds_of(name: str) -> list[OperandType]:
    """Types of the columns; a destination that is read comes last."""
    _, op = OPCODES[name]
    kinds = [t for t in op.src if t.place != "k" and t.kind != "imm"]
    if name.startswith("v_div_fmas"):
        kinds.append(OperandType("m"))
    if name.startswith(ACCUMULATES):
        kinds.append(OperandType("h", 32) if "pk" in name else OperandType("f", op.dst[0].bits))
    return kinds


@cache
def columns_of(name: str, limit: int, random: int) -> tuple[tuple[int, ...], ...]:
    kinds = kinds_of(name)
    rng = np.random.default_rng(len(name))
    every = [choices(name, kind, k) for k, kind in enumerate(kinds)]
    total = int(np.prod([len(c) for c in every]))
    picked = (
        list(product(*every))
        if total <= limit
        else [
            tuple(c[int(i)] for c, i in zip(every, row, strict=True))
            for row in np.stack([rng.integers(0, len(c), limit) for c in every], axis=1)
        ]
    )
    more = []
    for kind in kinds:
        bits = kind.bits or 1
        more.append([int(x) & (1 << bits) - 1 for x in rng.integers(0, 1 << min(bits, 63), random)])
    return tuple(tuple([row[k] for row in picked] + more[k]) for k in range(len(kinds)))

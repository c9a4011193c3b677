"""Runs an instruction of the opcode tables on columns of numbers, and says what a definition makes of the same rows.

A definition takes the bits of each source and returns what the destination gets: an int, which is cut to the width (or
saturated, with clamp); a `Real`, which is rounded as MODE says; or nan, for any NaN. Names are collected in `DEFINED`;
tests of instructions that fit no row of numbers say with `defines` which ones they compare.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

import numpy as np

from amdgpu_emu.core.state import EXEC, VCC
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import Opcode, OperandType, opcodes
from tests.amdgpu_emu.core.one import NORMAL, execute, group, is_nan, literal, rounded, sgpr, value, vgpr

NAN = math.nan
ALU = (
    Encoding.SOP1,
    Encoding.SOP2,
    Encoding.SOPC,
    Encoding.SOPK,
    Encoding.VOP1,
    Encoding.VOP2,
    Encoding.VOPC,
    Encoding.VOP3,
    Encoding.VOP3SD,
    Encoding.VOP3P,
    Encoding.VOPD,
)
OPCODES: dict[str, tuple[Encoding, Opcode]] = {}
for _form in ALU:
    for _op in opcodes(_form).values():
        OPCODES.setdefault(_op.name, (_form, _op))

Definition = Callable[..., Any]


class Entry(NamedTuple):
    """result: f float, u unsigned, i signed; saturates: clamp limits an integer to its type."""

    call: Definition
    result: str
    saturates: bool


DEFINED: dict[str, Entry] = {}
BY_TEST: dict[str, str] = {}
OLD = 0xA5C3_5A3C
"""What a destination holds before."""


@dataclass(frozen=True)
class Real:
    """An exact number that is to be rounded. negative: the sign of a zero; None: of a sum that cancels."""

    x: Fraction
    negative: bool | None = False


def define(table: dict[str, Definition], result: str, *, saturates: bool = False) -> None:
    """Names of a table; none twice. saturates: clamp limits its integers."""
    assert not DEFINED.keys() & table.keys(), DEFINED.keys() & table.keys()
    for name in table:
        assert name in OPCODES, name
    DEFINED.update({name: Entry(call, result, saturates) for name, call in table.items()})


def defines(*names: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """A test that compares the results of these instructions; it fails when one of them was not executed in it."""
    for name in names:
        assert name in OPCODES, name

    def wrap(test: Callable[..., None]) -> Callable[..., None]:
        BY_TEST.update(dict.fromkeys(names, test.__name__))

        @functools.wraps(test)
        def run(*args: Any, **how: Any) -> None:
            EXECUTED.clear()
            test(*args, **how)
            missing = set(names) - EXECUTED
            assert not missing, missing

        return run

    return wrap


EXECUTED: set[str] = set()


def perform(g: Any, ins: Instruction) -> Any:
    """Execute and note the name."""
    EXECUTED.add(ins.name)
    if ins.second is not None:
        EXECUTED.add(ins.second.name)
    return execute(g, ins)


def float_width(kind: OperandType) -> int:
    """Bits of a float type, or 0."""
    return kind.bits if kind.kind == "f" else 0


@dataclass(frozen=True)
class How:
    """How to run: modifiers of the instruction and of each source, MODE, lanes, a literal, a permutation of lanes."""

    mode: int = NORMAL
    modifiers: tuple[tuple[str, int], ...] = ()
    sources: tuple[tuple[tuple[str, Any], ...], ...] = ()
    lanes: int = 32
    constant: int = 0x3FC00000
    half: int = 0  # of a 16-bit destination
    holes: bool = True


def run_vector(name: str, columns: Sequence[Sequence[int]], how: How = How()) -> tuple[list[int], list[int], list[int]]:
    """Results, mask results, and which rows were on; rows that were off were seen to keep what was there."""
    form, op = OPCODES[name]
    count, lanes = len(columns[0]), how.lanes
    waves = -(-count // lanes)
    g = group(waves, lanes, how.mode)
    ops: list[Operand] = []
    places = iter(columns)

    def spread(values: Sequence[int], word: int) -> Any:
        padded = [*values, *[values[-1]] * (waves * lanes - count)]
        return np.array([v >> 32 * word & 0xFFFFFFFF for v in padded], np.uint32).reshape(waves, lanes)

    for k, kind in enumerate(op.src):
        extra: dict[str, Any] = dict(how.sources[k]) if k < len(how.sources) else {}
        if kind.place == "k":
            ops.append(literal(how.constant & (1 << kind.bits) - 1, kind.bits))
            continue
        values = next(places)
        if kind.kind == "m":
            bits = np.zeros((waves, lanes), np.bool_)
            bits.reshape(-1)[:count] = np.array(values, np.bool_)
            g.put_bits(VCC, bits)
            ops.append(Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes))
            continue
        at = 10 + 4 * k
        shift = 16 * (extra.get("op_sel", 0) & 1) if kind.bits == 16 else 0
        for w in range(max(1, kind.bits // 32)):
            word = spread(values, w)
            g.put(at + w, word << np.uint32(shift) | np.uint32(0x5A5A << (16 - shift) if kind.bits == 16 else 0))
        if kind.kind in "hwy" and kind.bits == 32 and "op_sel" not in extra:
            extra["op_sel"] = 2 if form is Encoding.VOP3P else 0
        ops.append(vgpr(at, kind.bits, **extra))
    if name.startswith("v_div_fmas"):  # it reads VCC, which is no operand
        bits = np.zeros((waves, lanes), np.bool_)
        bits.reshape(-1)[:count] = np.array(next(places), np.bool_)
        g.put_bits(VCC, bits)
    old = next(places, None)
    dst: list[Operand] = []
    main = op.dst[0] if op.dst else None
    words = 0
    if main is not None and main.kind != "m":
        words = max(1, main.bits // 32)
        for w in range(words):
            g.put(w, spread(old, w) << np.uint32(16 * how.half) if old is not None else np.uint32(OLD))
        dst.append(vgpr(0, main.bits, op_sel=how.half))
    if any(t.kind == "m" for t in op.dst) or name.startswith("v_cmp_"):
        g.put_s(VCC, np.uint32(0xFFFFFFFF)) if not any(t.kind == "m" for t in op.src) else None
        dst.append(Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes))
    if name.startswith("v_cmpx"):
        dst = [Operand(OperandKind.EXEC, 0, lanes // 32, bits=lanes)]
    rng = np.random.default_rng(count)
    on = rng.random((waves, lanes)) < (0.8 if how.holes else 2)
    before = [g.v[w].copy() for w in range(words)]
    g.put_bits(EXEC, on)
    perform(g, Instruction(0, 8, form, name, tuple(dst), tuple(ops), dict(how.modifiers)))
    for w in range(words):
        assert (g.v[w][~on] == before[w][~on]).all(), f"{name} writes lanes that are off"
    out = [0] * count
    for w in range(words):
        for i, x in enumerate(g.v[w].reshape(-1)[:count].tolist()):
            out[i] |= x << 32 * w
    if main is not None and main.bits == 16:
        others = [x >> 16 * (1 - how.half) & 0xFFFF for x in out]
        keep = [int(x) >> 16 * (1 - how.half) & 0xFFFF for x in before[0].reshape(-1)[:count]]
        assert others == keep, f"{name} writes the other half"
        out = [x >> 16 * how.half & 0xFFFF for x in out]
    masks = g.bits(EXEC if name.startswith("v_cmpx") else VCC)
    assert not (masks & ~on).any() or not dst or dst[-1].kind is OperandKind.VGPR, (
        f"{name}: mask bits of lanes that are off"
    )
    return out, masks.reshape(-1)[:count].astype(int).tolist(), on.reshape(-1)[:count].astype(int).tolist()


def run_scalar(
    name: str,
    columns: Sequence[Sequence[int]],
    *,
    scc: Sequence[int],
    old: Sequence[int],
    constant: int = 0,
    literals: str = "",
) -> tuple[list[int], list[int]]:
    """One wave per row; results and SCC. literals: numbers of sources that are constants, those of the first row."""
    form, op = OPCODES[name]
    count = len(old)
    g = group(count)
    ops: list[Operand] = []
    places = iter(columns)
    for k, kind in enumerate(op.src):
        if kind.place == "k":
            ops.append(literal(constant & (1 << kind.bits) - 1, kind.bits))
            continue
        if kind.kind == "imm":
            continue
        dwords = max(1, kind.bits // 32)
        values = next(places)
        if str(k) in literals:
            ops.append(Operand(OperandKind.LITERAL, 0, dwords, values[0], bits=kind.bits))
            continue
        for w in range(dwords):
            g.put_s(10 + 4 * k + w, np.array([v >> 32 * w & 0xFFFFFFFF for v in values], np.uint32))
        ops.append(sgpr(10 + 4 * k, dwords))
    for w in range(2):
        g.put_s(4 + w, np.array([v >> 32 * w & 0xFFFFFFFF for v in old], np.uint32))
    g.put_scc(np.array(scc, np.bool_))
    bits = op.dst[0].bits if op.dst else 0
    dst = (sgpr(4, max(1, bits // 32)),) if bits else ()
    modifiers = {"simm16": constant} if form is Encoding.SOPK else {}
    perform(g, Instruction(0, 4, form, name, dst, tuple(ops), modifiers))
    out = g.s[4].astype(np.uint64)
    if bits == 64:
        out |= g.s[5].astype(np.uint64) << np.uint64(32)
    return [int(x) for x in out], [int(x) for x in g.scc]


# What a definition's result is as bits.


def flushed(bits: int, width: int) -> int:
    """A subnormal as the zero of its sign."""
    x = value(bits, width)
    return bits & 1 << (width - 1) if x and abs(x) < {16: 2.0**-14, 32: 2.0**-126, 64: 2.0**-1022}[width] else bits


def rounding_of(mode: int, width: int) -> int:
    return mode & 3 if width == 32 else mode >> 2 & 3


def keeps(mode: int, width: int, output: bool) -> bool:
    """Whether MODE keeps subnormals."""
    return bool((mode >> (4 if width == 32 else 6)) & (2 if output else 1))


def final(found: Any, bits: int, mode: int = NORMAL) -> int | float:
    """Bits, or nan."""
    if isinstance(found, Real):
        how = rounding_of(mode, bits)
        negative = how == 2 if found.negative is None else found.negative
        return rounded(found.x, bits, how, negative)
    if isinstance(found, float):
        return NAN
    return int(found) & (1 << bits) - 1


def equal(got: int, want: int | float, bits: int, result: str) -> bool:
    """Equal bits; of floats any NaN for a NaN."""
    if isinstance(want, float):
        return is_nan(got, bits)
    return got == want or (result == "f" and is_nan(want, bits) and is_nan(got, bits))


def run_uniform(name: str, columns: Sequence[Sequence[int]], places: str, lanes: int = 32) -> list[tuple[int, int]]:
    """One wave per row, whose sources are v(ector) or s(calar) registers; or one for each row of c(onstants).
    Results and mask bits of the lanes, which are all the same.
    """
    form, op = OPCODES[name]
    constants = "c" in places
    found: list[tuple[int, int]] = []
    batches = [[(x,) for x in row] for row in zip(*columns, strict=True)] if constants else [list(columns)]
    for batch in batches:
        g = group(len(batch[0]), lanes)
        g.put_bits(VCC, np.zeros((1, lanes), np.bool_))
        ops: list[Operand] = []
        for k, (kind, values) in enumerate(zip(op.src, batch, strict=False)):
            words = max(1, kind.bits // 32)
            where = places[k % len(places)]
            for w in range(words):
                column = np.array([v >> 32 * w & 0xFFFFFFFF for v in values], np.uint32)
                g.put(10 + 4 * k + w, column[:, None])
                g.put_s(10 + 4 * k + w, column)
            pick = 2 if kind.kind in "hwy" and kind.bits == 32 and form is Encoding.VOP3P else 0
            if kind.kind == "m":
                g.put_bits(VCC, np.array(values, np.bool_)[:, None])
                ops.append(Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes))
            elif where == "v":
                ops.append(vgpr(10 + 4 * k, kind.bits, op_sel=pick))
            elif where == "s":
                ops.append(Operand(OperandKind.SGPR, 10 + 4 * k, words, op_sel=pick, bits=kind.bits))
            else:
                ops.append(
                    Operand(
                        OperandKind.LITERAL, 0, words, values[0] & (1 << kind.bits) - 1, op_sel=pick, bits=kind.bits
                    )
                )
        dst: list[Operand] = []
        bits = op.dst[0].bits if op.dst else 0
        if bits:
            for w in range(max(1, bits // 32)):
                g.put(w, np.uint32(0))
            dst.append(vgpr(0, bits))
        elif name.startswith("v_cmp_"):
            dst.append(Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes))
        else:
            dst.append(Operand(OperandKind.EXEC, 0, lanes // 32, bits=lanes))
        perform(g, Instruction(0, 8, form, name, tuple(dst), tuple(ops)))
        masks = g.bits(EXEC if name.startswith("v_cmpx") else VCC)
        for i in range(len(batch[0])):
            result = 0
            for w in range(max(1, bits // 32) if bits else 0):
                assert (g.v[w][i] == g.v[w][i][0]).all(), name
                result |= int(g.v[w][i][0]) << 32 * w
            assert (masks[i] == masks[i][0]).all(), name
            found.append((result & (1 << bits) - 1, int(masks[i][0])))
    return found

"""Each instruction's results against its definition: special and random numbers, lanes that are off, waves of 32 and 64
lanes, signs, halves, output modifiers, rounding and denormal modes, DPP.
"""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Callable, Iterable
from itertools import product
from typing import Any

import pytest

from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.isa.opcodes import Opcode, OperandType
from tests import helpers
from tests.amdgpu_emu.core.defined import compare, conversions, floats, integers, packed, scalars  # noqa: F401
from tests.amdgpu_emu.core.defined.harness import (
    DEFINED,
    NAN,
    OPCODES,
    How,
    Real,
    equal,
    final,
    flushed,
    keeps,
    run_uniform,
    run_vector,
)
from tests.amdgpu_emu.core.defined.values import ACCUMULATES, columns_of, kinds_of
from tests.amdgpu_emu.core.one import Encoding, is_nan

SCALAR = (Encoding.SOP1, Encoding.SOP2, Encoding.SOPC, Encoding.SOPK)
VECTOR = [n for n in DEFINED if OPCODES[n][0] not in SCALAR]
FULL = (("row_mask", 15), ("bank_mask", 15), ("bound_ctrl", 1))


def meaning(found: Any, name: str, op: Opcode, mode: int, clamp: bool = False, omod: int = 0) -> tuple[Any, ...]:
    """What is wanted: parts of (bits or nan, width)."""
    entry = DEFINED[name]
    bits = op.dst[0].bits if op.dst else 0
    if entry.result == "p":
        width = bits // 2
        parts = [final(x, width, mode) for x in found]
        if clamp and name in packed.HALVES:
            half = DEFINED[packed.HALVES[name]]
            if half.result == "f":
                parts = [limited(x, width) for x in parts]
            elif half.saturates:
                parts = [saturated(x, width, half.result) for x in found]
        return tuple((x, width) for x in parts)
    if entry.saturates and clamp:
        return ((saturated(int(found), bits, entry.result), bits),)
    want = final(found, bits, mode)
    if entry.result == "f":
        if not keeps(mode, bits, True) and not isinstance(want, float):
            want = flushed(want, bits)
        if omod and not isinstance(want, float):
            want = final(floats.mul(want, scale(omod, bits), bits), bits, mode)
            want = want if isinstance(want, float) else flushed(want, bits)
        if clamp:
            want = limited(want, bits)
    return ((want, bits),)


def scale(omod: int, width: int) -> int:
    """2, 4 or a half."""
    place = {16: 10, 32: 23, 64: 52}[width]
    return floats.one(width) + ((0, 1, 2, -1)[omod] << place)


def limited(bits: int | float, width: int) -> int:
    """To 0 … 1; NaN and -0 become 0."""
    if isinstance(bits, float) or is_nan(bits, width) or bits >> width - 1:
        return 0
    return min(bits, floats.one(width))


def saturated(x: int, width: int, kind: str) -> int:
    low, high = (0, (1 << width) - 1) if kind == "u" else (-(1 << width - 1), (1 << width - 1) - 1)
    return max(low, min(x, high)) & (1 << width) - 1


def check(name: str, columns: Any, how: How, definition: Any = None, rows_of: Any = None) -> None:
    """Compare all rows. rows_of: other bits of the sources than the columns, that the definition gets."""
    _, op = OPCODES[name]
    entry = DEFINED[name]
    got, masks, on = run_vector(name, columns, how)
    clamp, omod = dict(how.modifiers).get("clamp", 0), dict(how.modifiers).get("omod", 0)
    result = {"p": "f", "b": "b"}.get(entry.result, entry.result)
    call = definition or entry.call
    constants = [k for k, t in enumerate(op.src) if t.place == "k"]
    compared = 0
    for i, row in enumerate(zip(*(rows_of or columns), strict=True)):
        if not on[i]:
            continue
        values = list(row)
        for k in constants:
            values.insert(k, how.constant & (1 << op.src[k].bits) - 1)
        found = call(*values)
        where = (name, how, [hex(x) for x in values])
        compared += 1
        if entry.result == "m":
            assert masks[i] == found, where
            continue
        at = 0
        for want, width in meaning(found, name, op, how.mode, bool(clamp), omod):
            part = got[i] >> at & (1 << width) - 1
            if entry.result == "b":
                assert part == want or (isinstance(want, int) and want & 0x7FFF > 0x7F80 and part & 0x7FFF > 0x7F80), (
                    where
                )
            else:
                assert equal(part, want, width, result if "f" in name else entry.result), (where, hex(part), want)
            at += width
    assert compared


def each(names: Iterable[str], one_in: int = 1) -> Callable[[Callable[[str], None]], Callable[[str], None]]:
    """Run a test with each of these instructions, a family at a time; all that fail are named.

    one_in: by default one of so many families is tried, and the others where slow tests run.
    """
    families = defaultdict(list)
    for name in names:
        families["_".join(name.split("_")[:2])].append(name)

    def decorate(test: Callable[[str], None]) -> Callable[[str], None]:
        def run(family: str) -> None:
            wrong = []
            for name in families[family]:
                try:
                    test(name)
                except AssertionError as error:
                    wrong.append(f"{name}: {error}")
            assert not wrong, "\n".join(wrong)

        run.__doc__ = test.__doc__
        soon = list(families)[::one_in]
        return pytest.mark.parametrize("family", helpers.soon(soon, families))(run)

    return decorate


@each(VECTOR)
def test_results(name: str) -> None:
    check(name, columns_of(name, 250, 50), How())
    check(name, columns_of(name, 120, 20), How(lanes=64, constant=0xFF800000))
    check(name, columns_of(name, 60, 40), How(holes=False, constant=0x80000001))


def signable(name: str) -> bool:
    form, op = OPCODES[name]
    vop3 = form in (Encoding.VOP1, Encoding.VOP2, Encoding.VOPC, Encoding.VOP3, Encoding.VOP3SD) and not op.has("1")
    return vop3 and any(t.kind == "f" for t in op.src) and name != "v_cndmask_b32"


@each([n for n in VECTOR if signable(n)])
def test_signs_of_sources(name: str) -> None:
    """neg and abs change the sign of the bits before anything else happens."""
    _, op = OPCODES[name]
    columns = columns_of(name, 60, 20)
    three = OPCODES[name][0] is not Encoding.VOP3SD
    for negative, absolute in ((1, 0), (0, 1), (1, 1)) if three else ((1, 0),):
        sources, changed = [], []
        for k, column in enumerate(columns):
            kind = op.src[k] if k < len(op.src) else OperandType("")
            if kind.kind != "f":
                sources.append(())
                changed.append(column)
                continue
            top = 1 << kind.bits - 1
            sources.append((("neg", bool(negative)), ("abs", bool(absolute))))
            changed.append(tuple((x & ~top if absolute else x) ^ (top if negative else 0) for x in column))
        check(name, columns, How(sources=tuple(sources)), rows_of=changed)


@each([n for n in VECTOR if any(t.bits == 16 for t in (*OPCODES[n][1].src, *OPCODES[n][1].dst))])
def test_halves(name: str) -> None:
    """Either half of a register as a source and as the destination, whose other half stays."""
    _, op = OPCODES[name]
    short = [t.bits == 16 and t.kind != "m" and t.place != "k" for t in op.src]
    for half in (0, 1) if op.dst and op.dst[0].bits == 16 else (0,):
        sources = tuple((("op_sel", 1 - half),) if s else () for s in short)
        check(name, columns_of(name, 60, 20), How(sources=sources, half=half))


NO_CLAMP = (
    "v_cvt_pk_f32_fp8",
    "v_cvt_pk_f32_bf8",
    *(f"v_{op}3_{k}16" for op in ("min", "max", "med") for k in "ui"),
)
"""What it would do is not documented."""


@each([n for n in VECTOR if OPCODES[n][1].has("c") and not n.startswith("v_cmp")])
def test_clamp(name: str) -> None:
    entry = DEFINED[name]
    call = entry.call
    if "clamp" in inspect.signature(call).parameters:
        check(name, columns_of(name, 200, 40), How(modifiers=(("clamp", 1),)), lambda *xs: call(*xs, clamp=True))
    elif name in NO_CLAMP:
        with pytest.raises(Unsupported, match=r"clamp with|an output modifier with"):
            check(name, columns_of(name, 20, 4), How(modifiers=(("clamp", 1),)))
    else:
        check(name, columns_of(name, 200, 40), How(modifiers=(("clamp", 1),)))


@each(
    [
        n
        for n in VECTOR
        if OPCODES[n][1].has("o")
        and OPCODES[n][0] is not Encoding.VOP3P
        and not n.startswith(("v_cvt_pk", "v_cmp", "v_div_"))
    ],
    one_in=3,
)
def test_output_factor(name: str) -> None:
    """omod counts where subnormal results are flushed."""
    if DEFINED[name].result != "f":
        check(name, columns_of(name, 60, 20), How(modifiers=(("omod", 1),)))
        return
    columns = columns_of(name, 80, 20)
    for omod in (1, 2, 3):
        for mode in (0xF0, 0x50):
            how = How(mode=mode, modifiers=(("omod", omod),))
            if mode == 0xF0:
                check(name, columns, How(mode=mode))
                got = run_vector(name, columns, how)
                assert got == run_vector(name, columns, How(mode=mode))
            else:
                check(name, columns, how)


MODAL = [
    n for n in VECTOR if DEFINED[n].result in "fm" and any(t.kind == "f" for t in OPCODES[n][1].src)
    and "class" not in n and "dot" not in n and "div_" not in n and "cube" not in n and not n.startswith("v_cmpx")
]  # fmt: skip


@each(MODAL, one_in=3)
def test_modes(name: str) -> None:
    """Rounding in every direction; subnormals that are flushed as sources, as results, and as both."""
    columns = columns_of(name, 120, 20)
    for mode in (0xF5, 0xFA, 0xFF, 0xA0, 0x50, 0x00):
        kinds = kinds_of(name)
        seen = [
            tuple(flushed(x, t.bits) if t.kind == "f" and not keeps(mode, t.bits, False) else x for x in column)
            for t, column in zip(kinds, columns, strict=True)
        ]
        constant = 0x3FC00000
        check(name, columns, How(mode=mode, constant=constant), rows_of=seen)


@each([n for n in VECTOR if OPCODES[n][1].has("d") and DEFINED[n].result != "m"], one_in=3)
def test_dpp(name: str) -> None:
    """The first source comes from the neighbour, in VOP3's forms with DPP16 and with DPP8."""
    columns = columns_of(name, 60, 4)
    columns = tuple((column * 64)[:64] for column in columns)
    swap = [i ^ 1 for i in range(64)]
    for modifiers in ((("dpp_ctrl", 0x161), *FULL), (("dpp8", sum((i ^ 1) << 3 * i for i in range(8))), ("fi", 0))):
        moved = (tuple(columns[0][i] for i in swap), *columns[1:])
        check(name, columns, How(modifiers=modifiers, holes=False), rows_of=moved)


def free(name: str) -> bool:
    """Whether its sources may be what they like."""
    _, op = OPCODES[name]
    return not name.startswith((*ACCUMULATES, "v_div_fmas")) and not any(t.place in "kv" and t.place for t in op.src)


@each([n for n in VECTOR if free(n)], one_in=6)
def test_sources_that_are_the_same_for_all_lanes(name: str) -> None:
    """Scalar registers and constants, first, second, and everywhere."""
    _, op = OPCODES[name]
    entry = DEFINED[name]
    columns = columns_of(name, 30, 6)
    for places, lanes in (("svv", 32), ("vsv", 64), ("sss", 32), ("cvv", 32), ("vcc", 32), ("ccc", 32)):
        few = tuple(c[:12] for c in columns) if "c" in places else columns
        for row, (got, mask) in zip(zip(*few, strict=True), run_uniform(name, few, places, lanes), strict=True):
            found = entry.call(*row)
            where = (name, places, [hex(x) for x in row], hex(got))
            if entry.result == "m":
                assert mask == found, where
                continue
            at = 0
            for want, width in meaning(found, name, op, 0xF0):
                part = got >> at & (1 << width) - 1
                same = part & 0x7FFF > 0x7F80 if entry.result == "b" and want & 0x7FFF > 0x7F80 else part == want
                assert same or (entry.result in "fp" and "f" in name and equal(part, want, width, "f")), where
                at += width


@each([n for n in packed.HALVES if n != "v_pk_fmac_f16"])
def test_halves_of_packed_sources(name: str) -> None:
    """Which half makes the low result and which the high one, and for floats the sign of each."""
    _, op = OPCODES[name]
    columns = columns_of(name, 40, 10)
    is_float = op.src[0].kind == "h"
    call = DEFINED[packed.HALVES[name]].call

    def half(x: int, pick: int, negative: int) -> int:
        return (x >> 16 * pick & 0xFFFF) ^ (0x8000 if negative else 0)

    for low, high, neg_low, neg_high in product(
        (0, 1), (0, 1), (0, 1) if is_float else (0,), (0, 1) if is_float else (0,)
    ):
        first = (("op_sel", low | high << 1), ("neg", bool(neg_low)), ("abs", bool(neg_high)))
        rest = (("op_sel", (1 - low) | (1 - high) << 1),)

        def definition(*xs: int, how: Any = (low, high, neg_low, neg_high)) -> tuple[Any, Any]:
            low, high, neg_low, neg_high = how
            return (
                call(half(xs[0], low, neg_low), *(half(x, 1 - low, 0) for x in xs[1:])),
                call(half(xs[0], high, neg_high), *(half(x, 1 - high, 0) for x in xs[1:])),
            )

        check(name, columns, How(sources=(first, *([rest] * (len(columns) - 1)))), definition)


def test_helpers_tell_differences() -> None:
    """That a comparison can fail at all."""
    assert equal(0x7FC00000, NAN, 32, "f")
    assert not equal(0x3F800000, NAN, 32, "f")
    assert not equal(0, 0x80000000, 32, "f")
    assert final(Real(floats.Fraction(-1)), 32) == 0xBF800000
    with pytest.raises(AssertionError):
        check("v_add_f32", ((0x3F800000,) * 32,) * 2, How(), lambda a, b: 0x3F800000)

"""Making, rearranging and reducing vectors."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import binary, lane_index, same_type
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText, suffix
from zinc_rt.lang.lower.registry import lowers, vector, want_int, want_lanes, want_type, want_val
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Struct, Type, Vec, boolean, elem_of, i32, i64, lanes_of
from zinc_rt.lang.values import Val, describe, literal


def pick(f: FunctionText, a: Val, b: Val | None, indices: Sequence[int]) -> Val:
    """Pick lanes of vectors a and b by number; -1 leaves a lane undefined, for callers that never read it."""
    assert isinstance(a.type, Vec)
    kind = f.type(a.type)
    if len(indices) == 1:
        whole = a if b is None or indices[0] < a.type.lanes else b
        return Val(a.type.elem, f.value(f"extractelement {kind} {whole.ref}, i64 {indices[0] % a.type.lanes}"))
    other = b.ref if b is not None else "poison"
    mask = ", ".join("i32 poison" if i < 0 else f"i32 {i}" for i in indices)
    text = f"shufflevector {kind} {a.ref}, {kind} {other}, <{len(indices)} x i32> <{mask}>"
    return Val(vector(a.type.elem, len(indices)), f.value(text))


def _want_vec(v: Any, label: str) -> tuple[Val, Vec]:
    x = want_val(v, label)
    if not isinstance(x.type, Vec):
        raise Reject(f"{label} must be a vector, got {x.type}")
    return x, x.type


@lowers(ops.splat)
def splat(c: Any, x: Any, lanes: Any) -> Val:
    """Lower `splat`. Raises `Reject`."""
    n = want_lanes(lanes)
    if not isinstance(x, Val):
        raise Reject(f"splat takes a run-time scalar, got {describe(x)}; literals take the vector's type by themselves")
    if not isinstance(x.type, Int | Float | Bool):
        raise Reject(f"splat takes a scalar, got {x.type}")
    if n == 1:
        return x
    kind = c.f.type(Vec(x.type, n))
    one = c.f.value(f"insertelement {kind} poison, {c.f.type(x.type)} {x.ref}, i64 0")
    text = f"shufflevector {kind} {one}, {kind} poison, <{n} x i32> zeroinitializer"
    return Val(Vec(x.type, n), c.f.value(text))


@lowers(ops.zeros)
def _zeros(c: Any, type: Any) -> Val:
    kind = want_type(type, "the argument of zeros")
    elem = elem_of(kind)
    if not isinstance(elem, Int | Float | Bool):
        raise Reject(f"there is no zero of {kind}")
    return literal(False if isinstance(elem, Bool) else 0 if isinstance(elem, Int) else 0.0, kind)


@lowers(ops.iota)
def _iota(c: Any, type: Any, lanes: Any) -> Val:
    kind, n = want_type(type, "the first argument"), want_lanes(lanes)
    if not isinstance(kind, Int):
        raise Reject(f"iota counts integers, got {kind}")
    if n - 1 > kind.limits[1]:
        raise Reject(f"iota of {n} lanes does not fit {kind}, whose values end at {kind.limits[1]}")
    if n == 1:
        return literal(0, kind)
    return Val(Vec(kind, n), f"<{', '.join(f'i{kind.bits} {i}' for i in range(n))}>")


@lowers(ops.shuffle)
def _shuffle(c: Any, a: Any, b: Any, indices: Any) -> Val:
    if indices is None:
        b, indices = None, b
    x, kind = _want_vec(a, "the first argument of shuffle")
    numbers = isinstance(indices, tuple | list | range) and all(type(i) is int for i in indices)
    if not numbers:
        raise Reject(f"indices must be a compile-time tuple of integers, got {describe(indices)}")
    if b is not None and want_val(b, "the second argument of shuffle").type != kind:
        raise Reject(f"shuffle of {kind} and {b.type}: the vectors must have one type")
    limit = kind.lanes * (1 if b is None else 2)
    want_lanes(len(indices), "the number of indices")
    if not all(0 <= i < limit for i in indices):
        raise Reject(f"indices must be numbers from 0 to {limit - 1}")
    return pick(c.f, x, b, list(indices))


@lowers(ops.insert)
def _insert(c: Any, v: Any, lane: Any, x: Any) -> Val:
    base, kind = _want_vec(v, "the first argument of insert")
    value = x if isinstance(x, Val) else literal(x, kind.elem)
    if value.type != kind.elem:
        raise Reject(f"lanes of {kind} are {kind.elem}, the value is {value.type}")
    at = lane_index(c.f, lane, kind)
    text = f"insertelement {c.f.type(kind)} {base.ref}, {c.f.type(kind.elem)} {value.ref}, i64 {at}"
    return Val(kind, c.f.value(text))


@lowers(ops.concat)
def concat(c: Any, a: Any, b: Any) -> Val:
    """Lower `concat`. Raises `Reject`."""
    x, y = want_val(a, "the first argument of concat"), want_val(b, "the second argument of concat")
    if x.type != y.type or not isinstance(elem_of(x.type), Int | Float | Bool):
        raise Reject(f"concat of {x.type} and {y.type}: two vectors of one type, or two scalars")
    out = vector(elem_of(x.type), 2 * lanes_of(x.type))
    if isinstance(x.type, Vec):
        return pick(c.f, x, y, range(2 * x.type.lanes))
    kind, elem = c.f.type(out), c.f.type(x.type)
    first = c.f.value(f"insertelement {kind} poison, {elem} {x.ref}, i64 0")
    return Val(out, c.f.value(f"insertelement {kind} {first}, {elem} {y.ref}, i64 1"))


def _half(c: Any, v: Any, word: str) -> Val:
    x, kind = _want_vec(v, f"the argument of {word}")
    if kind.lanes % 2:
        raise Reject(f"{word} takes an even number of lanes, got {kind}")
    half = kind.lanes // 2
    return pick(c.f, x, None, range(half) if word == "low" else range(half, kind.lanes))


@lowers(ops.low)
def low(c: Any, v: Any) -> Val:
    """Lower `low`. Raises `Reject`."""
    return _half(c, v, "low")


@lowers(ops.high)
def high(c: Any, v: Any) -> Val:
    """Lower `high`. Raises `Reject`."""
    return _half(c, v, "high")


@lowers(ops.select)
def select(c: Any, condition: Any, a: Any, b: Any) -> Val:
    test = want_val(condition, "the condition")
    if elem_of(test.type) != boolean:
        raise Reject(f"the condition must be bool, got {test.type}")
    x, y = same_type("or", a, b)
    if isinstance(test.type, Vec) and lanes_of(x.type) != test.type.lanes:
        raise Reject(f"a condition of {test.type.lanes} lanes cannot choose between {x.type}")
    if isinstance(x.type, Struct):
        raise Reject(f"select is not defined for {x.type}")
    kind = c.f.type(x.type)
    return Val(x.type, c.f.value(f"select {c.f.type(test.type)} {test.ref}, {kind} {x.ref}, {kind} {y.ref}"))


@lowers(ops.bitcast)
def bitcast(c: Any, x: Any, type: Any) -> Val:
    """Lower `bitcast`. Raises `Reject`."""
    v, kind = want_val(x, "the first argument of bitcast"), want_type(type, "the second argument")
    for t in (v.type, kind):
        if not isinstance(elem_of(t), Int | Float | Bool):
            raise Reject(
                f"bitcast is for numbers, not {t}{'; pointers change with cast' if isinstance(t, Ptr) else ''}"
            )
    if boolean in (elem_of(v.type), elem_of(kind)) and v.type != kind:
        return _mask_bits(c, v, kind)
    if v.type.size != kind.size:
        raise Reject(f"bitcast from {v.type} to {kind}: {v.type.size} bytes are not {kind.size}")
    if c.f.type(v.type) == c.f.type(kind):
        return Val(kind, v.ref)
    return Val(kind, c.f.value(f"bitcast {c.f.type(v.type)} {v.ref} to {c.f.type(kind)}"))


def _mask_bits(c: Any, v: Val, kind: Type) -> Val:
    """A bool vector as an integer of as many bits (lane 0 is the lowest), or back."""
    mask, number = (v.type, kind) if elem_of(v.type) == boolean else (kind, v.type)
    if not isinstance(mask, Vec) or not isinstance(number, Int) or mask.lanes != number.bits:
        raise Reject(f"bitcast from {v.type} to {kind}: a mask of n lanes is an integer of n bits")
    return Val(kind, c.f.value(f"bitcast {c.f.type(v.type)} {v.ref} to {c.f.type(kind)}"))


@lowers(ops.reduce_add)
def reduce_add(c: Any, v: Any) -> Val:
    """Lower `reduce_add`. Raises `Reject`."""
    x, kind = _want_vec(v, "the argument of reduce_add")
    if kind.lanes & (kind.lanes - 1):
        raise Reject(f"the order is pairwise by halves, so lanes must be a power of two; {kind} has {kind.lanes}")
    while isinstance(x.type, Vec):
        n = x.type.lanes // 2
        a, b = pick(c.f, x, None, range(n)), pick(c.f, x, None, range(n, 2 * n))
        x = binary(c.f, ast.Add(), a, b)
    return x


def _reduce(c: Any, v: Any, word: str) -> Val:
    x, kind = _want_vec(v, f"the argument of reduce_{word}")
    if isinstance(kind.elem, Float) and kind.elem.bits > 16:
        if c.f.x86:
            return _ordered(c, x, kind, word)
        name = f"llvm.vector.reduce.f{word}imum"
    elif isinstance(kind.elem, Int):
        name = f"llvm.vector.reduce.{'s' if kind.elem.signed else 'u'}{word}"
    else:
        raise Reject(f"reduce_{word} takes integers, f32 or f64, got {kind}")
    return Val(kind.elem, c.f.call(f"{name}.{suffix(kind)}", kind.elem, [(c.f.type(kind), x.ref)]))


def _ordered(c: Any, x: Val, kind: Vec, word: str) -> Val:
    """The greatest or least float as an integer of the same order, which x86 finds in a third of the steps.

    Negative floats count downwards, so all their bits but the sign are flipped. Any NaN first becomes the integer that
    wins: beyond +infinity for the greatest, below -infinity for the least.
    """
    f, bits = c.f, 8 * kind.elem.size
    integer = i32 if bits == 32 else i64
    ints, mask = Vec(integer, kind.lanes), Vec(boolean, kind.lanes)
    number = f.value(f"bitcast {f.type(kind)} {x.ref} to {f.type(ints)}")
    nan = f.value(f"fcmp uno {f.type(kind)} {x.ref}, {x.ref}")
    winner = literal(integer.limits[1] if word == "max" else -1, ints).ref
    number = f.value(f"select {f.type(mask)} {nan}, {f.type(ints)} {winner}, {f.type(ints)} {number}")
    most = f.call(f"llvm.vector.reduce.s{word}.{suffix(ints)}", integer, [(f.type(ints), _flipped(f, number, ints))])
    return Val(kind.elem, f.value(f"bitcast {f.type(integer)} {_flipped(f, most, integer)} to {f.type(kind.elem)}"))


def _flipped(f: FunctionText, number: str, kind: Type) -> str:
    """Flip all bits but the sign of negative numbers; done twice, it restores the input."""
    elem = elem_of(kind)
    assert isinstance(elem, Int)
    sign = f.value(f"ashr {f.type(kind)} {number}, {literal(elem.bits - 1, kind).ref}")
    rest = f.value(f"and {f.type(kind)} {sign}, {literal(elem.limits[1], kind).ref}")
    return f.value(f"xor {f.type(kind)} {number}, {rest}")


@lowers(ops.reduce_max)
def _reduce_max(c: Any, v: Any) -> Val:
    return _reduce(c, v, "max")


@lowers(ops.reduce_min)
def _reduce_min(c: Any, v: Any) -> Val:
    return _reduce(c, v, "min")


@lowers(ops.reduce_or)
def _reduce_or(c: Any, v: Any) -> Val:
    x = want_int(v, "the argument of reduce_or")
    if not isinstance(x.type, Vec):
        raise Reject(f"the argument of reduce_or must be a vector, got {x.type}")
    name = f"llvm.vector.reduce.or.{suffix(x.type)}"
    return Val(x.type.elem, c.f.call(name, x.type.elem, [(c.f.type(x.type), x.ref)]))


def _mask(c: Any, mask: Any, word: str) -> Val:
    x = want_val(mask, "the mask")
    if elem_of(x.type) != boolean:
        raise Reject(f"the mask must be bool, got {x.type}")
    if not isinstance(x.type, Vec):
        return x
    return Val(boolean, c.f.call(f"llvm.vector.reduce.{word}.v{x.type.lanes}i1", boolean, [(c.f.type(x.type), x.ref)]))


@lowers(ops.any_of)
def _any_of(c: Any, mask: Any) -> Val:
    return _mask(c, mask, "or")


@lowers(ops.all_of)
def _all_of(c: Any, mask: Any) -> Val:
    return _mask(c, mask, "and")

"""Conversions between number types. Each rounds once, to nearest even; float to integer truncates and saturates.

The 16-bit floats convert to and from f32 and f64 only. bfloat16 is done in integer steps everywhere: the x86
instruction for it flushes subnormals to zero.
"""

from __future__ import annotations

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText, suffix
from zinc_rt.lang.types import (
    Bool,
    Float,
    Int,
    Type,
    Vec,
    boolean,
    elem_of,
    f16,
    f32,
    f64,
    i32,
    i64,
    lanes_of,
    with_elem,
)
from zinc_rt.lang.values import Val, literal


def convert(f: FunctionText, x: Val, elem: Type) -> Val:
    """`elem(x)`: each lane converted. NaN becomes the integer 0. Raises `Reject`."""
    old = elem_of(x.type)
    if isinstance(elem, Bool) and isinstance(old, Int | Float):
        raise Reject(f"bool({x.type}): compare instead: x != {'0' if isinstance(old, Int) else '0.0'}")
    if not isinstance(elem, Int | Float) or not isinstance(old, Int | Float | Bool):
        raise Reject(f"{elem}({x.type}): there is no such conversion; bitcast and cast keep the bits")
    if old == elem:
        return x
    out = with_elem(x.type, elem)
    if isinstance(old, Bool):
        if isinstance(elem, Float):
            raise Reject(f"{elem}({x.type}): choose with select(x, 1.0, 0.0)")
        return Val(out, f.value(f"zext {f.type(x.type)} {x.ref} to {f.type(out)}"))
    if isinstance(old, Int) and isinstance(elem, Int):
        if old.bits == elem.bits:
            return Val(out, x.ref)
        word = "trunc" if old.bits > elem.bits else "sext" if old.signed else "zext"
        return Val(out, f.value(f"{word} {f.type(x.type)} {x.ref} to {f.type(out)}"))
    if 16 in (_float_bits(old), _float_bits(elem)):
        return _half(f, x, old, elem)
    if isinstance(old, Int):
        word = "sitofp" if old.signed else "uitofp"
        return Val(out, f.value(f"{word} {f.type(x.type)} {x.ref} to {f.type(out)}"))
    if isinstance(elem, Int):
        if isinstance(x.type, Vec) and f.x86 and elem.bits <= 32 if f.machine is None else not f.machine.saturates:
            return _saturated(f, x, old, elem)
        name = f"llvm.fpto{'s' if elem.signed else 'u'}i.sat.{suffix(out)}.{suffix(x.type)}"
        return Val(out, f.call(name, out, [(f.type(x.type), x.ref)]))
    word = "fpext" if old.bits < elem.bits else "fptrunc"
    return Val(out, f.value(f"{word} {f.type(x.type)} {x.ref} to {f.type(out)}"))


def _saturated(f: FunctionText, x: Val, old: Float, elem: Int) -> Val:
    """For vectors on x86, where LLVM takes its own saturating conversion apart into single lanes, and where a GPU's
    language leaves open what NaN becomes. The number is kept within limits that the float can hold, which turns NaN
    into the lower one, and then converted.
    """
    low, high = elem.limits
    bits = max(elem.bits, 32)
    wide = with_elem(x.type, i64 if bits == 64 else i32)  # smaller ones are cut off afterwards: their limits hold
    kind, mask = f.type(x.type), f.type(with_elem(x.type, boolean))
    # The greatest float below the limit, where that has more bits than the float.
    lost = max(elem.bits - elem.signed - (53 if old == f64 else 24), 0)
    top = float(high + 1 - (1 << lost))
    bottom, top_ref = literal(float(low), x.type).ref, literal(top, x.type).ref
    above = f.value(f"fcmp ogt {kind} {x.ref}, {bottom}")
    kept = f.value(f"select {mask} {above}, {kind} {x.ref}, {kind} {bottom}")
    below = f.value(f"fcmp olt {kind} {kept}, {top_ref}")
    kept = f.value(f"select {mask} {below}, {kind} {kept}, {kind} {top_ref}")
    unsigned = elem.bits == bits and not elem.signed
    ref = f.value(f"fpto{'u' if unsigned else 's'}i {kind} {kept} to {f.type(wide)}")
    if lost:
        beyond = f.value(f"fcmp oge {kind} {x.ref}, {literal(float(high + 1), x.type).ref}")
        most = literal(high, with_elem(x.type, elem)).ref
        ref = f.value(f"select {mask} {beyond}, {f.type(wide)} {most}, {f.type(wide)} {ref}")
    if elem.signed:
        nan = f.value(f"fcmp uno {kind} {x.ref}, {x.ref}")
        ref = f.value(f"select {mask} {nan}, {f.type(wide)} zeroinitializer, {f.type(wide)} {ref}")
    out = with_elem(x.type, elem)
    return Val(out, ref if elem.bits == bits else f.value(f"trunc {f.type(wide)} {ref} to {f.type(out)}"))


def _float_bits(elem: Int | Float) -> int:
    return elem.bits if isinstance(elem, Float) else 0


def _half(f: FunctionText, x: Val, old: Int | Float, elem: Int | Float) -> Val:
    """Conversions with a 16-bit float on one side."""
    if _float_bits(old) < 32 and _float_bits(elem) < 32:
        raise Reject(f"{elem}({x.type}): go through f32: {elem}(f32(x))")
    if old.bits == 16:
        wide = _from_f16(f, x) if old == f16 else _from_bf16(f, x)
        return wide if elem == f32 else convert(f, wide, f64)
    single = _to_odd(f, x) if old == f64 else x
    return _to_f16(f, single) if elem == f16 else _to_bf16(f, single)


def _shape(x: Val, scalar: str) -> str:
    n = lanes_of(x.type)
    return f"<{n} x {scalar}>" if n > 1 else scalar


def _from_f16(f: FunctionText, x: Val) -> Val:
    half = f.value(f"bitcast {f.type(x.type)} {x.ref} to {_shape(x, 'half')}")
    return Val(with_elem(x.type, f32), f.value(f"fpext {_shape(x, 'half')} {half} to {_shape(x, 'float')}"))


def _to_f16(f: FunctionText, x: Val) -> Val:
    kind, single = f.type(x.type), x.ref
    if f.machine is not None:
        single = f.machine.rounded(f, kind, single)
    half = f.value(f"fptrunc {kind} {single} to {_shape(x, 'half')}")
    return Val(with_elem(x.type, f16), f.value(f"bitcast {_shape(x, 'half')} {half} to {_shape(x, 'i16')}"))


def _from_bf16(f: FunctionText, x: Val) -> Val:
    word = _shape(x, "i32")
    bits = f.value(f"shl {word} {f.value(f'zext {f.type(x.type)} {x.ref} to {word}')}, {_int(x, 16)}")
    return Val(with_elem(x.type, f32), f.value(f"bitcast {word} {bits} to {_shape(x, 'float')}"))


def _int(x: Val, value: int) -> str:
    return literal(value, with_elem(x.type, i32)).ref


def _to_bf16(f: FunctionText, x: Val) -> Val:
    """Add half of the last kept place, less one where the rest is a tie below an even number; NaN stays quiet."""
    word, mask = _shape(x, "i32"), _shape(x, "i1")
    bits = f.value(f"bitcast {f.type(x.type)} {x.ref} to {word}")
    odd = f.value(f"and {word} {f.value(f'lshr {word} {bits}, {_int(x, 16)}')}, {_int(x, 1)}")
    up = f.value(f"add {word} {f.value(f'add {word} {bits}, {_int(x, 0x7FFF)}')}, {odd}")
    quiet = f.value(f"or {word} {bits}, {_int(x, 0x400000)}")
    nan = f.value(f"fcmp uno {f.type(x.type)} {x.ref}, {x.ref}")
    chosen = f.value(f"select {mask} {nan}, {word} {quiet}, {word} {up}")
    high = f.value(f"lshr {word} {chosen}, {_int(x, 16)}")
    out = with_elem(x.type, Float("bf16", 16))
    return Val(out, f.value(f"trunc {word} {high} to {f.type(out)}"))


def _to_odd(f: FunctionText, x: Val) -> Val:
    """f64 to f32 rounded to odd: a second rounding to fewer than 23 bits then gives what one rounding would.

    S. Boldo and G. Melquiond, "Emulation of FMA and correctly rounded sums: proved algorithms using rounding to odd".
    """
    double, single = f.type(x.type), _shape(x, "float")
    word, mask = _shape(x, "i32"), _shape(x, "i1")
    near = f.value(f"fptrunc {double} {x.ref} to {single}")
    back = f.value(f"fpext {single} {near} to {double}")
    size_x, size_back = (f.call(f"llvm.fabs.{suffix(x.type)}", x.type, [(double, v)]) for v in (x.ref, back))
    beyond = f.value(f"fcmp ogt {double} {size_back}, {size_x}")
    inexact = f.value(f"fcmp one {double} {back}, {x.ref}")
    bits = f.value(f"bitcast {single} {near} to {word}")
    # Toward zero first (one step back where rounding went outward), then the last bit says that something is missing.
    lower = f.value(f"sub {word} {bits}, {f.value(f'zext {mask} {beyond} to {word}')}")
    sticky = f.value(f"or {word} {lower}, {f.value(f'zext {mask} {inexact} to {word}')}")
    return Val(with_elem(x.type, f32), f.value(f"bitcast {word} {sticky} to {single}"))

"""Arithmetic beyond the operators. No function is approximate: each result is correctly rounded."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import same_type
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import suffix
from zinc_rt.lang.lower.registry import lowers, want_float, want_int, want_static
from zinc_rt.lang.types import Float, Int, elem_of, u32
from zinc_rt.lang.values import Val, literal

if TYPE_CHECKING:
    from zinc_rt.lang.machines import GpuMachine


def _intrinsic(c: Any, name: str, *arguments: Val, extra: tuple[tuple[str, str], ...] = ()) -> Val:
    kind = arguments[0].type
    text = [(c.f.type(kind), a.ref) for a in arguments]
    return Val(kind, c.f.call(f"llvm.{name}.{suffix(kind)}", kind, [*text, *extra]))


@lowers(ops.fma)
def _fma(c: Any, a: Any, b: Any, x: Any) -> Val:
    typed = next((v for v in (a, b, x) if isinstance(v, Val)), None)
    if typed is None:
        raise Reject("fma takes run-time values")
    want_float(typed, "an argument of fma")
    for v in (a, b, x):
        if isinstance(v, Val) and v.type != typed.type:
            raise Reject(f"the arguments of fma must have one type, got {typed.type} and {v.type}")
    return _intrinsic(c, "fma", *(v if isinstance(v, Val) else literal(v, typed.type) for v in (a, b, x)))


@lowers(ops.sqrt)
def _sqrt(c: Any, x: Any) -> Val:
    v = want_float(x, "the argument of sqrt")
    machine: GpuMachine | None = c.f.machine
    return _intrinsic(c, "sqrt", v) if machine is None else machine.sqrt(c.f, v)


@lowers(ops.rint)
def _rint(c: Any, x: Any) -> Val:
    return _intrinsic(c, "rint", want_float(x, "the argument of rint"))


@lowers(ops.floor)
def _floor(c: Any, x: Any) -> Val:
    return _intrinsic(c, "floor", want_float(x, "the argument of floor"))


@lowers(ops.absolute)
def _absolute(c: Any, x: Any) -> Val:
    if isinstance(x, Val) and isinstance(elem_of(x.type), Int):
        elem = elem_of(x.type)
        assert isinstance(elem, Int)
        return _intrinsic(c, "abs", x, extra=(("i1", "false"),)) if elem.signed else x
    return _intrinsic(c, "fabs", want_float(x, "the argument of absolute"))


def _extreme(c: Any, word: str, a: Any, b: Any) -> Val:
    x, y = same_type("and", a, b)
    elem = elem_of(x.type)
    if isinstance(elem, Float) and elem.bits > 16:
        machine: GpuMachine | None = c.f.machine
        if machine is not None:
            return machine.extreme(c.f, word, x, y)
        return _intrinsic(c, f"{word}imum", x, y)
    if isinstance(elem, Int):
        return _intrinsic(c, f"{'s' if elem.signed else 'u'}{word}", x, y)
    hint = "; convert to f32 first" if isinstance(elem, Float) else ""
    raise Reject(f"{word}imum is not defined for {x.type}{hint}")


@lowers(ops.maximum)
def _maximum(c: Any, a: Any, b: Any) -> Val:
    return _extreme(c, "max", a, b)


@lowers(ops.minimum)
def _minimum(c: Any, a: Any, b: Any) -> Val:
    return _extreme(c, "min", a, b)


@lowers(ops.popcount)
def _popcount(c: Any, x: Any) -> Val:
    return _intrinsic(c, "ctpop", want_int(x, "the argument of popcount"))


@lowers(ops.count_trailing_zeros)
def _count_trailing_zeros(c: Any, x: Any) -> Val:
    return _intrinsic(c, "cttz", want_int(x, "the argument of count_trailing_zeros"), extra=(("i1", "false"),))


@lowers(ops.reversed_bits)
def _reversed_bits(c: Any, x: Any, n: Any) -> Val:
    v = want_int(x, "the argument of reversed_bits")
    if v.type != u32 or not 1 <= want_static(n, int, "n") <= 8:
        raise Reject(f"reversed_bits takes a u32 and 1 to 8, got {v.type} and {n}")
    if c.f.machine is None or c.f.machine.reverses_bits:
        whole = _intrinsic(c, "bitreverse", v)
        return Val(u32, c.f.value(f"lshr i32 {whole.ref}, {32 - n}"))
    # Copies of the byte, of which each keeps bits that lie in the right distances to each other; R. Schroeppel's way
    # (HAKMEM 167, "Hacker's Delight" 7-1) in 32 bits.
    f = c.f
    byte = f.value(f"and i32 {v.ref}, 255")
    even = f.value(f"and i32 {f.value(f'mul i32 {byte}, {0x0802}')}, {0x22110}")
    odd = f.value(f"and i32 {f.value(f'mul i32 {byte}, {0x8020}')}, {0x88440}")
    folded = f.value(f"mul i32 {f.value(f'or i32 {even}, {odd}')}, {0x10101}")
    return Val(u32, f.value(f"lshr i32 {f.value(f'and i32 {folded}, {0xFF0000}')}, {24 - n}"))

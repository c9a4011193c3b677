"""Operators of run-time values.

Every case is defined: integers wrap, shift counts count modulo the width, x // 0 is 0 and x % 0 is x.
"""

from __future__ import annotations

import ast

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Struct, Vec, boolean, elem_of, lanes_of, with_elem
from zinc_rt.lang.values import Val, describe, literal

_SYMBOL = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%", ast.Pow: "**",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.MatMult: "@",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
    ast.In: "in", ast.NotIn: "not in", ast.Is: "is", ast.IsNot: "is not",
}  # fmt: skip
_COMMON = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def same_type(op: str, a: object, b: object) -> tuple[Val, Val]:
    """Both operands as values of one type; a literal takes the other's. Raises `Reject`."""
    if isinstance(a, Val):
        if not isinstance(b, Val):
            return a, literal(b, a.type)
        if a.type == b.type:
            return a, b
        raise Reject(_mixed(op, a, b))
    if isinstance(b, Val):
        return literal(a, b.type), b
    raise Reject(f"{describe(a)} {op} {describe(b)}: one of them must be a run-time value; give it a type: f32(…)")


def _mixed(op: str, a: Val, b: Val) -> str:
    text = f"{a.type} {op} {b.type}: operands must have one type; "
    if isinstance(a.type, Vec) != isinstance(b.type, Vec) and elem_of(a.type) == elem_of(b.type):
        return text + f"splat(x, {max(lanes_of(a.type), lanes_of(b.type))}) makes a vector of the scalar"
    if isinstance(a.type, Ptr) and isinstance(b.type, Ptr):
        return text + f"cast(p, {a.type}) changes a pointer's type"
    if isinstance(a.type, Ptr) or isinstance(b.type, Ptr):
        return text + "a pointer takes + and - with an integer on its right"
    if isinstance(elem_of(a.type), Bool) or isinstance(elem_of(b.type), Bool):
        return text + "a truth value becomes a number by select(x, 1, 0)"
    if lanes_of(a.type) != lanes_of(b.type):
        return text + "the vectors differ in lanes"
    return text + f"convert one of them: {elem_of(a.type)}(…) or {elem_of(b.type)}(…)"


def binary(f: FunctionText, op: ast.operator, a: object, b: object) -> Val:
    """Emit `a op b`. Raises `Reject`."""
    sign = _SYMBOL.get(type(op), type(op).__name__)
    if isinstance(op, ast.Pow | ast.MatMult):
        raise Reject(f"{describe(a)} {sign} {describe(b)}: the operator is not part of the language")
    if isinstance(a, Val) and isinstance(a.type, Ptr) and isinstance(op, ast.Add | ast.Sub):
        return _move(f, op, a, b)
    if isinstance(op, ast.LShift | ast.RShift) and isinstance(a, Val) and isinstance(elem_of(a.type), Int):
        _check_count(elem_of(a.type), sign, b)
    x, y = same_type(sign, a, b)
    elem, kind = elem_of(x.type), f.type(x.type)
    if isinstance(elem, Float):
        if elem.bits == 16:
            raise Reject(f"{x.type} {sign} {y.type}: {elem} is for storage, it has no arithmetic; convert to f32 first")
        if type(op) not in _FLOAT:
            raise Reject(f"{x.type} {sign} {y.type}: floats take + - * / only")
        if isinstance(op, ast.Div) and f.machine is not None:
            quotient: Val = f.machine.divide(f, x, y)
            return quotient
        return Val(x.type, f.value(f"{_FLOAT[type(op)]} {kind} {x.ref}, {y.ref}"))
    if isinstance(elem, Bool):
        if not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
            raise Reject(f"{x.type} {sign} {y.type}: truth values take & | ^ only")
        return Val(x.type, f.value(f"{_COMMON[type(op)]} {kind} {x.ref}, {y.ref}"))
    if not isinstance(elem, Int):
        raise Reject(f"{x.type} {sign} {y.type}: not defined for this type")
    if type(op) in _COMMON:
        return Val(x.type, f.value(f"{_COMMON[type(op)]} {kind} {x.ref}, {y.ref}"))
    if isinstance(op, ast.LShift | ast.RShift):
        return Val(x.type, _shift(f, op, x, y, elem, b))
    if isinstance(op, ast.Div):
        raise Reject(f"{x.type} / {y.type}: integers divide with //, floats with /")
    if elem.signed:
        raise Reject(
            f"{x.type} {sign} {y.type}: division is for unsigned integers; convert, or use >> and & for powers of two"
        )
    return Val(x.type, _divide(f, op, x, y, b))


def _move(f: FunctionText, op: ast.operator, p: Val, by: object) -> Val:
    if isinstance(by, Val) and isinstance(by.type, Ptr):
        sign = _SYMBOL[type(op)]
        raise Reject(
            f"{p.type} {sign} {by.type}: a pointer takes + and - with an integer; for distances cast both to u64"
        )
    if isinstance(op, ast.Add):
        return Val(p.type, element(f, p, as_index(f, by)))
    index = as_index(f, by)
    return Val(p.type, element(f, p, str(-int(index)) if isinstance(by, int) else f.value(f"sub i64 0, {index}")))


def _check_count(elem: object, sign: str, count: object) -> None:
    if isinstance(elem, Int) and isinstance(count, int) and not 0 <= count < elem.bits:
        raise Reject(f"{elem} {sign} {count}: the count must be 0 to {elem.bits - 1}")


def _shift(f: FunctionText, op: ast.operator, x: Val, y: Val, elem: Int, given: object) -> str:
    kind, count = f.type(x.type), y.ref
    if isinstance(given, Val):
        # A shift by the width or more has no meaning in LLVM; the low bits of the count are used, as on the CPU.
        count = f.value(f"and {kind} {count}, {literal(elem.bits - 1, y.type).ref}")
    name = "shl" if isinstance(op, ast.LShift) else "ashr" if elem.signed else "lshr"
    return f.value(f"{name} {kind} {x.ref}, {count}")


def _divide(f: FunctionText, op: ast.operator, x: Val, y: Val, given: object) -> str:
    name, kind = "udiv" if isinstance(op, ast.FloorDiv) else "urem", f.type(x.type)
    if not isinstance(given, Val):
        if given == 0:
            raise Reject(f"{x.type} {_SYMBOL[type(op)]} 0: division by zero")
        return f.value(f"{name} {kind} {x.ref}, {y.ref}")
    # LLVM leaves division by zero open. Here, as on aarch64, the quotient is 0 and the remainder the dividend.
    mask, zero, one = f.type(with_elem(x.type, boolean)), literal(0, x.type).ref, literal(1, x.type).ref
    none = f.value(f"icmp eq {kind} {y.ref}, {zero}")
    divisor = f.value(f"select {mask} {none}, {kind} {one}, {kind} {y.ref}")
    result = f.value(f"{name} {kind} {x.ref}, {divisor}")
    return f.value(f"select {mask} {none}, {kind} {zero if name == 'udiv' else x.ref}, {kind} {result}")


def compare(f: FunctionText, op: ast.cmpop, a: object, b: object) -> Val:
    """Emit a comparison, which gives a bool or a bool vector.

    Comparisons with NaN are false, `!=` true. Raises `Reject`.
    """
    sign = _SYMBOL[type(op)]
    if type(op) not in _COMPARE:
        raise Reject(f"`{sign}` is for compile-time values; compare run-time values with == != < <= > >=")
    x, y = same_type(sign, a, b)
    elem, kind, word = elem_of(x.type), f.type(x.type), _COMPARE[type(op)]
    out = with_elem(x.type, boolean)
    if isinstance(elem, Float):
        if elem.bits == 16:
            raise Reject(f"{x.type} {sign} {y.type}: {elem} is for storage; convert to f32 first")
        return Val(out, f.value(f"fcmp {'une' if word == 'ne' else 'o' + word} {kind} {x.ref}, {y.ref}"))
    if not isinstance(elem, Int | Bool | Ptr):
        raise Reject(f"{x.type} {sign} {y.type}: not defined for this type")
    if isinstance(elem, Bool) and word not in ("eq", "ne"):
        raise Reject(f"{x.type} {sign} {y.type}: truth values compare with == and != only")
    prefix = "" if word in ("eq", "ne") else "s" if isinstance(elem, Int) and elem.signed else "u"
    return Val(out, f.value(f"icmp {prefix}{word} {kind} {x.ref}, {y.ref}"))


def negate(f: FunctionText, x: Val) -> Val:
    """Emit `-x`. Raises `Reject`."""
    elem, kind = elem_of(x.type), f.type(x.type)
    if isinstance(elem, Float) and elem.bits > 16:
        return Val(x.type, f.value(f"fneg {kind} {x.ref}"))
    if isinstance(elem, Int):
        return Val(x.type, f.value(f"sub {kind} {literal(0, x.type).ref}, {x.ref}"))
    raise Reject(f"-{x.type}: not defined for this type{'; convert to f32 first' if isinstance(elem, Float) else ''}")


def invert(f: FunctionText, x: Val) -> Val:
    """Emit `~x`, for integers and truth values. Raises `Reject`."""
    elem = elem_of(x.type)
    if isinstance(elem, Int):
        ones = literal(-1 if elem.signed else elem.limits[1], x.type).ref
    elif isinstance(elem, Bool):
        ones = literal(True, x.type).ref
    else:
        raise Reject(f"~{x.type}: not defined for this type")
    return Val(x.type, f.value(f"xor {f.type(x.type)} {x.ref}, {ones}"))


def as_index(f: FunctionText, index: object) -> str:
    """An index as i64. Raises `Reject` for anything but an integer."""
    if isinstance(index, int) and not isinstance(index, bool):
        if not -(1 << 63) < index < 1 << 63:
            raise Reject("an index must fit i64")
        return str(index)
    if not isinstance(index, Val):
        raise Reject(f"an index must be an integer, got {describe(index)}")
    if not isinstance(index.type, Int):
        raise Reject(f"an index must be an integer, got {index.type}")
    if index.type.bits == 64:
        return index.ref
    return f.value(f"{'sext' if index.type.signed else 'zext'} {f.type(index.type)} {index.ref} to i64")


def lane_index(f: FunctionText, index: object, kind: Vec) -> str:
    """A lane number as i64; at run time it counts modulo the lanes, so that every number means one. Raises `Reject`."""
    at = as_index(f, index)
    if isinstance(index, int):
        if not 0 <= index < kind.lanes:
            raise Reject(f"{kind} has lanes 0 to {kind.lanes - 1}, not {index}")
        return at
    if kind.lanes & (kind.lanes - 1) == 0:
        return f.value(f"and i64 {at}, {kind.lanes - 1}")
    return f.value(f"urem i64 {at}, {kind.lanes}")


def element(f: FunctionText, p: Val, index: str) -> str:
    """The address of `p[index]`."""
    assert isinstance(p.type, Ptr)
    if index == "0":
        return p.ref
    kind = f.type(p.type.elem) if not isinstance(p.type.elem, Struct) else f"[{p.type.elem.size} x i8]"
    return f.value(f"getelementptr {kind}, {f.type(p.type)} {p.ref}, i64 {index}")

"""Operators and conversions of run-time values."""

from __future__ import annotations

import ast

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText, suffix
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Struct, Type, Vec, boolean, elem_of, i64, lanes_of, u64, with_elem
from zinc_rt.lang.values import Val, describe, literal

_SYMBOL = {
    ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.FloorDiv: "//", ast.Mod: "%",
    ast.LShift: "<<", ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^",
    ast.Eq: "==", ast.NotEq: "!=", ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">=",
}  # fmt: skip
_COMMON = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}


def symbol(op: ast.AST) -> str:
    """How an operator is written."""
    return _SYMBOL.get(type(op), type(op).__name__)


def same_type(op: str, a: object, b: object) -> tuple[Val, Val]:
    """Both operands as values of one type; a literal takes the other's. Raises `Reject`."""
    if isinstance(a, Val) and isinstance(b, Val):
        if a.type == b.type:
            return a, b
        raise Reject(_mixed(op, a, b))
    if isinstance(a, Val) and not isinstance(b, Val):
        return a, literal(b, a.type)
    if isinstance(b, Val):
        return literal(a, b.type), b
    raise Reject(f"{describe(a)} {op} {describe(b)}: no run-time value here")


def _mixed(op: str, a: Val, b: Val) -> str:
    text = f"{a.type} {op} {b.type}: operands must have one type; "
    if isinstance(a.type, Vec) != isinstance(b.type, Vec) and elem_of(a.type) == elem_of(b.type):
        return text + f"splat(x, {max(lanes_of(a.type), lanes_of(b.type))}) makes a vector of the scalar"
    if isinstance(a.type, Ptr) or isinstance(b.type, Ptr):
        return text + "a pointer takes + and - with an integer on its right"
    if lanes_of(a.type) != lanes_of(b.type):
        return text + "the vectors differ in lanes"
    return text + f"convert one of them: {elem_of(a.type)}(…) or {elem_of(b.type)}(…)"


def binary(f: FunctionText, op: ast.operator, a: object, b: object) -> Val:
    """`a op b`. Raises `Reject`."""
    sign = symbol(op)
    if isinstance(a, Val) and isinstance(a.type, Ptr) and isinstance(op, ast.Add | ast.Sub):
        index = as_index(f, b)
        if isinstance(op, ast.Sub):
            index = f.value(f"sub i64 0, {index}")
        return Val(a.type, element(f, a, index))
    x, y = same_type(sign, a, b)
    elem, kind = elem_of(x.type), f.type(x.type)
    if isinstance(elem, Float):
        if type(op) not in _FLOAT:
            raise Reject(f"{x.type} {sign} {y.type}: floats take + - * / only")
        if elem.bits == 16:
            raise Reject(f"{x.type} {sign} {y.type}: arithmetic on {elem} is not defined; convert to f32 first")
        return Val(x.type, f.value(f"{_FLOAT[type(op)]} {kind} {x.ref}, {y.ref}"))
    if isinstance(elem, Bool):
        if not isinstance(op, ast.BitAnd | ast.BitOr | ast.BitXor):
            raise Reject(f"{x.type} {sign} {y.type}: truth values take & | ^ only")
        return Val(x.type, f.value(f"{_COMMON[type(op)]} {kind} {x.ref}, {y.ref}"))
    if not isinstance(elem, Int):
        raise Reject(f"{x.type} {sign} {y.type}: not defined for this type")
    return Val(x.type, _integer(f, op, x, y, elem, kind))


def _integer(f: FunctionText, op: ast.operator, x: Val, y: Val, elem: Int, kind: str) -> str:
    if type(op) in _COMMON:
        return f.value(f"{_COMMON[type(op)]} {kind} {x.ref}, {y.ref}")
    if isinstance(op, ast.LShift | ast.RShift):
        # A shift by the width or more has no meaning in LLVM; only the low bits of the count are used, as on the CPU.
        count = f.value(f"and {kind} {y.ref}, {literal(elem.bits - 1, y.type).ref}")
        name = "shl" if isinstance(op, ast.LShift) else "ashr" if elem.signed else "lshr"
        return f.value(f"{name} {kind} {x.ref}, {count}")
    if isinstance(op, ast.FloorDiv | ast.Mod):
        if elem.signed:
            raise Reject(f"{x.type} {symbol(op)} {y.type}: division is for unsigned integers; convert, or use >> and &")
        return f.value(f"{'udiv' if isinstance(op, ast.FloorDiv) else 'urem'} {kind} {x.ref}, {y.ref}")
    if isinstance(op, ast.Div):
        raise Reject(f"{x.type} / {y.type}: integers divide with //, floats with /")
    raise Reject(f"{x.type} {symbol(op)} {y.type}: the operator is not part of the language")


def compare(f: FunctionText, op: ast.cmpop, a: object, b: object) -> Val:
    """A comparison: bool, or a bool vector. Comparisons with NaN are false, `!=` true. Raises `Reject`."""
    if type(op) not in _COMPARE:
        raise Reject(f"`{type(op).__name__}` is not part of the language; compare with == != < <= > >=")
    x, y = same_type(symbol(op), a, b)
    elem, kind, word = elem_of(x.type), f.type(x.type), _COMPARE[type(op)]
    out = with_elem(x.type, boolean)
    if isinstance(elem, Float):
        return Val(out, f.value(f"fcmp {'une' if word == 'ne' else 'o' + word} {kind} {x.ref}, {y.ref}"))
    if isinstance(elem, Bool) and word not in ("eq", "ne"):
        raise Reject(f"{x.type} {symbol(op)} {y.type}: truth values compare with == and != only")
    prefix = "" if word in ("eq", "ne") else "s" if isinstance(elem, Int) and elem.signed else "u"
    return Val(out, f.value(f"icmp {prefix}{word} {kind} {x.ref}, {y.ref}"))


def negate(f: FunctionText, x: Val) -> Val:
    """`-x`."""
    elem, kind = elem_of(x.type), f.type(x.type)
    if isinstance(elem, Float) and elem.bits > 16:
        return Val(x.type, f.value(f"fneg {kind} {x.ref}"))
    if isinstance(elem, Int):
        return Val(x.type, f.value(f"sub {kind} {literal(0, x.type).ref}, {x.ref}"))
    raise Reject(f"-{x.type}: not defined for this type")


def invert(f: FunctionText, x: Val) -> Val:
    """`~x`, for integers and truth values."""
    elem = elem_of(x.type)
    if isinstance(elem, Int):
        ones = literal(-1 if elem.signed else elem.limits[1], x.type).ref
    elif isinstance(elem, Bool):
        ones = literal(True, x.type).ref
    else:
        raise Reject(f"~{x.type}: not defined for this type")
    return Val(x.type, f.value(f"xor {f.type(x.type)} {x.ref}, {ones}"))


def convert(f: FunctionText, x: Val, elem: Type) -> Val:
    """`elem(x)`: each lane converted. Float to integer truncates and saturates, NaN gives 0."""
    old = elem_of(x.type)
    if not isinstance(elem, Int | Float) or not isinstance(old, Int | Float | Bool):
        raise Reject(f"{elem}({x.type}): there is no such conversion; bitcast and cast keep the bits")
    out = with_elem(x.type, elem)
    a, b = f.type(x.type), f.type(out)
    if old == elem:
        return x
    if isinstance(old, Bool):
        if isinstance(elem, Float):
            raise Reject(f"{elem}({x.type}): choose with select(x, 1.0, 0.0)")
        return Val(out, f.value(f"zext {a} {x.ref} to {b}"))
    if isinstance(old, Int) and isinstance(elem, Int):
        if old.bits == elem.bits:
            return Val(out, x.ref)
        word = "trunc" if old.bits > elem.bits else "sext" if old.signed else "zext"
        return Val(out, f.value(f"{word} {a} {x.ref} to {b}"))
    if isinstance(old, Int):
        return Val(out, f.value(f"{'sitofp' if old.signed else 'uitofp'} {a} {x.ref} to {b}"))
    if isinstance(elem, Int):
        name = f"llvm.fpto{'s' if elem.signed else 'u'}i.sat.{suffix(out)}.{suffix(x.type)}"
        return Val(out, f.call(name, out, [(a, x.ref)]))
    if old.bits == elem.bits:
        raise Reject(f"{elem}({x.type}): go through f32")
    return Val(out, f.value(f"{'fpext' if old.bits < elem.bits else 'fptrunc'} {a} {x.ref} to {b}"))


def as_index(f: FunctionText, index: object) -> str:
    """An index as i64. Raises `Reject` for anything but an integer."""
    if isinstance(index, bool) or not isinstance(index, int | Val):
        raise Reject(f"an index must be an integer, got {describe(index)}")
    if isinstance(index, int):
        return str(index)
    if not isinstance(index.type, Int):
        raise Reject(f"an index must be an integer, got {index.type}")
    return convert(f, index, i64 if index.type.signed else u64).ref


def element(f: FunctionText, p: Val, index: str) -> str:
    """The address of `p[index]`."""
    assert isinstance(p.type, Ptr)
    if index == "0":
        return p.ref
    kind = f.type(p.type.elem) if not isinstance(p.type.elem, Struct) else f"[{p.type.elem.size} x i8]"
    return f.value(f"getelementptr {kind}, {f.type(p.type)} {p.ref}, i64 {index}")

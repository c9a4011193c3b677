"""Atomics, fences, and calls by address."""

from __future__ import annotations

from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import as_index, element
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import extended
from zinc_rt.lang.lower.registry import lowers, want_pointer, want_static, want_type, want_val
from zinc_rt.lang.types import Float, Int, Space, Struct, Type, Vec, i64, u64
from zinc_rt.lang.values import Val, literal

_ORDERS = {
    "relaxed": "monotonic",
    "acquire": "acquire",
    "release": "release",
    "acq_rel": "acq_rel",
    "seq_cst": "seq_cst",
}


def _order(order: Any, *allowed: str) -> str:
    name = want_static(order, str, "the order")
    if name not in allowed:
        raise Reject(f"order {name!r} is not possible here; it is one of {', '.join(allowed)}")
    return _ORDERS[name]


def _cell(c: Any, p: Any, index: Any) -> tuple[str, Int]:
    """A pointer operand and the integer it addresses."""
    base, kind = want_pointer(p)
    if not isinstance(kind.elem, Int) or kind.elem.bits < 32:
        raise Reject(f"atomics work on integers of 32 or 64 bits, not on {kind.elem}")
    if kind.space not in (Space.GLOBAL, Space.SHARED):
        raise Reject(f"{kind}: atomics work on memory that is shared and written")
    return f"{c.f.type(kind)} {element(c.f, base, as_index(c.f, index))}", kind.elem


def _operand(x: Any, kind: Type) -> Val:
    if isinstance(x, Val) and x.type != kind:
        raise Reject(f"the memory holds {kind}, the value is {x.type}")
    return x if isinstance(x, Val) else literal(x, kind)


def _scope(c: Any) -> str:
    """On a GPU, atomics order memory among the device's waves, not beyond it."""
    return f' syncscope("{c.f.machine.scope}")' if c.f.machine is not None else ""


@lowers(ops.atomic_load)
def _atomic_load(c: Any, p: Any, index: Any, order: Any) -> Val:
    cell, kind = _cell(c, p, index)
    how = _order(order, "relaxed", "acquire", "seq_cst")
    return Val(kind, c.f.value(f"load atomic i{kind.bits}, {cell}{_scope(c)} {how}, align {kind.align}"))


@lowers(ops.atomic_store)
def _atomic_store(c: Any, p: Any, value: Any, index: Any, order: Any) -> None:
    cell, kind = _cell(c, p, index)
    how = _order(order, "relaxed", "release", "seq_cst")
    x = _operand(value, kind)
    c.f.emit(f"store atomic i{kind.bits} {x.ref}, {cell}{_scope(c)} {how}, align {kind.align}")


@lowers(ops.atomic_add)
def _atomic_add(c: Any, p: Any, value: Any, index: Any, order: Any) -> Val:
    cell, kind = _cell(c, p, index)
    x = _operand(value, kind)
    return Val(kind, c.f.value(f"atomicrmw add {cell}, i{kind.bits} {x.ref}{_scope(c)} {_order(order, *_ORDERS)}"))


@lowers(ops.atomic_cas)
def _atomic_cas(c: Any, p: Any, expected: Any, desired: Any, index: Any, order: Any) -> Val:
    cell, kind = _cell(c, p, index)
    old, new, how = _operand(expected, kind), _operand(desired, kind), _order(order, *_ORDERS)
    failure = {"release": "monotonic", "acq_rel": "acquire"}.get(how, how)
    text = f"cmpxchg {cell}, i{kind.bits} {old.ref}, i{kind.bits} {new.ref}{_scope(c)} {how} {failure}"
    pair = c.f.value(text)
    return Val(kind, c.f.value(f"extractvalue {{ i{kind.bits}, i1 }} {pair}, 0"))


@lowers(ops.fence)
def _fence(c: Any, order: Any) -> None:
    c.f.emit(f"fence{_scope(c)} {_order(order, 'acquire', 'release', 'acq_rel', 'seq_cst')}")


@lowers(ops.pause)
def _pause(c: Any) -> None:
    if c.target.arch == "x86_64":
        c.f.call("llvm.x86.sse2.pause", None, [])
    elif c.target.arch == "aarch64":
        c.f.call("llvm.aarch64.hint", None, [("i32", "1")])
    else:
        c.f.machine.pause(c)


@lowers(ops.cycle_counter)
def _cycle_counter(c: Any) -> Val:
    if c.f.gpu:
        raise Reject("cycle_counter belongs to CPU targets")
    # x86 has no other counter; on aarch64 the cycle counter traps and the system counter does not.
    name = "llvm.readcyclecounter" if c.target.arch == "x86_64" else "llvm.readsteadycounter"
    return Val(i64, c.f.call(name, i64, []))


@lowers(ops.call)
def _call(c: Any, address: Any, returns: Any, *arguments: Any) -> Val | None:
    if c.f.gpu:
        raise Reject("calls by address belong to CPU targets")
    at = want_val(address, "the address")
    if at.type != u64:
        raise Reject(f"the address must be u64, got {at.type}")
    kind = None if returns is None else want_type(returns, "the second argument")
    values = [want_val(a, "an argument") for a in arguments]
    for passed in (*(v.type for v in values), kind):
        if isinstance(passed, Vec | Struct) or (isinstance(passed, Float) and passed.bits == 16):
            raise Reject(f"{passed} is not passed by value; pass a pointer")
    target = c.f.value(f"inttoptr i64 {at.ref} to ptr")
    texts = (f"{c.f.type(v.type)} {extended(v.type)}{v.ref}" for v in values)
    text = f"call {c.f.type(kind)} {target}({', '.join(texts)})"
    if kind is None:
        c.f.emit(text)
        return None
    return Val(kind, c.f.value(text))

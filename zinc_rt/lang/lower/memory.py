"""Loads, stores, prefetches, pointers, and memory of the function itself."""

from __future__ import annotations

from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import as_index, element
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, want_pointer, want_static, want_type, want_val
from zinc_rt.lang.types import Float, Int, Ptr, Space, Struct, Type, Vec, u64
from zinc_rt.lang.values import Regs, Val, literal


def _alignment(align: Any, elem: Type) -> int:
    if align is None:
        return elem.align
    if want_static(align, int, "align") < 1 or align & (align - 1):
        raise Reject(f"align must be a power of two, got {align}")
    return int(align)


def _hint(c: Any, nontemporal: Any) -> str:
    if not want_static(nontemporal, bool, "nontemporal"):
        return ""
    if "!0 = !{i32 1}" not in c.f.module.attributes:
        c.f.module.attributes.append("!0 = !{i32 1}")
    return ", !nontemporal !0"


@lowers(ops.load)
def _load(c: Any, p: Any, index: Any, lanes: Any, align: Any, nontemporal: Any) -> Val:
    base, kind = want_pointer(p)
    n = want_static(lanes, int, "lanes")
    if n != 1 and not isinstance(kind.elem, Int | Float):
        raise Reject(f"vectors are loaded from pointers to scalars, not from {kind}")
    if n < 1 or n > 256:
        raise Reject(f"lanes must be 1 to 256, got {n}")
    out: Type = kind.elem if n == 1 else Vec(kind.elem, n)  # type: ignore[arg-type]
    address = element(c.f, base, as_index(c.f, index))
    text = f"load {c.f.type(out)}, {c.f.type(kind)} {address}, align {_alignment(align, kind.elem)}"
    return Val(out, c.f.value(text + _hint(c, nontemporal)))


@lowers(ops.store)
def _store(c: Any, p: Any, value: Any, index: Any, align: Any, nontemporal: Any) -> None:
    base, kind = want_pointer(p)
    x = value if isinstance(value, Val) else literal(value, kind.elem)
    if x.type != kind.elem and not (isinstance(x.type, Vec) and x.type.elem == kind.elem):
        raise Reject(f"{kind} holds {kind.elem}, the value is {x.type}")
    address = element(c.f, base, as_index(c.f, index))
    hint = _hint(c, nontemporal)
    if hint and align is None:
        align = x.type.size
    c.f.emit(
        f"store {c.f.type(x.type)} {x.ref}, {c.f.type(kind)} {address}, align {_alignment(align, kind.elem)}{hint}"
    )


@lowers(ops.prefetch)
def _prefetch(c: Any, p: Any, index: Any, locality: Any, write: Any) -> None:
    base, kind = want_pointer(p)
    if want_static(locality, int, "locality") not in range(4):
        raise Reject(f"locality must be 0 to 3, got {locality}")
    if c.target.arch == "amdgcn":
        return  # a hint; the wave's own loads in flight do this work there
    address = element(c.f, base, as_index(c.f, index))
    rw = int(want_static(write, bool, "write"))
    arguments = [("ptr", address), ("i32 immarg", str(rw)), ("i32 immarg", str(locality)), ("i32 immarg", "1")]
    c.f.module.declare("llvm.prefetch.p0", "void", ["ptr", "i32", "i32", "i32"])
    c.f.emit(f"call void @llvm.prefetch.p0({', '.join(f'{t.split()[0]} {v}' for t, v in arguments)})")


@lowers(ops.cast)
def _cast(c: Any, p: Any, type: Any) -> Val:
    v, kind = want_val(p, "the pointer"), want_type(type, "the second argument")
    if isinstance(v.type, Ptr) and isinstance(kind, Ptr):
        if v.type.space is not kind.space:
            raise Reject(f"{v.type} and {kind} lie in different address spaces")
        return Val(kind, v.ref)
    if isinstance(v.type, Ptr) and kind == u64:
        return Val(u64, c.f.value(f"ptrtoint {c.f.type(v.type)} {v.ref} to i64"))
    if v.type == u64 and isinstance(kind, Ptr):
        return Val(kind, c.f.value(f"inttoptr i64 {v.ref} to {c.f.type(kind)}"))
    raise Reject(f"cast is between pointers, or a pointer and u64, not from {v.type} to {kind}")


def _count(n: Any, limit: int) -> int:
    if not 1 <= want_static(n, int, "the count") <= limit:
        raise Reject(f"the count must be 1 to {limit}, got {n}")
    return int(n)


@lowers(ops.array)
def _array(c: Any, type: Any, n: Any) -> Val:
    kind, count = want_type(type, "the first argument"), _count(n, 1 << 18)
    if not isinstance(kind, Int | Float | Struct | Ptr):
        raise Reject(f"an array holds scalars, pointers or structs, not {kind}")
    if c.f.gpu:
        return Val(Ptr(kind, Space.PRIVATE), c.f.alloca(c.f.type(kind), 16, count))
    return Val(Ptr(kind), c.f.alloca(c.f.type(kind), 64, count))


@lowers(ops.shared)
def _shared(c: Any, type: Any, n: Any) -> Val:
    kind, count = want_type(type, "the first argument"), _count(n, 1 << 16)
    if not c.f.gpu:
        raise Reject(f"shared memory belongs to GPU targets, not to {c.target.name}")
    if not isinstance(kind, Int | Float):
        raise Reject(f"shared memory holds scalars, not {kind}")
    name = f"@lds{len(c.f.module.globals)}"
    c.f.module.globals.append(
        f"{name} = internal unnamed_addr addrspace(3) global [{count} x {c.f.type(kind)}] poison, align 16"
    )
    return Val(Ptr(kind, Space.SHARED), name)


@lowers(ops.regs)
def _regs(c: Any, type: Any, n: Any) -> Regs:
    kind, count = want_type(type, "the first argument"), _count(n, 1024)
    if not isinstance(kind, Int | Float | Vec):
        raise Reject(f"registers hold scalars and vectors, not {kind}")
    text, cells = c.f.type(kind), []
    for _ in range(count):
        cells.append(c.f.alloca(text, max(kind.align, min(kind.size, 64))))
        c.f.emit(f"store {text} zeroinitializer, {c.f.stack} {cells[-1]}")
    return Regs(kind, tuple(cells))

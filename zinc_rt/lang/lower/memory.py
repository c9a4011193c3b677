"""Loads, stores, prefetches, pointers, and memory of the function itself."""

from __future__ import annotations

import builtins
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.access import unchanging
from zinc_rt.lang.arith import as_index, element
from zinc_rt.lang.convert import convert
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import suffix
from zinc_rt.lang.lower.parts import shared_part
from zinc_rt.lang.lower.registry import (
    lowers,
    vector,
    want_int,
    want_lanes,
    want_pointer,
    want_static,
    want_type,
    want_val,
)
from zinc_rt.lang.target import RESIDENT
from zinc_rt.lang.types import Float, Int, Ptr, Space, Struct, Type, Vec, elem_of, i64, u64
from zinc_rt.lang.values import Regs, Val, describe, literal

MAX_STACK = 1 << 20
"""Bytes of one array: a thread's stack is 8 MiB as a rule, and no guard page is touched on the way."""


def _alignment(align: Any, elem: Type) -> int:
    if align is None:
        return elem.align
    if want_static(align, int, "align") < 1 or align & (align - 1) or align > 4096:
        raise Reject(f"align must be a power of two up to 4096, got {align}")
    return int(align)


def _hint(c: Any, nontemporal: Any) -> str:
    if not want_static(nontemporal, bool, "nontemporal"):
        return ""
    c.f.module.attribute("!0 = !{i32 1}")
    return ", !nontemporal !0"


@lowers(ops.load)
def _load(c: Any, p: Any, index: Any, lanes: Any, align: Any, nontemporal: Any) -> Val:
    base, kind = want_pointer(p)
    if want_lanes(lanes) != 1 and not isinstance(kind.elem, Int | Float):
        raise Reject(f"vectors are loaded from pointers to numbers, not from {kind}")
    out = vector(kind.elem, lanes)
    address = element(c.f, base, as_index(c.f, index))
    at, rest = _alignment(align, kind.elem), unchanging(c.f, kind) + _hint(c, nontemporal)
    if c.f.gpu and c.f.machine.splits_loads and out.size % 4 == 0 and out.size // at > out.size // 4 + 1:
        return _load_of_words(c, address, kind, out, at, rest)
    return Val(out, c.f.value(f"load {c.f.type(out)}, {c.f.type(kind)} {address}, align {at}{rest}"))


def _load_of_words(c: Any, address: str, kind: Ptr, out: Type, align: int, rest: str) -> Val:
    """A load from an address that is no multiple of 4, by words at multiples of 4 and shifts. Every word holds a byte
    of what is loaded, so none lies outside of memory that begins and ends at such multiples.
    """
    f, pointer, n = c.f, c.f.type(kind), out.size // 4
    over = f.value(f"and i64 {f.value(f'ptrtoint {pointer} {address} to i64')}, {4 - align}")
    first = f.value(f"getelementptr i8, {pointer} {address}, i64 {f.value(f'sub i64 0, {over}')}")
    last = f.value(f"select i1 {f.value(f'icmp eq i64 {over}, 0')}, i64 {n - 1}, i64 {n}")
    places = (f.value(f"getelementptr i32, {pointer} {first}, i64 {i}") for i in (*range(n), last))
    words = [f.value(f"load i32, {pointer} {place}, align 4{rest}") for place in places]
    shift = f.value(f"shl i32 {f.value(f'trunc i64 {over} to i32')}, 3")
    parts, whole = f"<{n} x i32>", "poison"
    for i in range(n):
        word = f.call("llvm.fshr.i32", "i32", [("i32", words[i + 1]), ("i32", words[i]), ("i32", shift)])
        whole = f.value(f"insertelement {parts} {whole}, i32 {word}, i32 {i}")
    return Val(out, f.value(f"bitcast {parts} {whole} to {f.type(out)}"))


@lowers(ops.store)
def _store(c: Any, p: Any, value: Any, index: Any, align: Any, nontemporal: Any) -> None:
    base, kind = want_pointer(p)
    if kind.space is Space.CONSTANT:
        raise Reject(f"{kind}: nothing is written there while the kernel runs")
    x = value if isinstance(value, Val) else literal(value, kind.elem)
    if elem_of(x.type) != kind.elem:
        raise Reject(f"{kind} holds {kind.elem}, the value is {x.type}; {kind.elem}(…) converts")
    address = element(c.f, base, as_index(c.f, index))
    hint = _hint(c, nontemporal)
    if hint and align is None:
        align = x.type.size
    to = f"{c.f.type(kind)} {address}, align {_alignment(align, kind.elem)}"
    c.f.emit(f"store {c.f.type(x.type)} {x.ref}, {to}{hint}")


@lowers(ops.table)
def _table(c: Any, type: Any, values: Any) -> Val:
    kind = want_type(type, "the first argument")
    if not isinstance(kind, Int):
        raise Reject(f"a table holds integers, not {kind}")
    low, high = kind.limits
    if not isinstance(values, tuple) or not values or not all(builtins.type(x) is int for x in values):
        raise Reject(f"the values must be a compile-time tuple of integers, got {describe(values)}")
    if not all(low <= x <= high for x in values):
        raise Reject(f"the table's integers must be {low} to {high}, as {kind} has them")
    text = f"constant [{len(values)} x i{kind.bits}] [{', '.join(f'i{kind.bits} {x}' for x in values)}], align 64"
    space = f"addrspace({c.f.machine.tables}) " if c.f.gpu else ""
    found = next((line.split(" = ")[0] for line in c.f.module.globals if line.endswith(text)), None)
    if found is None:
        found = f"@table{len(c.f.module.globals)}"
        c.f.module.globals.append(f"{found} = private unnamed_addr {space}{text}")
    return Val(Ptr(kind, Space.CONSTANT), found)


@lowers(ops.gather)
def _gather(c: Any, p: Any, indices: Any) -> Val:
    base, kind = want_pointer(p)
    at = want_int(indices, "the indices")
    if not isinstance(kind.elem, Int | Float):
        raise Reject(f"vectors are gathered from pointers to numbers, not from {kind}")
    if not isinstance(at.type, Vec):
        return _load(c, p, indices, 1, None, False)
    n = at.type.lanes
    out = vector(kind.elem, n)
    wide = Vec(i64, n)
    index = convert(c.f, at, i64)
    address = c.f.value(
        f"getelementptr {c.f.type(kind.elem)}, {c.f.type(kind)} {base.ref}, {c.f.type(wide)} {index.ref}"
    )
    pointers, space = f"<{n} x {c.f.type(kind)}>", c.f.machine.tables if c.f.gpu else 0
    if c.f.gpu and kind.space is not Space.CONSTANT:
        raise Reject("a GPU gathers from tables; its lanes load for themselves")
    name = f"llvm.masked.gather.v{n}{suffix(kind.elem)}.v{n}p{space}"
    mask = f"<{', '.join(['i1 true'] * n)}>"
    arguments = [(pointers, address), ("i32", str(kind.elem.align)), (f"<{n} x i1>", mask), (c.f.type(out), "poison")]
    return Val(out, c.f.call(name, out, arguments))


@lowers(ops.prefetch)
def _prefetch(c: Any, p: Any, index: Any, locality: Any, write: Any) -> None:
    base, _ = want_pointer(p)
    if want_static(locality, int, "locality") not in range(4):
        raise Reject(f"locality must be 0 to 3, got {locality}")
    rw = int(want_static(write, bool, "write"))
    if c.f.gpu:
        return  # a hint; the wave's own loads in flight do this work there
    address = element(c.f, base, as_index(c.f, index))
    arguments = [("ptr", address), ("i32", str(rw)), ("i32", str(locality)), ("i32", "1")]
    c.f.call("llvm.prefetch.p0", None, arguments)


@lowers(ops.cast)
def _cast(c: Any, p: Any, type: Any) -> Val:
    v, kind = want_val(p, "the pointer"), want_type(type, "the second argument")
    if isinstance(v.type, Ptr) and isinstance(kind, Ptr):
        if RESIDENT in c.target.isa and kind.space is Space.CONSTANT and v.type.space is Space.GLOBAL:
            kind = Ptr(kind.elem, Space.GLOBAL)  # an earlier phase of the program may have stored it
        if v.type.space is kind.space:
            return Val(kind, v.ref)
        if not {v.type.space, kind.space} <= {Space.GLOBAL, Space.CONSTANT}:
            raise Reject(f"{v.type} and {kind} lie in different memories")
        if c.f.type(v.type) == c.f.type(kind):
            return Val(kind, v.ref)
        return Val(kind, c.f.value(f"addrspacecast {c.f.type(v.type)} {v.ref} to {c.f.type(kind)}"))
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
def _array(c: Any, type: Any, n: Any, zero: Any) -> Val:
    kind = want_type(type, "the first argument")
    if not isinstance(kind, Int | Float | Struct | Ptr):
        raise Reject(f"an array holds numbers, pointers or structs, not {kind}")
    count = _count(n, MAX_STACK // kind.size)
    size = kind.size * count
    cell = c.f.alloca(f"[{-(-size // 64) * 64} x i8]", 64)
    if want_static(zero, bool, "zero"):
        _clear(c, cell, -(-size // 64))
    return Val(Ptr(kind, Space.PRIVATE if c.f.gpu else Space.GLOBAL), cell)


def _clear(c: Any, cell: str, lines: int) -> None:
    """Zero 64-byte lines of the stack: a few by stores that LLVM drops where they are overwritten, many by a loop."""
    f = c.f
    if lines <= 64:
        for i in range(lines):
            at = f.value(f"getelementptr i8, {f.stack} {cell}, i64 {64 * i}") if i else cell
            f.emit(f"store <16 x i32> zeroinitializer, {f.stack} {at}, align 64")
        return
    before, head, end = (f.new_block(stem) for stem in ("before", "clear", "end"))
    f.start(before)
    now, after = "%" + f.name("i"), "%" + f.name("i")
    f.start(head)
    f.emit(f"{now} = phi i64 [ 0, %{before} ], [ {after}, %{head} ]")
    at = f.value(f"getelementptr [64 x i8], {f.stack} {cell}, i64 {now}")
    f.emit(f"store <16 x i32> zeroinitializer, {f.stack} {at}, align 64")
    f.emit(f"{after} = add nuw i64 {now}, 1")
    f.branch_if(f.value(f"icmp eq i64 {after}, {lines}"), end, head)
    f.start(end)


@lowers(ops.shared)
def _shared(c: Any, type: Any, n: Any) -> Val:
    kind = want_type(type, "the first argument")
    if not c.f.gpu:
        raise Reject(f"shared memory belongs to GPU targets, not to {c.target.name}")
    if not isinstance(kind, Int | Float):
        raise Reject(f"shared memory holds numbers, not {kind}")
    limit = c.f.machine.max_shared
    count = _count(n, limit // kind.size)
    if RESIDENT in c.target.isa:
        return shared_part(c, kind, count)
    name = f"@lds{len(c.f.module.globals)}"
    c.f.module.globals.append(
        f"{name} = internal unnamed_addr addrspace(3) global [{count} x {c.f.type(kind)}] poison, align 16"
    )
    c.f.shared_bytes += -(-kind.size * count // 16) * 16
    if c.f.shared_bytes > limit:
        raise Reject(f"the kernel shares {c.f.shared_bytes} bytes, a workgroup has {limit}")
    return Val(Ptr(kind, Space.SHARED), name)


@lowers(ops.regs)
def _regs(c: Any, type: Any, n: Any) -> Regs:
    kind, count = want_type(type, "the first argument"), _count(n, 1024)
    if not isinstance(elem_of(kind), Int | Float):
        raise Reject(f"registers hold numbers and vectors of them, not {kind}")
    text, cells = c.f.type(kind), []
    for _ in range(count):
        cells.append(c.f.alloca(text, max(kind.align, min(kind.size, 64))))
        c.f.emit(f"store {text} zeroinitializer, {c.f.stack} {cells[-1]}")
    return Regs(kind, tuple(cells))

"""Elements and fields: indexing and attribute access for pointers, vectors, registers and compile-time values."""

from __future__ import annotations

from typing import Any

from zinc_rt.lang import comptime
from zinc_rt.lang.arith import as_index, element, lane_index
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import FunctionText
from zinc_rt.lang.types import Ptr, Space, Struct, Vec
from zinc_rt.lang.values import Regs, Val, describe, is_static


class Access:
    """Reads elements and fields of evaluated values."""

    def __init__(self, text: FunctionText) -> None:
        self.f = text

    def item(self, base: Any, index: Any) -> Any:
        """`base[index]`. Raises `Reject`."""
        if isinstance(base, Regs):
            return Val(
                base.type, self.f.value(f"load {self.f.type(base.type)}, {self.f.stack} {self.register(base, index)}")
            )
        if isinstance(base, Val):
            if isinstance(base.type, Ptr):
                address = self.address(base, index)
                return address if isinstance(base.type.elem, Struct) else self.load(address)
            if isinstance(base.type, Vec):
                lane = lane_index(self.f, index, base.type)
                return Val(
                    base.type.elem, self.f.value(f"extractelement {self.f.type(base.type)} {base.ref}, i64 {lane}")
                )
        elif hasattr(type(base), "__getitem__"):
            if not is_static(index):
                raise Reject(f"{describe(base)} takes a compile-time index, got {describe(index)}")
            return comptime.item(base, index)
        raise Reject(f"{describe(base)} cannot be indexed; pointers, vectors, regs and tuples can")

    def address(self, base: Val, index: Any) -> Val:
        """A pointer to an element. Raises `Reject`."""
        return Val(base.type, element(self.f, base, as_index(self.f, index)))

    def register(self, base: Regs, index: Any) -> str:
        """The cell of one register. Raises `Reject`."""
        if isinstance(index, bool) or not isinstance(index, int):
            raise Reject(f"registers are numbered at compile time, got {describe(index)}; loop with unroll(…)")
        if not 0 <= index < len(base.slots):
            raise Reject(f"{describe(base)} has numbers 0 to {len(base.slots) - 1}, not {index}")
        return base.slots[index]

    def load(self, p: Val) -> Val:
        """The element that a pointer addresses."""
        assert isinstance(p.type, Ptr)
        elem = p.type.elem
        text = f"load {self.f.type(elem)}, {self.f.type(p.type)} {p.ref}, align {elem.align}"
        return Val(elem, self.f.value(text + unchanging(self.f, p.type)))

    def field(self, base: Any, name: str) -> Val:
        """A pointer to a field of the struct that `base` addresses. Raises `Reject`."""
        if not isinstance(base, Val) or not isinstance(base.type, Ptr) or not isinstance(base.type.elem, Struct):
            raise Reject(f"{describe(base)} has no field {name}; fields belong to pointers to structs")
        layout = base.type.elem
        if name not in layout.offsets:
            raise Reject(f"struct {layout} has no field {name}; it has {', '.join(layout.offsets)}")
        kind = dict(layout.fields)[name]
        pointer = self.f.type(base.type)
        address = self.f.value(f"getelementptr i8, {pointer} {base.ref}, i64 {layout.offsets[name]}")
        return Val(Ptr(kind, base.type.space), address)


def unchanging(f: FunctionText, kind: Ptr) -> str:
    """LLVM metadata of a load from memory that does not change while the kernel runs, so that it may move."""
    if kind.space is not Space.CONSTANT:
        return ""
    f.module.attribute("!1 = !{}")
    return ", !invariant.load !1"

"""What an expression of a kernel can be: a run-time value, a variable, registers, or a compile-time Python value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import float_bits, llvm_type
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Type, Vec, elem_of


@dataclass(frozen=True)
class Val:
    """A run-time value: its type and how LLVM names it."""

    type: Type
    ref: str


@dataclass(frozen=True)
class Slot:
    """A variable: a stack cell that LLVM turns into a register."""

    type: Type
    ref: str
    loop: bool = False  # a loop's variable, which the body may not assign


@dataclass(frozen=True)
class Regs:
    """Numbered variables of one type."""

    type: Type
    slots: tuple[str, ...]


@dataclass(frozen=True)
class Constant:
    """A name bound to a compile-time value; it may be bound anew only in the same region of control flow."""

    value: Any
    region: int


def is_static(value: object) -> bool:
    """Whether a value is known when the kernel is compiled."""
    if isinstance(value, tuple | list):
        return all(is_static(v) for v in value)
    return not isinstance(value, Val | Slot | Regs)


def describe(value: object) -> str:
    """A value's type for messages."""
    if isinstance(value, Val | Slot):
        return str(value.type)
    if isinstance(value, Regs):
        return f"regs({value.type}, {len(value.slots)})"
    if isinstance(value, bool | int | float | str):
        return f"the constant {value!r}"
    if isinstance(value, Type):
        return f"the type {value}"
    return f"a compile-time {type(value).__name__}"


def literal(value: object, kind: Type) -> Val:
    """A Python number as a constant of a type. Raises `Reject` when it has no such value."""
    elem = elem_of(kind)
    if isinstance(elem, Bool):
        if not isinstance(value, bool):
            raise Reject(f"expected {kind}, got {describe(value)}; write True or False")
        text = "true" if value else "false"
    elif isinstance(elem, Int):
        if isinstance(value, bool) or not isinstance(value, int):
            raise Reject(f"expected {kind}, got {describe(value)}; write {elem}(…) to convert")
        low, high = elem.limits
        if not low <= value <= high:
            raise Reject(f"{value} does not fit {elem}, whose values go from {low} to {high}")
        text = str(value)
    elif isinstance(elem, Float):
        if not isinstance(value, float):
            hint = (
                f"write {float(value)!r}" if isinstance(value, int) and not isinstance(value, bool) else "write a float"
            )
            raise Reject(f"expected {kind}, got {describe(value)}; {hint}")
        text = float_bits(elem, value)
    elif isinstance(kind, Ptr):
        raise Reject(f"expected {kind}, got {describe(value)}; pointers come from arguments, arrays and cast")
    else:
        raise Reject(f"expected {kind}, got {describe(value)}")
    return Val(kind, f"splat ({llvm_type(elem)} {text})" if isinstance(kind, Vec) else text)

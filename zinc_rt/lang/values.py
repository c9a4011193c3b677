"""Values of kernel expressions: a run-time value, a variable, registers, or a compile-time Python value."""

from __future__ import annotations

import math
import struct
from dataclasses import dataclass
from typing import Any

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.irtext import llvm_type
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Type, Vec, elem_of


@dataclass(slots=True, eq=False)
class Val:
    """A run-time value: its type and its LLVM name."""

    type: Type
    ref: str


@dataclass(slots=True, eq=False)
class StackSlot:
    """A variable that is assigned in several places: a stack cell that LLVM turns into a register."""

    type: Type
    ref: str


@dataclass(slots=True, eq=False)
class Regs:
    """Numbered variables of one type."""

    type: Type
    slots: tuple[str, ...]


@dataclass(slots=True, eq=False)
class Constant:
    """A name for anything else: a compile-time value, registers, a tuple. Not to be rebound in another region."""

    value: Any
    region: int


def is_static(value: object) -> bool:
    """Whether a value is known when the kernel is compiled."""
    kind = type(value)
    if kind is Val or kind is StackSlot or kind is Regs:
        return False
    return all(map(is_static, value)) if isinstance(value, (tuple, list)) else True


def describe(value: object) -> str:
    """A value's type for messages."""
    if isinstance(value, Val | StackSlot):
        return str(value.type)
    if isinstance(value, Regs):
        return f"regs({value.type}, {len(value.slots)})"
    if value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
        return f"the constant {text if len(text) <= 60 else text[:59] + '…'}"
    if isinstance(value, Type):
        return f"the type {value}"
    if isinstance(value, tuple | list):
        return f"a tuple of {len(value)}"
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    if isinstance(name, str):
        return f"the word {name}" if type(value).__name__ == "Word" else name
    return f"a compile-time {type(value).__name__}"


def literal(value: object, kind: Type) -> Val:
    """A Python number as a constant of a type. Raises `Reject` when it has no such value."""
    elem = elem_of(kind)
    if isinstance(elem, Bool):
        if not isinstance(value, bool):
            raise Reject(f"expected {kind}, got {describe(value)}{_hint(value, 'True or False')}")
        text = "true" if value else "false"
    elif isinstance(elem, Int):
        if isinstance(value, bool) or not isinstance(value, int):
            near = f"{int(value)}" if isinstance(value, bool | float) and _whole(value) else "an integer"
            raise Reject(f"expected {kind}, got {describe(value)}{_hint(value, near)}")
        low, high = elem.limits
        if not low <= value <= high:
            raise Reject(f"{_short(value)} does not fit {elem}, whose values go from {low} to {high}")
        text = str(value)
    elif isinstance(elem, Float):
        if not isinstance(value, float):
            near = repr(float(value)) if type(value) is int and abs(value) < 1 << 53 else "a float"
            raise Reject(f"expected {kind}, got {describe(value)}{_hint(value, near)}")
        text = float_bits(elem, value)
    elif isinstance(kind, Ptr):
        raise Reject(f"expected {kind}, got {describe(value)}; pointers come from arguments, fields, arrays and cast")
    else:
        raise Reject(f"expected {kind}, got {describe(value)}")
    return Val(kind, f"splat ({llvm_type(elem)} {text})" if isinstance(kind, Vec) else text)


def _hint(value: object, near: str) -> str:
    """A hint for a message: the constant to write instead."""
    return f"; write {near}" if isinstance(value, bool | int | float) else ""


def _whole(value: float) -> bool:
    return math.isfinite(value) and value == int(value) and abs(value) < 1 << 63


def _short(value: int) -> str:
    return str(value) if value.bit_length() <= 256 else f"a number of {value.bit_length()} bits"


def float_of(value: int) -> float:
    """An integer as a float, when that is exact. Raises `Reject`."""
    try:
        near = float(value)
    except OverflowError:
        near = math.inf
    if near != value:
        raise Reject(f"{_short(value)} is no float64; write the float that you mean")
    return near


def float_bits(kind: Float, value: float) -> str:
    """The LLVM text of a float constant, rounded once to its type. Raises `Reject` where a finite one overflows."""
    try:
        bits = _bits(kind.name, value)
    except OverflowError:
        raise Reject(f"{value!r} does not fit {kind}, whose greatest value is {_GREATEST[kind.name]!r}") from None
    if kind.bits == 16:
        return str(bits)
    return f"0x{bits:016X}"


_GREATEST = {"f16": 65504.0, "bf16": 3.3895313892515355e38, "f32": 3.4028234663852886e38}


def _bits(name: str, value: float) -> int:
    """The bits of f16 and bf16; of f64 and, as LLVM wants it, those of the same number in f64 for f32."""
    if name == "f16":
        return int.from_bytes(struct.pack("<e", value), "little")
    if name == "bf16":
        return int.from_bytes(struct.pack("<f", _to_bf16(value)), "little") >> 16
    if name == "f32":
        value = struct.unpack("<f", struct.pack("<f", value))[0]
    return int.from_bytes(struct.pack("<d", value), "little")


def _to_bf16(value: float) -> float:
    """The nearest value of 8 significant bits and float32's exponents, ties to even. Raises OverflowError."""
    if value == 0.0 or not math.isfinite(value):
        return value
    _, exponent = math.frexp(value)
    unit = max(exponent - 8, -133)
    rounded = math.ldexp(round(math.ldexp(value, -unit)), unit)
    if abs(rounded) > _GREATEST["bf16"]:
        raise OverflowError
    return math.copysign(rounded, value)

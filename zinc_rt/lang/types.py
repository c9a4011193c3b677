"""The types of the kernel language: scalars, fixed vectors, pointers with an address space, structs.

A type is an object that stands in annotations (`x: f32`, `p: ptr[u8]`, `v: vec[f32, 16]`) and is called in a kernel to
convert a value (`f32(n)`). Types compare by value.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from zinc_rt.lang.errors import LangError

MAX_LANES = 256
"""Most lanes of a vector; wider ones take several registers on any machine, and slow LLVM down."""


class Space(enum.IntEnum):
    """Address spaces, numbered as LLVM numbers AMD's. On a CPU there is one memory and all of them mean it."""

    GLOBAL = 1  # main memory; what `ptr[type]` means
    SHARED = 3  # memory of a workgroup (LDS), GPU only
    CONSTANT = 4  # main memory that nobody writes while the kernel runs: loads may move, on a GPU they are scalar
    PRIVATE = 5  # a work-item's own, where `array` lies on a GPU


class Type:
    """Base of all types. `str()` gives the name in messages."""

    size: int
    """Bytes in memory."""

    align: int
    """Natural alignment in bytes."""

    def __call__(self, *_: object) -> NoReturn:
        raise LangError(f"{self} converts values inside kernels only")


@dataclass(frozen=True)
class Int(Type):
    """An integer of 8 to 64 bits; arithmetic wraps."""

    bits: int
    signed: bool

    @property
    def size(self) -> int:  # type: ignore[override]
        """Size in bytes."""
        return self.bits // 8

    @property
    def align(self) -> int:  # type: ignore[override]
        """Natural alignment in bytes."""
        return self.bits // 8

    @property
    def limits(self) -> tuple[int, int]:
        """Least and greatest value."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)

    def __str__(self) -> str:
        return f"{'i' if self.signed else 'u'}{self.bits}"


@dataclass(frozen=True)
class Float(Type):
    """An IEEE 754 binary format, or bfloat16."""

    name: str
    bits: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """Size in bytes."""
        return self.bits // 8

    @property
    def align(self) -> int:  # type: ignore[override]
        """Natural alignment in bytes."""
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Bool(Type):
    """A truth value, the result of comparisons. Not a memory type."""

    size = 1
    align = 1

    def __str__(self) -> str:
        return "bool"


@dataclass(frozen=True)
class Vec(Type):
    """`lanes` elements of one scalar type, held in registers."""

    elem: Int | Float | Bool
    lanes: int

    @property
    def size(self) -> int:  # type: ignore[override]
        """Size in bytes."""
        return self.elem.size * self.lanes

    @property
    def align(self) -> int:  # type: ignore[override]
        """Alignment of a load or store in bytes."""
        return self.elem.align

    def __str__(self) -> str:
        return f"vec[{self.elem}, {self.lanes}]"


@dataclass(frozen=True)
class Ptr(Type):
    """The address of elements of a scalar or struct type."""

    elem: Type
    space: Space = Space.GLOBAL
    size = 8
    align = 8

    def __str__(self) -> str:
        return f"ptr[{self.elem}]" if self.space is Space.GLOBAL else f"ptr[{self.elem}, Space.{self.space.name}]"


@dataclass(frozen=True)
class Struct(Type):
    """Named fields at natural alignment, the layout of C."""

    name: str
    fields: tuple[tuple[str, Type], ...]

    @property
    def offsets(self) -> dict[str, int]:
        """Byte offset of each field."""
        at, out = 0, {}
        for name, kind in self.fields:
            at = -(-at // kind.align) * kind.align
            out[name] = at
            at += kind.size
        return out

    @property
    def align(self) -> int:  # type: ignore[override]
        """Alignment in bytes: the greatest of the fields'."""
        return max(kind.align for _, kind in self.fields)

    @property
    def size(self) -> int:  # type: ignore[override]
        """Size in bytes, with padding at the end."""
        last, kind = self.fields[-1]
        return -(-(self.offsets[last] + kind.size) // self.align) * self.align

    @property
    def numpy(self) -> Mapping[str, Any]:
        """The argument of `numpy.dtype` for the struct; pointers are u8 (eight bytes), bf16 its bits as u2."""
        formats = [_numpy_format(kind) for _, kind in self.fields]
        names = [name for name, _ in self.fields]
        return {"names": names, "formats": formats, "offsets": list(self.offsets.values()), "itemsize": self.size}

    def __str__(self) -> str:
        return self.name


def _numpy_format(kind: Type) -> str:
    if isinstance(kind, Ptr):
        return "u8"
    if isinstance(kind, Int):
        return f"{'i' if kind.signed else 'u'}{kind.size}"
    return "u2" if str(kind) == "bf16" else f"f{kind.size}"


i8, i16, i32, i64 = (Int(bits, True) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Int(bits, False) for bits in (8, 16, 32, 64))
f16, bf16, f32, f64 = Float("f16", 16), Float("bf16", 16), Float("f32", 32), Float("f64", 64)
boolean = Bool()

SCALARS: Mapping[str, Int | Float | Bool] = {
    str(t): t for t in (i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, boolean)
}


def type_text(item: object) -> str:
    """The text of an alleged type in a message."""
    if isinstance(item, Type | int | float | str | None):
        return str(item)
    return getattr(item, "__name__", None) or f"a {type(item).__name__}"


class _VecMaker:
    """`vec[f32, 16]`; of one lane it is the scalar."""

    def __getitem__(self, item: tuple[Type, int]) -> Vec | Int | Float | Bool:
        elem, lanes = item if isinstance(item, tuple) and len(item) == 2 else (None, 0)
        if elem is bool:
            elem = boolean
        if not isinstance(elem, Int | Float | Bool) or type(lanes) is not int or not 1 <= lanes <= MAX_LANES:
            text = ", ".join(map(type_text, item)) if isinstance(item, tuple) else type_text(item)
            raise LangError(f"vec[{text}]: a vector is vec[scalar type, lanes] with 1 to {MAX_LANES} lanes")
        return Vec(elem, lanes) if lanes > 1 else elem


class _PtrMaker:
    """`ptr[f32]`, `ptr[u8, Space.GLOBAL]`."""

    def __getitem__(self, item: Type | tuple[Type, Space]) -> Ptr:
        elem, space = item if isinstance(item, tuple) and len(item) == 2 else (item, Space.GLOBAL)
        if not isinstance(elem, Int | Float | Struct | Ptr) or not isinstance(space, Space):
            text = ", ".join(map(type_text, item)) if isinstance(item, tuple) else type_text(item)
            raise LangError(
                f"ptr[{text}]: a pointer is ptr[type] or ptr[type, Space.…], to numbers, structs or pointers"
            )
        return Ptr(elem, space)


vec, ptr = _VecMaker(), _PtrMaker()


def struct(cls: type) -> Struct:
    """Class decorator: the annotated names become fields in order."""
    try:
        fields = inspect.get_annotations(cls, eval_str=True)
    except Exception as error:
        raise LangError(f"struct {cls.__name__}: its annotations cannot be evaluated: {error}") from None
    for name, kind in fields.items():
        if not isinstance(kind, Int | Float | Ptr):
            text = type_text(kind)
            raise LangError(f"struct {cls.__name__}: field {name} is {text}; fields are integers, floats and pointers")
    if not fields:
        raise LangError(f"struct {cls.__name__} has no fields")
    return Struct(cls.__name__, tuple(fields.items()))


def layout_of(value: object) -> Struct:
    """A struct that `@struct` made, for type checkers, which take it for a class. Raises `LangError`."""
    if not isinstance(value, Struct):
        raise LangError(f"{value!r} is no struct of the kernel language")
    return value


def elem_of(kind: Type) -> Type:
    """The scalar type of a vector's lanes; any other type is its own."""
    return kind.elem if isinstance(kind, Vec) else kind


def with_elem(kind: Type, elem: Int | Float | Bool) -> Type:
    """`elem` in the shape of `kind`: a vector of as many lanes, or the scalar."""
    return Vec(elem, kind.lanes) if isinstance(kind, Vec) else elem


def lanes_of(kind: Type) -> int:
    """Lanes of a vector; 1 for a scalar."""
    return kind.lanes if isinstance(kind, Vec) else 1

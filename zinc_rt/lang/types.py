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


class Space(enum.IntEnum):
    """Address spaces, numbered as LLVM numbers AMD's. On a CPU there is one memory and all of them mean it."""

    GENERIC = 0
    GLOBAL = 1
    SHARED = 3  # LDS of a workgroup
    CONSTANT = 4  # read only for the whole run, uniform: scalar loads
    PRIVATE = 5  # a work-item's stack


class Type:
    """Base of all types. `str()` is how messages write it."""

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
        return self.bits // 8

    @property
    def align(self) -> int:  # type: ignore[override]
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
        return self.bits // 8

    @property
    def align(self) -> int:  # type: ignore[override]
        return self.bits // 8

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True)
class Bool(Type):
    """True or false; what comparisons give. Not a memory type."""

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
        return self.elem.size * self.lanes

    @property
    def align(self) -> int:  # type: ignore[override]
        return self.elem.align

    def __str__(self) -> str:
        return f"vec[{self.elem}, {self.lanes}]"


@dataclass(frozen=True)
class Ptr(Type):
    """The address of elements of a scalar or struct type."""

    elem: Type
    space: Space = Space.GENERIC
    size = 8
    align = 8

    def __str__(self) -> str:
        return f"ptr[{self.elem}]" if self.space is Space.GENERIC else f"ptr[{self.elem}, {self.space.name}]"


@dataclass(frozen=True)
class Tile(Type):
    """A matrix register of up to 16 rows of 64 bytes (AMX), zero at first."""

    size = 1024
    align = 64

    def __str__(self) -> str:
        return "tile"


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
        return max(kind.align for _, kind in self.fields)

    @property
    def size(self) -> int:  # type: ignore[override]
        last, kind = self.fields[-1]
        return -(-(self.offsets[last] + kind.size) // self.align) * self.align

    @property
    def numpy(self) -> Mapping[str, Any]:
        """What `numpy.dtype` takes to describe the struct; pointers are u8."""
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
    if isinstance(kind, Float) and kind.name != "bf16":
        return f"f{kind.size}"
    raise LangError(f"a struct field of type {kind} has no NumPy format")


i8, i16, i32, i64 = (Int(bits, True) for bits in (8, 16, 32, 64))
u8, u16, u32, u64 = (Int(bits, False) for bits in (8, 16, 32, 64))
f16, bf16, f32, f64 = Float("f16", 16), Float("bf16", 16), Float("f32", 32), Float("f64", 64)
boolean = Bool()
tile = Tile()

SCALARS: Mapping[str, Int | Float | Bool] = {
    str(t): t for t in (i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32, f64, boolean)
}


class _VecMaker:
    """`vec[f32, 16]`."""

    def __getitem__(self, item: tuple[Type, int]) -> Vec | Int | Float | Bool:
        elem, lanes = item if isinstance(item, tuple) and len(item) == 2 else (None, 0)
        if not isinstance(elem, Int | Float | Bool) or not isinstance(lanes, int) or not 1 <= lanes <= 256:
            text = ", ".join(map(str, item)) if isinstance(item, tuple) else str(item)
            raise LangError(f"vec[{text}]: a vector is vec[scalar type, lanes] with 1 to 256 lanes; 1 is the scalar")
        return Vec(elem, lanes) if lanes > 1 else elem


class _PtrMaker:
    """`ptr[f32]`, `ptr[u8, Space.GLOBAL]`."""

    def __getitem__(self, item: Type | tuple[Type, Space]) -> Ptr:
        elem, space = item if isinstance(item, tuple) else (item, Space.GENERIC)
        if not isinstance(elem, Int | Float | Struct | Ptr) or not isinstance(space, Space):
            raise LangError(f"ptr[{item}]: a pointer is ptr[scalar, pointer or struct type] or ptr[type, Space.…]")
        return Ptr(elem, space)


vec, ptr = _VecMaker(), _PtrMaker()


def struct(cls: type) -> Struct:
    """Class decorator: the annotated names become fields in order."""
    fields = inspect.get_annotations(cls, eval_str=True)
    for name, kind in fields.items():
        if not isinstance(kind, Int | Float | Ptr):
            raise LangError(f"struct {cls.__name__}: field {name} is {kind}; fields are integers, floats and pointers")
    if not fields:
        raise LangError(f"struct {cls.__name__} has no fields")
    return Struct(cls.__name__, tuple(fields.items()))


def elem_of(kind: Type) -> Type:
    """The scalar type of a vector's lanes; any other type is its own."""
    return kind.elem if isinstance(kind, Vec) else kind


def with_elem(kind: Type, elem: Int | Float | Bool) -> Type:
    """`elem` in the shape of `kind`: a vector of as many lanes, or the scalar."""
    return Vec(elem, kind.lanes) if isinstance(kind, Vec) else elem


def lanes_of(kind: Type) -> int:
    """Lanes of a vector; 1 for a scalar."""
    return kind.lanes if isinstance(kind, Vec) else 1

"""Types of arguments as bytes: what a number or a pointer is of, structs with their fields.

A scalar is its number in `_SCALARS`. A pointer is 0x40, its address space, the type of its elements. A struct is 0x80,
its name, the number of its fields, and name and type of each; a name is its length and its UTF-8.
"""

from __future__ import annotations

from typing import Final

from zinc_rt.kernels.zrt.errors import InvalidField
from zinc_rt.lang import types as t
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Space, Struct, Type

_SCALARS: Final[tuple[Type, ...]] = (
    t.i8, t.i16, t.i32, t.i64, t.u8, t.u16, t.u32, t.u64, t.f16, t.bf16, t.f32, t.f64, t.boolean,
)  # fmt: skip
_POINTER: Final = 0x40
_STRUCT: Final = 0x80
_SPACES: Final = (Space.GLOBAL, Space.CONSTANT)
_MAX_DEPTH: Final = 8
_MAX_FIELDS: Final = 255


def encode(kind: Type) -> bytes:
    """The bytes of a type. Raises `InvalidField` for one that no argument has."""
    if kind in _SCALARS:
        return bytes([_SCALARS.index(kind)])
    if isinstance(kind, Ptr):
        return bytes([_POINTER, kind.space]) + encode(kind.elem)
    if isinstance(kind, Struct) and len(kind.fields) <= _MAX_FIELDS:
        parts = [_name(kind.name), bytes([len(kind.fields)])]
        for name, field in kind.fields:
            parts += [_name(name), encode(field)]
        return bytes([_STRUCT]) + b"".join(parts)
    raise InvalidField("type of an argument", kind, "it is a number, a pointer or a struct of up to 255 fields")


def _name(text: str) -> bytes:
    data = text.encode()
    if not 0 < len(data) <= _MAX_FIELDS:
        raise InvalidField("name in a type", repr(text), f"it has 1 to {_MAX_FIELDS} bytes")
    return bytes([len(data)]) + data


def decode(data: bytes, field: str) -> Type:
    """The type that all of these bytes say. Raises `InvalidField` for `field`."""
    reader = _Reader(data, field)
    kind = reader.type(0)
    if reader.at != len(data):
        raise reader.wrong(f"{len(data)} bytes", f"its type ends after {reader.at}")
    if not isinstance(kind, Int | Bool | Ptr) and not (isinstance(kind, Float) and kind.bits > 16):
        raise reader.wrong(str(kind), "arguments are integers, f32, f64, bool and pointers")
    return kind


class _Reader:
    def __init__(self, data: bytes, field: str) -> None:
        self.data, self.field, self.at = data, field, 0

    def wrong(self, value: object, limit: str) -> InvalidField:
        return InvalidField(self.field, value, limit)

    def byte(self) -> int:
        if self.at >= len(self.data):
            raise self.wrong(f"{len(self.data)} bytes", "its type goes on behind them")
        self.at += 1
        return self.data[self.at - 1]

    def name(self) -> str:
        n = self.byte()
        raw = self.data[self.at : self.at + n]
        self.at += n
        try:
            text = raw.decode()
        except UnicodeDecodeError:
            raise self.wrong(raw, "names are UTF-8") from None
        if len(raw) < n or not text.isidentifier():
            raise self.wrong(repr(text), "a name in a type is an identifier")
        return text

    def type(self, depth: int) -> Type:
        tag = self.byte()
        if depth > _MAX_DEPTH:
            raise self.wrong(f"{depth} types inside each other", f"at most {_MAX_DEPTH}")
        if tag < len(_SCALARS):
            return _SCALARS[tag]
        if tag == _POINTER:
            space = self.byte()
            if space not in _SPACES:
                raise self.wrong(f"address space {space}", "pointers are to 1 (global) or 4 (constant)")
            return Ptr(self.type(depth + 1), Space(space))
        if tag == _STRUCT:
            name = self.name()
            n = self.byte()
            if not n:
                raise self.wrong(f"struct {name} without fields", "a struct has 1 to 255")
            return Struct(name, tuple((self.name(), self.type(depth + 1)) for _ in range(n)))
        raise self.wrong(f"{tag:#04x}", "a type is a scalar (0x00 to 0x0c), a pointer (0x40) or a struct (0x80)")

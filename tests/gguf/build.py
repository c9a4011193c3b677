"""GGUF bytes put together field by field, without the writer, so that tests can get any field wrong."""

from __future__ import annotations

import struct
from collections.abc import Sequence

from zinc_rt.gguf import ValueType

U32 = struct.Struct("<I")
U64 = struct.Struct("<Q")


def text(value: str | bytes, length: int | None = None) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return U64.pack(len(raw) if length is None else length) + raw


def scalar(kind: ValueType, code: str, value: float) -> bytes:
    return U32.pack(kind) + struct.pack("<" + code, value)


def u32(value: int) -> bytes:
    return scalar(ValueType.UINT32, "I", value)


def string(value: str | bytes) -> bytes:
    return U32.pack(ValueType.STRING) + text(value)


def array_body(item: int, items: Sequence[bytes], count: int | None = None) -> bytes:
    return U32.pack(item) + U64.pack(len(items) if count is None else count) + b"".join(items)


def array(item: int, items: Sequence[bytes], count: int | None = None) -> bytes:
    return U32.pack(ValueType.ARRAY) + array_body(item, items, count)


def strings(values: Sequence[str | bytes]) -> bytes:
    return array(ValueType.STRING, [text(v) for v in values])


def key(name: str | bytes, value: bytes) -> bytes:
    return text(name) + value


def tensor(name: str | bytes, dims: Sequence[int], kind: int, offset: int, n_dims: int | None = None) -> bytes:
    """`dims` in the file's order: row elements first."""
    count = len(dims) if n_dims is None else n_dims
    return text(name) + U32.pack(count) + b"".join(U64.pack(n) for n in dims) + struct.pack("<IQ", kind, offset)


def file(
    keys: Sequence[bytes] = (),
    tensors: Sequence[bytes] = (),
    data: bytes = b"",
    *,
    version: int = 3,
    n_keys: int | None = None,
    n_tensors: int | None = None,
    alignment: int = 32,
    magic: bytes = b"GGUF",
) -> bytes:
    head = magic + struct.pack(
        "<IQQ",
        version,
        len(tensors) if n_tensors is None else n_tensors,
        len(keys) if n_keys is None else n_keys,
    )
    head += b"".join(keys) + b"".join(tensors)
    return head + bytes(-len(head) % alignment) + data if data else head


def small() -> bytes:
    """A file of a few hundred bytes with something of everything, valid in all parts."""
    v = ValueType
    keys = [
        key("general.architecture", string("llama")),
        key("general.alignment", u32(32)),
        key("u8", scalar(v.UINT8, "B", 200)),
        key("i64", scalar(v.INT64, "q", -(2**40))),
        key("f32", scalar(v.FLOAT32, "f", 0.5)),
        key("yes", scalar(v.BOOL, "B", 1)),
        key("tokens", strings(["a", "", "é", "🙂" * 3, "x" * 300, "tail"])),
        key("scores", array(v.FLOAT32, [struct.pack("<f", x) for x in (0.0, -1.5, 3.0)])),
        key("flags", array(v.BOOL, [b"\0", b"\1"])),
        key(
            "nested",
            array(v.ARRAY, [array_body(v.INT16, [b"\1\0", b"\2\0"]), array_body(v.STRING, [text("q")])]),
        ),
    ]
    tensors = [
        tensor("token_embd.weight", [32, 3], 8, 0),  # Q8_0: 3 x 34 bytes
        tensor("norm.weight", [5], 0, 128),  # F32
        tensor("future.weight", [32, 2], 31, 160),  # Q4_0_4_4
    ]
    return file(keys, tensors, bytes(i % 251 for i in range(160 + 36)))

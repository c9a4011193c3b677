"""Metadata values as bytes, the inverse of what `metadata` decodes."""

from __future__ import annotations

import struct
from typing import Any, Final

import numpy as np

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import GGUFError
from zinc_rt.gguf.types import SCALAR_CODES, SCALAR_DTYPES, ValueType
from zinc_rt.utils.checks import show

_FLOATS: Final = (ValueType.FLOAT32, ValueType.FLOAT64)
# Value types by dtype kind and size, for ndarrays; a bool array is its own case.
_BY_DTYPE: Final = {code[1:]: t for t, code in SCALAR_DTYPES.items() if t is not ValueType.BOOL}


def _is_array(value: Any) -> bool:
    return isinstance(value, (list, tuple, np.ndarray))


def infer_type(value: Any) -> ValueType:
    """The value type that a Python value calls for; for arrays, that of the innermost items."""
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind != "O":
        return _infer_dtype(value.dtype)
    if _is_array(value):
        kinds = {infer_type(item) for item in value}
        if not kinds:
            raise GGUFError("an empty array needs an explicit type")
        ints = [k for k in (ValueType.UINT64, ValueType.INT64, ValueType.INT32) if k in kinds]
        if len(kinds) > 1 and len(ints) == len(kinds):
            return ints[0]  # the widest that occurred; a value that does not fit is found when encoded
        if len(kinds) > 1:
            raise GGUFError(f"mixes items of types {', '.join(sorted(k.name for k in kinds))}")
        return kinds.pop()
    if isinstance(value, bool):
        return ValueType.BOOL
    if isinstance(value, str):
        return ValueType.STRING
    if isinstance(value, float):
        return ValueType.FLOAT32
    if isinstance(value, int):
        if -(1 << 31) <= value < 1 << 31:
            return ValueType.INT32
        return ValueType.INT64 if value < 1 << 63 else ValueType.UINT64
    raise GGUFError(f"{show(value)} is a {type(value).__name__}, which metadata cannot hold")


def _infer_dtype(dtype: np.dtype[Any]) -> ValueType:
    if dtype.kind == "b":
        return ValueType.BOOL
    if dtype.kind == "U":
        return ValueType.STRING
    kind = _BY_DTYPE.get(f"{dtype.kind}{dtype.itemsize}")
    if kind is None:
        raise GGUFError(f"dtype {dtype} has no metadata type")
    return kind


def encode_text(text: str, *, limit: int = limits.MAX_METADATA_BYTES) -> bytes:
    """u64 length, then UTF-8."""
    if not isinstance(text, str):
        raise GGUFError(f"{show(text)} is not a string")
    try:
        raw = text.encode("utf-8")
    except UnicodeEncodeError as error:
        raise GGUFError(f"{show(text)} cannot be written as UTF-8: {error.reason}") from error
    if len(raw) > limit:
        raise GGUFError(f"a string of {len(raw)} bytes, the limit is {limit}")
    return struct.pack("<Q", len(raw)) + raw


def encode_value(value: Any, leaf: ValueType) -> bytes:
    """u32 value type, then the value; `leaf` is the type of a scalar or of the innermost array items."""
    if leaf is ValueType.ARRAY:
        raise GGUFError("the type of an array is given by its items; pass the type of those")
    if _is_array(value):
        return struct.pack("<I", ValueType.ARRAY) + _encode_array(value, leaf, 0)
    return struct.pack("<I", leaf) + _encode_scalar(value, leaf)


def _encode_scalar(value: Any, kind: ValueType) -> bytes:
    if isinstance(value, np.generic):
        value = value.item()
    if kind is ValueType.STRING:
        return encode_text(value)
    is_bool = isinstance(value, bool)
    if is_bool != (kind is ValueType.BOOL) or not isinstance(value, (int, float) if kind in _FLOATS else int):
        raise GGUFError(f"{show(value)} is no value of type {kind.name}")
    try:
        return struct.pack(SCALAR_CODES[kind], value)
    except (OverflowError, struct.error) as error:
        raise GGUFError(f"{show(value)} does not fit {kind.name}") from error


def _encode_array(values: Any, leaf: ValueType, depth: int) -> bytes:
    if depth >= limits.MAX_DEPTH:
        raise GGUFError(f"arrays nested more than {limits.MAX_DEPTH} deep")
    if isinstance(values, np.ndarray):
        if values.ndim != 1:
            raise GGUFError(f"an array of {values.ndim} dimensions; pass a list of one-dimensional ones")
        if leaf is not ValueType.STRING and _infer_dtype(values.dtype) is leaf:
            raw = values.astype(SCALAR_DTYPES[leaf]).tobytes()
            return struct.pack("<IQ", leaf, len(values)) + raw
        values = values.tolist()
    nested = [_is_array(item) for item in values]
    if any(nested):
        if not all(nested):
            raise GGUFError("mixes arrays and plain items")
        head = struct.pack("<IQ", ValueType.ARRAY, len(values))
        return head + b"".join(_encode_array(item, leaf, depth + 1) for item in values)
    return struct.pack("<IQ", leaf, len(values)) + b"".join(_encode_scalar(item, leaf) for item in values)

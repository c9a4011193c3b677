"""Reading safetensors files: a length, a JSON directory, and the tensors' bytes, which stay in the mapped file.

Our own reader, as the `safetensors` package hands out NumPy arrays: NumPy has no bfloat16, and an array is a whole
tensor, where rows are needed as they are stored. The format is described in that package's README.
"""

from __future__ import annotations

import json
import math
import struct
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.converting.errors import ConvertError
from zinc_rt.gguf.source import FileBytes
from zinc_rt.gguf.types import GGMLType
from zinc_rt.utils.checks import printable, show

U8 = NDArray[np.uint8]

ITEM_BYTES: Final = {
    "BOOL": 1, "U8": 1, "I8": 1, "F8_E4M3": 1, "F8_E5M2": 1, "F8_E8M0": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2,
    "I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8,
}  # fmt: skip
"""Bytes of an element by the format's names."""
FLOATS: Final = {"F32": GGMLType.F32, "F16": GGMLType.F16, "BF16": GGMLType.BF16}
"""The types that weights are read in."""
_LARGEST_HEADER: Final = 100_000_000
"""Bytes; the limit of the format's own library."""
_MOST_DIMS: Final = 64
"""NumPy's limit, in which the library hands tensors out."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A tensor in a file: its bytes are those from `begin` to `end` of the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    begin: int
    end: int
    file: FileBytes

    def flat(self) -> U8:
        """Its bytes, a read-only view of the mapped file. Raises `FileChanged`."""
        return self.file.view(self.begin, self.end - self.begin)

    def rows(self, which: slice | NDArray[np.intp], size: int) -> U8:
        """Some rows of so many bytes: uint8[rows, size], a view for a slice. Raises `FileChanged`."""
        return self.flat().reshape(-1, size)[which]

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""
        return (self.end - self.begin) // size

    def release(self) -> None:
        """Free the memory behind its bytes; views of them read the file again."""
        self.file.release(self.begin, self.end - self.begin)


def open_safetensors(path: Path) -> tuple[FileBytes, Mapping[str, Stored]]:
    """A file, which the caller closes, and its tensors by name, in the order of their bytes.

    Raises FileAccessError, and `ConvertError` for a file that breaks the format: a directory that is no JSON object or
    longer than the file, an unknown type, a size that does not fit the shape, a name twice, bytes that belong to two
    tensors or to none.
    """
    source = FileBytes(path)
    try:
        return source, _tensors(source)
    except BaseException:
        source.close()
        raise


def _tensors(source: FileBytes) -> Mapping[str, Stored]:
    shown = source.shown_path
    if source.size < 8:
        raise ConvertError(f"{shown} has {source.size} bytes, too few for a safetensors file; fetch it again")
    (length,) = struct.unpack("<Q", source.read(0, 8))
    if length > min(source.size - 8, _LARGEST_HEADER):
        raise ConvertError(
            f"{shown} announces a directory of {length} bytes, more than it has or than {_LARGEST_HEADER}; it is no"
            " safetensors file, or incomplete: fetch it again"
        )
    try:
        header = json.loads(source.read(8, length), object_pairs_hook=lambda pairs: _object(pairs, shown))
    except (ValueError, RecursionError) as error:
        raise ConvertError(f"{shown} has a directory that is no JSON: {error}; fetch it again") from error
    if not isinstance(header, dict):
        raise ConvertError(f"{shown} has a directory that is no JSON object; fetch it again")
    header.pop("__metadata__", None)
    data = 8 + length
    tensors = [_entry(source, name, entry, data) for name, entry in header.items()]
    tensors.sort(key=lambda t: (t.begin, t.end))
    at = data
    for tensor in tensors:
        if tensor.begin != at:
            what = "overlaps the one before it" if tensor.begin < at else "leaves bytes before it to no tensor"
            raise ConvertError(f"{shown}: tensor {show(tensor.name)} {what}; the file is damaged: fetch it again")
        at = tensor.end
    if at != source.size:
        raise ConvertError(f"{shown} has {source.size} bytes, its tensors end at byte {at}; fetch it again")
    return {tensor.name: tensor for tensor in tensors}


def _object(pairs: list[tuple[str, Any]], shown: str) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        twice = next(name for name, n in Counter(name for name, _ in pairs).items() if n > 1)
        raise ConvertError(f"{shown} has the name {show(twice)} twice in its directory; the file is damaged")
    return made


def _entry(source: FileBytes, name: str, entry: Any, data: int) -> Stored:
    def bad(problem: str) -> ConvertError:
        return ConvertError(f"{source.shown_path}: tensor {show(name)} {problem}; the file is damaged")

    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise bad("has no dtype, shape and data_offsets")
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        raise bad(f"is of type {printable(str(dtype))}, which is not known; known are {', '.join(ITEM_BYTES)}")
    if not _are_counts(shape):
        raise bad(f"has the shape {show(shape)}")
    if not _are_counts(offsets) or len(offsets) != 2 or not offsets[0] <= offsets[1]:
        raise bad(f"has the offsets {show(offsets)}")
    begin, end = data + offsets[0], data + offsets[1]
    if end > source.size:
        raise ConvertError(
            f"{source.shown_path} ends at byte {source.size}, but tensor {show(name)} at {end}; the file is"
            " incomplete: fetch it again"
        )
    if len(shape) > _MOST_DIMS:
        raise bad(f"has {len(shape)} dimensions, at most {_MOST_DIMS} are read")
    needed = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != needed:
        raise bad(f"of shape {show(tuple(shape))} takes {show(needed)} bytes as {dtype}, and has {end - begin}")
    return Stored(name, dtype, tuple(shape), begin, end, source)


def _are_counts(values: Any) -> bool:
    return isinstance(values, list) and all(type(n) is int and 0 <= n < 1 << 62 for n in values)

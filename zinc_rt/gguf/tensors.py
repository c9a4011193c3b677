"""The tensor directory: name, shape, type and offset of every tensor, all checked at opening."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import DAMAGED, HOSTILE, INCOMPLETE, OTHER_FORMAT, GGUFError, UnsupportedTensorType
from zinc_rt.gguf.scan import FileCursor
from zinc_rt.gguf.types import GGMLType
from zinc_rt.utils.checks import show

_TYPES = {int(t): t for t in GGMLType}
_MAX_ELEMENTS = (1 << 63) - 1  # ggml counts in int64


@dataclass(frozen=True, slots=True)
class TensorInfo:
    """One tensor of a file.

    `shape` is in NumPy order, rows before row elements: (rows, n_in), with further dimensions in front and
    (n,) for a vector. `offset` is absolute in the file; the data take `nbytes` from there.
    """

    name: str
    shape: tuple[int, ...]
    type: GGMLType
    offset: int
    nbytes: int

    @property
    def n_elements(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def n_rows(self) -> int:
        """Number of rows of the last dimension: 1 for a vector."""
        return math.prod(self.shape[:-1])

    @property
    def row_bytes(self) -> int:
        """Bytes of a row."""
        return self.nbytes // self.n_rows


def scan_tensors(cursor: FileCursor, count: int) -> list[tuple[TensorInfo, int]]:
    """Read `count` directory entries from the cursor on: (tensor, file offset of its entry).

    The offsets in the tensors are still relative to the data section, whose start is known only after this.
    """
    path = cursor.source.shown_path
    if count > limits.MAX_TENSORS:
        raise GGUFError(
            f"announces {count} tensors, the limit is {limits.MAX_TENSORS}",
            path=path,
            offset=8,
            hint=HOSTILE,
        )
    entries: dict[str, tuple[TensorInfo, int]] = {}
    for number in range(count):
        start = cursor.pos
        name = cursor.name(f"the name of tensor {number + 1} of {count}", limits.MAX_NAME_BYTES)
        if name in entries:
            raise GGUFError(
                f"has the tensor {show(name)} twice, the first time at byte {entries[name][1]}",
                path=path,
                offset=start,
                hint=DAMAGED,
            )
        entries[name] = (_entry(cursor, name, start), start)
    return list(entries.values())


def _entry(cursor: FileCursor, name: str, start: int) -> TensorInfo:
    label = f"the entry of tensor {show(name)}"

    def bad(problem: str) -> GGUFError:
        return GGUFError(
            f"tensor {show(name)} {problem}",
            path=cursor.source.shown_path,
            offset=start,
            hint=DAMAGED,
        )

    n_dims = cursor.u32(label)
    if n_dims > limits.MAX_DIMS:
        raise bad(f"has {n_dims} dimensions, the format allows {limits.MAX_DIMS}")
    dims = [cursor.u64(label) for _ in range(n_dims)]  # row elements first, as ggml counts
    number = cursor.u32(label)
    offset = cursor.u64(label)
    if 0 in dims:
        raise bad(f"has the shape {_shape(dims)}; no dimension may be 0")
    if math.prod(dims) > _MAX_ELEMENTS:
        raise bad(f"has the shape {_shape(dims)}, more than 2^63 elements")
    if number not in _TYPES:
        raise UnsupportedTensorType(
            f"tensor {show(name)} has type number {number}, the highest one known is {max(GGMLType)}",
            path=cursor.source.shown_path,
            offset=start,
            hint="the file is damaged or needs a newer version of this program",
        ).with_advice(OTHER_FORMAT)
    kind = _TYPES[number]
    n_in = dims[0] if dims else 1
    if n_in % kind.block_size:
        size = kind.block_size
        raise bad(f"has rows of {n_in} elements, not a multiple of the {size} of a {kind.name} block")
    nbytes = math.prod(dims[1:]) * kind.row_bytes(n_in)
    return TensorInfo(name, tuple(reversed(dims)), kind, offset, nbytes)


def _shape(dims: list[int]) -> str:
    return "x".join(str(n) for n in reversed(dims))


def place_tensors(
    entries: list[tuple[TensorInfo, int]], data_start: int, alignment: int, file_size: int, path: str
) -> dict[str, TensorInfo]:
    """The directory with absolute offsets. Checks alignment, file end and overlap; raises GGUFError."""
    placed: dict[str, TensorInfo] = {}
    for tensor, entry in entries:
        if tensor.offset % alignment:
            raise GGUFError(
                f"tensor {show(tensor.name)} lies at offset {tensor.offset} of the data section, "
                f"not a multiple of the alignment {alignment}",
                path=path,
                offset=entry,
                hint=DAMAGED,
            )
        begin = data_start + tensor.offset
        if begin + tensor.nbytes > file_size:
            raise GGUFError(
                f"ends at byte {file_size}, but tensor {show(tensor.name)} takes bytes {begin} to "
                f"{begin + tensor.nbytes - 1}",
                path=path,
                offset=entry,
                hint=INCOMPLETE,
            )
        placed[tensor.name] = TensorInfo(tensor.name, tensor.shape, tensor.type, begin, tensor.nbytes)
    for a, b in pairwise(sorted(placed.values(), key=lambda t: t.offset)):
        if a.offset + a.nbytes > b.offset:
            raise GGUFError(
                f"tensors {show(a.name)} and {show(b.name)} overlap: the first ends before byte "
                f"{a.offset + a.nbytes}, the second starts at {b.offset}",
                path=path,
                offset=b.offset,
                hint=DAMAGED,
            )
    return placed

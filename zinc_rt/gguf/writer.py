"""Writing a GGUF file: collect metadata and tensors, then write all of it or nothing."""

from __future__ import annotations

import math
import os
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, BinaryIO, Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf import limits
from zinc_rt.gguf.encode import encode_text, encode_value, infer_type
from zinc_rt.gguf.errors import GGUFError
from zinc_rt.gguf.part import DEFAULT_ALIGNMENT, MAGIC, VERSIONS
from zinc_rt.gguf.types import GGMLType, ValueType
from zinc_rt.utils.atomic_write import whole_file
from zinc_rt.utils.checks import printable, show

Parts = Callable[[], Iterable[NDArray[np.uint8]]]
"""Gives the bytes of a tensor, in parts and in order."""

_WRITE_BYTES: Final = 16 << 20  # of a tensor at once, so that a memory-mapped source is not read in whole


class GGUFWriter:
    """Collects a file's content; `write` puts it on disk in one step.

        writer = GGUFWriter("model.gguf")
        writer.add("general.architecture", "llama")
        writer.add("llama.block_count", 2, ValueType.UINT32)
        writer.add_tensor("output_norm.weight", weight, GGMLType.F32, (64,))
        writer.write()

    Keys and tensors keep the order in which they were added. Raises GGUFError for what the format cannot
    hold, as early as it is known.
    """

    def __init__(self, path: str | os.PathLike[str], *, alignment: int = DEFAULT_ALIGNMENT, version: int = 3) -> None:
        """`alignment` in bytes: a power of two, at least 8 as the specification asks."""
        self.path = os.fsdecode(path)
        self._shown = printable(self.path)
        self.alignment = alignment
        self.version = version
        self._values: dict[str, bytes] = {}
        self._tensors: dict[str, tuple[bytes, int, Parts]] = {}  # entry without offset, bytes, what they come from
        if version not in VERSIONS:
            raise self._error(f"version {version} cannot be written, only {VERSIONS}")
        if alignment < 8 or alignment & (alignment - 1) or alignment > limits.MAX_ALIGNMENT:
            raise self._error(f"alignment {alignment} is not a power of two between 8 and {limits.MAX_ALIGNMENT}")
        if alignment != DEFAULT_ALIGNMENT:
            self.add("general.alignment", alignment, ValueType.UINT32)

    def _error(self, problem: str) -> GGUFError:
        return GGUFError(problem, path=self._shown)

    def add(self, key: str, value: Any, type: ValueType | None = None) -> None:
        """Add a metadata value.

        `value` is a bool, int, float or str, or an array: a list, tuple or one-dimensional `np.ndarray`,
        lists of arrays included. `type` is the value type of a scalar, of the items of an array, or of the
        innermost items of nested arrays. Without it: bool, string; FLOAT32 for a float; the dtype for an
        ndarray; INT32 for ints that fit, else INT64, else UINT64. An empty list needs `type`.
        """
        if key in self._values:
            raise self._error(f"the key {show(key)} was added before")
        if key == "general.alignment" and (value != self.alignment or type is not ValueType.UINT32):
            raise self._error("general.alignment is set by the argument `alignment`")
        try:
            coded = encode_text(key, limit=limits.MAX_KEY_BYTES)
            self._values[key] = coded + encode_value(value, infer_type(value) if type is None else type)
        except GGUFError as error:
            raise self._error(f"the value of {show(key)}: {error.problem}") from error

    def add_stored(self, key: str, stored: bytes) -> None:
        """Add a metadata value as another file has it: `stored` is what `Metadata.stored` gives. Not for
        `general.alignment`, which is set by the argument `alignment`.
        """
        if key in self._values:
            raise self._error(f"the key {show(key)} was added before")
        self._values[key] = encode_text(key, limit=limits.MAX_KEY_BYTES) + stored

    def add_tensor(self, name: str, data: NDArray[Any] | bytes, type: GGMLType, shape: Sequence[int]) -> None:
        """Add a tensor of `shape`, in NumPy order (rows, n_in), whose bytes as `type` are `data`.

        `data` may be an array of any dtype whose bytes, in C order, are the tensor's; it is not copied, and
        must not change before `write`.
        """
        try:
            raw = _as_bytes(data)
        except GGUFError as error:
            raise self._error(f"tensor {show(name)}: {error.problem}") from error
        needed = self.add_parts(name, lambda: (raw,), type, shape)
        if raw.size != needed:
            del self._tensors[name]
            dims = tuple(int(n) for n in shape)
            raise self._error(
                f"tensor {show(name)} of shape {dims} takes {needed} bytes as {type.name}, got {raw.size}"
            )

    def add_parts(self, name: str, parts: Parts, type: GGMLType, shape: Sequence[int]) -> int:
        """Add a tensor whose bytes are made when the file is written, for tensors that do not fit memory: `parts` is
        called then, and gives uint8 arrays in order. Returns how many bytes they have to have together.
        """
        if name in self._tensors:
            raise self._error(f"the tensor {show(name)} was added before")
        dims = [int(n) for n in shape]
        if len(dims) > limits.MAX_DIMS or any(n <= 0 for n in dims):
            raise self._error(
                f"tensor {show(name)} has shape {tuple(dims)}; the format takes up to {limits.MAX_DIMS} "
                "dimensions, all above 0"
            )
        try:
            coded = encode_text(name, limit=limits.MAX_NAME_BYTES)
            needed = math.prod(dims[:-1]) * type.row_bytes(dims[-1] if dims else 1)
        except GGUFError as error:
            raise self._error(f"tensor {show(name)}: {error.problem}") from error
        entry = coded + struct.pack(f"<I{len(dims)}QI", len(dims), *reversed(dims), type)
        self._tensors[name] = (entry, needed, parts)
        return needed

    @property
    def size(self) -> int:
        """Bytes that the file will take."""
        head = len(self._head())
        return head + self._padding(head) + sum(n + self._padding(n) for _, n, _ in self._tensors.values())

    def write(self) -> int:
        """Write the file and return its size in bytes.

        After any failure no half-written file stays, and an older file of that name is unchanged (`whole_file`).
        Raises GGUFError.
        """
        size = 0
        try:
            with whole_file(self.path) as out:
                for part in self._parts():
                    _write_all(out, part)
                    size += len(part)
        except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
            reason = getattr(error, "strerror", None) or str(error)
            raise GGUFError(
                f"cannot be written: {reason}",
                path=self._shown,
                hint="nothing was left behind; check space and permissions",
            ) from error
        return size

    def _head(self) -> bytes:
        head = [struct.pack("<4sIQQ", MAGIC, self.version, len(self._tensors), len(self._values))]
        head += self._values.values()
        offset = 0
        for entry, size, _ in self._tensors.values():
            head.append(entry + struct.pack("<Q", offset))
            offset += size + self._padding(size)
        return b"".join(head)

    def _parts(self) -> Iterator[bytes | memoryview]:
        head = self._head()
        yield head
        # Also without tensors: readers of whole files expect the data section to start inside the file.
        yield bytes(self._padding(len(head)))
        for name, (_, size, parts) in self._tensors.items():
            given = 0
            for raw in parts():
                given += raw.size
                if given <= size:
                    yield raw.reshape(-1).data
            if given != size:
                raise self._error(f"tensor {show(name)} takes {size} bytes, {given} were given")
            yield bytes(self._padding(size))

    def _padding(self, size: int) -> int:
        return -size % self.alignment


def _as_bytes(data: NDArray[Any] | bytes) -> NDArray[np.uint8]:
    if isinstance(data, np.ndarray):
        if data.dtype.hasobject:
            raise GGUFError(f"cannot store an array of dtype {data.dtype}")
        little = data.astype(data.dtype.newbyteorder("<"), copy=False)
        return np.ascontiguousarray(little).reshape(-1).view(np.uint8)
    return np.frombuffer(data, np.uint8)


def _write_all(out: BinaryIO, part: bytes | memoryview) -> None:
    for start in range(0, len(part), _WRITE_BYTES):
        out.write(part[start : start + _WRITE_BYTES])

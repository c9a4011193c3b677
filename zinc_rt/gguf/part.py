"""One GGUF file on disk: `GGUFPart`."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NoReturn

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import DAMAGED, INCOMPLETE, GGUFError
from zinc_rt.gguf.metadata import Metadata, ValueInfo, scan_metadata
from zinc_rt.gguf.scan import FileCursor
from zinc_rt.gguf.source import FileBytes, FileStamp, converting
from zinc_rt.gguf.tensors import TensorInfo, place_tensors, scan_tensors
from zinc_rt.gguf.types import ValueType

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
_BLOCK: Final = 4 << 20
_HEADER: Final = struct.Struct("<4sIQQ")  # magic, version, tensor count, key count

# Other files that are passed by mistake, by their first bytes.
_OTHERS: Final = (
    (b"version https://git-lfs", "a Git LFS pointer; fetch the real file with `git lfs pull`"),
    (b"<!DOCTYPE", "a web page, not the file behind it"),
    (b"<html", "a web page, not the file behind it"),
    (b"PK\x03\x04", "a zip or PyTorch file; convert it to GGUF"),
    (b"tjgg", "a GGJT file, the format before GGUF; convert the model again"),
    (b"lmgg", "a GGML file, the format before GGUF; convert the model again"),
    (b"fmgg", "a GGMF file, the format before GGUF; convert the model again"),
    (b"FUGG", "a GGUF file in big-endian byte order; convert the model for little endian"),
)


class GGUFPart:
    """One file on disk: its directory, checked at opening, and its bytes. `reader.GGUFFile` is made of these.

    Attributes:
        path: the file's path as given; `shown_path` is the same for a message.
        version, alignment, file_size, data_offset, metadata: as in `GGUFFile`.
        tensors: the tensors in this file by name, in file order.
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        """Open a file. Raises what `GGUFFile.open` raises."""
        self._source = source = FileBytes(path)
        try:
            self.path, self.shown_path, self.file_size = source.path, source.shown_path, source.size
            self.version, n_tensors, n_keys = _header(source)
            cursor = FileCursor(source, _HEADER.size)
            infos = scan_metadata(cursor, n_keys)
            self.metadata = Metadata(source, infos)
            self.alignment = _alignment(self.metadata, infos, source)
            entries = scan_tensors(cursor, n_tensors)
            self.data_offset = -(-cursor.pos // self.alignment) * self.alignment
            self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
                place_tensors(entries, self.data_offset, self.alignment, source.size, source.shown_path)
            )
        except BaseException:
            source.close()
            raise

    @property
    def stamp(self) -> FileStamp:
        """Which file it is, and as of which time."""
        return self._source.stamp

    def blocks(self) -> Iterator[bytes]:
        """All bytes of the file in order, a few MB at a time. Raises FileChanged, FileAccessError."""
        for offset in range(0, self.file_size, _BLOCK):
            yield self._source.read(offset, min(_BLOCK, self.file_size - offset))

    def raw(self, tensor: TensorInfo) -> NDArray[np.uint8]:
        """The stored bytes of one of its tensors: uint8[n_rows, row_bytes]. Raises FileChanged."""
        return self._source.view(tensor.offset, tensor.nbytes).reshape(tensor.n_rows, tensor.row_bytes)

    def release(self, tensor: TensorInfo) -> None:
        """Free the memory behind the bytes of one of its tensors."""
        self._source.release(tensor.offset, tensor.nbytes)

    def check_unwritten(self) -> None:
        """Raise FileChanged when the file was written to since it was opened."""
        self._source.check_unwritten()

    def check_unchanged(self) -> None:
        """Raise FileChanged as `check_unwritten`, or if another file is at its path now."""
        self._source.check_unchanged()

    def close(self) -> None:
        """Release the file."""
        self._source.close()


def _header(source: FileBytes) -> tuple[int, int, int]:
    """Version, tensor count, key count."""
    start = source.read(0, min(source.size, _HEADER.size))
    if not start.startswith(MAGIC):
        _not_gguf(start, source)
    if len(start) < _HEADER.size:
        raise GGUFError(
            f"ends at byte {source.size}, the header alone takes {_HEADER.size}",
            path=source.shown_path,
            hint=INCOMPLETE,
        )
    _, version, n_tensors, n_keys = _HEADER.unpack(start)
    if version in VERSIONS:
        return version, n_tensors, n_keys
    if version and version & 0xFFFF == 0:
        raise GGUFError(
            "is written in big-endian byte order, which is not read here",
            path=source.shown_path,
            offset=4,
            hint="convert the model for little endian",
        )
    raise GGUFError(
        f"has GGUF version {version}; versions 2 and 3 are read here",
        path=source.shown_path,
        offset=4,
        hint="convert the model again" if version < min(VERSIONS) else "the file is damaged or too new",
    )


def _not_gguf(start: bytes, source: FileBytes) -> NoReturn:
    if not start:
        raise GGUFError("is empty", path=source.shown_path, hint="fetch the file again")
    looks = next((what for magic, what in _OTHERS if start.lower().startswith(magic.lower())), None)
    if looks:
        raise GGUFError(f"is {looks}", path=source.shown_path)
    if start[8:9] == b"{" and 2 <= int.from_bytes(start[:8], "little") <= source.size - 8:
        folder = os.path.dirname(source.shown_path) or "."
        raise GGUFError("is a safetensors file", path=source.shown_path, hint=converting(folder))
    raise GGUFError(
        f"is not a GGUF file: it starts with {start[:4]!r}, not {MAGIC!r}",
        path=source.shown_path,
        hint="give the path of a .gguf file",
    )


def _alignment(metadata: Metadata, infos: Mapping[str, ValueInfo], source: FileBytes) -> int:
    info = infos.get("general.alignment")
    if info is None:
        return DEFAULT_ALIGNMENT
    if info.type is not ValueType.UINT32:
        raise GGUFError(
            f"general.alignment has type {info}, which must be uint32",
            path=source.shown_path,
            offset=info.offset,
            hint=DAMAGED,
        )
    value: int = metadata["general.alignment"]
    if value == 0 or value & (value - 1) or value > limits.MAX_ALIGNMENT:
        raise GGUFError(
            f"general.alignment is {value}, which must be a power of two up to {limits.MAX_ALIGNMENT}",
            path=source.shown_path,
            offset=info.offset,
            hint=DAMAGED,
        )
    return value

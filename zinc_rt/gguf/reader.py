"""Reading of GGUF files: `GGUFFile`."""

from __future__ import annotations

import os
import struct
from collections.abc import Mapping
from types import MappingProxyType, TracebackType
from typing import Final, NoReturn, Self

import numpy as np
from numpy.typing import NDArray

from zinc_rt.checks import show
from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import (
    DAMAGED,
    INCOMPLETE,
    InvalidMetadata,
    MissingTensor,
    NotGGUF,
    TruncatedFile,
    UnsupportedVersion,
    WrongMetadataType,
)
from zinc_rt.gguf.metadata import Metadata, ValueInfo, get, scan_metadata
from zinc_rt.gguf.scan import Cursor
from zinc_rt.gguf.source import FileBytes
from zinc_rt.gguf.tensors import TensorInfo, place_tensors, scan_tensors
from zinc_rt.gguf.types import ValueType

MAGIC: Final = b"GGUF"
VERSIONS: Final = (2, 3)
DEFAULT_ALIGNMENT: Final = 32
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


class GGUFFile:
    """An open GGUF file: a directory of metadata and tensors; data are read when asked for.

    Attributes:
        path: the file's path as given.
        version: 2 or 3.
        alignment: bytes; tensor data start at multiples of it.
        file_size: bytes at the time of opening.
        data_offset: file offset where tensor data begin.
        metadata: `Metadata`, a mapping from key to value, decoded on first access.
        tensors: mapping from name to `TensorInfo`, in file order.
        n_parts: files that make up this one; 1 but for a split model.

    A context manager. Views from `raw` stay valid after `close`.
    """

    n_parts = 1

    def __init__(self, source: FileBytes) -> None:
        """Use `GGUFFile.open`. Reads and checks header, metadata layout and tensor directory."""
        self._source = source
        self.path = source.path
        self.file_size = source.size
        self.version, n_tensors, n_keys = _header(source)
        cursor = Cursor(source, _HEADER.size)
        infos = scan_metadata(cursor, n_keys)
        self.metadata = Metadata(source, infos)
        self.alignment = _alignment(self.metadata, infos, source)
        entries = scan_tensors(cursor, n_tensors)
        self.data_offset = -(-cursor.pos // self.alignment) * self.alignment
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            place_tensors(entries, self.data_offset, self.alignment, source.size, source.shown_path)
        )

    @staticmethod
    def open(path: str | os.PathLike[str]) -> GGUFFile:
        """Open a GGUF file and check its header, metadata layout and tensor directory. The first part of a split model
        opens with all its parts, as one file.

        Raises:
            FileAccessError: the file cannot be opened or read.
            NotGGUF, UnsupportedVersion: the file is of another kind or version.
            SplitMismatch: the file is another part of a split model, or its parts are not all there and of one model.
            GGUFError: the file is damaged or exceeds a limit (`errors.py` has all classes).
        """
        file = GGUFFile.open_one(path)
        try:
            if "split.count" in file.metadata:
                from zinc_rt.gguf.split import with_other_parts

                return with_other_parts(file)
        except BaseException:
            file.close()
            raise
        return file

    @classmethod
    def open_one(cls, path: str | os.PathLike[str]) -> Self:
        """Open this file alone, though it may be a part of a split model. Raises as `open`, but for SplitMismatch."""
        source = FileBytes(path)
        try:
            return cls(source)
        except BaseException:
            source.close()
            raise

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`. Raises MissingKey, WrongMetadataType."""
        return get(self.metadata, "general.architecture", str)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor: uint8[n_rows, row_bytes], a read-only view of the mapped file.

        A vector has one row. The operating system reads the pages when they are touched; should the file be
        truncated after this call, touching a page that is gone kills the process, as with any mapped file.
        Raises MissingTensor, and FileChanged when the file was written to.
        """
        tensor = self.tensor(name)
        return self._source.view(tensor.offset, tensor.nbytes).reshape(tensor.n_rows, tensor.row_bytes)

    def release(self, name: str) -> None:
        """Free the memory behind a tensor's bytes; views of it read the file again. Raises MissingTensor."""
        tensor = self.tensor(name)
        self._source.release(tensor.offset, tensor.nbytes)

    def check_unwritten(self) -> None:
        """Raise FileChanged when the file was written to since it was opened; costs about a microsecond."""
        self._source.check_unwritten()

    def check_unchanged(self) -> None:
        """Raise FileChanged as `check_unwritten`, or if another file is at its path now.

        Moving or removing it is no change.
        """
        self._source.check_unchanged()

    def tensor(self, name: str) -> TensorInfo:
        """The directory entry of a tensor. Raises MissingTensor."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingTensor(
                f"has no tensor {show(name)}",
                path=self._source.shown_path,
                hint=f"it has {len(self.tensors)} tensors; `zinc show` lists them",
            ) from None

    def close(self) -> None:
        """Release the file. Further reads raise FileChanged; values and views already taken stay valid."""
        self._source.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self._source.shown_path}: {len(self.tensors)} tensors, {len(self.metadata)} keys>"


def _header(source: FileBytes) -> tuple[int, int, int]:
    """Version, tensor count, key count."""
    start = source.read(0, min(source.size, _HEADER.size))
    if not start.startswith(MAGIC):
        _not_gguf(start, source)
    if len(start) < _HEADER.size:
        raise TruncatedFile(
            f"ends at byte {source.size}, the header alone takes {_HEADER.size}",
            path=source.shown_path,
            hint=INCOMPLETE,
        )
    _, version, n_tensors, n_keys = _HEADER.unpack(start)
    if version in VERSIONS:
        return version, n_tensors, n_keys
    if version and version & 0xFFFF == 0:
        raise UnsupportedVersion(
            "is written in big-endian byte order, which is not read here",
            path=source.shown_path,
            offset=4,
            hint="convert the model for little endian",
        )
    raise UnsupportedVersion(
        f"has GGUF version {version}; versions 2 and 3 are read here",
        path=source.shown_path,
        offset=4,
        hint="convert the model again" if version < min(VERSIONS) else "the file is damaged or too new",
    )


def _not_gguf(start: bytes, source: FileBytes) -> NoReturn:
    if not start:
        raise NotGGUF("is empty", path=source.shown_path, hint="fetch the file again")
    looks = next((what for magic, what in _OTHERS if start.lower().startswith(magic.lower())), None)
    if looks:
        raise NotGGUF(f"is {looks}", path=source.shown_path)
    raise NotGGUF(
        f"is not a GGUF file: it starts with {start[:4]!r}, not {MAGIC!r}",
        path=source.shown_path,
        hint="give the path of a .gguf file",
    )


def _alignment(metadata: Metadata, infos: Mapping[str, ValueInfo], source: FileBytes) -> int:
    info = infos.get("general.alignment")
    if info is None:
        return DEFAULT_ALIGNMENT
    if info.type is not ValueType.UINT32:
        raise WrongMetadataType(
            f"general.alignment has type {info}, which must be uint32",
            path=source.shown_path,
            offset=info.offset,
            hint=DAMAGED,
        )
    value: int = metadata["general.alignment"]
    if value == 0 or value & (value - 1) or value > limits.MAX_ALIGNMENT:
        raise InvalidMetadata(
            f"general.alignment is {value}, which must be a power of two up to {limits.MAX_ALIGNMENT}",
            path=source.shown_path,
            offset=info.offset,
            hint=DAMAGED,
        )
    return value

"""Reading of GGUF files: `GGUFFile`."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import MappingProxyType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.digest import content_sha256
from zinc_rt.gguf.errors import MissingKey
from zinc_rt.gguf.metadata import get
from zinc_rt.gguf.part import GGUFPart
from zinc_rt.gguf.split import join, open_parts
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.utils.checks import show
from zinc_rt.utils.closing import Closing


class GGUFFile(Closing):
    """An open GGUF file: a directory of metadata and tensors; data are read when asked for.

    A model that is split into several files is one of these, with the metadata of its first part and all tensors.

    Attributes:
        path: the path as given, of the first part.
        version: 2 or 3.
        alignment: bytes; tensor data start at multiples of it.
        file_size: bytes of all parts at the time of opening.
        data_offset: file offset where tensor data begin in the first part.
        metadata: `Metadata`, a mapping from key to value, decoded on first access.
        tensors: mapping from name to `TensorInfo`, in file order. An `offset` counts in the part that has the tensor.
        n_parts: files that make up this one.

    A context manager. Views from `raw` stay valid after `close`.
    """

    def __init__(self, parts: Sequence[GGUFPart]) -> None:
        """Use `GGUFFile.open`. Raises GGUFError."""
        first = parts[0]
        self._parts = tuple(parts)
        self._shown_path = first.shown_path
        self.path, self.version, self.metadata = first.path, first.version, first.metadata
        self.alignment, self.data_offset = first.alignment, first.data_offset
        self.file_size, self.n_parts = sum(part.file_size for part in parts), len(parts)
        self._homes = join(parts)
        self.tensors: Mapping[str, TensorInfo] = MappingProxyType(
            {name: part.tensors[name] for name, part in self._homes.items()}
        )

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Self:
        """Open a GGUF file and check its header, metadata layout and tensor directory. The first part of a split model
        opens with all its parts.

        Raises:
            FileAccessError: the file cannot be opened or read.
            GGUFError: the file is of another kind or version, is damaged or exceeds a limit; or it is another part of
                a split model, or its parts are not all there and of one model.
        """
        parts = open_parts(path)
        try:
            return cls(parts)
        except BaseException:
            for part in parts:
                part.close()
            raise

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths of all parts, in order."""
        return tuple(part.path for part in self._parts)

    @property
    def architecture(self) -> str:
        """The value of `general.architecture`. Raises MissingKey, GGUFError."""
        return get(self.metadata, "general.architecture", str)

    @cached_property
    def identity(self) -> bytes:
        """What tells this file from others in this process, 16 bytes: the tensor directory, and of each part the size,
        inode and time of the last write when it was opened.

        No hash of the contents: two copies of a model have different ones, and so has a file that was written anew.
        """
        digest = blake2b(digest_size=16, person=b"zinc gguf file")
        for part in self._parts:
            digest.update(repr((part.stamp, part.version, part.data_offset)).encode())
        for t in self.tensors.values():
            digest.update(repr((t.name, t.shape, int(t.type), t.offset, t.nbytes)).encode())
        return digest.digest()

    def sha256(self, folder: Path | None = None) -> str:
        """The SHA-256 of the contents, of all parts in order, hex: reads them all, which takes a while.

        folder: where it is kept for the next time, as `lang.cache.default_cache_dir` names it; None for nowhere. See
        `digest.content_sha256`. Raises FileChanged, FileAccessError.
        """
        return content_sha256(self._parts, folder)

    def raw(self, name: str) -> NDArray[np.uint8]:
        """The stored bytes of a tensor: uint8[n_rows, row_bytes], a read-only view of the mapped file.

        A vector has one row. The operating system reads the pages when they are touched; should the file be
        truncated after this call, touching a page that is gone kills the process, as with any mapped file.
        Raises MissingKey, and FileChanged when the file was written to.
        """
        tensor = self.tensor(name)
        return self._homes[name].raw(tensor)

    def rows(self, name: str, start: int, stop: int) -> NDArray[np.uint8]:
        """Rows of a tensor as `raw` gives them all: uint8[stop - start, row_bytes]. Raises what `raw` raises."""
        return self.raw(name)[start:stop]

    def release(self, name: str) -> None:
        """Free the memory behind a tensor's bytes; views of it read the file again. Raises MissingKey."""
        tensor = self.tensor(name)
        self._homes[name].release(tensor)

    @property
    def stamps(self) -> list[list[int]]:
        """Which files its parts are and as of which time: size, time of the last write, inode and device of each."""
        return [list(part.stamp) for part in self._parts]

    def check_unwritten(self) -> None:
        """Raise FileChanged when a part was written to since it was opened; costs about a microsecond for each."""
        for part in self._parts:
            part.check_unwritten()

    def check_unchanged(self) -> None:
        """Raise FileChanged as `check_unwritten`, or if another file is at the path of a part now.

        Moving or removing it is no change.
        """
        for part in self._parts:
            part.check_unchanged()

    def tensor(self, name: str) -> TensorInfo:
        """The directory entry of a tensor. Raises MissingKey."""
        try:
            return self.tensors[name]
        except KeyError:
            raise MissingKey(
                f"has no tensor {show(name)}",
                path=self._shown_path,
                hint=f"it has {len(self.tensors)} tensors; `zinc show` lists them",
            ) from None

    def close(self) -> None:
        """Release the file. Further reads raise FileChanged; values and views already taken stay valid."""
        for part in self._parts:
            part.close()

    def __repr__(self) -> str:
        return f"<GGUFFile {self._shown_path}: {len(self.tensors)} tensors, {len(self.metadata)} keys>"

"""The file of a model's matrices in tiles, as kernels read them: made once, found again at later starts.

An offset in the file is an offset in the memory that the matrices have (`StreamPlan.places`). A last page says what the
file is. The file appears complete or not at all; one that is short or has another last page is made anew.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from zinc_rt.backends.base import Bytes
from zinc_rt.backends.cpu.weights import Matrix
from zinc_rt.errors import BackendError
from zinc_rt.gguf import GGMLType
from zinc_rt.lang.folder import HALF_WRITTEN, Folder, FolderRefused
from zinc_rt.mem.disk import PAGE, DirectFile
from zinc_rt.mem.plan import format_bytes

SUFFIX: Final = ".tiles"
MAX_AGE: Final = 30 * 86400.0
"""Seconds after which a file that nobody used is removed when another one is made."""
_STALE: Final = 3600.0  # after which a half-written file belongs to a process that died


@dataclass(frozen=True)
class TileFolder:
    """Where such files lie: beside the compiled kernels, and like these the user's alone."""

    path: Path

    @classmethod
    def beside(cls, kernels: Path) -> TileFolder:
        """The one in the folder of compiled kernels."""
        return cls(kernels / "tiles")

    def find(self, key: str, n_bytes: int) -> DirectFile | None:
        """The whole file of a key; None where it has to be made."""
        path = self.path / f"{key}{SUFFIX}"
        try:
            self._check(create=False)
            file = DirectFile(path, os.O_RDONLY | os.O_NOFOLLOW)
        except OSError:
            return None
        if file.n_bytes == n_bytes + PAGE and _last_page(path, n_bytes) == footer(key, n_bytes):
            os.utime(path)
            return file
        file.close()
        return None

    def free_bytes(self) -> int:
        """What the disk has room for. Raises `BackendError` where the folder cannot be made."""
        self._check(create=True)
        found = os.statvfs(self.path)
        return found.f_bavail * found.f_frsize

    def make(self, key: str, n_bytes: int, fill: Callable[[DirectFile], None]) -> DirectFile:
        """Make a file, and open it. Makes room first: of files that nobody used for long, and of the least recently
        used ones where the disk is full.

        Args:
            key: names it.
            n_bytes: of its tiles.
            fill: writes all of them.

        Raises `BackendError`: the disk has no room, or refuses.
        """
        self._make_room(n_bytes + PAGE)
        half = self.path / f"{key}.{os.getpid()}.{os.urandom(4).hex()}{HALF_WRITTEN}"
        try:
            file = DirectFile(half, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW)
            try:
                fill(file)
                file.sync()
            finally:
                file.close()
            with half.open("r+b") as plain:
                plain.seek(n_bytes)
                plain.write(footer(key, n_bytes))
                plain.flush()
                os.fsync(plain.fileno())
            half.replace(self.path / f"{key}{SUFFIX}")
        except OSError as error:
            raise BackendError(
                f"the weights cannot be written to {self.path}: {error.strerror}; name a folder on another disk with"
                " --cache-dir"
            ) from None
        finally:
            half.unlink(missing_ok=True)
        made = self.find(key, n_bytes)
        if made is None:
            raise BackendError(f"the weights that were written to {self.path} cannot be read back; check the disk")
        return made

    def entries(self) -> list[tuple[Path, int, float]]:
        """(path, bytes, time of last use) of every file, the least recently used first, half-written ones too."""
        found = []
        for path in self.path.glob("*") if self.path.is_dir() else ():
            if path.name.endswith((SUFFIX, HALF_WRITTEN)):
                try:
                    info = path.lstat()
                except FileNotFoundError:  # another process removed it
                    continue
                found.append((path, info.st_size, info.st_mtime))
        return sorted(found, key=lambda entry: entry[2])

    def clear(self) -> None:
        """Remove every file. Raises `BackendError` where one cannot be removed."""
        for path, _, _ in self.entries():
            try:
                path.unlink(missing_ok=True)
            except OSError as error:
                raise BackendError(f"{path} cannot be removed: {error.strerror}") from None

    def _make_room(self, n_bytes: int) -> None:
        now = time.time()
        for path, _, used in self.entries():
            if now - used > (_STALE if path.name.endswith(HALF_WRITTEN) else MAX_AGE):
                path.unlink(missing_ok=True)
        for path, _, _ in self.entries():
            if self.free_bytes() >= n_bytes:
                return
            if path.name.endswith(SUFFIX):
                path.unlink(missing_ok=True)
        if (free := self.free_bytes()) < n_bytes:
            raise BackendError(
                f"the weights need {format_bytes(n_bytes)} on the disk of {self.path}, {format_bytes(free)} are free;"
                " make room, or name a folder on another disk with --cache-dir"
            )

    def _check(self, *, create: bool) -> None:
        try:
            if Folder.open(self.path, create) is None:
                raise FileNotFoundError(self.path)
        except FolderRefused as error:
            raise BackendError(f"the folder of weights {self.path} {error}") from None


def footer(key: str, n_bytes: int) -> bytes:
    """The last page."""
    said = json.dumps({"zinc_rt": "tiles", "key": key, "n_bytes": n_bytes}).encode()
    return (said + b"\n" + hashlib.sha256(said).digest()).ljust(PAGE, b"\0")


def _last_page(path: Path, at: int) -> bytes:
    try:
        with path.open("rb") as plain:
            plain.seek(at)
            return plain.read(PAGE)
    except OSError:
        return b""


def tile_key(
    identity: bytes,
    matrices: Sequence[Matrix],
    raw: Mapping[str, Bytes],
    places: Mapping[str, range],
    kernels: Mapping[GGMLType, str],
) -> str:
    """Names the tiles of a model: its file, which rows of it each matrix has, where its tiles lie, and what made them.

    identity: of the model's file. kernels: the cache's names of those that repack each format.
    """
    digest = hashlib.sha256(identity)
    for m in matrices:
        rows = raw[m.name]
        digest.update(repr((m, rows.shape, places[m.name], kernels[m.kind], PAGE)).encode())
        for row in (0, -1):  # the same file may be read another way some day
            digest.update(
                rows.reshape(-1, rows.shape[-1])[row].tobytes() if rows.ndim == 2 else rows[row, row].tobytes()
            )
    return digest.hexdigest()

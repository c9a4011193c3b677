"""An open file as bytes: exact reads for the metadata, one lazy mapping for the tensor data.

Metadata is read with `pread`, not through the mapping: a read that fails (the file shrank, the disk or the
network went away) is then an ordinary error, where touching a mapped page would kill the process with SIGBUS.

A file that another program writes to while it is open is noticed by its size and the time of its last change, one that
is replaced by the number of its inode.
"""

from __future__ import annotations

import mmap
import os
import stat
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.errors import FileAccessError, FileChanged, GGUFError
from zinc_rt.utils.checks import printable


def converting(folder: str) -> str:
    """The hint for a model that is no GGUF file yet."""
    return f"`zinc convert {folder} OUT.gguf` makes a file of it that runs"


class FileStamp(NamedTuple):
    """A file as of its last write: bytes, time in nanoseconds, inode and device."""

    size: int
    mtime_ns: int
    inode: int
    device: int


class FileBytes:
    """A regular file opened for reading. Raises FileAccessError, FileChanged; nothing else."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self._fd: int | None = None
        self._map: NDArray[np.uint8] | None = None
        self._mapping: mmap.mmap | None = None
        self.path = os.fsdecode(path)
        self.shown_path = printable(self.path)
        fd: int | None = None
        try:
            # O_NONBLOCK: opening a named pipe must not wait for a writer. It changes nothing for a file.
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            info = os.fstat(fd)
            if not stat.S_ISREG(info.st_mode):
                raise self._no_file(stat.S_ISDIR(info.st_mode))
        except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
            reason = getattr(error, "strerror", None) or str(error)
            raise FileAccessError(
                f"cannot be opened: {reason}", path=self.shown_path, hint="check the path and its permissions"
            ) from error
        except GGUFError:
            if fd is not None:
                os.close(fd)
            raise
        self._fd = fd
        self.size = info.st_size
        self.stamp = FileStamp(info.st_size, info.st_mtime_ns, info.st_ino, info.st_dev)
        # The process may change its folder. No abspath: it takes ".." for the folder above, which a link is not in.
        self._absolute = self.path if os.path.isabs(self.path) else os.path.join(os.getcwd(), self.path)

    def _no_file(self, directory: bool) -> FileAccessError:
        kind = "is a directory" if directory else "is not a regular file"
        if directory and os.path.isfile(os.path.join(self.path, "config.json")):
            kind = "is a folder with a model as Hugging Face has them"
            return FileAccessError(kind, path=self.shown_path, hint=converting(self.shown_path))
        return FileAccessError(kind, path=self.shown_path, hint="give the path of a .gguf file")

    def _open_fd(self) -> int:
        if self._fd is None:
            raise FileChanged("has been closed", path=self.shown_path, hint="open the file again")
        return self._fd

    def read(self, offset: int, count: int) -> bytes:
        """Exactly `count` bytes from `offset`, all of them below `size`, the size at the time of opening."""
        fd = self._open_fd()
        self.check_unwritten()
        parts: list[bytes] = []
        while count:
            try:
                part = os.pread(fd, count, offset)
            except OSError as error:
                raise FileAccessError(
                    f"cannot be read: {error.strerror}", path=self.shown_path, offset=offset
                ) from error
            if not part:
                self.check_unwritten()
                raise FileAccessError("ends before its size", path=self.shown_path, offset=offset)
            parts.append(part)
            offset += len(part)
            count -= len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    def view(self, offset: int, count: int) -> NDArray[np.uint8]:
        """`count` bytes from `offset` as a read-only view of the mapped file: uint8[count]."""
        fd = self._open_fd()
        self.check_unwritten()  # the mapping would hand out pages that are no longer there
        if self._map is None:
            try:
                mapped = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
            except (OSError, ValueError) as error:
                raise FileAccessError(f"cannot be mapped into memory: {error}", path=self.shown_path) from error
            self._mapping, self._map = mapped, np.frombuffer(mapped, np.uint8)
        return self._map[offset : offset + count]

    def release(self, offset: int, count: int) -> None:
        """Free the memory behind whole pages of a view; reading them again reads the file again."""
        start = -(-offset // mmap.PAGESIZE) * mmap.PAGESIZE
        length = (offset + count) // mmap.PAGESIZE * mmap.PAGESIZE - start
        if self._mapping is not None and length > 0 and hasattr(mmap, "MADV_DONTNEED"):
            self._mapping.madvise(mmap.MADV_DONTNEED, start, length)

    def check_unwritten(self) -> None:
        """Raise `FileChanged` when the file was written to since it was opened. Costs about a microsecond."""
        now = os.fstat(self._open_fd())
        if now.st_size != self.size:
            raise self._changed(f"was {self.size} bytes long when opened and is now {now.st_size}")
        if now.st_mtime_ns != self.stamp.mtime_ns:
            later = (now.st_mtime_ns - self.stamp.mtime_ns) / 1e9
            raise self._changed(f"was written to after it was opened: its time of change differs by {later:+.3f} s")

    def check_unchanged(self) -> None:
        """Raise `FileChanged` when the file was written to, or another one stands at its path.

        A file that was moved or removed stays usable, since it is open.
        """
        self.check_unwritten()
        try:
            there = os.stat(self._absolute)
        except OSError:
            return
        if (there.st_dev, there.st_ino) != (self.stamp.device, self.stamp.inode):
            raise self._changed(f"was replaced: inode {self.stamp.inode} when opened, {there.st_ino} now")

    def _changed(self, problem: str) -> FileChanged:
        return FileChanged(problem, path=self.shown_path, hint="load it again when it is complete")

    def close(self) -> None:
        """Release the descriptor. Views handed out stay valid; the mapping goes with the last of them."""
        self._map = self._mapping = None
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    def __del__(self) -> None:
        self.close()

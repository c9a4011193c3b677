"""Which process compiles what: locks on the bytes of one file, a byte for each key, gone with the process."""

from __future__ import annotations

import errno
import fcntl
import os
import struct
from collections.abc import Iterable
from typing import Final

CLAIMS_FILE: Final = "claims"
_FLOCK: Final = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_TAKEN: Final = (errno.EAGAIN, errno.EACCES)


class Claims:
    """Keys that are this process's to compile, until `release`. descriptor: of the file of locks, which this owns."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor

    def take(self, keys: Iterable[str]) -> set[str]:
        """Those of the keys that no other process has claimed, and that are claimed from now on. Waits for nothing."""
        return {key for key in keys if self._lock(key)}

    def release(self) -> None:
        """Give up all claims."""
        os.close(self._file)

    def _lock(self, key: str) -> bool:
        """Where the file system has no locks, every process takes every key, and may do another's work again."""
        lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, int(key[:15], 16), 1, 0)
        try:
            # An open file's locks, not the process's: those of one thread keep another thread out.
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            return error.errno not in _TAKEN
        return True

"""A folder that belongs to the user alone, held open so that it cannot be replaced between check and use."""

from __future__ import annotations

import errno
import os
import stat
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

HALF_WRITTEN: Final = ".part"  # how the names end of files that are not complete yet
_OTHERS_WRITE: Final = stat.S_IWGRP | stat.S_IWOTH


class FolderRefused(Exception):
    """The folder cannot be opened or is not safe; the text says why and what helps."""


class Found(NamedTuple):
    """A file's bytes and the time of its last use, in seconds of the clock."""

    data: bytes
    used: float


class Folder:
    """Files by name in one folder."""

    def __init__(self, descriptor: int) -> None:
        self._at = descriptor
        weakref.finalize(self, os.close, descriptor)

    @classmethod
    def open(cls, path: Path, create: bool) -> Folder | None:
        """The folder; None when it is missing and not to be made. New ones are readable by the user alone.

        Raises `FolderRefused` when it is not a folder, cannot be used, or is another's or writable by others:
        what lies in it is executed.
        """
        try:
            if create:
                path.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except FileNotFoundError as error:
            if create:
                raise FolderRefused(f"cannot be made: {error.strerror}") from None
            return None
        except OSError as error:
            raise FolderRefused(f"cannot be {'made' if create else 'opened'}: {error.strerror}") from None
        folder = cls(descriptor)
        info = os.fstat(descriptor)
        if info.st_uid != os.geteuid():
            raise FolderRefused(f"belongs to user {info.st_uid}, not to you ({os.geteuid()}); choose another folder")
        if info.st_mode & _OTHERS_WRITE:
            mode = stat.S_IMODE(info.st_mode)
            raise FolderRefused(
                f"others can write to it (mode {mode:o}); choose a folder of your own, or chmod go-w it"
            )
        return folder

    def read(self, name: str) -> Found:
        """A file's bytes. Raises OSError; links and files of others count as missing."""
        try:
            descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK, dir_fd=self._at)
        except OSError as error:
            if error.errno == errno.ELOOP:
                raise FileNotFoundError(name) from None
            raise
        with os.fdopen(descriptor, "rb", buffering=0) as file:
            info = os.fstat(descriptor)
            if not stat.S_ISREG(info.st_mode) or info.st_uid != os.geteuid():
                raise FileNotFoundError(name)
            return Found(file.readall(), info.st_mtime)

    def write(self, name: str, data: bytes, *, durable: bool = False) -> None:
        """Write a file that appears complete or not at all, also with several writers. durable: it is on the disk when
        this returns, so that it outlives a machine that stops. Raises OSError.
        """
        half = f"{name}.{os.getpid()}.{os.urandom(4).hex()}{HALF_WRITTEN}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(half, flags, 0o600, dir_fd=self._at)
        try:
            with os.fdopen(descriptor, "wb", buffering=0) as file:
                rest = memoryview(data)
                while rest:
                    rest = rest[file.write(rest) :]
                if durable:
                    os.fsync(descriptor)
            os.replace(half, name, src_dir_fd=self._at, dst_dir_fd=self._at)
            if durable:
                os.fsync(self._at)
        except BaseException:
            self.remove(half)
            raise

    def open_shared(self, name: str) -> int:
        """A descriptor of a file for reading and writing, made empty where it is missing. Raises OSError."""
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
        return os.open(name, flags, 0o600, dir_fd=self._at)

    def touch(self, name: str) -> None:
        """Note a use in the file's time; a lack of permission is ignored."""
        try:
            os.utime(name, dir_fd=self._at)
        except OSError:
            return

    def remove(self, name: str) -> bool:
        """Remove a file; returns whether it is gone."""
        try:
            os.unlink(name, dir_fd=self._at)
        except FileNotFoundError:
            return True
        except OSError:
            return False
        return True

    def names(self) -> list[str]:
        """All names in the folder."""
        return os.listdir(self._at)

    def files(self) -> Iterator[tuple[str, int, float]]:
        """(name, bytes, time of last use) of every regular file."""
        with os.scandir(self._at) as items:
            for item in items:
                try:
                    info = item.stat(follow_symlinks=False)
                except FileNotFoundError:  # another process removed it
                    continue
                if stat.S_ISREG(info.st_mode):
                    yield item.name, info.st_size, info.st_mtime

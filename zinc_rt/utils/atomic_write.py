"""Files that are whole or not there."""

from __future__ import annotations

import fcntl
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO


@contextmanager
def whole_file(path: str | Path) -> Iterator[BinaryIO]:
    """A new file to write to. It gets its name when the `with` block ends, complete and on disk.

    Until then it has no name, so that nothing of it stays however the process ends. Where the file system has no such
    files it is named FILE.XXXXXXXX.tmp and locked; leftovers of a killed process are removed by the next write of FILE.
    A link keeps pointing. After a failure an older file of that name is unchanged. A device or pipe is written to as it
    is.

    Raises `OSError`, and `ValueError` for a path with a NUL character.
    """
    final = os.path.realpath(path)
    if os.path.exists(final) and not os.path.isfile(final):
        with open(final, "wb") as out:
            yield out
        return
    folder, name = os.path.split(final)
    with suppress(FileNotFoundError):
        os.lstat(final + ".01234567.tmp")  # a name that is too long is told now, not when all is written
    _remove_stale(folder, name)
    with _nameless(folder) or _named(folder, name) as out:
        part = None if isinstance(out.name, int) else out.name
        try:
            yield out
            out.flush()
            os.fsync(out.fileno())
            if part is None:
                part = _linked(out, folder, name)
            if part is not None:
                os.replace(part, final)
        except BaseException:
            if part is not None:
                with suppress(OSError):
                    os.unlink(part)
            raise


def _nameless(folder: str) -> BinaryIO | None:
    """A file without a name in this folder (O_TMPFILE); None where there can be none, or it could not be named."""
    try:
        fd = os.open(folder, os.O_WRONLY | os.O_TMPFILE | os.O_CLOEXEC, 0o666)
    except (AttributeError, OSError):  # another system than Linux; a file system without them, or a real failure
        return None
    if not os.path.exists(_path_of(fd)):  # without /proc
        os.close(fd)
        return None
    return os.fdopen(fd, "wb")


def _path_of(fd: int) -> str:
    return f"/proc/self/fd/{fd}"


def _linked(out: BinaryIO, folder: str, name: str) -> str | None:
    """Give a file its name. Where there is one of that name already: another one, to be moved there, which is returned.

    Raises `OSError`.
    """
    at = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # With a folder's descriptor this is linkat, which can follow the link in /proc.
        with suppress(FileExistsError):
            os.link(_path_of(out.fileno()), name, dst_dir_fd=at)
            return None
        part = _part(name)
        os.link(_path_of(out.fileno()), part, dst_dir_fd=at)
        return os.path.join(folder, part)
    finally:
        os.close(at)


def _part(name: str) -> str:
    return f"{name}.{secrets.token_hex(4)}.tmp"


def _named(folder: str, name: str) -> BinaryIO:
    """A new file that ends in `.tmp`, locked as long as it is open. Raises `OSError`."""
    while True:
        # Opened here and not by tempfile, whose files are private: these get the usual permissions.
        out = open(os.path.join(folder, _part(name)), "xb")  # noqa: SIM115  the caller closes it
        with suppress(OSError):  # a file system without locks, where `_remove_stale` removes nothing
            fcntl.flock(out, fcntl.LOCK_EX)
        if os.path.exists(out.name):
            return out
        out.close()  # another process took it for stale before it was locked


def _remove_stale(folder: str, name: str) -> None:
    """Remove what killed processes left of earlier writes of a file: its `.tmp` files that nobody has locked."""
    stale = re.compile(re.escape(name) + r"\.[0-9a-f]{8}\.tmp")
    with suppress(OSError):
        for found in os.listdir(folder):
            if stale.fullmatch(found):
                with suppress(OSError), open(os.path.join(folder, found), "rb") as file:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    os.unlink(file.name)

"""The SHA-256 of a model file's bytes: the same number on every machine, and the one that file hosts publish."""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress
from pathlib import Path
from typing import Final

from zinc_rt.gguf.errors import FileAccessError
from zinc_rt.gguf.reader import GGUFFile

_CHUNK: Final = 1 << 22
_DIGITS: Final = 64


def content_sha256(file: GGUFFile, kept: Path | None = None) -> str:
    """SHA-256 of a file's bytes in hex; of a split file the bytes of all parts in order.

    Takes about a second for 1.5 GB at first. kept: a folder where hashes are kept, by path, size, inode and time of the
    last write, so that it takes no time then.

    Raises:
        FileAccessError: a part cannot be read.
        FileChanged: the file was written to meanwhile.
    """
    place = None if kept is None else kept / "hashes" / file.identity.hex()
    if place is not None and (known := _read(place)) is not None:
        return known
    digest = hashlib.sha256()
    for path in file.paths:
        try:
            with open(path, "rb") as part:
                while chunk := part.read(_CHUNK):
                    digest.update(chunk)
        except OSError as error:
            raise FileAccessError(f"cannot be read: {error.strerror or error}", path=path) from None
    file.check_unchanged()
    if place is not None:
        _write(place, digest.hexdigest())
    return digest.hexdigest()


def _read(place: Path) -> str | None:
    try:
        said = place.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        return None
    return said if len(said) == _DIGITS and set(said) <= set("0123456789abcdef") else None


def _write(place: Path, digest: str) -> None:
    """Keep a hash; a folder that cannot be written to costs the time again, nothing else."""
    half = place.with_name(f"{place.name}.{os.getpid()}")
    with suppress(OSError):
        place.parent.mkdir(parents=True, exist_ok=True)
        try:
            half.write_text(digest + "\n", encoding="ascii")
            os.replace(half, place)
        finally:
            half.unlink(missing_ok=True)

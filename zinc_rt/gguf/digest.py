"""The SHA-256 of a model's files, computed once for each file and kept beside the compiled kernels."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Final

from zinc_rt.gguf.part import GGUFPart
from zinc_rt.lang.folder import Folder, FolderRefused

_SETTLED_NS: Final = 2_000_000_000
"""A file that was written to more recently than this may be written to again within one tick of its clock."""
_HEX: Final = re.compile(rb"[0-9a-f]{64}")


def content_sha256(parts: Sequence[GGUFPart], folder: Path | None) -> str:
    """The SHA-256 of the bytes of all parts in order, hex.

    It is kept in the folder under the parts' paths, sizes, inodes and times of the last write, and taken from there
    while these are the same: a file that was changed and had its time set back is not noticed. A folder that cannot be
    used is done without.

    Raises `FileChanged`, `FileAccessError`.
    """
    named = repr([(os.path.abspath(part.path), *part.stamp) for part in parts])
    name = f"sha256-{sha256(named.encode()).hexdigest()}"
    at = _opened(folder, create=False)
    try:
        found = b"" if at is None else at.read(name).data
    except OSError:
        found = b""
    if _HEX.fullmatch(found):
        return found.decode()
    digest = sha256()
    for part in parts:
        for block in part.blocks():
            digest.update(block)
    if all(time.time_ns() - part.stamp.mtime_ns > _SETTLED_NS for part in parts):
        _store(folder, name, digest.hexdigest())
    return digest.hexdigest()


def _opened(folder: Path | None, *, create: bool) -> Folder | None:
    try:
        return None if folder is None else Folder.open(folder, create)
    except FolderRefused:
        return None


def _store(folder: Path | None, name: str, digest: str) -> None:
    at = _opened(folder, create=True)
    try:
        if at is not None:
            at.write(name, digest.encode())
    except OSError:
        return

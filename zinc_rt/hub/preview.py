"""The head of a model's file, without its weights: enough to say whether it runs and what it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from zinc_rt.gguf import GGUFError, GGUFFile
from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.client import Client
from zinc_rt.hub.errors import HubError
from zinc_rt.hub.remote import Repository

_STRETCHES: Final = (2 << 20, 8 << 20, 32 << 20)
"""Bytes of a file's beginning that are asked for; a vocabulary of 262,144 tokens takes 7 MB."""
_SECONDS: Final = 60.0
_PARTIAL: Final = 206


@contextmanager
def preview(client: Client, repository: Repository, files: Sequence[RemoteFile]) -> Iterator[Path | None]:
    """A file in memory with the model's directory and size, and holes in place of its weights.

    None where it cannot be had: a model in parts, whose directory is in parts, too; a server that gives no part of a
    file, or fails; a directory longer than 32 MB.
    """
    head = os.memfd_create("zinc-preview")  # no name in any folder: nothing is left, however the process ends
    try:
        path, found = Path(f"/proc/self/fd/{head}"), False
        with suppress(HubError, OSError):
            found = len(files) == 1 and _read(client, repository, files[0], head, path)
        yield path if found else None
    finally:
        os.close(head)


def _read(client: Client, repository: Repository, file: RemoteFile, head: int, path: Path) -> bool:
    """Fill the head until it holds the directory; whether it does."""
    os.truncate(head, file.size)
    got, until = 0, time.monotonic() + _SECONDS
    for end in (min(end, file.size) for end in _STRETCHES):
        if got == end:
            break
        with client.file(repository.repo, repository.commit, file.path, got, end) as answer:
            if answer.status != _PARTIAL:
                return False
            got += os.pwrite(head, answer.read(end - got, until), got)
        with suppress(GGUFError):
            GGUFFile.open(path).close()
            return True
    return False

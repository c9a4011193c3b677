"""`pull`: a model of the hub into the cache."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.gguf import GGUFError, GGUFFile
from zinc_rt.hub.cached import CachedModel, find
from zinc_rt.hub.choose import RemoteFile, choose, projector_for
from zinc_rt.hub.client import Client, Waiting
from zinc_rt.hub.download import Progress, download
from zinc_rt.hub.errors import HubError
from zinc_rt.hub.reference import HubModel, parse
from zinc_rt.hub.remote import Repository, look_up
from zinc_rt.mem.plan import format_bytes
from zinc_rt.utils.checks import function_or_none, show, true_or_false

_HEAD_STRETCHES: Final = (2 << 20, 8 << 20, 32 << 20)
"""Bytes of a file's beginning that are asked for; a vocabulary of 262,144 tokens takes 7 MB."""
_HEAD_SECONDS: Final = 60.0
_PARTIAL: Final = 206

Approve = Callable[[Repository, Sequence[RemoteFile], RemoteFile | None, Path | None], bool]
"""Gets what would be downloaded, the model's files and its projector, and its head as `preview` gives it; whether to go
on.
"""


def pull(
    name: str,
    *,
    force: bool = False,
    mmproj: bool = True,
    notify: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Path:
    """Download a model from the Hugging Face hub, unless it is there.

    Args:
        name: as `zinc list --known` shows it, or owner/repo, perhaps with a format, as in "qwen3-4b:Q8_0"; or an
            address of the hub.
        force: download it also if this version cannot run it.
        mmproj: download its projector with it, where the repository has one, so that it reads pictures.
        notify: gets lines worth showing, also on another thread (None: the logger "zinc_rt" does).
        progress: gets the bytes that are there, and in all.

    Returns:
        The path of the file, of the first one where the model has parts; `load` takes it, or the name.

    Raises:
        UnknownModel: the name is none.
        HubError: this version cannot run the model, the hub cannot be reached or refuses, the disk is full, or what
            arrives is not what was announced. A download that broke off goes on with the next call.
    """
    if not isinstance(name, str):
        raise UsageError(f"name is {show(name)}, it must be a text")
    true_or_false("force", force)
    true_or_false("mmproj", mmproj)
    function_or_none("notify", notify)
    function_or_none("progress", progress)
    tell = logging.getLogger("zinc_rt").info if notify is None else notify
    wanted = parse(name)
    here = already(wanted)
    if here is not None:
        return here.path

    def approve(
        repository: Repository, files: Sequence[RemoteFile], projector: RemoteFile | None, head: Path | None
    ) -> bool:
        tell(offer(repository, files, projector))
        if not force and head is not None and (reason := why_not(head)):
            raise HubError(f"this version cannot run {files[0].path}: {reason}; force=True downloads it all the same")
        return True

    path = bring(wanted, approve, mmproj=mmproj, waiting=lambda host: tell(f"waiting for {host}"), progress=progress)
    assert path is not None  # whoever approves goes on or raises
    return path


def bring(
    wanted: HubModel,
    approve: Approve,
    *,
    mmproj: bool = True,
    waiting: Waiting | None = None,
    progress: Progress | None = None,
) -> Path | None:
    """Download a model that the hub has, with its projector; None where `approve` says no.

    Raises `HubError`, and what `approve` raises.
    """
    with Client(waiting) as client:
        repository = look_up(client, wanted.repo)
        files = choose(wanted, repository.files)
        projector = projector_for(files[0].path, repository.files) if mmproj and not wanted.file else None
        with preview(client, repository, files) as head:
            if not approve(repository, files, projector, head):
                return None
        every = [*files, projector] if projector is not None else files
        return download(client, repository, every, progress)


def already(wanted: HubModel) -> CachedModel | None:
    """The model in the cache that makes a download needless; in another format than the table's only if asked for."""
    here = find(wanted)
    other = here is not None and wanted.usual and not wanted.quant and here.quant != wanted.usual
    return None if other else here


def offer(repository: Repository, files: Sequence[RemoteFile], projector: RemoteFile | None = None) -> str:
    """One line about what would be downloaded."""
    parts = f" in {len(files)} parts" if len(files) > 1 else ""
    license_ = f", license {repository.license}" if repository.license else ""
    size = format_bytes(sum(file.size for file in files))
    pictures = ""
    if projector is not None:
        pictures = f", and for pictures {projector.path}, {format_bytes(projector.size)}"
    return f"{repository.repo}: {files[0].path}, {size}{parts}{pictures}{license_}"


def why_not(path: Path) -> str:
    """Why this version cannot run a file; empty where it can. The weights are not read."""
    from zinc_rt.llm.embedding import pooling_of
    from zinc_rt.models import define
    from zinc_rt.text.kinds import read_kind

    try:
        with GGUFFile.open(path) as file:
            pooling_of(file, define(file))
            read_kind(file.metadata)
    except ZincError as error:
        return error.problem if isinstance(error, GGUFError) else str(error)
    return ""


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
            found = len(files) == 1 and _read_head(client, repository, files[0], head, path)
        yield path if found else None
    finally:
        os.close(head)


def _read_head(client: Client, repository: Repository, file: RemoteFile, head: int, path: Path) -> bool:
    """Fill the head until it holds the directory; whether it does."""
    os.truncate(head, file.size)
    got, until = 0, time.monotonic() + _HEAD_SECONDS
    for end in (min(end, file.size) for end in _HEAD_STRETCHES):
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

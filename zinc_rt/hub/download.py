"""Downloads into the hub's own cache: they go on where they broke off, and what arrives is compared with its checksum.

The layout is the hub library's, which other programs share: `blobs/CHECKSUM`, a link to it from
`snapshots/COMMIT/PATH`, and the newest commit in `refs/main`. A part that has arrived is kept beside the blobs, under a
name that no reader of the cache takes for a blob. The checksum and the size are those of the listing: what a server
says of a file while it sends it counts for nothing.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final

from huggingface_hub.file_download import repo_folder_name

from zinc_rt.hub.cached import cache_folder
from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.client import Client
from zinc_rt.hub.errors import HubError, HubUnreachable
from zinc_rt.hub.remote import Repository
from zinc_rt.mem.plan import format_bytes
from zinc_rt.utils.atomic_write import whole_file
from zinc_rt.utils.checks import show

Progress = Callable[[int, int], None]
"""Gets the bytes that are there, and those of all files."""

_CHUNK: Final = 8 << 20
_TRIES: Final = 5
"""Tries in a row that bring no byte, after which a download gives up."""
_PAUSE: Final = 1.0
"""Seconds between tries."""
_SHA256: Final = 64
_PARTIAL, _NOT_THERE = 206, 416


def download(
    client: Client, repository: Repository, files: Sequence[RemoteFile], progress: Progress | None = None
) -> Path:
    """Bring the files of a model into the cache; the path of the first one.

    A transfer that broke off in an earlier call goes on. Nothing that is not whole stands where a model is looked for.

    Raises:
        HubError: the disk is full, the bytes are not those that the hub announced, or what the hub says otherwise.
        HubUnreachable: the transfer broke off; what arrived is kept.
    """
    folder = cache_folder() / repo_folder_name(repo_id=repository.repo, repo_type="model")
    places = [_Place(folder, repository.commit, file) for file in files]
    missing = [place for place in places if not place.is_there()]
    _check_room(missing)
    whole, before = sum(file.size for file in files), 0

    def report(arrived: int) -> None:
        if progress is not None:
            progress(before + arrived, whole)

    for place in places:
        if place in missing:
            with _disk_errors(place.file):
                _fetch(client, repository, place, report)
                place.link()
        report(place.file.size)
        before += place.file.size
    with suppress(OSError):  # other programs look there for the newest; here all snapshots are read
        (folder / "refs").mkdir(exist_ok=True)
        with whole_file(folder / "refs" / "main") as out:
            out.write(repository.commit.encode())
    return places[0].path


class _Place:
    """Where a file belongs in the cache.

    path: in the snapshot; blob: its bytes, under the name of its checksum; part: what arrived so far. Raises
    `HubError` for a file without a checksum.
    """

    def __init__(self, folder: Path, commit: str, file: RemoteFile) -> None:
        if not file.digest:
            raise HubError(f"the hub gives no checksum of {show(file.path)}, so it is not downloaded")
        self.file = file
        self.path = folder / "snapshots" / commit / file.path
        self.blob = folder / "blobs" / file.digest
        self.part = folder / "blobs" / f"{file.digest}.zinc.incomplete"

    def has_blob(self) -> bool:
        """Whether the bytes are there."""
        return self.blob.is_file() and self.blob.stat().st_size == self.file.size

    def is_there(self) -> bool:
        """Whether the path in the snapshot leads to them. A file that is no link is read, and compared."""
        if self.path.is_symlink():
            return self.has_blob() and self.path.resolve() == self.blob.resolve()
        if not self.path.is_file() or self.path.stat().st_size != self.file.size:
            return False
        with self.path.open("rb") as stream:
            return _Arrival(stream, self.file).is_right()

    def link(self) -> None:
        """Give the blob its name in the snapshot; on a file system without links, move it there."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        self.path.unlink(missing_ok=True)
        try:
            self.path.symlink_to(os.path.relpath(self.blob, self.path.parent))
        except OSError as error:
            if error.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS):
                raise
            self.blob.replace(self.path)


class _Arrival:
    """The bytes of a file that have arrived, and their checksum so far. stream: at its end when this returns."""

    def __init__(self, stream: BinaryIO, file: RemoteFile) -> None:
        self._stream, self._file = stream, file
        self._begin()
        stream.seek(0)
        while chunk := stream.read(_CHUNK):
            self._digest.update(chunk)
            self.size += len(chunk)
        if self.size > file.size:
            self.restart()

    def _begin(self) -> None:
        self.size = 0
        if len(self._file.digest) == _SHA256:
            self._digest = hashlib.sha256()
        else:  # of git: the SHA-1 of a header and the bytes
            self._digest = hashlib.sha1(b"blob %d\0" % self._file.size, usedforsecurity=False)

    def restart(self) -> None:
        """Drop what is there."""
        self._stream.seek(0)
        self._stream.truncate(0)
        self._begin()

    def add(self, chunk: bytes) -> None:
        """The next bytes. Raises `HubError` for more than the file has."""
        if self.size + len(chunk) > self._file.size:
            self.restart()
            raise HubError(f"more than {self._file.size} bytes came of {self._file.path}: pull it again")
        self._stream.write(chunk)
        self._digest.update(chunk)
        self.size += len(chunk)

    def is_right(self) -> bool:
        """Whether the file is whole, and its checksum the listing's."""
        return self.size == self._file.size and self._digest.hexdigest() == self._file.digest


def _fetch(client: Client, repository: Repository, place: _Place, report: Callable[[int], None]) -> None:
    """The bytes of a file into the cache's blobs."""
    file = place.file
    if place.has_blob():
        return
    place.blob.parent.mkdir(parents=True, exist_ok=True)
    with _alone(place.part) as stream:
        if place.has_blob():  # another process was first
            place.part.unlink(missing_ok=True)
            return
        arrival, tries = _Arrival(stream, file), 0
        report(arrival.size)
        while arrival.size < file.size:
            before = arrival.size
            try:
                _transfer(client, repository, file, arrival, report)
            except HubUnreachable as error:
                tries = tries + 1 if arrival.size <= before else 1
                if tries > _TRIES:
                    kept = f"{format_bytes(arrival.size)} of {format_bytes(file.size)} are kept, pull again to go on"
                    raise HubUnreachable(f"{error}; {kept}") from None
                time.sleep(_PAUSE)
        if not arrival.is_right():
            place.part.unlink(missing_ok=True)
            kind = "SHA-256" if len(file.digest) == _SHA256 else "checksum"
            raise HubError(f"{file.path} arrived damaged: its {kind} is not {file.digest[:12]}...; pull it again")
        stream.flush()
        os.fsync(stream.fileno())
        place.part.replace(place.blob)


def _transfer(
    client: Client, repository: Repository, file: RemoteFile, arrival: _Arrival, report: Callable[[int], None]
) -> None:
    """One request for what is missing. Raises as `download`."""
    with client.file(repository.repo, repository.commit, file.path, arrival.size) as answer:
        if answer.status == _NOT_THERE or (answer.status == _PARTIAL and not _goes_on(answer.headers, arrival.size)):
            arrival.restart()
            raise HubUnreachable(f"{answer.host} does not go on at the byte that was asked for")
        if answer.status != _PARTIAL:
            arrival.restart()  # a server without ranges
        if answer.size is not None and answer.size != file.size - arrival.size:
            raise HubError(
                f"{answer.host} sends {answer.size} bytes of {file.path}, and the listing says"
                f" {file.size - arrival.size}: is there a sign-in page of the network?"
            )
        for chunk in answer.chunks():
            arrival.add(chunk)
            report(arrival.size)
    if arrival.size < file.size:
        raise HubUnreachable(f"{answer.host} ended {file.path} early")


def _goes_on(headers: Mapping[str, str], first: int) -> bool:
    return headers.get("Content-Range", "").startswith(f"bytes {first}-")


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """The part, for this process alone. Raises `HubError` where another one is at it."""
    with part.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise HubError(f"another process is downloading {part.name.partition('.')[0][:12]}...") from None
        yield stream


def _check_room(places: Sequence[_Place]) -> None:
    """Raises `HubError` where the disk cannot take what is still missing of the files."""
    folder, missing = cache_folder(), 0
    for place in places:
        if not place.has_blob():
            there = place.part.stat().st_size if place.part.is_file() else 0
            missing += max(0, place.file.size - there)
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if missing > free:
            raise HubError(
                f"{places[0].file.path} needs {format_bytes(missing)} more, and the disk of {cache_folder()} has"
                f" {format_bytes(free)} free: make room (`zinc rm`), or name another folder with HF_HUB_CACHE"
            )


@contextmanager
def _disk_errors(file: RemoteFile) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise HubError(
                f"the disk of {cache_folder()} is full; what arrived of {file.path} is kept: make room and pull again"
            ) from None
        reason = error.strerror or str(error)
        raise HubError(f"{file.path} cannot be written to {cache_folder()}: {reason}") from None

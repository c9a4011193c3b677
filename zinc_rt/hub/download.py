"""Downloads into the hub's own cache: they go on where they broke off, and what arrives is compared with its checksum.

The hub library transfers, and lays out the cache. It begins a plain HTTP transfer anew in each process, so the part
that has arrived is kept here, beside the cache's blobs, under a name that no reader of the cache takes for a blob.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import importlib.util
import os
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO, Final
from urllib.parse import urlsplit

from huggingface_hub import constants, get_hf_file_metadata, hf_hub_download, hf_hub_url
from huggingface_hub.file_download import HfFileMetadata, http_get, repo_folder_name
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.errors import DownloadFailed
from zinc_rt.hub.remote import Repository, readable_errors
from zinc_rt.mem.plan import format_bytes

Progress = Callable[[int, int], None]
"""Gets the bytes that are there, and those of all files."""

_CHUNK: Final = 8 << 20
_SPARE: Final = 64 << 20
"""Bytes that are left free on the disk."""
_SHA256: Final = 64
_ETAG: Final = re.compile(r"[A-Za-z0-9_-]{8,128}")


def cache_folder() -> Path:
    """The hub's cache: HF_HUB_CACHE, else `hub` in HF_HOME, else in ~/.cache/huggingface."""
    return Path(constants.HF_HUB_CACHE)


def download(repository: Repository, files: Sequence[RemoteFile], progress: Progress | None = None) -> Path:
    """Bring the files of a model into the cache; the path of the first one.

    A transfer that broke off in an earlier call goes on. Nothing that is not whole stands where a model is looked for.

    Raises:
        DownloadFailed: the disk is full, the transfer broke off, or the bytes are not those that the hub announced.
        HubError: what the hub says otherwise.
    """
    whole = sum(file.size for file in files)
    before, paths = 0, []
    for file in files:
        paths.append(_one(repository, file, _Meter(progress, before, whole)))
        before += file.size
    return paths[0]


def _one(repository: Repository, file: RemoteFile, meter: _Meter) -> Path:
    repo, commit = repository.repo, repository.commit
    with readable_errors(repo), _disk_errors(file):
        there = cache_folder() / repo_folder_name(repo_id=repo, repo_type="model") / "snapshots" / commit / file.path
        if there.exists():
            meter.at(file.size)
            return there
        url = hf_hub_url(repo, file.path, revision=commit)
        about = get_hf_file_metadata(url, library_name="zinc_rt")
        _check_room(file)
        if _ETAG.fullmatch(about.etag or "") and not (about.xet_file_data is not None and _has_xet()):
            _fetch(repo, file, url, about, meter)
        # The blob is there now, or comes in chunks that the library keeps; this gives it its name.
        bars: Any = meter.bar_class()
        path = Path(hf_hub_download(repo, file.path, revision=commit, tqdm_class=bars, library_name="zinc_rt"))
        meter.at(file.size)
        return path


def _has_xet() -> bool:
    """Whether the library transfers by chunks, which it keeps."""
    return not constants.HF_HUB_DISABLE_XET and importlib.util.find_spec("hf_xet") is not None


def _fetch(repo: str, file: RemoteFile, url: str, about: HfFileMetadata, meter: _Meter) -> None:
    """A file into the cache's blobs, over plain HTTP."""
    etag, size = about.etag or "", about.size
    blob = cache_folder() / repo_folder_name(repo_id=repo, repo_type="model") / "blobs" / etag
    if blob.exists():
        return
    blob.parent.mkdir(parents=True, exist_ok=True)
    part = blob.with_name(f"{etag}.zinc.incomplete")
    headers = build_hf_headers(library_name="zinc_rt")
    if urlsplit(about.location).netloc != urlsplit(url).netloc:
        headers.pop("authorization", None)  # the token is the hub's, not that of a server it points to
    with _alone(part) as stream:
        if blob.exists():  # another process was first
            part.unlink(missing_ok=True)
            return
        arrived = stream.seek(0, os.SEEK_END)
        if size is not None and arrived > size:
            stream.truncate(0)
            arrived = stream.seek(0)
        meter.at(arrived)
        try:
            http_get(
                about.location, stream, resume_size=arrived, headers=headers, expected_size=size,
                tqdm_class=meter.bar_class(),
            )  # fmt: skip
        except OSError as error:
            if error.errno is None and "Consistency check" in str(error):
                part.unlink(missing_ok=True)
                raise DownloadFailed(f"{file.path} arrived with another size than announced: try again") from None
            raise
        stream.flush()
        os.fsync(stream.fileno())
        wanted = file.sha256 or (etag if len(etag) == _SHA256 else "")
        if wanted and _sha256(stream) != wanted:
            part.unlink(missing_ok=True)
            raise DownloadFailed(f"{file.path} arrived damaged: its SHA-256 is not {wanted[:12]}...; pull it again")
        part.replace(blob)


@contextmanager
def _alone(part: Path) -> Iterator[BinaryIO]:
    """The part, for this process alone. Raises `DownloadFailed` where another one is at it."""
    with part.open("a+b") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise DownloadFailed(f"another process is downloading {part.name.partition('.')[0][:12]}...") from None
        yield stream


def _sha256(stream: BinaryIO) -> str:
    stream.seek(0)
    digest = hashlib.sha256()
    while chunk := stream.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest()


def _check_room(file: RemoteFile) -> None:
    """Raises `DownloadFailed` where the disk cannot take the file."""
    folder = cache_folder()
    while not folder.exists() and folder != folder.parent:
        folder = folder.parent
    with suppress(OSError):
        free = shutil.disk_usage(folder).free
        if file.size + _SPARE > free:
            raise DownloadFailed(
                f"{file.path} takes {format_bytes(file.size)}, and the disk of {cache_folder()} has"
                f" {format_bytes(free)} free: make room (`zinc rm`), or name another folder with HF_HUB_CACHE"
            )


@contextmanager
def _disk_errors(file: RemoteFile) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DownloadFailed(
                f"the disk of {cache_folder()} is full; what arrived of {file.path} is kept: make room and pull again"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise DownloadFailed(f"{cache_folder()} cannot be written to: {error.strerror}") from None
        raise


class _Meter:
    """Tells bytes of one file as bytes of all."""

    def __init__(self, progress: Progress | None, before: int, whole: int) -> None:
        self._progress, self._before, self._whole = progress, before, whole
        self._there = 0

    def at(self, there: int) -> None:
        """So many bytes of the file are there."""
        self._there = there
        if self._progress is not None:
            self._progress(self._before + there, self._whole)

    def bar_class(self) -> Any:
        """A class that the hub library takes for one of tqdm's."""
        meter = self

        class Bar:
            def __init__(self, *_: object, initial: int = 0, **__: object) -> None:
                if initial:
                    meter.at(initial)

            def update(self, n: float | None = 1) -> None:
                meter.at(meter._there + int(n or 0))

            def __enter__(self) -> Bar:
                return self

            def __exit__(self, *_: object) -> None:
                pass

            def __getattr__(self, name: str) -> Callable[..., None]:
                return lambda *_, **__: None

        return Bar

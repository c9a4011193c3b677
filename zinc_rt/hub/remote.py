"""Asks the hub about a repository: its model files, their sizes and checksums."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from zinc_rt.hub.choose import RemoteFile
from zinc_rt.hub.client import Client
from zinc_rt.hub.errors import HubError
from zinc_rt.utils.checks import printable, show

_LONGEST: Final = 16 << 20
"""Bytes of a listing; one of 10,000 files takes 3 MB."""
_SECONDS: Final = 60.0
_LARGEST: Final = 1 << 50
_COMMIT: Final = re.compile(r"[0-9a-f]{40}")
_DIGEST: Final = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_PATH: Final = re.compile(r"(?!\.\.?(?:/|$))[^/\\\x00]{1,255}(?:/(?!\.\.?(?:/|$))[^/\\\x00]{1,255})*")


@dataclass(frozen=True)
class Repository:
    """The model files of a repository at one moment. commit: 40 hex digits; license: empty where none is named."""

    repo: str
    commit: str
    files: Sequence[RemoteFile]
    license: str = ""


class _Large(msgspec.Struct):
    sha256: str


class _File(msgspec.Struct):
    rfilename: str
    size: int | None = None
    blob: str | None = msgspec.field(name="blobId", default=None)
    lfs: _Large | None = None


class _About(msgspec.Struct):
    sha: str
    siblings: list[_File]
    card: dict[str, Any] | None = msgspec.field(name="cardData", default=None)


def look_up(client: Client, repo: str) -> Repository:
    """The repository's newest state. Raises what `Client.file` raises, and `HubError` for an answer without sense."""
    with client.about(repo) as answer:
        body = answer.read(_LONGEST, time.monotonic() + _SECONDS)
    try:
        about = msgspec.json.decode(body, type=_About)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        what = "a web page" if body.lstrip()[:1] == b"<" else "nonsense"
        remedy = "sign in to the network, or correct HF_ENDPOINT"
        raise HubError(f"{answer.host} answers with {what} for {repo}: {remedy}") from None
    if not _COMMIT.fullmatch(about.sha):
        raise HubError(f"{answer.host} names {show(about.sha)} as the commit of {repo}; 40 hex digits are expected")
    files = [_checked(answer.host, file) for file in about.siblings if file.rfilename.lower().endswith(".gguf")]
    license_ = (about.card or {}).get("license")
    return Repository(repo, about.sha, files, printable(license_)[:60] if isinstance(license_, str) else "")


def _checked(host: str, file: _File) -> RemoteFile:
    """A file of a listing. Raises `HubError` for one that lies outside of the repository, or has no possible size."""
    path, size = file.rfilename, file.size
    if not _PATH.fullmatch(path) or not path.isprintable():
        raise HubError(f"{host} lists {show(path)}, which is no path inside of a repository: nothing is downloaded")
    if size is None or not 0 < size < _LARGEST:
        raise HubError(f"{host} lists {show(path)} with a size of {show(size)} bytes: nothing is downloaded")
    digest = (file.lfs.sha256 if file.lfs is not None else file.blob) or ""
    return RemoteFile(path, size, digest if _DIGEST.fullmatch(digest) else "")

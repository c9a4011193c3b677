"""Compiled images on disk, named by what they were made from, errors of kernels that cannot be compiled, and notes of
what was measured with them.

The folder holds code that is executed, so it must belong to the user alone. A failure of the cache never stops a run:
it is reported once, and the run continues without the cache.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import os
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from zinc_rt.lang.errors import CacheError, CompileError, ImageError
from zinc_rt.lang.failure import failure_from_bytes, failure_to_bytes, is_failure
from zinc_rt.lang.folder import HALF_WRITTEN, Folder, FolderRefused
from zinc_rt.lang.image import VERSION, Image
from zinc_rt.lang.notes import note_from_bytes, note_to_bytes
from zinc_rt.utils.environment import CACHE_DIR

CLAIMS_FILE: Final = "claims"
_FLOCK: Final = struct.Struct("@hhqqi4x")  # struct flock of 64-bit Linux: type, whence, start, length, pid
_TAKEN: Final = (errno.EAGAIN, errno.EACCES)

T = TypeVar("T")
MAX_BYTES: Final = 256 << 20
_KEY_FORMAT: Final = 1  # change it when the same parts come to mean another image
_TOUCH_AFTER: Final = 12 * 3600.0  # seconds; a use is noted in the file's time no more often than this
_AGAIN: Final = "kernels are compiled at each start; set ZINC_RT_CACHE_DIR to a folder that you can write to"
_STALE: Final = 3600.0  # seconds after which a half-written file belongs to a process that died


def default_cache_dir() -> Path | None:
    """$ZINC_RT_CACHE_DIR, else zinc_rt in $XDG_CACHE_HOME or ~/.cache; None where there is no home.

    Relative values of the last two, and of $HOME, count as unset: the XDG specification says so, and an empty $HOME
    would be the root folder. Without $HOME the home is the one that the system has for the user.
    """
    if chosen := os.environ.get(CACHE_DIR.name):
        return Path(chosen)
    base = os.environ.get("XDG_CACHE_HOME", "")
    if os.path.isabs(base):
        return Path(base) / "zinc_rt"
    home = os.environ.get("HOME", "")
    if not os.path.isabs(home):
        home = _home_of_user()
    return Path(home) / ".cache" / "zinc_rt" if os.path.isabs(home) else None


def _home_of_user() -> str:
    """The home folder in the system's list of users; empty where there is none."""
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        return ""


def cache_key(parts: Iterable[bytes | str]) -> str:
    """The key (64 hex digits) of an image made from these parts, in this order, by the installed LLVM.

    Include everything the result depends on: source, constants, target and its features, optimisation level.
    """
    digest = hashlib.sha256()
    for part in (f"zinc_rt {_KEY_FORMAT} {VERSION}", llvm_version(), *parts):
        data = part.encode() if isinstance(part, str) else part
        digest.update(b"%c%d:" % (b"s" if isinstance(part, str) else b"b", len(data)))
        digest.update(data)
    return digest.hexdigest()


@cache
def llvm_version() -> str:
    """The version of llvmlite, which brings its own LLVM; "none" when it is not installed. Imports nothing of it."""
    from importlib.util import find_spec

    spec = find_spec("llvmlite")
    if spec is None or spec.origin is None:
        return "none"
    # importlib.metadata says the same, but importing it takes longer than a warm start may.
    site = Path(spec.origin).parent.parent
    names = [n for n in os.listdir(site) if n.startswith("llvmlite-") and n.endswith(".dist-info")]
    if len(names) == 1:
        return names[0].removeprefix("llvmlite-").removesuffix(".dist-info")
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("llvmlite")
    except PackageNotFoundError:
        return "unknown"


class CompileCacheStats:
    """Counts since the cache was opened. `damaged` ones are misses, too."""

    def __init__(self) -> None:
        self.hits = self.misses = self.damaged = self.stored = self.evicted = 0


class CacheEntry(NamedTuple):
    """A stored image, error or note: its key, size in bytes and when it was last used, in seconds of the clock."""

    key: str
    size: int
    used: float


class CompileCache:
    """Images by key. `folder` None: every get is a miss and every put does nothing.

    `notify` gets one line when the cache cannot be used or an object in it was damaged. Many processes may use one
    folder at once: objects appear complete or not at all, and none is ever changed.
    """

    def __init__(
        self, folder: Path | None, max_bytes: int = MAX_BYTES, notify: Callable[[str], None] | None = None
    ) -> None:
        self.path = folder
        self.max_bytes = max_bytes
        self.stats = CompileCacheStats()
        self._notify = notify
        self._said: set[str] = set()
        self._folder: Folder | None = None
        self._opened = False
        self._writable = folder is not None
        self._total: int | None = None  # bytes in the folder, once counted

    def get(self, key: str) -> Image | None:
        """The image stored under `key`, or None. A damaged one is removed.

        Raises the `CompileError` that `put_failure` stored under the key.
        """
        stored = self._read(key, _image_or_failure, "compiled")
        if stored is None:
            self.stats.misses += 1
            return None
        if isinstance(stored, CompileError):
            raise stored
        self.stats.hits += 1
        return stored

    def note(self, key: str) -> dict[str, Any] | None:
        """What `put_note` stored under `key`, or None. A damaged one is removed."""
        return self._read(key, note_from_bytes, "measured")

    def _read(self, key: str, parse: Callable[[bytes, str], T], verb: str) -> T | None:
        """verb: what is done again where the object is damaged."""
        folder = self._open(create=False)
        if folder is None:
            return None
        try:
            found = folder.read(_checked(key))
        except FileNotFoundError:
            return None
        except OSError as error:
            self._say("read", f"{error.strerror or error}; going on without the cached object")
            return None
        try:
            stored = parse(found.data, key)
        except ImageError as error:
            self.stats.damaged += 1
            gone = "removed" if folder.remove(key) else "ignored"
            self._say("damaged", f"{gone} the object {key[:12]}…: {error}; it is {verb} again")
            return None
        if time.time() - found.used > _TOUCH_AFTER:
            folder.touch(key)
        return stored

    def put(self, key: str, image: Image) -> None:
        """Store the image. Makes room by removing what was not used for longest."""
        self._put(key, image.to_bytes(_checked(key)))

    def put_failure(self, key: str, error: CompileError) -> None:
        """Store the error instead of an image if it is `lasting`, so that the next start does not try again."""
        if error.lasting:
            self._put(key, failure_to_bytes(error, _checked(key)))

    def put_note(self, key: str, tree: dict[str, Any]) -> None:
        """Store what was found out: anything that JSON can say."""
        self._put(key, note_to_bytes(tree, _checked(key)))

    @contextmanager
    def claim(self, keys: Iterable[str]) -> Iterator[set[str]]:
        """Claim those keys that no other user of the folder has claimed, for the time of the `with` block.

        Claim before compiling, then look again. Without a folder that can be written to, all are given.
        """
        wanted = set(map(_checked, keys))
        if self.path is None:
            self._say("open", f"there is no home folder to keep kernels in; {_AGAIN}")
        folder = self._open(create=True) if self._writable else None
        try:
            claims = None if folder is None else Claims(folder.open_shared(CLAIMS_FILE))
        except OSError:
            claims = None
        try:
            yield wanted if claims is None else claims.take(wanted)
        finally:
            if claims is not None:
                claims.release()

    def _put(self, key: str, data: bytes) -> None:
        if not self._writable or len(data) > self.max_bytes:
            return
        folder = self._open(create=True)
        if folder is None:
            return
        try:
            self._make_room(folder, len(data))
            folder.write(key, data)
        except OSError as error:
            self._writable = False
            self._say("write", f"{error.strerror or error}; going on without storing what is compiled: {_AGAIN}")
            return
        self.stats.stored += 1
        self._total = (self._total or 0) + len(data)

    def entries(self) -> list[CacheEntry]:
        """What is stored, images, errors and notes, last used first; nothing when there is no folder.

        Raises `CacheError` if the folder is refused.
        """
        folder = self._open_or_raise()
        return [] if folder is None else sorted(_entries(folder), key=lambda e: (-e.used, e.key))

    def clear(self) -> int:
        """Remove every image, error and note, and what is half-written; other files stay. How many there were.

        Raises `CacheError` if the folder is refused or an object cannot be removed.
        """
        folder = self._open_or_raise()
        if folder is None:
            return 0
        names = folder.names()
        for name in names:
            if (_is_key(name) or _is_half_written(name) or name == CLAIMS_FILE) and not folder.remove(name):
                raise CacheError(f"{self.path}/{name} cannot be removed; is the folder writable?")
        self._total = 0
        return sum(map(_is_key, names))

    def _open(self, create: bool) -> Folder | None:
        """The folder, tried once for reading and once more when something is to be written."""
        if self._folder is None and self.path is not None and (not self._opened or (create and self._writable)):
            self._opened = True
            try:
                self._folder = Folder.open(self.path, create)
            except FolderRefused as error:
                self._writable = False
                self._say("open", f"{error}; going on without it: {_AGAIN}")
        return self._folder

    def _open_or_raise(self) -> Folder | None:
        if self.path is None:
            return None
        try:
            return Folder.open(self.path, create=False)
        except FolderRefused as error:
            raise CacheError(f"compile cache {self.path}: {error}") from None

    def _make_room(self, folder: Folder, n_bytes: int) -> None:
        """Remove the least recently used until `n_bytes` more fit. The folder is counted once, then kept in mind."""
        if self._total is not None and self._total + n_bytes <= self.max_bytes:
            return
        for name, _, used in folder.files():
            if _is_half_written(name) and time.time() - used > _STALE:
                folder.remove(name)
        entries = sorted(_entries(folder), key=lambda e: e.used)
        self._total = sum(e.size for e in entries)
        if self._total + n_bytes <= self.max_bytes:
            return
        # A quarter at once, so that a full cache is not listed again at every put.
        limit = max(self.max_bytes - max(n_bytes, self.max_bytes // 4), 0)
        for entry in entries:
            if self._total <= limit:
                break
            if folder.remove(entry.key):
                self._total -= entry.size
                self.stats.evicted += 1

    def _say(self, kind: str, problem: str) -> None:
        """One line for the user, once for each kind of problem."""
        if kind not in self._said and self._notify is not None:
            self._said.add(kind)
            self._notify(f"compile cache {self.path or ''}".rstrip() + f": {problem}")


def _image_or_failure(data: bytes, key: str) -> Image | CompileError:
    """Raises `ImageError`."""
    return failure_from_bytes(data, key) if is_failure(data) else Image.from_bytes(data, key)


def _checked(key: str) -> str:
    if not _is_key(key):
        raise ValueError(f"{key!r} is no cache key; it must be 64 hex digits (cache_key makes them)")
    return key


def _entries(folder: Folder) -> list[CacheEntry]:
    return [CacheEntry(name, size, used) for name, size, used in folder.files() if _is_key(name)]


def _is_key(name: str) -> bool:
    return len(name) == 64 and not name.strip("0123456789abcdef")


def _is_half_written(name: str) -> bool:
    return name.endswith(HALF_WRITTEN) and _is_key(name[:64])


class Claims:
    """Keys that are this process's to compile, until `release`. descriptor: of the file of locks, which this owns."""

    def __init__(self, descriptor: int) -> None:
        self._file = descriptor

    def take(self, keys: Iterable[str]) -> set[str]:
        """Claim keys without waiting; returns those that no other process had claimed."""
        return {key for key in keys if self._lock(key)}

    def release(self) -> None:
        """Give up all claims."""
        os.close(self._file)

    def _lock(self, key: str) -> bool:
        """Claim one key. On a file system without locks every claim succeeds, so work may be done twice."""
        lock = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, int(key[:15], 16), 1, 0)
        try:
            # An open file's locks, not the process's: those of one thread keep another thread out.
            fcntl.fcntl(self._file, fcntl.F_OFD_SETLK, lock)
        except OSError as error:
            return error.errno not in _TAKEN
        return True

"""Large reads of files past the page cache, several at once, while the caller goes on.

A read goes from the disk to its place in memory (O_DIRECT). Where a file system refuses that, the page cache is asked
to drop what was read.
"""

from __future__ import annotations

import mmap
import os
import threading
import time
import weakref
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Final

from zinc_rt.errors import BackendError

PAGE: Final = mmap.PAGESIZE
"""What offsets, sizes and addresses of direct reads are multiples of."""
READERS: Final = 4
"""Reads in flight: disks reach their rate with several."""
BLOCK: Final = 4 << 20
"""Bytes of a read at the most."""
Range = tuple[int, int]
"""The first byte and the one behind the last, multiples of `PAGE`."""


class ReadFailed(BackendError):
    """A file could not be read where it has to be read in the middle of a step."""


def page_below(n: int) -> int:
    """The multiple of `PAGE` at or below n."""
    return n // PAGE * PAGE


def page_above(n: int) -> int:
    """The multiple of `PAGE` at or above n."""
    return -(-n // PAGE) * PAGE


class DirectFile:
    """A file that is read and written by whole pages, past the page cache. Raises OSError where it cannot be opened."""

    def __init__(self, path: str | os.PathLike[str], flags: int = os.O_RDONLY, mode: int = 0o600) -> None:
        self.path = os.fspath(path)
        flags |= os.O_CLOEXEC
        try:
            self._descriptor = os.open(self.path, flags | os.O_DIRECT, mode)
            self.direct = True
        except OSError:
            self._descriptor = os.open(self.path, flags & ~os.O_EXCL, mode)
            self.direct = False
        self._close = weakref.finalize(self, os.close, self._descriptor)

    @property
    def n_bytes(self) -> int:
        """Of the file now."""
        return os.fstat(self._descriptor).st_size

    def read(self, into: memoryview, offset: int) -> None:
        """Fill whole pages of memory from an offset on. Raises `ReadFailed`."""
        done = 0
        while done < len(into):
            try:
                n = os.preadv(self._descriptor, [into[done:]], offset + done)
            except OSError as error:
                raise ReadFailed(self._message(offset + done, error.strerror or str(error))) from None
            if n == 0 or (n % PAGE and done + n < len(into)):
                at = offset + done + n
                raise ReadFailed(self._message(at, f"the file ends there, {len(into) - done - n} bytes are missing"))
            done += n
        if not self.direct:
            os.posix_fadvise(self._descriptor, offset, len(into), os.POSIX_FADV_DONTNEED)

    def _message(self, offset: int, reason: str) -> str:
        return f"{self.path} cannot be read at byte {offset}: {reason}; check the disk, then send the request again"

    def write(self, data: memoryview, offset: int) -> None:
        """Write whole pages from an offset on. Raises OSError."""
        done = 0
        while done < len(data):
            done += os.pwrite(self._descriptor, data[done : done + 4 * BLOCK], offset + done)
        if not self.direct:
            os.fdatasync(self._descriptor)
            os.posix_fadvise(self._descriptor, offset, len(data), os.POSIX_FADV_DONTNEED)

    def sync(self) -> None:
        """Return when what was written is on the disk. Raises OSError."""
        os.fsync(self._descriptor)

    def close(self) -> None:
        """Close it. Calling it again does nothing."""
        self._close()


class DiskRead:
    """Some ranges that are being read as one. `done` turns True once all of them were, or could not be, read."""

    def __init__(self, n_blocks: int, changed: threading.Condition) -> None:
        self._left, self._changed = n_blocks, changed
        self.error: BaseException | None = None

    @property
    def done(self) -> bool:
        """Whether nothing of it is under way."""
        return self._left == 0

    def wait(self) -> None:
        """Return when it is done. Raises nothing: see `error`."""
        if self._left:
            with self._changed:
                while self._left:
                    self._changed.wait()

    def finish(self, error: BaseException | None) -> None:
        """A block is over. For readers, which hold the condition."""
        self.error = self.error or error
        self._left -= 1
        if not self._left:
            self._changed.notify_all()


class DiskReaders:
    """Threads that read ranges of a file to the same offsets of a memory. Urgent ranges go before all others."""

    def __init__(self, file: DirectFile, memory: memoryview, n: int = READERS) -> None:
        self._queue = _Queue(file, memory)
        threads = [
            threading.Thread(target=self._queue.work, name=f"zinc-reader-{i + 1}", daemon=True) for i in range(n)
        ]
        for thread in threads:
            thread.start()
        self._close = weakref.finalize(self, _stop, self._queue, threads)

    def read(self, ranges: Iterable[Range], *, urgent: bool = True) -> DiskRead:
        """Begin to read some ranges."""
        blocks = [(at, min(at + BLOCK, stop)) for start, stop in ranges for at in range(start, stop, BLOCK)]
        return self._queue.add(blocks, urgent)

    def close(self) -> None:
        """End the threads, after the reads that they are at."""
        self._close()


class _Queue:
    """What the threads share; it knows nothing of `DiskReaders`, so that this can be collected."""

    def __init__(self, file: DirectFile, memory: memoryview) -> None:
        self._file, self._memory = file, memory
        self._changed = threading.Condition()  # a ticket is done
        self._wanted = threading.Condition()
        self._urgent: deque[tuple[DiskRead, int, int]] = deque()
        self._ahead: deque[tuple[DiskRead, int, int]] = deque()
        self._open = True

    def add(self, blocks: Sequence[Range], urgent: bool) -> DiskRead:
        ticket = DiskRead(len(blocks), self._changed)
        with self._wanted:
            (self._urgent if urgent else self._ahead).extend((ticket, *block) for block in blocks)
            self._wanted.notify(len(blocks))
        return ticket

    def work(self) -> None:
        """A thread's life."""
        while True:
            with self._wanted:
                while self._open and not (self._urgent or self._ahead):
                    self._wanted.wait()
                if not self._open:
                    return
                ticket, start, stop = (self._urgent or self._ahead).popleft()
            error: BaseException | None = None
            try:
                self._file.read(self._memory[start:stop], start)
            except BaseException as caught:  # raised again by who waits
                error = caught
            with self._changed:
                ticket.finish(error)

    def stop(self) -> None:
        with self._wanted:
            self._open = False
            self._wanted.notify_all()
            left = [*self._urgent, *self._ahead]
            self._urgent.clear()
            self._ahead.clear()
        with self._changed:
            for ticket, _, _ in left:
                ticket.finish(ReadFailed("the engine was closed"))


def _stop(queue: _Queue, threads: Sequence[threading.Thread]) -> None:
    queue.stop()
    for thread in threads:
        if thread is not threading.current_thread():
            thread.join()


def read_rate(path: str | os.PathLike[str], n_bytes: int = 128 << 20) -> float | None:
    """Bytes a second at which a file is read as `DiskReaders` do, measured on so many bytes spread over it.

    None where that cannot be found out: the file is smaller than a block, or cannot be read.
    """
    try:
        file = DirectFile(path)
    except OSError:
        return None
    whole = page_below(file.n_bytes)
    blocks = min(n_bytes, whole) // BLOCK
    if not blocks:
        file.close()
        return None
    area = mmap.mmap(-1, BLOCK * READERS, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    places = deque(page_below(i * (whole - BLOCK) // max(1, blocks - 1)) for i in range(blocks))

    def work(slot: int) -> None:
        into = memoryview(area)[slot * BLOCK : (slot + 1) * BLOCK]
        with suppress(IndexError, ReadFailed):
            while True:
                file.read(into, places.popleft())

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(READERS)]
    begin = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    file.close()
    return None if places else blocks * BLOCK / seconds

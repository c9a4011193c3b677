"""Copies of a buffer's pages in a cache."""

from __future__ import annotations

import mmap
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from amdgpu_emu.memory import BufferObject
from zinc_rt.utils.linux import MAP_ANONYMOUS, MAP_NORESERVE, MAP_PRIVATE, PAGE

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]


class CachedPages:
    """The pages of one buffer that one cache holds. Only pages that were touched take memory."""

    __slots__ = ("bo", "data", "held", "present")

    def __init__(self, bo: BufferObject) -> None:
        n = (bo.size + PAGE - 1) // PAGE
        self.bo = bo
        self.data: Bytes = sparse(n * PAGE, np.uint8)
        self.present: Flags = np.zeros(n, np.bool_)
        self.held: list[int] = []

    def missing(self, first: int, last: int) -> list[int]:
        """Missing pages from `first` to `last`; the caller fills them, and they count as held from now on."""
        present = self.present
        if first == last:
            found = [] if present[first] else [first]
        else:
            found = [first + int(i) for i in np.flatnonzero(~present[first : last + 1])]
        for page in found:
            present[page] = True
        self.held += found
        return found

    def clear(self) -> None:
        """Drop all pages."""
        if self.held:
            self.present[self.held] = False
            self.held.clear()


class Lines(CachedPages):
    """Pages of a cache that is written, too: `dirty` tells for every byte whether it must still be written back."""

    __slots__ = ("dirty", "dirty_pages")

    def __init__(self, bo: BufferObject) -> None:
        super().__init__(bo)
        self.dirty: Flags = sparse(len(self.data), np.bool_)
        self.dirty_pages: set[int] = set()

    def store(self, offset: int, data: Bytes) -> None:
        """Write bytes and mark them dirty."""
        n = len(data)
        self.data[offset : offset + n] = data
        self.dirty[offset : offset + n] = True
        self.dirty_pages.update(range(offset // PAGE, (offset + n - 1) // PAGE + 1))

    def pour(self, target: Bytes) -> None:
        """Write the dirty bytes into another copy of the buffer; none is dirty afterwards."""
        size = len(target)
        for first, behind in runs(self.dirty_pages):
            part = slice(first * PAGE, min(behind * PAGE, size))
            np.copyto(target[part], self.data[part], where=self.dirty[part])
            self.dirty[part] = False
        self.dirty_pages.clear()

    def forget(self) -> None:
        """Discard the dirty marks without writing the bytes back."""
        for first, behind in runs(self.dirty_pages):
            self.dirty[first * PAGE : behind * PAGE] = False
        self.dirty_pages.clear()


def runs(pages: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Join page numbers to ranges [first, behind), in order."""
    first = behind = -1
    for page in sorted(pages):
        if page != behind:
            if behind > first:
                yield first, behind
            first = page
        behind = page + 1
    if behind > first:
        yield first, behind


def sparse(n: int, dtype: Any) -> npt.NDArray[Any]:
    """Zeros, `n` bytes of them, that take memory where they are touched."""
    return np.frombuffer(mmap.mmap(-1, n, flags=MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE), dtype)

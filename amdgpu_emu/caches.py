"""The caches of a GPU: one L2, and in front of it the caches of the shaders.

The model is strict and deterministic: a missing barrier gives a wrong value every time.

- The processor sees memory itself, `BufferObject.bytes`.
- The L2 holds whole pages from the first touch on. Reads come from there until it is invalidated; writes stay there
  until it is written back. Buffers that are `uncached` pass it by.
- Shaders read through a vector, a scalar and an instruction cache, which hold pages of the L2 until they are
  invalidated. They write into the L2, but not before something waits for them, and in the worst order (`cp.queue`).
- On gfx11 these three read through one more, the shader array's (GL1), which holds pages of the L2 in the same way.
- The command processor reads and writes the L2; some of its writes also go to memory at once.

Real caches hold less and evict at any time. They may hide a missing barrier; they never need one that is redundant
here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from amdgpu_emu.memory import BufferObject
from amdgpu_emu.pages import Bytes, CachedPages, Lines, runs
from amdgpu_emu.vm import GpuVm
from zinc_rt.utils.linux import PAGE

VECTOR, SCALAR, CODE, ARRAY = "vector cache", "scalar cache", "instruction cache", "shader array's cache"
LEVELS = (VECTOR, SCALAR, CODE, ARRAY)


@dataclass(frozen=True)
class Actions:
    """The cache operations of a packet: first the L2 is written back, then the named caches are invalidated."""

    write_back: bool = False
    l2: bool = False
    vector: bool = False
    scalar: bool = False
    code: bool = False
    array: bool = False

    @property
    def levels(self) -> tuple[str, ...]:
        """Names of the shaders' caches that are invalidated."""
        return tuple(
            x for x, drop in zip(LEVELS, (self.vector, self.scalar, self.code, self.array), strict=True) if drop
        )

    @classmethod
    def of_acquire(cls, gcr: int) -> Actions:
        """Decode ACQUIRE_MEM's gcr_cntl. The metadata cache is not modelled."""
        l2, vector, scalar, array = (bool(gcr & 1 << bit) for bit in (14, 8, 7, 9))
        return cls(bool(gcr & 1 << 15), l2, vector, scalar, bool(gcr & 3), array)

    @classmethod
    def of_release(cls, control: int) -> Actions:
        """Decode RELEASE_MEM's first body dword."""
        back, l2, vector, scalar, array = (bool(control & 1 << bit) for bit in (21, 20, 14, 30, 15))
        return cls(back, l2, vector, scalar, array=array)


class Caches:
    """The caches of one GPU. `lost_writes` is called with a text when an invalidate drops dirty bytes. arrays: whether
    shader arrays have a cache in front of the L2, as on gfx11. dropped: how often the L2 was invalidated.
    """

    def __init__(self, lost_writes: Callable[[str], None] = lambda text: None, *, arrays: bool = False) -> None:
        self._arrays = arrays
        self._l2: dict[BufferObject, Lines] = {}
        self._shader: dict[str, dict[BufferObject, CachedPages]] = {level: {} for level in LEVELS}
        self._spare: dict[BufferObject, list[Lines]] = {}
        self._lost_writes = lost_writes
        self.dropped = 0

    # The command processor's accesses.

    def read(self, vm: GpuVm, va: int, n: int, access: str = "read", *, bypass: bool = False) -> Bytes:
        """Read bytes, u8[n], a copy. bypass: from memory, where the L2 has nothing newer. Raises `GpuFault`."""
        parts = [
            self._past(m.bo, offset, size) if bypass or m.bo.uncached else self.lines(m.bo, offset, size)
            for m, offset, size in vm.walk(va, n, access)
        ]
        return parts[0].copy() if len(parts) == 1 else np.concatenate(parts)

    def read32(self, vm: GpuVm, va: int, *, bypass: bool = False) -> int:
        """Read a dword. bypass: as for `read`. Raises `GpuFault`."""
        return int.from_bytes(self.read(vm, va, 4, bypass=bypass).tobytes(), "little")

    def write(self, vm: GpuVm, va: int, data: bytes, *, through: bool) -> None:
        """Write to the L2; through: to memory as well, at once. Raises `GpuFault` before anything is written."""
        at, source = 0, np.frombuffer(data, np.uint8)
        for m, offset, size in list(vm.walk(va, len(data), "write")):
            self.store(m.bo, offset, source[at : at + size], through=through)
            at += size

    def store(self, bo: BufferObject, offset: int, data: Bytes, *, through: bool) -> None:
        """Write to a buffer object, by byte offset; through: to memory as well."""
        n = len(data)
        if bo.uncached:
            bo.bytes[offset : offset + n] = data
            return
        if not through:
            self.lines(bo, offset, n)
            self._l2[bo].store(offset, data)
            return
        bo.bytes[offset : offset + n] = data
        lines = self._l2.get(bo)
        if lines is not None:  # pages that are here must not hide or undo it
            lines.data[offset : offset + n] = data
            lines.dirty[offset : offset + n] = False

    def fetch(
        self, vm: GpuVm, va: int, n_dwords: int, stale: Callable[[int], None], access: str = "execute"
    ) -> list[int]:
        """Read the dwords of an indirect buffer, from executable memory, or of a ring. stale: called with the index of
        the first dword that the L2 holds otherwise than memory. Raises `GpuFault`.
        """
        words: list[int] = []
        for m, offset, size in vm.walk(va, 4 * n_dwords, access):
            if m.bo.uncached:
                words += m.bo.words(offset, size // 4).tolist()
                continue
            here = self.lines(m.bo, offset, size)
            below = m.bo.bytes[offset : offset + size]
            if not np.array_equal(here, below):
                differs = (here != below) & ~self._l2[m.bo].dirty[offset : offset + size]
                if differs.any():
                    stale(len(words) + int(differs.argmax()) // 4)
            words += here.view(np.uint32).tolist()
        return words

    def word(self, bo: BufferObject, offset: int) -> int:
        """Read a 64-bit pointer of a ring, where the memory's type has it."""
        data = bo.bytes[offset : offset + 8] if bo.uncached else self.lines(bo, offset, 8)
        return int.from_bytes(data.tobytes(), "little")

    # The L2.

    def lines(self, bo: BufferObject, offset: int, n: int) -> Bytes:
        """The bytes of a buffer as the L2 holds them, a view; loads the missing pages."""
        lines = self._l2.get(bo)
        if lines is None:
            lines = self._l2[bo] = Lines(bo)
        for page in lines.missing(offset // PAGE, (offset + n - 1) // PAGE):
            part = slice(page * PAGE, min(page * PAGE + PAGE, bo.size))
            lines.data[part] = bo.bytes[part]
        return lines.data[offset : offset + n]

    def _past(self, bo: BufferObject, offset: int, n: int) -> Bytes:
        part = slice(offset, offset + n)
        lines = self._l2.get(bo)
        return bo.bytes[part] if lines is None else np.where(lines.dirty[part], lines.data[part], bo.bytes[part])

    def act(self, actions: Actions) -> None:
        """Carry out the cache operations of a packet: write back, then invalidate."""
        if actions.write_back:
            for lines in self._l2.values():
                lines.pour(lines.bo.bytes)
        if actions.l2:
            self.dropped += 1
            for lines in self._l2.values():
                if lines.dirty_pages:
                    self._lost_writes(f"the L2 was invalidated with writes to {lines.bo.label} in it, not written back")
                    lines.forget()
                lines.clear()
        for level in actions.levels:
            for pages in self._shader[level].values():
                pages.clear()

    def useless(self, actions: Actions) -> list[str]:
        """Names of the cache operations that would change nothing now. Contents are compared: the same value written
        again counts as no change.
        """
        found = []
        if actions.write_back and not any(lines.dirty_pages for lines in self._l2.values()):
            found.append("write-back of the L2")
        if actions.l2 and not any(True for lines in self._l2.values() for _ in self._old(lines)):
            found.append("invalidate of the L2")
        for level in actions.levels:
            if level == ARRAY and not self._arrays:
                continue
            if not any(True for pages in self._shader[level].values() for _ in self._behind(pages)):
                found.append(f"invalidate of the {level}")
        return found

    @staticmethod
    def _old(lines: Lines) -> Iterator[int]:
        for page in lines.held:
            part = slice(page * PAGE, min(page * PAGE + PAGE, lines.bo.size))
            if ((lines.data[part] != lines.bo.bytes[part]) & ~lines.dirty[part]).any():
                yield page

    def _behind(self, pages: CachedPages) -> Iterator[int]:
        lines = self._l2.get(pages.bo)
        for page in pages.held:
            part = slice(page * PAGE, min(page * PAGE + PAGE, pages.bo.size))
            below = pages.bo.bytes if lines is None or not lines.present[page] else lines.data
            if not np.array_equal(pages.data[part], below[part]):
                yield page

    # The shaders' accesses.

    def shader_pages(self, level: str, bo: BufferObject) -> CachedPages:
        """The pages of a buffer that one of the shaders' caches holds."""
        held = self._shader[level]
        pages = held.get(bo)
        if pages is None:
            pages = held[bo] = CachedPages(bo)
        return pages

    def load(self, pages: CachedPages, first: int, last: int) -> None:
        """Load pages of a buffer into a shader's cache."""
        bo = pages.bo
        for page in pages.missing(first, last):
            start = page * PAGE
            n = min(PAGE, bo.size - start)
            pages.data[start : start + n] = self._behind_shaders(bo, page, start, n)

    def _behind_shaders(self, bo: BufferObject, page: int, start: int, n: int) -> Bytes:
        """The bytes of a page as the next cache behind a shader's holds them."""
        if not self._arrays:
            return self.lines(bo, start, n)
        pages = self.shader_pages(ARRAY, bo)
        if pages.missing(page, page):
            pages.data[start : start + n] = self.lines(bo, start, n)
        return pages.data[start : start + n]

    def pending(self, bo: BufferObject) -> Lines:
        """Pages for shader writes to a buffer that have not arrived yet; `arrive` takes them."""
        spare = self._spare.get(bo)
        return spare.pop() if spare else Lines(bo)

    def arrive(self, writes: Lines) -> None:
        """Move the writes of finished waves into the L2, or into memory that is not cached."""
        bo = writes.bo
        if bo.uncached:
            writes.pour(bo.bytes)
        elif writes.dirty_pages:
            for first, behind in runs(writes.dirty_pages):
                start, end = first * PAGE, min(behind * PAGE, bo.size)
                self.lines(bo, start, end - start)
                self._l2[bo].dirty[start:end] |= writes.dirty[start:end]
            lines = self._l2[bo]
            lines.dirty_pages |= writes.dirty_pages
            writes.pour(lines.data)
        self._spare.setdefault(bo, []).append(writes)

    # The buffers' lives.

    def drop(self, bo: BufferObject) -> None:
        """Drop all pages of a buffer that was freed."""
        self._l2.pop(bo, None)
        self._spare.pop(bo, None)
        for held in self._shader.values():
            held.pop(bo, None)

    def reset(self) -> None:
        """Empty the caches after a GPU reset; dirty bytes are lost."""
        self._l2.clear()
        self._spare.clear()
        for held in self._shader.values():
            held.clear()

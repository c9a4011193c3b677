"""GPU memory as the waves of one dispatch see it: byte ranges, and one address per lane, with permission checks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from amdgpu_emu.caches import CODE, SCALAR, VECTOR, Caches
from amdgpu_emu.memory import BufferObject
from amdgpu_emu.pages import Bytes, Lines
from amdgpu_emu.visibility import StoreTags, Visibility
from amdgpu_emu.vm import ADDRESS, GpuVm, Mapping
from zinc_rt.utils.linux import PAGE

Addresses = npt.NDArray[np.uint64]
_Offsets = npt.NDArray[np.int64]
_Waves = npt.NDArray[np.int64]
_ONES = {n: np.ones((1, n), np.uint8) for n in (1, 2, 4, 8, 12, 16)}
_WORD = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}


class _Piece(NamedTuple):
    """The lanes whose bytes lie in one buffer, there from which offsets on; low, high: the least and the greatest."""

    lanes: Any
    bo: BufferObject
    offsets: _Offsets
    low: int
    high: int


class ShaderMemory:
    """GPU memory for one dispatch.

    Addresses are the GPU's, sizes are bytes; methods raise `GpuFault` on refused access.

    A workgroup sees its own writes at once, the others of the dispatch when it has released and they have acquired
    (`visibility`). Other dispatches see them after `retire`, which is called when all its waves are done. Lanes that
    are switched off are left out by the caller.
    """

    def __init__(self, caches: Caches, vm: GpuVm) -> None:
        self._caches, self._vm = caches, vm
        self._writes: dict[BufferObject, Lines] = {}
        self._tags: dict[BufferObject, StoreTags] = {}
        self.order = Visibility()
        self.past_caches = False  # whether loads and stores of lanes go to the L2, past the shaders' caches

    @property
    def dropped(self) -> int:
        """How often the L2 was invalidated so far."""
        return self._caches.dropped

    # Ranges.

    def read(self, va: int, n: int) -> Bytes:
        """Read u8[n] through the vector cache."""
        return self._read(va, n, VECTOR, "read")

    def scalar(self, va: int, n: int) -> Bytes:
        """Read u8[n] through the scalar cache."""
        return self._read(va, n, SCALAR, "read")

    def code(self, va: int, n: int) -> Bytes:
        """Read u8[n] of instructions, from executable memory."""
        return self._read(va, n, CODE, "execute")

    def write(self, va: int, data: bytes | Bytes) -> None:
        """Write bytes; all of them or, when it faults, none."""
        source = np.frombuffer(data, np.uint8) if isinstance(data, bytes) else data.reshape(-1).view(np.uint8)
        at = 0
        for m, offset, size in list(self._vm.walk(va, len(source), "write")):
            self._lines(m.bo).store(offset, source[at : at + size])
            at += size

    # Lanes.

    def gather(self, addresses: Addresses, n: int, waves: _Waves | None = None) -> Bytes:
        """Read `n` bytes from each lane's address, u8[lanes, n], through the vector cache. waves: each lane's; None:
        they may see everything.

        Raises `Hidden` for a lane that may not see a store of another workgroup yet.
        """
        pieces = self._pieces(addresses, n, "read")
        if pieces is None:
            waves = None if waves is None else np.repeat(waves, n)
            return self.gather(_bytes_of(addresses, n), 1, waves).reshape(-1, n)
        if len(pieces) == 1:
            return self._gather(pieces[0], n, waves)
        found = np.empty((len(addresses), n), np.uint8)
        for piece in pieces:
            found[piece.lanes] = self._gather(piece, n, None if waves is None else waves[piece.lanes])
        return found

    def scatter(self, addresses: Addresses, data: Bytes, waves: _Waves | None = None) -> None:
        """Write data u8[lanes, n] to each lane's address; where lanes share one, the last wins. waves: as `gather`."""
        n = data.shape[1]
        pieces = self._pieces(addresses, n, "write")
        if pieces is None:
            waves = None if waves is None else np.repeat(waves, n)
            self.scatter(_bytes_of(addresses, n), data.reshape(-1, 1), waves)
            return
        self.order.changes += 1
        for piece in pieces:
            lines, offsets = self._lines(piece.bo), piece.offsets
            if waves is not None:
                self._tag(piece, n, waves[piece.lanes])
            _put(lines.data, offsets, data[piece.lanes])
            _put(lines.dirty.view(np.uint8), offsets, _ONES[n] if n in _ONES else np.ones((len(offsets), n), np.uint8))
            lines.dirty_pages.update(_pages_of(piece, n))

    def atomic(self, addresses: Addresses, n: int, update: Callable[[int, int], int]) -> npt.NDArray[np.uint64]:
        """Update numbers lane after lane: `update(lane, old)` gives the new number of `n` bytes.

        Done in the L2, visible at once.

        Returns the old numbers. Addresses are multiples of `n`.
        """
        old = np.zeros(len(addresses), np.uint64)
        self.order.changes += 1
        for lane, address in enumerate(addresses.tolist()):
            for m, offset, size in self._vm.walk(address, n, "write"):
                now = m.bo.bytes[offset : offset + size] if m.bo.uncached else self._caches.lines(m.bo, offset, size)
                lines = self._writes.get(m.bo)
                if lines is not None:
                    now = np.where(lines.dirty[offset : offset + size], lines.data[offset : offset + size], now)
                    lines.dirty[offset : offset + size] = False
                if (tags := self._tags.get(m.bo)) is not None:
                    tags.clear(offset, size)
                old[lane] = number = int.from_bytes(now.tobytes(), "little")
                new = (update(lane, number) & (1 << 8 * n) - 1).to_bytes(n, "little")
                self._caches.store(m.bo, offset, np.frombuffer(new, np.uint8), through=False)
        return old

    def retire(self) -> None:
        """Move the writes of the finished waves into the L2."""
        for lines in self._writes.values():
            self._caches.arrive(lines)
        self._writes.clear()

    # Within.

    def _lines(self, bo: BufferObject) -> Lines:
        lines = self._writes.get(bo)
        if lines is None:
            lines = self._writes[bo] = self._caches.pending(bo)
        return lines

    def _read(self, va: int, n: int, level: str, access: str) -> Bytes:
        parts = []
        for m, offset, size in self._vm.walk(va, n, access):
            if m.bo.uncached:
                part = m.bo.bytes[offset : offset + size]
            else:
                pages = self._caches.shader_pages(level, m.bo)
                self._caches.load(pages, offset // PAGE, (offset + size - 1) // PAGE)
                part = pages.data[offset : offset + size]
            lines = self._writes.get(m.bo) if level == VECTOR else None
            if lines is not None and lines.dirty_pages:
                part = np.where(lines.dirty[offset : offset + size], lines.data[offset : offset + size], part)
            parts.append(part)
        return parts[0].copy() if len(parts) == 1 else np.concatenate([*parts, np.empty(0, np.uint8)])

    def _tag(self, piece: _Piece, n: int, waves: _Waves) -> None:
        tags = self._tags.get(piece.bo)
        if tags is None:
            tags = self._tags[piece.bo] = StoreTags(piece.bo.size)
        self.order.stored(tags, piece.offsets, n, waves, known=not self.past_caches)

    def _gather(self, piece: _Piece, n: int, waves: _Waves | None) -> Bytes:
        bo, offsets = piece.bo, piece.offsets
        tags = self._tags.get(bo)
        if tags is not None and waves is not None and not self.past_caches:
            self.order.check(tags, offsets, n, waves)
        if bo.uncached:
            found = _take(bo.bytes, offsets, n)
        elif self.past_caches:
            low = piece.low // PAGE * PAGE
            found = _take(self._caches.lines(bo, low, piece.high + n - low), offsets - low, n)
        else:
            pages = self._caches.shader_pages(VECTOR, bo)
            first, last = piece.low // PAGE, (piece.high + n - 1) // PAGE
            if np.count_nonzero(pages.present[first : last + 1]) <= last - first:
                for page in _pages_of(piece, n):
                    self._caches.load(pages, page, page)
            found = _take(pages.data, offsets, n)
        lines = self._writes.get(bo)
        if lines is not None and lines.dirty_pages:
            found = np.where(_take(lines.dirty.view(np.uint8), offsets, n) != 0, _take(lines.data, offsets, n), found)
        return found

    def _pieces(self, addresses: Addresses, n: int, access: str) -> list[_Piece] | None:
        """Lanes by the mapping that they lie in, with their byte offsets in its buffer.

        None when a lane's bytes lie in two mappings.
        """
        if not len(addresses):
            return []
        low, high = int(addresses.min()), int(addresses.max())
        mapping = self._vm.at(low) if high <= ADDRESS else None
        if mapping is not None and high + n <= mapping.end and _may(mapping, access):  # all in one, as a rule
            base = mapping.va - mapping.offset
            return [_Piece(slice(None), mapping.bo, addresses.view(np.int64) - base, low - base, high - base)]
        found: list[_Piece] = []
        addresses = addresses & np.uint64(ADDRESS)
        left = np.arange(len(addresses))
        while len(left):
            here = addresses[left]
            low, high = int(here.min()), int(here.max())
            mapping = self._vm.at(low)
            if mapping is None or low + n > mapping.end or not _may(mapping, access):
                list(self._vm.walk(low, n, access))  # faults, unless the lane's bytes lie in two mappings
                return None
            if high + n <= mapping.end:
                lanes, left = left, left[:0]
            else:
                inside = here <= np.uint64(mapping.end - n)
                lanes, left = left[inside], left[~inside]
            offsets = (addresses[lanes] - np.uint64(mapping.va)).astype(np.int64) + mapping.offset
            which = slice(None) if len(lanes) == len(addresses) else lanes
            found.append(_Piece(which, mapping.bo, offsets, int(offsets.min()), int(offsets.max())))
        return found


def _bytes_of(addresses: Addresses, n: int) -> Addresses:
    return np.add(addresses[:, None], np.arange(n, dtype=np.uint64), dtype=np.uint64).reshape(-1)


def _may(mapping: Mapping, access: str) -> bool:
    return mapping.readable if access == "read" else mapping.writable


def _pages_of(piece: _Piece, n: int) -> list[int]:
    """Pages that lanes of `n` bytes touch."""
    offsets, first, last = piece.offsets, piece.low // PAGE, (piece.high + n - 1) // PAGE
    if last - first <= 1 and n <= PAGE:
        return [first, last] if last > first else [first]
    touched = np.zeros(last - first + 1, np.bool_)
    touched[offsets // PAGE - first] = True
    touched[(offsets + (n - 1)) // PAGE - first] = True
    return [first + page for page in np.flatnonzero(touched).tolist()]


def _aligned(offsets: _Offsets, n: int) -> bool:
    return not int(np.bitwise_or.reduce(offsets)) & (n - 1)


def _take(source: Bytes, offsets: _Offsets, n: int) -> Bytes:
    word = _WORD.get(n)
    if word is not None and len(source) % n == 0 and _aligned(offsets, n):
        return source.view(word).take(offsets // n).view(np.uint8).reshape(-1, n)
    # All windows of n bytes, one byte apart: one copy of n bytes a lane.
    windows = np.ndarray((len(source) - n + 1,), f"V{n}", source, 0, (1,))
    return windows[offsets].view(np.uint8).reshape(-1, n)


def _put(target: Bytes, offsets: _Offsets, data: Bytes) -> None:
    """Write data of lanes into a buffer. data: u8[lanes, n], or u8[1, n] for all lanes."""
    n = data.shape[1]
    word = _WORD.get(n)
    if word is not None and len(target) % n == 0 and _aligned(offsets, n):
        target.view(word)[offsets // n] = np.ascontiguousarray(data).view(word).reshape(-1)
    else:
        target[offsets[:, None] + np.arange(n)] = data

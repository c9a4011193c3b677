"""LDS of the workgroups that run together, with the last writer and reader of each byte."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.state import Array, Group

_WAVE_BITS = 16
_NO_WAVE = (1 << _WAVE_BITS) - 1  # several waves
_WORDS: Final[dict[int, Any]] = {1: np.uint8, 2: np.uint16, 4: np.uint32}
_WHOLE: Final = 4
_YES: Final = {1: np.uint8(1), 2: np.uint16(0x0101), 4: np.uint32(0x01010101)}
"""Flags for the bytes of a unit, all true."""


class Lds:
    """Local memory of the workgroups, one behind the other.

    Each byte has a flag whether it was written, and a tag for its last write and its last read: which wave it was, and
    how many barriers that wave had signalled before.

    Two waves race where one writes a byte, the other reads or writes it, and no barrier lies between. Two writes of the
    same value, and two atomics, are no race.

    Accesses are multiples of their unit of 1, 2 or 4 bytes, and aligned to it; `start` are offsets in `data`, i64[k].
    """

    def __init__(self, n_workgroups: int, size: int, shared: bool) -> None:
        self.size, self.shared = size, shared
        self.stride = -(-size // 4) * 4
        whole = n_workgroups * self.stride
        self.data: Array = np.full(whole, 0xA5, np.uint8)
        self.written: Array = np.zeros(whole, np.bool_)
        self.writers: Array = np.zeros(whole if shared else 0, np.int64)
        # Of each unit of 4 bytes as long as all reads were of whole ones, then of each byte.
        self.readers: Array = np.full(whole // _WHOLE if shared else 0, -1, np.int64)
        self._read_whole = True
        self.by_atomic: Array = np.zeros(whole if shared else 0, np.bool_)
        # No tag in `writers`, `readers` is greater: what a barrier lies behind needs no look at each byte.
        self._last_write, self._last_read = 0, -1

    def check(self, g: Group, addresses: Array, waves: Array, n: int) -> Array:
        """Offsets of accesses of n bytes in `data`. Raises `ShaderError` outside of the allocation."""
        if int(addresses.max(initial=0)) + n > self.size and len(addresses):
            k = int(np.argmax(addresses + n > self.size))
            raise ShaderError(
                f"LDS bytes {int(addresses[k])} to {int(addresses[k]) + n - 1}; the workgroup has {self.size}",
                wave=int(waves[k]),
                lane=int(g.access[2][k]) if g.access else None,
            )
        start: Array = g.workgroup[waves] * self.stride + addresses
        return start

    def read(self, g: Group, start: Array, waves: Array, n: int) -> Array:
        """Read u8[k, n]. Raises `ShaderError` for bytes never written, or written by another wave with no barrier
        between.
        """
        unit, at = _units(start, n)
        self._known(g, start, at, waves, unit)
        if self.shared:
            if self._last_write >= _clock(g).since:
                late = self._others(g, self.writers.reshape(-1, unit).take(at, axis=0), waves)
                self._refuse(g, start, waves, late, self.writers, "was written")
            self._note_readers(g, at, waves, unit)
        data: Array = self.data.view(_WORDS[unit]).take(at).view(np.uint8)
        return data

    def write(self, g: Group, start: Array, waves: Array, data: Array) -> None:
        """Write data, u8[k, n]. Raises `ShaderError` for a race with another wave."""
        unit, at = _units(start, data.shape[1])
        data = np.ascontiguousarray(data)
        if self.shared:
            since = _clock(g).since
            if self._last_read >= since:
                late = self._others(g, self._readers_of(at, unit), waves)
                if np.count_nonzero(late):
                    self._refuse(g, start, waves, np.broadcast_to(late, (*at.shape, unit)), self.readers, "was read")
            if self._last_write >= since:
                late = self._others(g, self.writers.reshape(-1, unit).take(at, axis=0), waves)
                late &= self.written.reshape(-1, unit).take(at, axis=0)
                if np.count_nonzero(late):
                    differs = self._differs(at, data, unit)
                    self._refuse(g, start, waves, late & differs, self.writers, "was written")
        self.data.view(_WORDS[unit])[at] = data.view(_WORDS[unit])
        self.written.view(_WORDS[unit])[at] = _YES[unit]
        if self.shared:
            tags = _clock(g).tags.take(waves)
            self.writers.reshape(-1, unit)[at] = tags[:, None, None]
            self._last_write = max(self._last_write, _clock(g).latest)
            # All bytes of a unit have one tag now: another one where a wave wrote it, too, in the same instruction.
            clash = self.writers.take(at * unit) != tags[:, None]
            if np.count_nonzero(clash):
                late = clash[:, :, None] & self._differs(at, data, unit)
                self._refuse(g, start, waves, late, self.writers, "was written")
            self.by_atomic.view(_WORDS[unit])[at] = 0

    def atomic(self, g: Group, start: Array, n: int, waves: Array, update: Callable[[int, int], int]) -> Array:
        """Carry out an atomic lane after lane, as `ShaderMemory.atomic`.

        A later read by another wave needs a barrier, too.
        """
        unit, at = _units(start, n)
        self._known(g, start, at, waves, unit)
        if self.shared:
            every = start[:, None] + np.arange(n)
            read = self.readers[every // _WHOLE if self._read_whole else every]
            self._refuse(g, start, waves, self._others(g, read, waves), self.readers, "was read")
            self._mark_atomic(g, start, every, waves)
        old = np.zeros(len(start), np.uint64)
        for k, first in enumerate(start.tolist()):
            old[k] = now = int.from_bytes(self.data[first : first + n].tobytes(), "little")
            self.data[first : first + n] = np.frombuffer(update(k, now).to_bytes(n, "little"), np.uint8)
        return old

    def _differs(self, at: Array, data: Array, unit: int) -> Array:
        """Bytes where memory differs from the data, bool[k, units, bytes]."""
        now = self.data.reshape(-1, unit).take(at, axis=0)
        differs: Array = now != data.reshape(now.shape)
        return differs

    # Who and when: barriers signalled << 16 | wave.

    def _others(self, g: Group, tags: Array, waves: Array) -> Array:
        """Whether the tags [k, ...] are those of other waves, which no barrier separates from these."""
        column = (-1, *[1] * (tags.ndim - 1))
        clock = _clock(g)
        mine, passed = clock.mine[waves].reshape(column), clock.passed[waves].reshape(column)
        late: Array = (tags >= passed) & (tags & _NO_WAVE != mine)
        return late

    def _readers_of(self, at: Array, unit: int) -> Array:
        """The tags of the last reads of units, i64[k, units, 1 or bytes]."""
        if self._read_whole:
            return self.readers.take(at * unit // _WHOLE)[:, :, None]
        found: Array = self.readers.reshape(-1, unit).take(at, axis=0)
        return found

    def _note_readers(self, g: Group, at: Array, waves: Array, unit: int) -> None:
        """The later of the readers; several of the same time are nobody in particular."""
        if self._read_whole and unit != _WHOLE:
            self._read_whole, self.readers = False, np.repeat(self.readers, _WHOLE)
        clock = _clock(g)
        places = at if self._read_whole else (at * unit)[:, :, None] + np.arange(unit)
        tags = clock.tags.take(waves).reshape(-1, *[1] * (places.ndim - 1))
        if self._last_read < clock.now:  # all of these are later
            every = np.broadcast_to(tags, places.shape)
        else:
            before = self.readers.take(places)
            together = (before ^ tags) & ~_NO_WAVE == 0
            every = np.where(together & (before != tags), tags | _NO_WAVE, np.maximum(tags, before))
            changed = every != before
            n_changed = np.count_nonzero(changed)
            if not n_changed:
                return
            if n_changed < changed.size:
                places, every = places[changed], every[changed]
        self.readers[places] = every
        clash = self.readers.take(places) != every
        if np.count_nonzero(clash):
            if clock.latest - clock.now > _NO_WAVE:  # the waves' times differ: the latest counts
                np.maximum.at(self.readers, places, every)
                last = self.readers.take(places)
                clash = (last != every) & ((last ^ every) & ~_NO_WAVE == 0)
            self.readers[places[clash]] = every[clash] | _NO_WAVE
        self._last_read = max(self._last_read, clock.latest)

    def _mark_atomic(self, g: Group, start: Array, every: Array, waves: Array) -> None:
        """Atomics of several waves do not race with each other, only with plain reads and writes."""
        tags, mine = self.writers[every], _clock(g).mine[waves][:, None]
        others = self._others(g, tags, waves) & self.written[every]
        late = others & (tags & _NO_WAVE != _NO_WAVE) & ~self.by_atomic[every]
        self._refuse(g, start, waves, late, self.writers, "was written")
        self.writers[every] = (g.signals[waves][:, None] << _WAVE_BITS) | np.where(others, _NO_WAVE, mine)
        self.by_atomic[every] = True
        first, last = np.full(len(self.writers), _NO_WAVE, np.int64), np.zeros(len(self.writers), np.int64)
        np.minimum.at(first, every, mine)
        np.maximum.at(last, every, mine)
        self.writers[every] |= np.where(first[every] != last[every], _NO_WAVE, 0)
        self._last_write = max(self._last_write, _clock(g).latest)

    # Errors.

    def _known(self, g: Group, start: Array, at: Array, waves: Array, unit: int) -> None:
        if np.count_nonzero(self.written.view(_WORDS[unit]).take(at) != _YES[unit]):
            k, byte = (int(i) for i in np.argwhere(~self.written.reshape(-1, unit)[at].reshape(len(start), -1))[0])
            raise self._error(g, start, waves, k, byte, "is read and was never written")

    def _refuse(self, g: Group, start: Array, waves: Array, late: Array, tags: Array, what: str) -> None:
        if not np.count_nonzero(late):
            return
        k, byte = (int(i) for i in np.argwhere(late.reshape(len(start), -1))[0])
        place = start[k] + byte
        other = int(tags[place // _WHOLE if tags is self.readers and self._read_whole else place]) & _NO_WAVE
        who = "several waves" if other == _NO_WAVE else f"wave {other}"
        raise self._error(g, start, waves, k, byte, f"{what} by {who} and no barrier came between: a race")

    def _error(self, g: Group, start: Array, waves: Array, k: int, byte: int, what: str) -> ShaderError:
        where = int(start[k] + byte) % self.stride
        lane: Any = int(g.access[2][k]) if g.access else None
        return ShaderError(f"LDS byte {where} {what}", wave=int(waves[k]), lane=lane)


def _units(start: Array, n: int) -> tuple[int, Array]:
    """The unit of accesses of n bytes, and the numbers of their units, i64[k, n / unit]."""
    unit = min(n, 4)
    at = (start // unit)[:, None]
    return unit, at if n == unit else at + np.arange(n // unit)


class _Clock:
    """The tags of a group between two barriers. mine: each wave's number; tags: what they leave behind; passed: tags
    below it are of a time before the last barrier, [n]; since: the least of these; now, latest: no tag that these waves
    leave is less or greater.
    """

    __slots__ = ("latest", "mine", "now", "passed", "since", "tags")

    def __init__(self, g: Group) -> None:
        self.mine = g.ids & _NO_WAVE
        self.tags = (g.signals << _WAVE_BITS) | self.mine
        self.passed = g.waits << _WAVE_BITS
        self.since = int(self.passed.min())
        self.now = int(g.signals.min()) << _WAVE_BITS
        self.latest = int(g.signals.max()) << _WAVE_BITS | _NO_WAVE


def _clock(g: Group) -> _Clock:
    if g.clock is None:
        g.clock = _Clock(g)
    found: _Clock = g.clock
    return found

"""LDS of the workgroups that run together, and who touched it when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from zinc_rt.emu.core.errors import ShaderError
from zinc_rt.emu.core.state import Array, Group

_WAVE_BITS = 16
_NO_WAVE = (1 << _WAVE_BITS) - 1  # several waves


class Lds:
    """Local memory of the workgroups, one behind the other. Every byte knows whether it was written; and of the last
    write and the last read, which wave it was and how many barriers that wave had signalled before.

    Two waves race where one writes a byte, the other reads or writes it, and no barrier lies between. Two writes of the
    same value, and two atomics, are no race.
    """

    def __init__(self, n_workgroups: int, size: int, shared: bool) -> None:
        self.size, self.shared = size, shared
        whole = n_workgroups * size
        self.data: Array = np.full(whole, 0xA5, np.uint8)
        self.written: Array = np.zeros(whole, np.bool_)
        self.writers: Array = np.zeros(whole if shared else 0, np.int64)
        self.readers: Array = np.full(whole if shared else 0, -1, np.int64)
        self.by_atomic: Array = np.zeros(whole if shared else 0, np.bool_)

    def check(self, g: Group, addresses: Array, waves: Array, n: int) -> Array:
        """Offsets in `data` of each byte, i64[k, n]. Raises for addresses outside of the allocation."""
        outside = addresses + n > self.size
        if outside.any():
            k = int(np.argmax(outside))
            raise ShaderError(
                f"LDS bytes {int(addresses[k])} to {int(addresses[k]) + n - 1}; the workgroup has {self.size}",
                wave=int(waves[k]),
                lane=int(g.access[2][k]) if g.access else None,
            )
        start = g.workgroup[waves] * self.size + addresses
        if n == 1:
            return start[:, None]
        return start[:, None] + np.arange(n)

    def read(self, g: Group, at: Array, waves: Array) -> Array:
        """u8[k, n]. Raises for bytes that nobody wrote, and those that another wave wrote with no barrier between."""
        self._known(g, at, waves)
        if self.shared:
            late = self._others(g, self.writers[at], waves)
            self._refuse(g, at, waves, late, self.writers, "was written")
            self._note_readers(g, at, waves)
        return self.data[at]

    def write(self, g: Group, at: Array, waves: Array, data: Array) -> None:
        """data: u8[k, n]."""
        if self.shared:
            self._refuse(g, at, waves, self._others(g, self.readers[at], waves), self.readers, "was read")
            late = self._others(g, self.writers[at], waves) & self.written[at]
            if late.any():
                self._refuse(g, at, waves, late & (self.data[at] != data), self.writers, "was written")
        self.data[at] = data
        self.written[at] = True
        if self.shared:
            tags = self._tags(g, waves)
            self.writers[at] = tags
            clash = self.writers[at] != tags  # a wave wrote the same byte in the same instruction
            if clash.any():
                self._refuse(g, at, waves, clash & (self.data[at] != data), self.writers, "was written")
            self.by_atomic[at] = False

    def atomic(self, g: Group, at: Array, n: int, waves: Array, update: Callable[[int, int], int]) -> Array:
        """Lane after lane, as `ShaderMemory.atomic`. at: i64[k]. A later read by another wave needs a barrier, too."""
        every = at[:, None] + np.arange(n)
        self._known(g, every, waves)
        if self.shared:
            self._refuse(g, every, waves, self._others(g, self.readers[every], waves), self.readers, "was read")
            self._mark_atomic(g, every, waves)
        old = np.zeros(len(at), np.uint64)
        for k, start in enumerate(at.tolist()):
            old[k] = now = int.from_bytes(self.data[start : start + n].tobytes(), "little")
            self.data[start : start + n] = np.frombuffer(update(k, now).to_bytes(n, "little"), np.uint8)
        return old

    # Who and when: barriers signalled << 16 | wave.

    def _tags(self, g: Group, waves: Array) -> Array:
        tags: Array = ((g.signals << _WAVE_BITS) | (g.ids & _NO_WAVE))[waves][:, None]
        return tags

    def _others(self, g: Group, tags: Array, waves: Array) -> Array:
        """Whether the tags are those of other waves, which no barrier separates from these."""
        mine = (g.ids & _NO_WAVE)[waves][:, None]
        late: Array = (tags >= (g.waits << _WAVE_BITS)[waves][:, None]) & (tags & _NO_WAVE != mine)
        return late

    def _note_readers(self, g: Group, at: Array, waves: Array) -> None:
        """The later of the readers; several of the same time are nobody in particular."""
        tags, before = self._tags(g, waves), self.readers[at]
        together = (before ^ tags) & ~_NO_WAVE == 0
        tags = np.where(together & (before != tags), tags | _NO_WAVE, np.maximum(tags, before))
        self.readers[at] = tags
        clash = self.readers[at] != tags
        if clash.any():
            self.readers[at[clash]] = tags[clash] | _NO_WAVE

    def _mark_atomic(self, g: Group, every: Array, waves: Array) -> None:
        """Atomics of several waves do not race with each other, only with plain reads and writes."""
        tags, mine = self.writers[every], (g.ids & _NO_WAVE)[waves][:, None]
        others = self._others(g, tags, waves) & self.written[every]
        late = others & (tags & _NO_WAVE != _NO_WAVE) & ~self.by_atomic[every]
        self._refuse(g, every, waves, late, self.writers, "was written")
        self.writers[every] = (g.signals[waves][:, None] << _WAVE_BITS) | np.where(others, _NO_WAVE, mine)
        self.by_atomic[every] = True
        first, last = np.full(len(self.writers), _NO_WAVE, np.int64), np.zeros(len(self.writers), np.int64)
        np.minimum.at(first, every, mine)
        np.maximum.at(last, every, mine)
        self.writers[every] |= np.where(first[every] != last[every], _NO_WAVE, 0)

    # Errors.

    def _known(self, g: Group, at: Array, waves: Array) -> None:
        known = self.written[at]
        if not known.all():
            k, byte = (int(i) for i in np.argwhere(~known)[0])
            raise self._error(g, at, waves, k, byte, "is read and was never written")

    def _refuse(self, g: Group, at: Array, waves: Array, late: Array, tags: Array, what: str) -> None:
        if not late.any():
            return
        k, byte = (int(i) for i in np.argwhere(late)[0])
        other = int(tags[at[k, byte]]) & _NO_WAVE
        who = "several waves" if other == _NO_WAVE else f"wave {other}"
        raise self._error(g, at, waves, k, byte, f"{what} by {who} and no barrier came between: a race")

    def _error(self, g: Group, at: Array, waves: Array, k: int, byte: int, what: str) -> ShaderError:
        where = int(at[k, byte]) % self.size
        lane: Any = int(g.access[2][k]) if g.access else None
        return ShaderError(f"LDS byte {where} {what}", wave=int(waves[k]), lane=lane)

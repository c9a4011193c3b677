"""What the waves of a dispatch share: memory, LDS, barriers, counts."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from zinc_rt.emu.core.counters import Counters
from zinc_rt.emu.core.errors import ShaderError
from zinc_rt.emu.core.state import Array, Group
from zinc_rt.emu.shader import Dispatch

if TYPE_CHECKING:
    from zinc_rt.emu.shader_memory import ShaderMemory

_WAVE_BITS = 16
_NO_WAVE = (1 << _WAVE_BITS) - 1  # several waves


class World:
    """n_workgroups: those that run together; waves: of each."""

    def __init__(
        self, dispatch: Dispatch, memory: ShaderMemory, counters: Counters, n_workgroups: int, waves: int
    ) -> None:
        self.dispatch, self.memory, self.counters = dispatch, memory, counters
        self.waves = waves
        self.lanes = 32 if dispatch.wave32 else 64
        self.live: Array = np.full(n_workgroups, waves, np.int64)
        self.signalled: Array = np.zeros(n_workgroups, np.int64)
        self.phase: Array = np.zeros(n_workgroups, np.int64)
        self.changes = 0  # counts whatever may let a waiting wave go on
        self.lds = Lds(n_workgroups, dispatch.lds_bytes, waves > 1)

    def signal(self, g: Group) -> None:
        """The waves arrive at their workgroup's barrier."""
        twice = g.signals > g.waits
        if twice.any():
            raise ShaderError("the barrier is signalled twice without a wait between", wave=int(np.argmax(twice)))
        gone = self.live[g.workgroup] < self.waves
        if gone.any():
            raise ShaderError("signals a barrier after a wave of its workgroup has ended", wave=int(np.argmax(gone)))
        g.signals += 1
        np.add.at(self.signalled, g.workgroup, 1)
        self._complete()

    def _complete(self) -> None:
        done = (self.signalled >= self.live) & (self.signalled > 0)
        if done.any():
            self.phase[done] += 1
            self.signalled[done] = 0
            self.changes += 1

    def may_pass(self, g: Group) -> Array:
        """bool[n]: whose barrier is complete."""
        passed: Array = self.phase[g.workgroup] > g.waits
        return passed

    def end(self, g: Group) -> None:
        """The waves end."""
        np.subtract.at(self.live, g.workgroup, 1)
        late = (self.signalled[g.workgroup] > 0) & (self.live[g.workgroup] > 0)
        if late.any():
            raise ShaderError(
                "the wave ends while others of its workgroup wait at a barrier", wave=int(np.argmax(late))
            )
        self.changes += 1


class Lds:
    """Local memory of the workgroups, one behind the other. Every byte knows whether it was written, by which wave, and
    how many barriers that wave had signalled before.
    """

    def __init__(self, n_workgroups: int, size: int, shared: bool) -> None:
        self.size, self.shared = size, shared
        self.data: Array = np.full(n_workgroups * size, 0xA5, np.uint8)
        self.written: Array = np.zeros(n_workgroups * size, np.bool_)
        self.tags: Array = np.zeros(n_workgroups * size if shared else 0, np.int64)
        self.by_atomic: Array = np.zeros(n_workgroups * size if shared else 0, np.bool_)

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
        known = self.written[at]
        if not known.all():
            k, byte = (int(i) for i in np.argwhere(~known)[0])
            raise self._error(g, at, waves, k, byte, "is read and was never written")
        if self.shared:
            tags = self.tags[at]
            late = (tags >> _WAVE_BITS >= g.waits[waves][:, None]) & (
                tags & _NO_WAVE != (g.ids[waves] & _NO_WAVE)[:, None]
            )
            if late.any():
                k, byte = (int(i) for i in np.argwhere(late)[0])
                writer = int(tags[k, byte]) & _NO_WAVE
                raise self._error(
                    g, at, waves, k, byte, f"was written by wave {writer} and no barrier came between: a race"
                )
        return self.data[at]

    def write(self, g: Group, at: Array, waves: Array, data: Array) -> None:
        """data: u8[k, n]."""
        self.data[at] = data
        self.written[at] = True
        if self.shared:
            tag = (g.signals[waves] << _WAVE_BITS) | (g.ids[waves] & _NO_WAVE)
            self.tags[at] = tag[:, None]
            self.by_atomic[at] = False

    def atomic(self, g: Group, at: Array, n: int, waves: Array, update: Callable[[int, int], int]) -> Array:
        """Lane after lane, as `ShaderMemory.atomic`. at: i64[k]. A later read by another wave needs a barrier, too."""
        every = at[:, None] + np.arange(n)
        known = self.written[every]
        if not known.all():
            k, byte = (int(i) for i in np.argwhere(~known)[0])
            raise self._error(g, every, waves, k, byte, "is read and was never written")
        if self.shared:
            self._mark_atomic(g, every, waves)
        old = np.zeros(len(at), np.uint64)
        for k, start in enumerate(at.tolist()):
            old[k] = now = int.from_bytes(self.data[start : start + n].tobytes(), "little")
            self.data[start : start + n] = np.frombuffer(update(k, now).to_bytes(n, "little"), np.uint8)
        return old

    def _mark_atomic(self, g: Group, every: Array, waves: Array) -> None:
        """Atomics of several waves do not race with each other, only with plain reads and writes."""
        tags, mine = self.tags[every], (g.ids[waves] & _NO_WAVE)[:, None]
        fresh, writer = tags >> _WAVE_BITS >= g.waits[waves][:, None], tags & _NO_WAVE
        late = fresh & (writer != mine) & (writer != _NO_WAVE) & ~self.by_atomic[every]
        if late.any():
            k, byte = (int(i) for i in np.argwhere(late)[0])
            text = f"was written by wave {int(writer[k, byte])} and no barrier came between: a race"
            raise self._error(g, every, waves, k, byte, text)
        several = fresh & (writer != mine)
        self.tags[every] = (g.signals[waves][:, None] << _WAVE_BITS) | np.where(several, _NO_WAVE, mine)
        self.by_atomic[every] = True
        first, last = np.full(len(self.tags), _NO_WAVE, np.int64), np.zeros(len(self.tags), np.int64)
        np.minimum.at(first, every, mine)
        np.maximum.at(last, every, mine)
        several = first[every] != last[every]
        self.tags[every] |= np.where(several, _NO_WAVE, 0)

    def _error(self, g: Group, at: Array, waves: Array, k: int, byte: int, what: str) -> ShaderError:
        where = int(at[k, byte]) % self.size
        lane: Any = int(g.access[2][k]) if g.access else None
        return ShaderError(f"LDS byte {where} {what}", wave=int(waves[k]), lane=lane)

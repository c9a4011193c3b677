"""Which stores of a dispatch other workgroups of it may read: those that were released, when the reader acquired.

A store goes through the cache of its compute unit and is in the L2 when its wave has waited for it (s_wait_storecnt 0,
on gfx11 s_waitcnt_vscnt 0). Another workgroup reads through a cache of its own, which may hold an older copy until it
is invalidated (global_inv for the device; gfx11 has two such caches, for buffer_gl1_inv and then buffer_gl0_inv). So a
load of what a wave of another workgroup has stored needs first that wave's wait, then an invalidate by the loading
wave. Without them a card gives the old value now and then; here it is an error, every time.

Loads and stores for the device's scope, and atomics, work in the L2 and need neither.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from amdgpu_emu.pages import sparse

Array = npt.NDArray[Any]
_NEVER = np.iinfo(np.int64).max


class Hidden(Exception):
    """A load of what may not be seen yet. lane: which of the loads; by: the workgroup that stored it."""

    def __init__(self, lane: int, by: int) -> None:
        super().__init__("stored in this dispatch")
        self.lane, self.by = lane, by


class StoreTags:
    """Of a buffer, for each dword: the wave that stored it last, plus one (0: nobody, or several), and how often that
    wave had waited for its stores before.
    """

    def __init__(self, size: int) -> None:
        n = -(-size // 4)
        self.waves: npt.NDArray[np.int32] = sparse(4 * n, np.int32)
        self.waits: npt.NDArray[np.int32] = sparse(4 * n, np.int32)

    def clear(self, offset: int, n: int) -> None:
        """Forget who stored bytes."""
        self.waves[offset // 4 : -(-(offset + n) // 4)] = 0


class Visibility:
    """The order of releases and acquires among the waves of a dispatch.

    per: waves of a workgroup. changes: counts what may let a wave go on that looks at memory.
    """

    def __init__(self) -> None:
        self.per = 1
        self.changes = 0
        self._now = 0
        self._waits: Array = np.zeros(0, np.int32)  # of each wave, so far
        self._when: Array = np.full((0, 4), _NEVER, np.int64)  # of each wave's waits
        self._acquired: Array = np.zeros(0, np.int64)  # when each wave did so last
        self._gl1: Array = np.zeros(0, np.int64)  # when each wave dropped the larger of gfx11's two caches last

    def _room(self, waves: Array) -> None:
        """Have places for these waves."""
        top, have = int(waves.max(initial=0)) + 1, len(self._waits)
        if top > have:
            more = max(top, 2 * have) - have
            self._waits = np.concatenate([self._waits, np.zeros(more, np.int32)])
            self._acquired = np.concatenate([self._acquired, np.zeros(more, np.int64)])
            self._gl1 = np.concatenate([self._gl1, np.zeros(more, np.int64)])
            self._when = np.concatenate([self._when, np.full((more, self._when.shape[1]), _NEVER, np.int64)])

    def released(self, waves: Array) -> None:
        """Note that waves have no store under way."""
        self._room(waves)
        self._now += 1
        count = self._waits[waves]
        if int(count.max()) >= self._when.shape[1]:
            self._when = np.concatenate([self._when, np.full(self._when.shape, _NEVER, np.int64)], axis=1)
        self._when[waves, count] = self._now
        self._waits[waves] = count + 1

    def acquired(self, waves: Array) -> None:
        """Note that waves have dropped what their cache holds."""
        self._room(waves)
        self._now += 1
        self._acquired[waves] = self._now

    def acquired_gl1(self, waves: Array) -> None:
        """Note that waves of gfx11 have dropped what the GL1 holds."""
        self._room(waves)
        self._now += 1
        self._gl1[waves] = self._now

    def acquired_gl0(self, waves: Array) -> None:
        """Note that waves of gfx11 have dropped what the GL0 holds, and so see what the GL1 has got since they dropped
        that.
        """
        self._room(waves)
        self._acquired[waves] = self._gl1[waves]

    def stored(self, tags: StoreTags, offsets: Array, n: int, waves: Array, *, known: bool) -> None:
        """Note stores of n bytes each. waves: numbers in the dispatch; known: whether it matters who stores."""
        self._room(waves)
        mine, count = (waves + 1).astype(np.int32), self._waits[waves]
        if not known:
            mine[...] = 0
        if n < 4:  # where others have stored beside it, it is nobody's: the tag is for whole dwords
            at = offsets >> 2
            before = tags.waves[at]
            mine = np.where((before == 0) | (before == mine), mine, 0)
            tags.waves[at], tags.waits[at] = mine, count
            clash = tags.waves[at] != mine
            if np.count_nonzero(clash):
                tags.waves[at[clash]] = 0
            return
        for k in range(0, n, 4):
            at = (offsets + k) >> 2
            tags.waves[at], tags.waits[at] = mine, count

    def check(self, tags: StoreTags, offsets: Array, n: int, waves: Array) -> None:
        """Check loads of n bytes each. Raises `Hidden` for the first that reads what it may not see yet."""
        for k in range(0, n, 4):
            at = (offsets + k) >> 2
            writers = tags.waves[at]
            if not np.count_nonzero(writers):
                continue
            foreign = (writers != 0) & ((writers - 1) // self.per != waves // self.per)
            if not np.count_nonzero(foreign):
                continue
            self._room(waves)
            which = np.flatnonzero(foreign)
            by, reader = writers[which] - 1, waves[which]
            released = self._when[by, tags.waits[at[which]].clip(max=self._when.shape[1] - 1)]
            late = released >= self._acquired[reader]
            if np.count_nonzero(late):
                first = int(np.argmax(late))
                raise Hidden(int(which[first]), int(by[first]) // self.per)

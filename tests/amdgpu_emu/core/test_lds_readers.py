"""Who read a byte of LDS last, against a model that follows every byte by itself."""

from __future__ import annotations

import copy
from collections.abc import Iterable

import numpy as np
import pytest

from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.local_memory import Lds
from amdgpu_emu.core.state import Group

WAVES, SIZE = 4, 48


class Readers:
    """The last read of each byte: when, in barriers that the wave had signalled, and the wave; None: several."""

    def __init__(self) -> None:
        self.last: list[tuple[int, int | None]] = [(0, None)] * SIZE

    def read(self, wave: int, time: int, places: Iterable[int]) -> None:
        for place in places:
            when, who = self.last[place]
            if time > when:
                self.last[place] = time, wave
            elif time == when and who != wave:
                self.last[place] = time, None

    def race(self, wave: int, passed: int, places: Iterable[int]) -> tuple[int, int | None] | None:
        """The first byte that another wave read since the wave's last barrier, and which one."""
        for place in places:
            when, who = self.last[place]
            if when >= passed and who != wave:
                return place, who
        return None


def waves_at(signals: list[int], waits: list[int]) -> Group:
    g = Group(1, 32, np.arange(WAVES), np.zeros(WAVES, np.int64))
    g.signals[:], g.waits[:] = signals, waits
    return g


def said(race: tuple[int, int | None] | None) -> str | None:
    if race is None:
        return None
    who = "several waves" if race[1] is None else f"wave {race[1]}"
    return f"LDS byte {race[0]} was read by {who} and no barrier came between: a race"


@pytest.mark.parametrize("sizes", [(4, 8, 16), (4, 16, 1, 2)], ids=["whole", "parts"])
@pytest.mark.parametrize("seed", range(4))
def test_a_write_after_reads(seed: int, sizes: tuple[int, ...]) -> None:
    """Of several waves in one instruction and in several, before and behind barriers that some have signalled."""
    rng = np.random.default_rng(seed)
    lds, model = Lds(1, SIZE, True), Readers()
    lds.written[:] = True
    signals, waits = [1] * WAVES, [1] * WAVES
    races = 0
    for _ in range(120):
        what = rng.random()
        if what < 0.15:
            wave = int(rng.integers(WAVES))
            signals[wave] = waits[wave] + 1
        elif what < 0.2 and all(s > w for s, w in zip(signals, waits, strict=True)):
            waits = list(signals)
        elif what < 0.6:
            n = int(rng.choice(sizes))
            lanes = int(rng.integers(1, 5))
            waves = np.sort(rng.integers(0, WAVES, lanes))
            start = rng.integers(0, (SIZE - n) // min(n, 4) + 1, lanes) * min(n, 4)
            lds.read(waves_at(signals, waits), start, waves, n)
            for at, wave in zip(start.tolist(), waves.tolist(), strict=True):
                model.read(wave, signals[wave], range(at, at + n))
        else:
            n, wave = int(rng.choice((1, 2, 4, 16))), int(rng.integers(WAVES))
            at = int(rng.integers(0, (SIZE - n) // min(n, 4) + 1)) * min(n, 4)
            want = said(model.race(wave, waits[wave], range(at, at + n)))
            races += want is not None
            assert written(lds, waves_at(signals, waits), wave, at, n) == want
            if n == 4:
                assert added(lds, waves_at(signals, waits), wave, at) == want
    assert races > 10


def written(lds: Lds, g: Group, wave: int, at: int, n: int) -> str | None:
    """What is wrong with a write, which another copy of the memory gets."""
    try:
        copy.deepcopy(lds).write(g, np.array([at]), np.array([wave]), np.zeros((1, n), np.uint8))
    except ShaderError as error:
        return str(error)
    return None


def added(lds: Lds, g: Group, wave: int, at: int) -> str | None:
    try:
        copy.deepcopy(lds).atomic(g, np.array([at]), 4, np.array([wave]), lambda k, now: now)
    except ShaderError as error:
        return str(error)
    return None

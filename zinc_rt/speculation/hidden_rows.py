"""Hidden states of a text's last positions, in one array that grows at its end and lets go of its beginning."""

from __future__ import annotations

from typing import Final

import numpy as np
import numpy.typing as npt

F32 = npt.NDArray[np.float32]

_LEAST: Final = 64
"""Rows that an array has room for."""


class HiddenRows:
    """f32[n, width] of consecutive positions, the first of which is `first`."""

    def __init__(self, first: int, width: int) -> None:
        self.first = first
        self._room: F32 = np.empty((0, width), np.float32)
        self._at = self._n = 0  # where in the room they begin, and how many there are

    def __getitem__(self, positions: slice) -> F32:
        """A view of the rows of positions from start to stop - 1, all of which are there."""
        begin = self._at - self.first
        return self._room[begin + positions.start : begin + positions.stop]

    def add(self, rows: F32) -> None:
        """The positions that follow."""
        end = self._at + self._n
        if end + len(rows) > len(self._room):
            room = np.empty((max(_LEAST, 2 * (self._n + len(rows))), self._room.shape[1]), np.float32)
            room[: self._n] = self._room[self._at : end]
            self._room, self._at, end = room, 0, self._n
        self._room[end : end + len(rows)] = rows
        self._n += len(rows)

    def cut(self, n: int) -> None:
        """Only positions below n stay; the next that is added is n, or earlier, if there were less."""
        self._n = min(self._n, max(0, n - self.first))
        self.first = min(self.first, n)

    def drop(self, first: int) -> None:
        """Positions before `first` are not needed again."""
        n = min(self._n, first - self.first)
        if n > 0:
            self.first, self._at, self._n = self.first + n, self._at + n, self._n - n

"""Pictures in an engine's sequences: the numbers that stand for their rows, the rows, and what a step needs of them.

A row of a picture is a token of its sequence like any other, with a negative number that is made of the picture's
digest and of the row: equal pictures have equal numbers, so pages and prefixes are found by them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.batch import EngineError, SequenceChunk
from zinc_rt.models.definition import F32, PictureInputs
from zinc_rt.models.hidden import IS_GIVEN, LAST_POSITIONS
from zinc_rt.models.pictures import GIVEN, ROW_ANGLES

_ROW_BITS: Final = 14
MAX_PICTURE_ROWS: Final = 1 << _ROW_BITS
"""Rows of a picture, at most."""
KNOWN_PICTURES: Final = 1 << 16
"""Pictures whose sizes are remembered."""
KEPT_BYTES: Final = 256 << 20
"""Rows of pictures that are kept after their prompts were computed."""


@dataclass(frozen=True, slots=True)
class PlacedPicture:
    """A picture as it stands in sequences.

    digest: 32 bytes that no other picture has, nor this one with another projector. n_rows: rows that stand for it.
    columns, lines: of its rows, where the model's positions have lines and columns; 0 for others.
    """

    digest: bytes
    n_rows: int
    columns: int = 0
    lines: int = 0

    @property
    def number(self) -> int:
        """What its rows' numbers are made of."""
        return int.from_bytes(self.digest[:6], "little")

    def ids(self, start: int, end: int) -> range:
        """The numbers that stand for rows start to end - 1."""
        first = -1 - (self.number << _ROW_BITS)
        return range(first - start, first - end, -1)

    @property
    def positions(self) -> int:
        """How many positions it takes, as rotations count them."""
        return max(self.columns, self.lines) or self.n_rows


def picture_row(token: int) -> tuple[int, int]:
    """The number of a picture, and of its row, that a negative token stands for."""
    return divmod(-1 - token, MAX_PICTURE_ROWS)


class Pictures:
    """The pictures of one engine.

    Args:
        taken: how the model takes pictures.
        n_ctx: positions of a sequence.
        inputs: of the model's graph.
    """

    def __init__(self, taken: PictureInputs, n_ctx: int, inputs: Mapping[str, npt.NDArray[Any]]) -> None:
        self.taken = taken
        self._known: OrderedDict[int, PlacedPicture] = OrderedDict()
        self._rows: OrderedDict[int, F32] = OrderedDict()
        self._is_given, self._given = inputs[IS_GIVEN], inputs[GIVEN].view(np.float32)
        self._last = inputs.get(LAST_POSITIONS)
        self._table: F32 | None = None
        if taken.table is not None:
            self._table, self._angles = taken.table(n_ctx), inputs[ROW_ANGLES].view(np.float32)
        self._behind: dict[int, tuple[int, int]] = {}  # of a sequence: up to a position, by how much turns are behind

    def register(self, picture: PlacedPicture) -> None:
        """Make a picture known, which sequences will have in them.

        Raises `EngineError` where the model or the engine cannot take it.
        """
        limit = min(self.taken.max_rows or MAX_PICTURE_ROWS, MAX_PICTURE_ROWS)
        if picture.n_rows > limit:
            raise EngineError(f"a picture has {picture.n_rows} rows, the model takes up to {limit}; scale it down")
        if self.taken.both_ways and picture.n_rows > len(self._is_given):
            raise EngineError(
                f"a picture has {picture.n_rows} rows, which one step has to take; n_batch is {len(self._is_given)}:"
                " load with a larger one"
            )
        if self._known.setdefault(picture.number, picture) != picture:
            raise EngineError("two pictures have the same number; change one pixel of either")
        self._known.move_to_end(picture.number)
        if len(self._known) > KNOWN_PICTURES:  # far more than sequences can have; a request makes its own known again
            self._known.popitem(last=False)

    def pictures_of(self, tokens: Sequence[int]) -> tuple[PlacedPicture, ...]:
        """The pictures whose rows are among tokens, each once. Raises `EngineError` for a row of none that is known."""
        numbers = dict.fromkeys(picture_row(token)[0] for token in tokens if token < 0)
        if unknown := [number for number in numbers if number not in self._known]:
            raise EngineError(f"the tokens have rows of {len(unknown)} pictures that were not shown to this model")
        return tuple(self._known[number] for number in numbers)

    def has_rows(self, picture: PlacedPicture) -> bool:
        """Whether a picture's rows are there."""
        return picture.number in self._rows

    def keep(self, picture: PlacedPicture, rows: F32, needed: Collection[int] = ()) -> None:
        """Keep a picture's rows, f32[n_rows, n_embd * (1 + deepstack layers)]; older ones make room.

        needed: numbers of pictures that stay. Raises `EngineError` for rows of another shape.
        """
        if rows.shape != (picture.n_rows, self._given.shape[1]):
            raise EngineError(f"rows of a picture are {rows.shape}, {(picture.n_rows, self._given.shape[1])} is needed")
        self._rows[picture.number] = rows
        total = sum(kept.nbytes for kept in self._rows.values())
        for number in [n for n in self._rows if n != picture.number and n not in needed]:
            if total <= KEPT_BYTES:
                break
            total -= self._rows.pop(number).nbytes

    def forget(self, seq_id: int, n: int = 0) -> None:
        """A sequence's tokens from position n on are others from now on."""
        if n < self._behind.get(seq_id, (0, 0))[0]:
            del self._behind[seq_id]

    def write(
        self, chunk: SequenceChunk, first: int, ids: Sequence[int], before: SequenceChunk | None
    ) -> Sequence[int] | npt.NDArray[np.integer[Any]]:
        """Write what a step needs of a chunk's rows; returns the tokens whose embeddings are looked up for them.

        Args:
            chunk: of a sequence.
            first: its first row.
            ids: the tokens that the sequence holds.
            before: the sequence's chunk before this one, of the same step.

        Raises:
            EngineError: rows of a picture are not there, or a picture is cut whose rows see each other both ways.
        """
        start, n = chunk.start, len(chunk.tokens)
        behind = self._turned(chunk.seq_id, ids, start, before)
        if n == 1 and int(chunk.tokens[0]) >= 0:  # as in every decode step
            self._is_given[first] = 0
            if self._last is not None:
                self._last[first] = start
            if self._table is not None:
                self._angles[first] = self._table[start - behind].reshape(-1)
            return chunk.tokens
        numbers = np.array(chunk.tokens, np.int64)
        given = numbers < 0
        rows = slice(first, first + n)
        self._is_given[rows] = given
        if self._last is not None:
            self._last[rows] = np.arange(start, start + n)
        places = np.repeat(np.arange(start - behind, start - behind + n)[:, None], 3, axis=1)
        at = int(np.argmax(given)) if given.any() else n
        while at < n:
            number, row = picture_row(int(numbers[at]))
            picture, held = self._known.get(number), self._rows.get(number)
            if picture is None or held is None:
                raise EngineError(f"sequence {chunk.seq_id}: the rows of the picture at position {start + at} are gone")
            self._rows.move_to_end(number)
            most = min(n - at, picture.n_rows - row)
            wanted = np.array(picture.ids(row, row + most))
            same = numbers[at : at + most] == wanted
            count = most if same.all() else int(np.argmin(same))
            span, own = slice(at, at + count), slice(first + at, first + at + count)
            self._given[own] = held[row : row + count]
            if self._last is not None and self.taken.both_ways:
                end = start + at + picture.n_rows - row
                if end > start + n:
                    raise EngineError(
                        f"sequence {chunk.seq_id}: a step takes all rows of a picture; those of the one at position"
                        f" {start + at} end at {end}, the chunk at {start + n}"
                    )
                self._last[own] = end - 1
            if picture.columns:
                origin = places[at, 0] - row  # rows before this one have moved the origin already
                line, column = np.divmod(np.arange(row, row + count), picture.columns)
                places[span] = origin
                places[span, 1] += line
                places[span, 2] += column
                if row + count == picture.n_rows:
                    places[at + count :] -= picture.n_rows - picture.positions
            left = given[at + count :]
            at = at + count + int(np.argmax(left)) if left.any() else n
        if self._table is not None and self.taken.axes is not None:
            axes = self.taken.axes
            self._angles[rows] = self._table[places[:, axes], np.arange(len(axes))].reshape(n, -1)
        numbers[given] = 0
        return numbers

    def _turned(self, seq_id: int, ids: Sequence[int], start: int, before: SequenceChunk | None) -> int:
        """By how much the positions of rotations are behind those of the cache, at a sequence's position."""
        if self._table is None:
            return 0
        at, behind = self._behind.get(seq_id, (0, 0))
        if at > start:
            at, behind = 0, 0
        known = ids[at:start] if before is None else [*ids[at : before.start], *before.tokens]
        if known and min(known) < 0:
            for token in known:
                if token < 0:
                    number, row = picture_row(int(token))
                    picture = self._known.get(number)
                    if picture is None:
                        raise EngineError(f"sequence {seq_id} has a picture that is no longer known; show it again")
                    if row == picture.n_rows - 1:
                        behind += picture.n_rows - picture.positions
        if before is None:
            self._behind[seq_id] = start, behind
        return behind

"""Pictures on their way to an engine: fitted to a tower's size, with what stands for them in a text."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.pictures import PlacedPicture
from zinc_rt.models.towers.tower import Tower
from zinc_rt.vision.picture import Picture, PictureSource, read_picture

_KEPT: Final = 16
"""Pictures that a reader keeps, for the next question about them."""


@dataclass(frozen=True, slots=True)
class PixelTile:
    """Pixels as an encoder sees them: red, green and blue bytes, line by line."""

    width: int
    height: int
    pixels: bytes

    @property
    def array(self) -> npt.NDArray[np.uint8]:
        """u8[height, width, 3]."""
        return np.frombuffer(self.pixels, np.uint8).reshape(self.height, self.width, 3)


@dataclass(frozen=True, slots=True)
class ShownPicture:
    """A picture in a request, as a message that a socket carries. tiles: what the tower makes the rows of."""

    placed: PlacedPicture
    tiles: tuple[PixelTile, ...]


@dataclass(frozen=True, slots=True)
class PictureInText:
    """A picture, and what stands for it in a text: strings, and ranges of its rows."""

    shown: ShownPicture
    pieces: tuple[str | range, ...]

    def ids(self, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """Its tokens. encode: gives those of a string with special tokens in it."""
        out: list[int] = []
        for piece in self.pieces:
            if isinstance(piece, range):
                out += self.shown.placed.ids(piece.start, piece.stop)
            elif piece:
                out += encode(piece)
        return out


class PictureReader:
    """Reads the pictures of one model's texts. Threads may share it.

    Args:
        tower: fits pictures, and says how they stand in a text.
        identity: of the projector's file; equal pictures with another projector are others.
        read: gives the picture of a source; raises `PictureError`.
    """

    def __init__(self, tower: Tower, identity: bytes, read: Callable[[PictureSource], Picture] = read_picture) -> None:
        self._tower, self._identity, self._read = tower, identity, read
        self._fitted: OrderedDict[bytes, PictureInText] = OrderedDict()

    def read(self, source: PictureSource) -> PictureInText:
        """The picture of a source. Raises `PictureError`."""
        picture = self._read(source)
        known = self._fitted.pop(picture.digest, None)
        made = self._fit(picture) if known is None else known
        self._fitted[picture.digest] = made
        while len(self._fitted) > _KEPT:
            self._fitted.popitem(last=False)
        return made

    def _fit(self, picture: Picture) -> PictureInText:
        layout = self._tower.layout(*picture.size)
        digest = hashlib.sha256(self._identity + picture.digest).digest()
        placed = PlacedPicture(digest, layout.n_rows, layout.columns, layout.lines)
        tiles = tuple(
            PixelTile(tile.shape[1], tile.shape[0], np.ascontiguousarray(tile).tobytes())
            for tile in self._tower.tiles(picture.pixels)
        )
        pieces: list[str | range] = []
        at = 0
        for piece in layout.pieces:
            pieces.append(range(at, at + piece) if isinstance(piece, int) else piece)
            at += piece if isinstance(piece, int) else 0
        return PictureInText(ShownPicture(placed, tiles), tuple(pieces))

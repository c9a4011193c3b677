"""Pictures on their way to an engine: fitted to a tower's size, with what stands for them in a text."""

from __future__ import annotations

import hashlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.pictures import PlacedPicture

if TYPE_CHECKING:  # every engine knows these messages; few read pictures
    from zinc_rt.models.towers.tower import Tower
    from zinc_rt.vision.picture import Picture, PictureSource

_KEPT_BYTES: Final = 64 << 20
"""Pixels of fitted pictures that a reader keeps, for the next question about them."""


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

    @property
    def n_bytes(self) -> int:
        """Of its pixels."""
        return sum(len(tile.pixels) for tile in self.tiles)


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
        read: gives the picture of a source; raises `PictureError`. None for `read_picture`.
    """

    def __init__(self, tower: Tower, identity: bytes, read: Callable[[PictureSource], Picture] | None = None) -> None:
        if read is None:
            from zinc_rt.vision.picture import read_picture

            read = read_picture
        self._tower, self._identity, self._read = tower, identity, read
        self._fitted: OrderedDict[bytes, PictureInText] = OrderedDict()
        self._lock = threading.Lock()

    def read(self, source: PictureSource) -> PictureInText:
        """The picture of a source. Raises `PictureError`."""
        if isinstance(source, bytes) and (known := self._known(hashlib.sha256(source).digest())) is not None:
            return known  # its digest, without decoding it again
        picture = self._read(source)
        made = self._known(picture.digest) or self._fit(picture)
        with self._lock:
            self._fitted[picture.digest] = made
            total = sum(kept.shown.n_bytes for kept in self._fitted.values())
            while total > _KEPT_BYTES:
                total -= self._fitted.popitem(last=False)[1].shown.n_bytes
        return made

    def _known(self, digest: bytes) -> PictureInText | None:
        """A picture that was read before."""
        with self._lock:
            found = self._fitted.get(digest)
            if found is not None:
                self._fitted.move_to_end(digest)
            return found

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

"""Pictures from files, bytes, arrays and Pillow's images, checked before they are decoded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np
import numpy.typing as npt

from zinc_rt.utils.checks import show
from zinc_rt.vision.decode import MAX_BYTES, PictureError, check_size, decode, first_frame

if TYPE_CHECKING:
    from PIL.Image import Image

    from zinc_rt.vision.picture_process import PictureProcess

__all__ = ["Picture", "PictureError", "PictureSource", "read_picture"]

PictureSource: TypeAlias = "str | Path | bytes | npt.NDArray[np.uint8] | Image"


@dataclass(frozen=True, eq=False)
class Picture:
    """A decoded picture. pixels: u8[height, width, 3], red, green, blue. digest: SHA-256 of the bytes it came from."""

    pixels: npt.NDArray[np.uint8]
    digest: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]


def read_picture(source: PictureSource, name: str = "the picture", decoder: PictureProcess | None = None) -> Picture:
    """The picture of a path, of a file's bytes, of an array u8[height, width, 3] or of a Pillow image.

    Of an animation the first frame counts. Transparency is left out; a photo is turned as its EXIF data say.

    Args:
        source: the picture.
        name: what errors call it where it has no path.
        decoder: where bytes that strangers sent are decoded, within limits of time and memory; None for this process.

    Raises:
        PictureError: a file that cannot be read or decoded, another kind of array, or a picture beyond the limits.
    """
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3:
            raise PictureError(f"a picture is {source.dtype}{list(source.shape)}, uint8[height, width, 3] is needed")
        check_size(source.shape[1], source.shape[0], "the array")
        return _picture(np.ascontiguousarray(source))
    if isinstance(source, str | Path):
        return _decoded(file_bytes(source), str(source), decoder)
    if isinstance(source, bytes | bytearray | memoryview):
        return _decoded(bytes(source), name, decoder)
    if type(source).__module__.startswith("PIL."):
        return _picture(np.array(first_frame(source, name), np.uint8))
    raise PictureError(
        f"a picture is {show(source)}; a path, bytes, a NumPy array uint8[height, width, 3] or a Pillow image is needed"
    )


def file_bytes(path: str | Path) -> bytes:
    """The bytes of a file, one more than a picture may have at the most. Raises `PictureError`."""
    try:
        with open(path, "rb") as file:
            return file.read(MAX_BYTES + 1)
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise PictureError(f"cannot read {path}: {getattr(error, 'strerror', None) or error}") from None


def _decoded(data: bytes, name: str, decoder: PictureProcess | None) -> Picture:
    if decoder is None:
        return _picture(np.array(decode(data, name), np.uint8), data)
    return _picture(decoder.decode(data, name), data)


def _picture(pixels: npt.NDArray[np.uint8], source: bytes | None = None) -> Picture:
    """source: the bytes that the digest is of; None for those of the pixels, with their shape."""
    data = repr(pixels.shape).encode() + pixels.tobytes() if source is None else source
    return Picture(pixels, hashlib.sha256(data).digest())

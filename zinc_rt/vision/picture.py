"""Pictures from files, bytes, arrays and Pillow's images, checked before they are decoded."""

from __future__ import annotations

import hashlib
import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

if TYPE_CHECKING:
    from PIL.Image import Image

PictureSource: TypeAlias = "str | Path | bytes | npt.NDArray[np.uint8] | Image"
FORMATS: Final = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
MAX_BYTES: Final = 32 << 20
MAX_PIXELS: Final = 64 << 20
MAX_RATIO: Final = 200
"""Of the longer side to the shorter one."""


class PictureError(UsageError):
    """A picture that cannot be read, or that is beyond a limit."""


@dataclass(frozen=True, eq=False)
class Picture:
    """A decoded picture. pixels: u8[height, width, 3], red, green, blue. digest: SHA-256 of the bytes it came from."""

    pixels: npt.NDArray[np.uint8]
    digest: bytes

    @property
    def size(self) -> tuple[int, int]:
        """Width and height."""
        return self.pixels.shape[1], self.pixels.shape[0]


def read_picture(source: PictureSource, name: str = "the picture") -> Picture:
    """The picture of a path, of a file's bytes, of an array u8[height, width, 3] or of a Pillow image.

    Of an animation the first frame counts. Transparency is left out; a photo is turned as its EXIF data say. name: what
    errors call it where it has no path.

    Raises:
        PictureError: a file that cannot be read or decoded, another kind of array, or a picture beyond the limits.
    """
    if isinstance(source, np.ndarray):
        if source.dtype != np.uint8 or source.ndim != 3 or source.shape[2] != 3:
            raise PictureError(f"a picture is {source.dtype}{list(source.shape)}, uint8[height, width, 3] is needed")
        _check_size(source.shape[1], source.shape[0], "the array")
        pixels = np.ascontiguousarray(source)
        return Picture(pixels, hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest())
    if isinstance(source, str | Path):
        return _decode(file_bytes(source), str(source))
    if isinstance(source, bytes | bytearray | memoryview):
        return _decode(bytes(source), name)
    if type(source).__module__.startswith("PIL."):
        pixels = _pixels(source, name)
        return Picture(pixels, hashlib.sha256(repr(pixels.shape).encode() + pixels.tobytes()).digest())
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


def _decode(data: bytes, name: str) -> Picture:
    from PIL import Image

    if len(data) > MAX_BYTES:
        raise PictureError(f"{name} has more than {MAX_BYTES >> 20} MiB; scale the picture down")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow finds odd is read as it reads it
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                pixels = _pixels(image, name)
    except PictureError:
        raise
    except Exception as error:  # decoders raise whatever a damaged file makes them
        raise PictureError(f"{name} is no picture that can be read ({_reason(error)}); known are {_KNOWN}") from None
    return Picture(pixels, hashlib.sha256(data).digest())


_KNOWN: Final = ", ".join(FORMATS)


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "its first bytes are of no known format"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _pixels(image: Any, name: str) -> npt.NDArray[np.uint8]:
    """Red, green and blue of an image's first frame."""
    from PIL import ImageOps

    _check_size(image.width, image.height, name)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):
        grey = (np.asarray(image).astype(np.uint16) >> 8).astype(np.uint8)
        return np.repeat(grey[:, :, None], 3, axis=2)
    return np.array(image.convert("RGB"), np.uint8)


def _check_size(width: int, height: int, name: str) -> None:
    if width < 1 or height < 1:
        raise PictureError(f"{name} is {width} x {height} pixels: there is nothing to see")
    if width * height > MAX_PIXELS:
        raise PictureError(f"{name} is {width} x {height} pixels; the limit is {MAX_PIXELS / 1e6:.0f} million")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise PictureError(f"{name} is {width} x {height} pixels; one side may be {MAX_RATIO} times the other")

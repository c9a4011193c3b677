"""Decoding of pictures by Pillow, in whichever process: what a file's bytes hold, within limits."""

from __future__ import annotations

import io
import warnings
from typing import Any, Final

from zinc_rt.errors import UsageError

FORMATS: Final = ("PNG", "JPEG", "GIF", "BMP", "WEBP")
MAX_BYTES: Final = 32 << 20
MAX_PIXELS: Final = 64 << 20
MAX_RATIO: Final = 200
"""Of the longer side to the shorter one."""


class PictureError(UsageError):
    """A picture that cannot be read, or that is beyond a limit."""


def decode(data: bytes, name: str) -> Any:
    """The first frame of a file's bytes, as a Pillow image of mode RGB. name: for messages. Raises `PictureError`."""
    from PIL import Image

    if len(data) > MAX_BYTES:
        raise PictureError(f"{name} has more than {MAX_BYTES >> 20} MiB; scale the picture down")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what Pillow finds odd is read as it reads it
            with Image.open(io.BytesIO(data), formats=FORMATS) as image:
                return first_frame(image, name)
    except (PictureError, MemoryError):
        raise
    except Exception as error:  # decoders raise whatever a damaged file makes them
        raise PictureError(f"{name} is no picture that can be read ({_reason(error)}); known are {_KNOWN}") from None


_KNOWN: Final = ", ".join(FORMATS)


def _reason(error: Exception) -> str:
    from PIL import UnidentifiedImageError

    if isinstance(error, UnidentifiedImageError):
        return "its first bytes are of no known format"
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def first_frame(image: Any, name: str) -> Any:
    """Red, green and blue of a Pillow image's first frame, turned as its EXIF data say. Raises `PictureError`."""
    from PIL import Image, ImageOps

    check_size(image.width, image.height, name)
    image = ImageOps.exif_transpose(image)
    if image.mode.startswith("I;16"):  # Pillow's own conversion takes the low bytes
        high = image.tobytes()[0 if image.mode.endswith("B") else 1 :: 2]
        image = Image.frombytes("L", image.size, high)
    return image.convert("RGB")


def check_size(width: int, height: int, name: str) -> None:
    """Raise `PictureError` for a picture beyond the limits."""
    if width < 1 or height < 1:
        raise PictureError(f"{name} is {width} x {height} pixels: there is nothing to see")
    if width * height > MAX_PIXELS:
        raise PictureError(f"{name} is {width} x {height} pixels; the limit is {MAX_PIXELS / 1e6:.0f} million")
    if max(width, height) > MAX_RATIO * min(width, height):
        raise PictureError(f"{name} is {width} x {height} pixels; one side may be {MAX_RATIO} times the other")

"""What the process that decodes pictures does; see `zinc_rt.utils.isolated.worker`.

A request is {"name"} and a file's bytes. The answer is {"width", "height"} and the pixels u8[height, width, 3],
{"problem"}, or {"over": "memory"}.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable
from typing import Any

from zinc_rt.vision.decode import FORMATS, PictureError, decode

Answer = tuple[dict[str, Any], bytes]


def load(settings: dict[str, Any]) -> Callable[[dict[str, Any], bytes], Answer]:
    """The function of a request, with every decoder in memory: later no file opens. settings: none."""
    from PIL import Image

    for format in FORMATS:
        with contextlib.suppress(OSError, KeyError):  # a Pillow without this one
            out = io.BytesIO()
            Image.new("RGB", (1, 1)).save(out, format)
            decode(out.getvalue(), "")
    return answer


def answer(header: dict[str, Any], data: bytes) -> Answer:
    """The answer to a request."""
    try:
        image = decode(data, header["name"])
        return {"width": image.width, "height": image.height}, image.tobytes()
    except MemoryError:
        return {"over": "memory"}, b""
    except PictureError as error:
        return {"problem": str(error)}, b""

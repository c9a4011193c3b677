"""A tiny projector for the model in the package, and pictures to show it."""

from __future__ import annotations

import base64
import io
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.vision import towers
from zinc_rt.gguf import GGUFFile
from zinc_rt.llm.load import built_in_model
from zinc_rt.models import define


def write_projector(folder: Path) -> Path:
    """The file of one."""
    with GGUFFile.open(built_in_model()) as file:
        n_embd = define(file).info.n_embd
    return towers.write(folder / "mmproj.gguf", "pixtral", n_out=n_embd).path


@cache
def picture(seed: int = 1, width: int = 34, height: int = 50, kind: str = "PNG") -> bytes:
    """The bytes of a picture's file."""
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    made = io.BytesIO()
    Image.fromarray(pixels).save(made, kind)
    return made.getvalue()


def base64_of(data: bytes) -> str:
    """Bytes as a request has them."""
    return base64.b64encode(data).decode()


def data_url(data: bytes, kind: str = "image/png") -> str:
    """A URL that holds bytes."""
    return f"data:{kind};base64,{base64_of(data)}"


def part(url: object, **more: Any) -> dict[str, Any]:
    """A content part of chat completions."""
    return {"type": "image_url", "image_url": {"url": url, **more}}

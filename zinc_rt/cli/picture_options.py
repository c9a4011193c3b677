"""Pictures on the command line: the options of `run`, and paths of pictures in what is typed."""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final
from urllib.parse import unquote

from zinc_rt.cli import options as o
from zinc_rt.errors import UsageError

Images = Annotated[
    list[str] | None,
    o.option(
        o.PROMPT,
        "--image",
        metavar="FILE",
        help="A picture that the prompt is about (PNG, JPEG, WebP, GIF, BMP); may be given again. - is standard input."
        " The model needs its projector.",
    ),
]
SUFFIXES: Final = (".png", ".jpg", ".jpeg", ".webp", ".gif", ".bmp")
_WORD: Final = re.compile(r"""\s*(?:'([^']+)'|"([^"]+)"|((?:[^\s\\'"]|\\.)+))""")


def image_part(path: str) -> dict[str, Any]:
    """A picture as a part of a message, checked: its bytes are in it. path: of a file; - is standard input.

    Raises `PictureError`.
    """
    from zinc_rt.vision.picture import file_bytes, read_picture

    if path == "-":
        if sys.stdin is None:
            raise UsageError("standard input is closed; --image - reads a picture from there")
        from zinc_rt.vision.decode import MAX_BYTES

        data, name = sys.stdin.buffer.read(MAX_BYTES + 1), "standard input"
    else:
        path = os.path.expanduser(path)
        data, name = file_bytes(path), path
    read_picture(data, name)
    kind = mimetypes.guess_type(path)[0] or ""
    kind = kind if kind.startswith("image/") else ""
    return {"type": "image_url", "image_url": {"url": f"data:{kind};base64,{base64.b64encode(data).decode()}"}}


def content_of(parts: Sequence[Mapping[str, Any]], text: str) -> str | list[Mapping[str, Any]]:
    """The content of a message: pictures, then text."""
    return [*parts, {"type": "text", "text": text}] if parts else text


def plain_path(text: str) -> str:
    """A path as it is typed, or as terminals paste one: in quotes, with backslashes before spaces, as a file: URL. ~ is
    the home folder.
    """
    path = os.path.expanduser(text)
    found = None if os.path.exists(path) else _WORD.fullmatch(text)
    return path if found is None else _plain(found)


def _plain(found: re.Match[str]) -> str:
    single, double, bare = found.groups()
    word = single or double or re.sub(r"\\(.)", r"\1", bare)
    return unquote(word.removeprefix("file://")) if word.startswith("file://") else os.path.expanduser(word)


def leading_pictures(line: str) -> tuple[list[str], str]:
    """The paths of pictures at a line's beginning, as terminals paste them, and the rest of the line.

    A path may be in quotes, have backslashes before spaces, or be a file: URL. Only files that exist count.
    """
    paths: list[str] = []
    while found := _WORD.match(line):
        path = _plain(found)
        if not path.lower().endswith(SUFFIXES) or not os.path.isfile(path):
            break
        paths.append(path)
        line = line[found.end() :]
    return paths, line.strip() if paths else line

"""Pictures in conversations: content parts become marks in the template's text, and marks become rows of the prompt."""

from __future__ import annotations

import base64
import binascii
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from zinc_rt.dialects.tools import RequestError
from zinc_rt.text.errors import ChatTemplateError
from zinc_rt.utils.checks import show
from zinc_rt.vision.picture import PictureError, PictureSource
from zinc_rt.vision.shown import PictureInText, PictureReader, ShownPicture

PICTURE_PARTS: Final = ("image_url", "input_image", "image")
"""Types of content parts that are pictures."""
_DATA_URL: Final = re.compile(r"data:(image/[\w.+-]+)?(;[\w.+-]+=[\w.+-]*)*;base64,", re.ASCII | re.IGNORECASE)
_SHOWN_MARK: Final = "<picture>"
ReadPart = Callable[[Mapping[str, Any], str], PictureInText]
"""Gives the picture of a content part; it gets the part and its place. Raises `RequestError`, `PictureError`."""


def url_of(part: Mapping[str, Any], place: str) -> str:
    """The URL of a picture's part: a string, or an object with it. Raises `RequestError`."""
    name = "image_url"
    url = part.get(name)
    if isinstance(url, Mapping):
        name, url = "image_url.url", url.get("url")
    if not isinstance(url, str) or not url:
        raise RequestError(f"{place}.{name}", f"is {show(url)}; give a data: URL of the picture")
    return url


def bytes_of(url: str, place: str) -> bytes:
    """The bytes in a data: URL. Raises `RequestError`."""
    found = _DATA_URL.match(url)
    if found is None:
        raise RequestError(place, f"is {show(url)}; give data:image/png;base64,... (or another type of picture)")
    try:
        return base64.b64decode(url[found.end() :], validate=True)
    except (binascii.Error, ValueError):
        raise RequestError(place, "is a data: URL that is not base64") from None


def source_of(part: Mapping[str, Any], place: str) -> PictureSource:
    """What a caller in this process shows: `image` is a path, bytes, an array or a Pillow image; a URL holds data.

    Raises `RequestError`.
    """
    if part.get("type") == "image" and "image" in part:
        return part["image"]  # type: ignore[no-any-return]  # `read_picture` checks it
    return bytes_of(url_of(part, place), f"{place}.image_url")


def reading(reader: PictureReader) -> ReadPart:
    """What reads the parts of callers in this process."""

    def read(part: Mapping[str, Any], place: str) -> PictureInText:
        return reader.read(source_of(part, place))

    return read


class PicturePrompt:
    """The pictures of one conversation while its prompt is made. read: gives the picture of a content part."""

    def __init__(self, read: ReadPart) -> None:
        self._read = read
        self._nonce = secrets.token_hex(8)  # so that no text of a user is taken for a mark
        self._found: list[PictureInText] = []

    def mark(self, part: Mapping[str, Any], place: str) -> str:
        """What stands for a part in the template's text. Raises `RequestError`."""
        try:
            self._found.append(self._read(part, place))
        except PictureError as error:
            raise RequestError(place, f"cannot be shown: {error}") from None
        return f"<zinc-picture-{self._nonce}-{len(self._found) - 1}>"

    @property
    def shown(self) -> tuple[ShownPicture, ...]:
        """The pictures, each once."""
        return tuple({one.shown.placed: one.shown for one in self._found}.values())

    def encode(self, text: str, encode: Callable[[str], Sequence[int]]) -> list[int]:
        """The tokens of a template's text with its pictures. encode: those of a text between them.

        Raises `ChatTemplateError` where the template has not written each picture once.
        """
        parts = re.split(f"<zinc-picture-{self._nonce}-([0-9]+)>", text)
        written = [int(number) for number in parts[1::2]]
        if written != list(range(len(self._found))):
            raise ChatTemplateError(
                f"the chat template wrote the pictures {written} of {len(self._found)}; each is needed once, in order"
            )
        ids = list(encode(parts[0])) if parts[0] else []
        for picture, behind in zip(self._found, parts[2::2], strict=True):
            ids += picture.ids(encode)
            ids += encode(behind) if behind else ()
        return ids

    def plain(self, text: str) -> str:
        """A template's text for people: a word in the place of each picture."""
        return re.sub(f"<zinc-picture-{self._nonce}-[0-9]+>", _SHOWN_MARK, text)

"""Pictures in requests: found in messages, got and read beside the event loop, before a prompt is made of them."""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from time import monotonic
from typing import Any, Final

from zinc_rt.dialects.tools import RequestError
from zinc_rt.llm.pictures import PICTURE_PARTS, bytes_of, url_of
from zinc_rt.models.towers.tower import Tower
from zinc_rt.serving.api.errors import ApiError, invalid
from zinc_rt.serving.api.limits import PIXEL_BYTES, Limits
from zinc_rt.serving.api.media import MediaError, MediaRule, fetch, read_file, too_large
from zinc_rt.utils.checks import show
from zinc_rt.vision.decode import MAX_BYTES, PictureError
from zinc_rt.vision.picture import Picture, PictureSource, read_picture
from zinc_rt.vision.picture_process import PictureLimits, PictureProcess
from zinc_rt.vision.shown import PictureInText, PictureReader

_SCHEME: Final = re.compile(r"([a-z][a-z0-9+.-]*):", re.ASCII | re.IGNORECASE)


class PlacedPart(dict[str, Any]):
    """A picture's part in OpenAI's form, made of another interface's. place: of the picture in that request.

    A type of its own, since a request can hold any dictionary.
    """

    def __init__(self, url: str, place: str) -> None:
        super().__init__(type="image_url", image_url={"url": url})
        self.place = place


class ShownPart(dict[str, Any]):
    """A picture's part whose picture was read."""

    def __init__(self, picture: PictureInText) -> None:
        super().__init__(type="image_url")
        self.picture = picture


def shown_part(part: Mapping[str, Any], place: str) -> PictureInText:
    """The picture of a part that was read before: a server reads none while it renders. See `ReadPart`."""
    if not isinstance(part, ShownPart):
        raise RequestError(place, "is a picture that was not read")
    return part.picture


@dataclass(frozen=True, slots=True)
class _Found:
    """A picture's part. message, index: where it stands. place: of its URL, as the client knows it."""

    message: int
    index: int
    part: Mapping[str, Any]
    place: str


def _pictures_in(messages: Sequence[Mapping[str, Any]]) -> Iterator[_Found]:
    """The parts that are pictures and were not read yet."""
    for i, message in enumerate(messages):
        content = message.get("content")
        for j, part in enumerate(content if isinstance(content, list) else ()):
            if isinstance(part, Mapping) and part.get("type") in PICTURE_PARTS and not isinstance(part, ShownPart):
                place = part.place if isinstance(part, PlacedPart) else f"messages[{i}].content[{j}]"
                yield _Found(i, j, part, place)


def refuse_pictures(messages: Sequence[Mapping[str, Any]]) -> None:
    """Refuse conversations with pictures, for a model that reads none. Raises `ApiError`."""
    for found in _pictures_in(messages):
        raise ApiError(
            400,
            f"{found.place} is a picture, which this model does not take; serve one that reads pictures with its"
            " projector (--mmproj FILE)",
            param=found.place,
            code="unsupported_value",
        )


def without_pictures(messages: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Messages for the log: the type of a picture's part alone."""
    made = [dict(message) for message in messages]
    for found in _pictures_in(messages):
        content = made[found.message]["content"] = list(made[found.message]["content"])
        content[found.index] = {"type": found.part["type"]}
    return made


class RequestPictures:
    """Reads the pictures of requests on two threads of its own.

    Args:
        tower: of the model's projector.
        identity: of its file's contents, the same on every machine: ids of calls are made from it, too.
        rule: where they may come from besides the request.
        limits: of decoding a picture, which a process of its own does.
    """

    def __init__(
        self, tower: Tower, identity: bytes, rule: MediaRule | None = None, limits: PictureLimits | None = None
    ) -> None:
        self._decoder = PictureProcess(limits)
        self._reader = PictureReader(tower, identity, self._decode)
        self._over = False
        self._rule = rule or MediaRule()
        self._pool = ThreadPoolExecutor(2, "zinc-pictures")

    def close(self) -> None:
        """End the threads and the process. Pictures that are being read are given up."""
        self._over = True
        self._pool.shutdown(wait=False, cancel_futures=True)
        self._decoder.end()

    async def show(self, messages: list[dict[str, Any]], limits: Limits) -> list[dict[str, Any]]:
        """The conversation with pictures that were read; the same list where there are none. Raises `ApiError`."""
        found = list(_pictures_in(messages))
        if not found:
            return messages
        if len(found) > limits.pictures:
            place = found[limits.pictures].place
            said = f"{place} is picture {limits.pictures + 1} of {len(found)}; a request may have {limits.pictures}"
            raise invalid(said, place, "too_many_pictures")
        made = [dict(message) for message in messages]
        left, seconds, pixels = limits.picture_bytes, limits.picture_seconds, 0
        for one in found:
            url, place = _url(one)
            began = monotonic()
            data = await self._bytes(url, place, seconds, left)
            seconds -= min(seconds, monotonic() - began) if _is_web(url) else 0.0
            left -= len(data)
            if left < 0:
                said = f"{place} is too large: the pictures of a request may have {limits.picture_bytes} bytes in all"
                raise invalid(said, place, "picture_too_large")
            picture = await self._aside(partial(self._read, data, place))
            pixels += picture.shown.n_bytes
            if pixels > PIXEL_BYTES:
                said = f"{place} is too much: the pictures of a request may have {PIXEL_BYTES} bytes of pixels in all"
                raise invalid(said, place, "picture_too_large")
            content = made[one.message]["content"]
            if content is messages[one.message]["content"]:
                content = made[one.message]["content"] = list(content)
            content[one.index] = ShownPart(picture)
        return made

    def _decode(self, source: PictureSource) -> Picture:
        if self._over:
            raise PictureError("the server ends")
        return read_picture(source, decoder=self._decoder)

    async def _aside(self, work: Any) -> Any:
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    async def _bytes(self, url: str, place: str, seconds: float, left: int) -> bytes:
        """The bytes that a URL holds or names. left: how many of the request's may still come. Raises `ApiError`."""
        limit = min(left, MAX_BYTES)
        try:
            if _is_web(url):
                return await fetch(url, self._rule, limit, max(seconds, 0.001))
            found: bytes = await self._aside(partial(_decoded, url, place, self._rule, limit))
            return found
        except MediaError as error:
            raise invalid(f"{place} {error}", place, error.code) from None
        except RequestError as error:
            raise invalid(str(error), error.param) from None

    def _read(self, data: bytes, place: str) -> PictureInText:
        try:
            return self._reader.read(data)
        except PictureError as error:
            raise invalid(f"{place} cannot be shown: {error}", place, "invalid_picture") from None


def _url(found: _Found) -> tuple[str, str]:
    """The URL of a part, and its place. Raises `ApiError`."""
    try:
        url = url_of(found.part, found.place)
    except RequestError as error:
        raise invalid(str(error), error.param) from None
    if isinstance(found.part, PlacedPart):
        return url, found.place
    inner = ".url" if isinstance(found.part["image_url"], Mapping) else ""
    return url, f"{found.place}.image_url{inner}"


def _scheme(url: str) -> str:
    found = _SCHEME.match(url[:32])
    return "" if found is None else found[1].lower()


def _is_web(url: str) -> bool:
    return _scheme(url) in ("http", "https")


def _decoded(url: str, place: str, rule: MediaRule, limit: int) -> bytes:
    """The bytes of a data: URL, of base64 alone, or of a file. Raises `RequestError`, `MediaError`."""
    if len(url) > 4 * (limit // 3 + 64) and _scheme(url) != "file":
        raise too_large(limit)
    match _scheme(url):
        case "data":
            return bytes_of(url, place)
        case "file":
            return read_file(url, rule, limit)
        case "":
            try:
                return base64.b64decode(url, validate=True)
            except (binascii.Error, ValueError):
                pass
    raise MediaError(f"is {show(url)}; give data:image/png;base64,... (or another type of picture)")

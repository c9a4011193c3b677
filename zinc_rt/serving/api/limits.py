"""Limits that hold for every request, whoever sends it. They are checked before the work that they bound."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import numpy as np

from zinc_rt.serving.api.errors import ApiError, invalid

STOP_STRINGS: Final = 16
STOP_BYTES: Final = 256
CHOICES: Final = 8
TOP_LOGPROBS: Final = 20
LOGIT_BIASES: Final = 1024
TOOLS: Final = 128
SCHEMA_BYTES: Final = 64 * 1024
PROMPTS: Final = 64
JSON_DEPTH: Final = 64
LARGE_BODIES: Final = 512 << 20
"""Bytes of all bodies together that are larger than `Limits.body_bytes`, as those with pictures are."""
PIXEL_BYTES: Final = 128 << 20
"""Of a request's pictures as the tower sees them; half of what a message to the engine may have."""

_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
_STEPS = np.zeros(256, np.int8)
_STEPS[[ord("["), ord("{")]] = 1
_STEPS[[ord("]"), ord("}")]] = -1


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of the server. Sizes in bytes, times in seconds.

    queue: requests that wait beyond those that the engine computes. queued_tokens: tokens of the prompts that wait.
    pictures: of a request. picture_bytes: of all of them as files. picture_seconds: to fetch those that a
    request names.
    """

    body_bytes: int = 4 << 20
    header_bytes: int = 32 << 10
    header_seconds: float = 10.0
    body_seconds: float = 30.0
    write_seconds: float = 30.0
    ping_seconds: float = 15.0
    connections: int = 1024
    queue: int = 256
    queued_tokens: int = 1 << 20
    pictures: int = 16
    picture_bytes: int = 32 << 20
    picture_seconds: float = 10.0

    def body(self, pictures: bool) -> int:
        """Bytes that a request's body may have. pictures: whether it may hold some, in base64."""
        return self.body_bytes + (self.picture_bytes * 4 // 3 if pictures else 0)


class LargeBodies:
    """The memory that large bodies of running requests take. limit: in bytes."""

    def __init__(self, limit: int = LARGE_BODIES) -> None:
        self._limit, self.held = limit, 0

    def grow(self, n_bytes: int) -> None:
        """A body is larger by so many bytes. Raises `ApiError`, 503, where there is no room."""
        if self.held + n_bytes > self._limit:
            said = "the server holds as many large requests as it has room for"
            raise ApiError(503, said, code="server_busy", retry_after=5)
        self.held += n_bytes


def check_depth(body: bytes) -> None:
    """Refuse JSON whose lists and objects are nested deeper than 64. Raises `ApiError`."""
    if body.count(b"[") + body.count(b"{") <= JSON_DEPTH:
        return
    steps = _STEPS[np.frombuffer(_STRING.sub(b"", body), np.uint8)]
    if np.cumsum(steps, dtype=np.int32).max(initial=0) > JSON_DEPTH:
        raise invalid(f"the body's JSON is nested deeper than {JSON_DEPTH}", code="json_too_deep")


def check_schema(name: str, part: dict[str, Any] | None) -> None:
    """Refuse a part of a request that becomes a grammar and is too large. Raises `ApiError`."""
    if part is not None and len(msgspec.json.encode(part)) > SCHEMA_BYTES:
        raise invalid(f"{name} has more than {SCHEMA_BYTES} bytes", name)


def check_stops(stops: tuple[str, ...], param: str = "stop") -> None:
    """Refuse stop strings that are too many, empty or too long. Raises `ApiError`."""
    if len(stops) > STOP_STRINGS:
        raise invalid(f"{param} has {len(stops)} strings; at most {STOP_STRINGS} are taken", param)
    for stop in stops:
        if not stop or len(stop.encode("utf-8", "replace")) > STOP_BYTES:
            raise invalid(f"a string of {param} must have 1 to {STOP_BYTES} bytes", param)


def unauthorized(message: str) -> ApiError:
    """A request without a key that is known."""
    return ApiError(401, message, code="invalid_api_key")

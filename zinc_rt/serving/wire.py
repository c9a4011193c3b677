"""Messages as bytes: frames of MessagePack between a process that serves and the process of its engine.

A frame is its length (u32, little endian) and a list whose first element is the number of a kind. Both ends are of one
release and one machine: nothing here is a format to keep.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from zinc_rt.errors import ZincError
from zinc_rt.scheduler.messages import (
    Cancel,
    EngineInfo,
    LoadAdapter,
    Message,
    Ping,
    StepReport,
    Submit,
    TenantShare,
    UnloadAdapter,
)

_LENGTH: Final = struct.Struct("<I")
MAX_FRAME: Final = 1 << 28


class WireError(ZincError):
    """Bytes that are no frame: the other process is not what it should be."""


@dataclass(frozen=True, slots=True)
class Start:
    """The first frame to an engine's process. factory: "module:function", called with the arguments as keywords, and
    with `notify` and `progress` as `zinc_rt.load` has them; it returns an engine core. asks: it gets `planned`, too, by
    which the process tells its plan and waits for `Proceed`.
    """

    factory: str
    arguments: dict[str, Any] = field(default_factory=dict)
    asks: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """A line worth showing."""

    line: str


@dataclass(frozen=True, slots=True)
class Progress:
    """Bytes of weights loaded so far, and in all."""

    done: int
    total: int


@dataclass(frozen=True, slots=True)
class Planned:
    """Bytes that the model will take, and that its device has free; on_gpu: of a GPU's memory."""

    total: int
    available: int | None
    on_gpu: bool


@dataclass(frozen=True, slots=True)
class Proceed:
    """There is room for the plan."""


@dataclass(frozen=True, slots=True)
class NotLoaded:
    """The engine could not start. usage: whether the caller's options are wrong."""

    message: str
    usage: bool
    advice: str = ""


@dataclass(frozen=True, slots=True)
class AtWork:
    """Requests without a token that the engine computes until its next report. One of them may end it."""

    ids: tuple[str, ...]


ToEngine = Message | Start | Proceed
FromEngine = StepReport | EngineInfo | Notice | Progress | NotLoaded | AtWork | Planned

_TO: Final = (Submit, Cancel, TenantShare, Ping, Start, LoadAdapter, UnloadAdapter, Proceed)
_FROM: Final = (StepReport, EngineInfo, Notice, Progress, NotLoaded, AtWork, Planned)
_NUMBER: Final = {kind: number for kinds in (_TO, _FROM) for number, kind in enumerate(kinds)}

_encoder: Final = msgspec.msgpack.Encoder()
_to: Final[list[msgspec.msgpack.Decoder[ToEngine]]] = [msgspec.msgpack.Decoder(kind) for kind in _TO]
_from: Final[list[msgspec.msgpack.Decoder[FromEngine]]] = [msgspec.msgpack.Decoder(kind) for kind in _FROM]
_any: Final = msgspec.msgpack.Decoder(tuple[int, msgspec.Raw])


def pack(message: ToEngine | FromEngine) -> bytes:
    """A frame of one message."""
    data = _encoder.encode((_NUMBER[type(message)], message))
    if len(data) > MAX_FRAME:
        raise WireError(f"a message takes {len(data)} bytes, the limit is {MAX_FRAME}")
    return _LENGTH.pack(len(data)) + data


def unpack_to(data: bytes) -> ToEngine:
    """What an engine's process was sent, from a frame without its length. Raises `WireError`."""
    try:
        number, raw = _any.decode(data)
        return _to[number].decode(raw)
    except (msgspec.MsgspecError, IndexError, ZincError) as error:
        raise WireError(f"a message to the engine cannot be read: {error}") from None


def unpack_from(data: bytes) -> FromEngine:
    """What an engine's process sent. Raises `WireError`."""
    try:
        number, raw = _any.decode(data)
        return _from[number].decode(raw)
    except (msgspec.MsgspecError, IndexError) as error:
        raise WireError(f"a message of the engine cannot be read: {error}") from None


class Frames:
    """Cuts bytes as they arrive into frames."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The frames that are whole now, without their lengths. Raises `WireError` for a length above `MAX_FRAME`."""
        self._bytes += data
        found, start = [], 0
        while len(self._bytes) - start >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._bytes, start)
            if size > MAX_FRAME:
                raise WireError(f"a frame says that it has {size} bytes, the limit is {MAX_FRAME}")
            end = start + _LENGTH.size + size
            if end > len(self._bytes):
                break
            found.append(bytes(self._bytes[start + _LENGTH.size : end]))
            start = end
        del self._bytes[:start]
        return found

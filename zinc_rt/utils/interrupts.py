"""Blocks of code that Ctrl-C does not break off: what they change is never left half changed.

Python runs the handler of SIGINT on the main thread between any two instructions, and `KeyboardInterrupt` comes from
there. Other threads are never interrupted, and nothing here does anything on them.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

_Handler = Callable[[int, FrameType | None], Any]

# The functions that `signal` wraps: its own look each handler up in an enumeration, which takes ten times as long.
_native: Any = sys.modules.get("_signal", signal)
_get: Callable[[int], Any] = _native.getsignal
_set: Callable[[int, Any], Any] = _native.signal
_SIGINT: Final = int(signal.SIGINT)


class _State:
    """Of the outermost block on the main thread. handler: the program's own; noted: whether an interrupt came."""

    handler: _Handler | None = None
    noted = False


def _note(number: int, frame: FrameType | None) -> None:
    _State.noted = True


def _handle() -> None:
    if _State.noted and _State.handler is not None:
        _State.noted = False
        _State.handler(_SIGINT, None)


def _is_held() -> bool:
    return _get(_SIGINT) is _note


class Held:
    """A block at whose end an interrupt in it is handled, not earlier. One inside of another does nothing."""

    __slots__ = ("_outermost",)

    def __enter__(self) -> None:
        self._outermost = False
        if threading.current_thread() is not threading.main_thread():
            return
        handler = _get(_SIGINT)
        if handler is _note or not callable(handler):
            return
        _State.handler, _State.noted = handler, False
        self._outermost = True
        _set(_SIGINT, _note)  # from here on nothing is interrupted

    def __exit__(self, *_: object) -> None:
        if self._outermost:
            assert _State.handler is not None
            _set(_SIGINT, _State.handler)
            if _State.noted:
                _handle()


class Breakable:
    """A part of a `Held` block that may take long and may be broken off: an interrupt is handled at once."""

    __slots__ = ("_inside",)

    def __enter__(self) -> None:
        self._inside = threading.current_thread() is threading.main_thread() and _is_held()
        if self._inside:
            _handle()
            _set(_SIGINT, _State.handler)

    def __exit__(self, *_: object) -> None:
        if self._inside:
            _set(_SIGINT, _note)

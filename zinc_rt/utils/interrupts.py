"""Blocks of code that Ctrl-C does not break off: what they change is never left half changed.

Python runs the handler of SIGINT on the main thread between any two instructions, and `KeyboardInterrupt` comes from
there. Other threads are never interrupted, and nothing here does anything on them.
"""

from __future__ import annotations

import os
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
    """The state of the outermost block on the main thread. handler: the program's own; noted: whether an interrupt
    came.

    main: the main thread.
    """

    handler: _Handler | None = None
    noted = False
    main = threading.main_thread().ident


def _note(number: int, frame: FrameType | None) -> None:
    _State.noted = True


def _handle() -> None:
    if _State.noted and _State.handler is not None:
        _State.noted = False
        _State.handler(_SIGINT, None)


def _is_held() -> bool:
    return _get(_SIGINT) is _note


def _forked() -> None:
    _State.main = threading.get_ident()


os.register_at_fork(after_in_child=_forked)


class DeferredInterrupts:
    """A block at whose end an interrupt in it is handled, not earlier. One inside of another does nothing."""

    __slots__ = ("_outermost",)

    def __enter__(self) -> DeferredInterrupts:
        self._outermost = False
        if threading.get_ident() != _State.main:
            return self
        handler = _get(_SIGINT)
        if handler is _note or not callable(handler):
            return self
        _State.handler, _State.noted = handler, False
        self._outermost = True
        _set(_SIGINT, _note)  # from here on nothing is interrupted
        return self

    @property
    def interrupted(self) -> bool:
        """Whether an interrupt waits for the end of this block."""
        return self._outermost and _State.noted

    def __exit__(self, *_: object) -> None:
        if self._outermost:
            assert _State.handler is not None
            _set(_SIGINT, _State.handler)
            if _State.noted:
                _handle()


class Breakable:
    """A part of a `DeferredInterrupts` block that takes long and may be broken off: an interrupt is handled at once."""

    __slots__ = ("_inside",)

    def __enter__(self) -> None:
        self._inside = threading.get_ident() == _State.main and _is_held()
        if self._inside:
            _handle()
            _set(_SIGINT, _State.handler)

    def __exit__(self, *_: object) -> None:
        if self._inside:
            _set(_SIGINT, _note)

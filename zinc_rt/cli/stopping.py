"""SIGTERM as an end that cleans up."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Let SIGTERM unwind the program as Ctrl-C does, so that half-written files are removed; the exit code is 143."""

    def stop(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    if threading.current_thread() is not threading.main_thread():  # only there can a signal be handled
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)

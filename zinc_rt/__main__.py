"""The `zinc` command as a process: the console script, and `python -m zinc_rt`.

This module imports next to nothing, so that Ctrl-C is handled before the command's own imports, which take long.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from types import FrameType


def entry() -> NoReturn:
    """Run the command with the process's arguments and end the process with its exit code.

    While the command is imported, and again when it is done, Ctrl-C ends the process at once and without a word.
    """
    # Imports and loading make objects that stay. Looking through them for cycles at every 700 costs 7 % of the start.
    gc.set_threshold(200_000, 10, 10)
    # NumPy's BLAS is held to one thread where it is used at all; its others would spin for a tenth of a second here.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # not where the parent ignores it
    if handled:
        signal.signal(signal.SIGINT, _leave)
    from zinc_rt.cli.main import main
    from zinc_rt.errors import EXIT_INTERRUPTED

    try:
        if handled:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        code = main()
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    if handled:
        signal.signal(signal.SIGINT, _leave)
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (AttributeError, OSError, ValueError):  # none, closed, or nobody there any more
            continue
    # Nothing is left to be done: taking the interpreter and a vocabulary apart takes as long as opening a small model.
    os._exit(code)


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    os._exit(128 + number)  # the same as `EXIT_INTERRUPTED`, without an import that a signal may interrupt


if __name__ == "__main__":
    entry()

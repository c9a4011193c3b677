"""The root of every error that a user of ZINC_RT can cause.

Library code raises a subclass with a one-line message: what failed, the value that was seen, the limit, and
what to do. The command line prints that line and exits with `exit_code`; it never shows a traceback for one.
A refusal of a whole file has a second line, `advice`.
"""

from __future__ import annotations

import traceback
from typing import Self

EXIT_INTERRUPTED = 130
"""What the `zinc` command returns when Ctrl-C ended it, and what shells report then (128 + SIGINT)."""


class ZincError(Exception):
    """Base of all ZINC_RT errors. `exit_code` is what the `zinc` command returns for it.

    `advice` says in one line what would work instead; empty where the message says it.
    """

    exit_code = 1
    advice = ""

    def with_advice(self, advice: str) -> Self:
        """The same error with this advice."""
        self.advice = advice
        return self


class UsageError(ZincError):
    """The request itself is malformed: an unknown option, a value outside its range."""

    exit_code = 2


class BackendError(ZincError):
    """A backend, or the device below it, failed or refused a call."""


class FenceTimeout(BackendError):
    """A submission to a GPU did not retire within the timeout."""


class DeviceLost(BackendError):
    """The GPU hung, was reset or left the bus; nothing on it can be trusted. A new process may open it again."""


class ComputedWrong(BackendError):
    """The GPU did its work and left something else than it had to."""


class IntegrityError(ZincError):
    """Books contradict each other: a defect, not a bad request."""


def release_frames(error: BaseException | None) -> None:
    """Drop what the frames of an error and of those before it hold: arrays there keep the memory of devices mapped."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__cause__ or error.__context__

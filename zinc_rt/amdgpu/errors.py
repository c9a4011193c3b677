"""Errors of the AMD driver, one family for all interfaces.

`zinc_rt.amdgpu.advice` has the words of steps and what helps.
"""

from __future__ import annotations

import os

from zinc_rt.amdgpu.advice import STEPS
from zinc_rt.errors import BackendError, ComputedWrong


class SignalMismatch(ComputedWrong):
    """The fence retired, but the signal is not the one that the packets were to write."""


class InterfaceError(BackendError):
    """The driver refused a step. step: which one, in words; errno: the kernel's answer, None when there was none."""

    def __init__(self, step: str, errno: int | None, advice: str = "") -> None:
        reason = f": {os.strerror(errno)} (errno {errno})" if errno is not None else ""
        super().__init__(f"{step} failed{reason}{'; ' + advice if advice else ''}")
        self.step, self.errno, self.advice = step, errno, advice


class CallFailed(InterfaceError):
    """A call of the render node was refused. call: which one, by its name in the kernel's header."""

    def __init__(self, call: str, errno: int) -> None:
        super().__init__(call, errno)
        self.call, self.errno = call, errno


class IoctlFailed(CallFailed):
    """An ioctl was refused."""


class StepFailed(InterfaceError):
    """A step that has a name failed. word: the name, a key of `advice.STEPS`; step: the same in words; memory: what it
    was about, "" for none.
    """

    def __init__(self, word: str, errno: int | None = None, step: str = "", advice: str = "") -> None:
        super().__init__(step or (STEPS[word].text if word in STEPS else word), errno, advice)
        self.word, self.memory = word, ""


class BufferFailed(StepFailed):
    """A buffer could not be made (part "bo"), mapped into the process ("map"), put at its GPU address ("va"), or given
    back ("free"). buffer: its label; call: the refused one.
    """

    def __init__(
        self, buffer: str, part: str, errno: int | None, step: str = "", advice: str = "", *, call: str = ""
    ) -> None:
        super().__init__(f"{buffer}_{part}_failed", errno, step or buffer, advice)
        self.buffer, self.part, self.call = buffer, part, call

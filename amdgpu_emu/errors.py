"""Errors and findings: emulated code, or the user of the emulator, broke a rule."""

from __future__ import annotations

import os
from dataclasses import dataclass

from zinc_rt.errors import UsageError, ZincError


class EmulatorError(UsageError):
    """The emulator was used against its rules."""


class EmulatorFinding(ZincError):
    """Emulated code broke a rule that real hardware or a real kernel enforces late or never: a leak, say."""


class CallRefused(OSError):
    """An ioctl or mmap that the emulated kernel refuses: `errno`, and why, for the trace."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(code, os.strerror(code))
        self.why = why


class GpuFault(Exception):
    """The GPU touched an address that its page tables do not allow.

    va: the address; access: read, write or execute; reason: unmapped or not allowed; nearest: the closest mapping.
    """

    def __init__(self, va: int, access: str, reason: str, nearest: str) -> None:
        super().__init__(f"{access} of {va:#x}: {reason}; {nearest}")
        self.va, self.access, self.reason, self.nearest = va, access, reason, nearest


class GpuHang(Exception):
    """The command processor stopped: a malformed packet, a wait that never ends, a shader that failed."""


@dataclass(frozen=True)
class Violation:
    """A broken rule. kind: a short word for tests, as `leak` or `missing-store-fence`; text: what, where, how much."""

    kind: str
    text: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"

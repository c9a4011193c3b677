"""One row of the tables of refusals, and what the tables share.

They are written from the kernel's source. An errno of 0 says that those kernels accept what others refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from amdgpu_emu import profiles as p
from tests.amdgpu_emu.drm.card import Card

BEFORE_7, SINCE_7 = (p.LINUX_6_12, p.LINUX_6_17), (p.LINUX_7_3,)
SINCE_6_16 = (p.LINUX_6_17, p.LINUX_7_3)
ALL = (*BEFORE_7, *SINCE_7)
USER_QUEUES = (p.LINUX_7_3_USERQ,)
ENOTSUPP = 524
TIB = 1 << 40


@dataclass(frozen=True)
class Refusal:
    """findings: kinds of findings that the emulator adds, for what a real kernel would not notice."""

    check: str
    what: str
    errno: int
    call: Callable[[Card], Any]
    kernels: tuple[p.KernelProfile, ...] = ALL
    findings: tuple[str, ...] = ()
    machine: dict[str, Any] = field(default_factory=dict)


R = Refusal


def user_pages(c: Card) -> int:
    """Handle of a page of the caller."""
    return c.userptr(c.anonymous(4096))

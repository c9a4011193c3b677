"""Lets the event loop answer soon beside an engine that keeps all processors busy."""

from __future__ import annotations

import ctypes
import gc
import os
from typing import Final

SLICE_NS: Final = 100_000
"""Of a turn on the processor: what asks for less than others is let in as soon as it wakes (Linux 6.12 and later)."""
_RESET_ON_FORK: Final = 1  # SCHED_FLAG_RESET_ON_FORK, linux/sched.h
_NUMBERS: Final = {"x86_64": (314, 315), "aarch64": (274, 275)}
"""Numbers of sched_setattr and sched_getattr: syscall_64.tbl, asm-generic/unistd.h."""


class SchedAttr(ctypes.Structure):
    """`struct sched_attr` in its first form, 48 bytes (linux/sched/types.h)."""

    _fields_ = (
        ("size", ctypes.c_uint32),
        ("policy", ctypes.c_uint32),
        ("flags", ctypes.c_uint64),
        ("nice", ctypes.c_int32),
        ("priority", ctypes.c_uint32),
        ("runtime", ctypes.c_uint64),
        ("deadline", ctypes.c_uint64),
        ("period", ctypes.c_uint64),
    )


def scheduling() -> SchedAttr | None:
    """How this thread is scheduled; None where the system does not say."""
    numbers = _NUMBERS.get(os.uname().machine)
    found = SchedAttr()
    if numbers is None or ctypes.CDLL(None).syscall(numbers[1], 0, ctypes.byref(found), ctypes.sizeof(found), 0):
        return None
    return found


def ask_for_short_turns() -> bool:
    """Ask for turns of 0.1 ms for this thread, not for those that it starts: it then waits for less of others' turns,
    and gets no more time in all. Returns whether the system took that; where it does not, nothing changes.
    """
    now = scheduling()
    if now is None or now.policy != os.SCHED_OTHER:
        return False
    now.runtime, now.flags = SLICE_NS, now.flags | _RESET_ON_FORK
    set_number, _ = _NUMBERS[os.uname().machine]
    return int(ctypes.CDLL(None).syscall(set_number, 0, ctypes.byref(now), 0)) == 0


def keep_what_is_loaded() -> None:
    """Let the collector of garbage pass over what there is now: vocabularies are many objects, and none is garbage."""
    gc.collect()
    gc.freeze()

"""Tries whether a card runs resident programs: the self-test's step as such a program, with as many workgroups as real
ones have.

The workgroups wait for each other, so the program cannot finish on a card that does not run all of them at once; it
then ends by itself. The result is remembered beside that of the interface, under a name of its own: a card that fails
here still runs dispatches.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Final

from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.resident import PREEMPTED
from zinc_rt.backends.diagnostics.crash_log import HUNG, WRONG, Contacts, Situation
from zinc_rt.backends.gpu import selftest
from zinc_rt.errors import DeviceLost, FenceTimeout, ZincError

_ALL: Final = 1 << 20
_STEPS: Final = 4
"""Each with more than ten meetings."""


def situation_of(about: Situation) -> Situation:
    """What a proof of resident programs holds for. about: of the interface."""
    return replace(about, interface=f"{about.interface}, resident")


def bind(backend: AmdBackend, contacts: Contacts, about: Situation) -> None:
    """Tell a backend whether its card is proven, and remember it when a program ends early."""
    key = situation_of(about)
    backend.resident.proven = contacts.is_proven(key)
    backend.on_early_end = partial(contacts.failed, key, HUNG)


def prove(backend: AmdBackend, contacts: Contacts, about: Situation) -> str:
    """Try it, remember how it ended, and say it; empty where the card or the interface has no such programs.

    Raises `FenceTimeout`, `DeviceLost`: it did not even end; this is remembered.
    """
    if backend.gpu.interface.name not in PREEMPTED or not backend.gpu.gfx.resident:
        return ""
    key, programs = situation_of(about), backend.resident
    programs.use, programs.min_workgroups = "always", _ALL
    with contacts.trial(key):
        try:
            test = selftest.SelfTest(backend, rows=1)
            for _ in range(_STEPS):
                test.run()
        except ZincError as error:
            contacts.failed(key, HUNG if isinstance(error, (FenceTimeout, DeviceLost)) else WRONG, str(error))
            if isinstance(error, (FenceTimeout, DeviceLost)):
                raise
            return f"; a resident program computes wrong: {error}"
        if programs.gave_up:  # which is remembered
            return "; its workgroups do not all run at once as a resident program"
        if not programs.programs:
            return ""
        contacts.proven(key)
    return ", as a resident program too"

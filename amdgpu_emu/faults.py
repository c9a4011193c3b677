"""Faults on demand: the n-th call of a kind fails with an errno."""

from __future__ import annotations

from dataclasses import dataclass

from amdgpu_emu.abi.requests import REQUESTS, kind_of, number_of
from amdgpu_emu.errors import CallRefused, EmulatorError

CALLS = ("open", "mmap", *(request.name for request in REQUESTS))
_NAMES = {(request.type, request.number): request.name for request in REQUESTS}


@dataclass
class InjectedFault:
    """A call that shall fail. call: `open`, `mmap` or an ioctl's name (`CALLS`); skip: calls that pass first; times:
    calls that fail then (None: all); match: a part of the path, for `open`.
    """

    call: str
    errno: int
    skip: int = 0
    times: int | None = 1
    match: str = ""
    seen: int = 0

    def __post_init__(self) -> None:
        if self.call not in CALLS:
            raise EmulatorError(f"no call is named {self.call!r}; use open, mmap or the name of a request")

    def hits(self, call: str, text: str) -> bool:
        """Count a call; return whether it shall fail."""
        if call != self.call or self.match not in text:
            return False
        self.seen += 1
        return self.seen > self.skip and (self.times is None or self.seen <= self.skip + self.times)


class Faults:
    """The faults that were injected into a machine."""

    def __init__(self) -> None:
        self._faults: list[InjectedFault] = []

    def add(self, fault: InjectedFault) -> InjectedFault:
        """Add a fault, which stays until `clear`; its `seen` counts the calls."""
        self._faults.append(fault)
        return fault

    def clear(self) -> None:
        """Remove all faults."""
        self._faults.clear()

    def check(self, call: str, text: str = "") -> None:
        """Raise `CallRefused` when this call shall fail."""
        for fault in self._faults:
            if fault.hits(call, text):
                raise CallRefused(fault.errno, f"injected into {call}")


def ioctl_name(request: int) -> str:
    """The name of an ioctl request, or its numbers where it has no name."""
    return _NAMES.get((kind_of(request), number_of(request)), f"{chr(kind_of(request))} {number_of(request):#x}")

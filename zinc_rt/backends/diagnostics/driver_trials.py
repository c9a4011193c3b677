"""Trials of devices behind a driver of their maker's, CUDA and OpenCL: each computes a small model's step first.

The results are remembered as those of AMD's GPUs are (`crash_log`), for a device and the version of its driver.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Final, Protocol

from zinc_rt.backends.devices import Device, DeviceChoice, DeviceReport
from zinc_rt.backends.diagnostics.crash_log import (
    PROVEN,
    TRY_AGAIN,
    Contacts,
    Situation,
    device_situation,
)
from zinc_rt.errors import DeviceLost, FenceTimeout, ZincError
from zinc_rt.utils.closing import closed_on_failure

if TYPE_CHECKING:
    from zinc_rt.backends.gpu.backend import GpuBackend
    from zinc_rt.lang.cache import CompileCache
    from zinc_rt.utils.linux import Linux


class DriverCard(Protocol):
    """A device that a driver shows. number: behind the colon; processor: taken only where it is named."""

    @property
    def number(self) -> int: ...
    @property
    def name(self) -> str: ...
    @property
    def driver(self) -> str: ...
    @property
    def processor(self) -> bool: ...
    @property
    def refusal(self) -> str: ...
    @property
    def target(self) -> str: ...


@dataclass(frozen=True)
class DriverKind:
    """The modules of a driver. cards: has `find_cards`, all devices and why there are none; backend: module and class
    of the backend for a card.
    """

    cards: str
    backend: tuple[str, str]

    def find(self) -> tuple[Sequence[DriverCard], str]:
        """All devices, and why there are none. Never raises."""
        found: tuple[Sequence[DriverCard], str] = import_module(self.cards).find_cards()
        return found

    def open(self, card: DriverCard, cache: CompileCache, notify: Callable[[str], None] | None) -> GpuBackend:
        """A backend for one. Raises `BackendError`."""
        module, name = self.backend
        made: GpuBackend = getattr(import_module(module), name)(card, cache=cache, notify=notify)
        return made


DRIVERS: Final = {
    Device.cuda: DriverKind("zinc_rt.cuda.devices", ("zinc_rt.backends.cuda", "CudaBackend")),
    Device.opencl: DriverKind("zinc_rt.opencl.devices", ("zinc_rt.backends.opencl", "OpenClBackend")),
}
"""By device; the modules are imported when one is looked for."""


@dataclass(frozen=True)
class DriverCandidate:
    """A device that may be tried. about: the situation that a proof of it holds for; several: whether it needs its
    number to be named.
    """

    device: Device
    card: DriverCard
    about: Situation
    several: bool

    @property
    def name(self) -> str:
        """What `--device` takes for it."""
        return str(DeviceChoice(self.device, self.number))

    @property
    def number(self) -> str:
        """What stands behind the colon in its name; empty where nothing needs to."""
        return str(self.card.number) if self.several else ""

    def refused(self, reason: str, remedy: str = "", *, unsafe: bool = False, usual: bool = False) -> DeviceReport:
        """Why it is not taken."""
        return DeviceReport(self.device, False, reason, remedy, card=self.number, unsafe=unsafe, usual=usual)


class DriverTrials:
    """The devices of one driver. See `device_trials.Trials` for the arguments."""

    def __init__(
        self,
        device: Device,
        linux: Linux,
        cache: CompileCache,
        notify: Callable[[str], None] | None = None,
        *,
        remember: bool = True,
    ) -> None:
        self._device, self._kind, self._cache, self._notify = device, DRIVERS[device], cache, notify
        self._contacts = Contacts(cache.path if remember else None, linux, notify)
        cards, self._reason = self._kind.find()
        several = len(cards) > 1
        self._all = [
            DriverCandidate(
                device,
                card,
                device_situation(linux, f"{card.name} {card.number}", (), f"{device} {card.driver}"),
                several,
            )
            for card in cards
        ]

    def absent(self, number: str = "") -> DeviceReport | None:
        """Why there is no device, or none of a number; None where there is."""
        if self.candidates(self._device, number):
            return None
        names = ", ".join(f"{one.card.number} ({one.card.name})" for one in self._all)
        reason = f"there is no {self._device}:{number}; there are {names}" if names else self._reason
        return DeviceReport(self._device, False, reason, "use cpu", card=number)

    def candidates(self, device: Device, number: str = "") -> list[DriverCandidate]:
        """All, or the one of a number."""
        return [one for one in self._all if not number or one.card.number == int(number)]

    def held_back(self, candidate: DriverCandidate, asked: Device) -> DeviceReport | None:
        """Why it is not tried for a device that was asked for; None when it is. One that is named outright is."""
        if candidate.card.refusal:
            return candidate.refused(candidate.card.refusal, usual=candidate.card.processor)
        if asked is candidate.device:
            return None
        if candidate.card.processor:
            reason = f"{candidate.card.name} is a processor, which --device cpu runs faster"
            return candidate.refused(reason, f"--device {candidate.name} insists", usual=True)
        known = self._contacts.recall(candidate.about)
        if known is not None and known.outcome != PROVEN:
            reason = f"{candidate.card.name} {known.failure} on {known.date} and is not tried again: {known.reason}"
            return candidate.refused(reason, f"{TRY_AGAIN}, --device {candidate.name} insists", unsafe=True)
        return None

    def open(self, candidate: DriverCandidate) -> GpuBackend:
        """A backend that has computed what the reference does. Raises what `Trials.open` raises."""
        from zinc_rt.backends.gpu import selftest

        selftest.prepare(candidate.card.target, self._cache, self._notify)
        with self._contacts.proof(candidate.about):
            backend = self._kind.open(candidate.card, self._cache, self._notify)
            with closed_on_failure(backend.close):
                selftest.check_arithmetic(backend.gpu, self._cache)
                selftest.check_results(backend)
        backend.on_failure = partial(self._contacts.remember, candidate.about, when="in a model's step: ")
        return backend

    def report(self, candidate: DriverCandidate, *, resident: bool = False) -> DeviceReport:
        """Try one and close it again."""
        try:
            with self.open(candidate) as backend:
                shown = f"computes right: {backend.description}"
        except ZincError as error:
            unsafe = isinstance(error, (FenceTimeout, DeviceLost))
            return candidate.refused(str(error), unsafe=unsafe)
        return DeviceReport(candidate.device, True, shown, proven=True, card=candidate.number)

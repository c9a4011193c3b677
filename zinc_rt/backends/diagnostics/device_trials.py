"""Trials of GPUs: the order in which interfaces are tried, those that are skipped, and the proof of the others.

An interface is proven when a small model's step on it gave the reference's bits. `auto` and `gpu` take proven
interfaces only. `zinc_rt.backends.diagnostics.crash_log` remembers the results of trials.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import TYPE_CHECKING

from zinc_rt.amdgpu.cs.loss import GUILTY
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.gfx import gfx_of
from zinc_rt.backends.devices import INTERFACES, Device, DeviceChoice, DeviceReport, ResidentUse
from zinc_rt.backends.diagnostics.crash_log import (
    PROVEN,
    SOAK_SECONDS,
    TRY_AGAIN,
    Contact,
    Contacts,
    Situation,
    brief,
    situation,
)
from zinc_rt.backends.probe import AmdCard, can_run, of_card, open_interface
from zinc_rt.errors import BackendError, FenceTimeout, ZincError
from zinc_rt.lang.errors import LangError
from zinc_rt.utils.closing import closed_on_failure

if TYPE_CHECKING:
    from collections.abc import Callable

    from zinc_rt.backends.amdgpu.backend import AmdBackend
    from zinc_rt.lang.cache import CompileCache
    from zinc_rt.utils.linux import Linux

_SAMPLES = 4096  # steps of a soak whose times are kept
_ALIVE_NS = 30_000_000_000


def interface_name(device: Device) -> str:
    """The interface of `gpu:kfd`, `gpu:cs` or `gpu:umq`."""
    return device.value.partition(":")[2]


@dataclass(frozen=True)
class Candidate:
    """An interface of a card. about: the situation that a proof of it holds for; card: names the GPU where there are
    several.
    """

    gpu: AmdCard
    device: Device
    about: Situation
    card: str = ""

    @property
    def name(self) -> str:
        """What `--device` takes for it."""
        return str(DeviceChoice(self.device, self.card))

    def refused(self, reason: str, remedy: str = "", *, unsafe: bool = False) -> DeviceReport:
        """Why it is not taken."""
        return DeviceReport(self.device, False, reason, remedy, False, self.gpu.render_node, self.card, unsafe)


class Trials:
    """The GPUs of a machine, one of which can run at least (`zinc_rt.backends.probe.refusal`).

    Args:
        linux: the machine.
        gpus: all that amdgpu drives there.
        cache: where compiled kernels are kept, and what trials found.
        notify: gets lines worth showing.
        remember: whether to read and write what trials found.
        resident: when steps of the backends that are opened are one program.
    """

    def __init__(
        self,
        linux: Linux,
        gpus: list[AmdCard],
        cache: CompileCache,
        notify: Callable[[str], None] | None = None,
        *,
        remember: bool = True,
        resident: ResidentUse = "auto",
    ) -> None:
        self._resident = resident
        self._linux, self._gpus, self._cache, self._notify = linux, gpus, cache, notify
        self.contacts = Contacts(cache.path if remember else None, linux, notify)

    def candidates(self, device: Device, card: str = "") -> list[Candidate]:
        """What a device means, in the order in which it is tried: card by card, parts of the processor last, the
        fastest interface that a soak has proven first, then in the order of the card's generation.
        """
        wanted = INTERFACES.get(Device.gpu if device is Device.auto else device, (device,))
        several = sum(map(can_run, self._gpus)) > 1
        found = []
        for gpu in sorted(filter(can_run, of_card(self._gpus, card)), key=lambda gpu: gpu.integrated):
            gfx = gfx_of(gpu.gfx_target_version)
            assert gfx is not None, "it runs kernels"
            names = [name for name in gfx.interfaces if Device(f"gpu:{name}") in wanted]
            each = [
                Candidate(gpu, Device(f"gpu:{n}"), situation(self._linux, gpu, n), gpu.short if several else "")
                for n in names
            ]
            found += sorted(each, key=self._rank)
        return found

    def _rank(self, candidate: Candidate) -> tuple[bool, float]:
        """Sorts before those without a soak. Sorting keeps the order of the others."""
        known = self.contacts.recall(candidate.about)
        soaked = known is not None and known.outcome == PROVEN and known.soak >= SOAK_SECONDS
        return (not soaked, known.step if known is not None and soaked else 0.0)

    def held_back(self, candidate: Candidate, asked: Device) -> DeviceReport | None:
        """Why it is not tried for a device that was asked for; None when it is. One that is named outright is."""
        if asked is candidate.device:
            return None
        known, node = self.contacts.recall(candidate.about), candidate.gpu.render_node
        if known is not None and known.outcome != PROVEN:
            reason = f"{known.failure} on {node} on {known.date} and is not tried again: {known.reason}"
            return candidate.refused(reason, f"{TRY_AGAIN}, --device {candidate.name} insists", unsafe=True)
        if asked is Device.auto and candidate.gpu.displays and known is None:
            screens = " and ".join(candidate.gpu.displays)
            reason = f"{node} ({candidate.gpu.name}) drives {screens}, and was not proven with these versions yet"
            remedy = f"`zinc check --gpu` proves it, --device {DeviceChoice(Device.gpu, candidate.card)} insists"
            return candidate.refused(reason, remedy, unsafe=True)
        return None

    def open(self, candidate: Candidate) -> AmdBackend:
        """A backend over the interface, which has computed what the reference does.

        Raises:
            LangError: the kernels cannot be compiled; nothing was asked of the GPU.
            InterfaceError: the driver refused a step.
            ComputedWrong: the GPU computed wrong; this is remembered.
            FenceTimeout, DeviceLost: it hung; this is remembered.
        """
        from zinc_rt.backends.amdgpu import resident_proof
        from zinc_rt.backends.gpu import selftest

        gfx = gfx_of(candidate.gpu.gfx_target_version)
        assert gfx is not None, "it runs kernels"
        selftest.prepare(gfx.kernel_target, self._cache, self._notify)
        with self.contacts.proof(candidate.about):
            try:
                backend = self._proven(candidate)
            except OSError as error:
                raise InterfaceError(f"trying {candidate.name}", error.errno) from error
        backend.on_failure = partial(self._failed_later, candidate.about)
        resident_proof.bind(backend, self.contacts, candidate.about)
        return backend

    def _proven(self, candidate: Candidate) -> AmdBackend:
        from zinc_rt.amdgpu.queue import TIMEOUT
        from zinc_rt.amdgpu.selftest import probe
        from zinc_rt.backends.amdgpu import barriers
        from zinc_rt.backends.amdgpu.backend import AmdBackend

        # As patient as with a step: a card that is busy for others is late, and a late fence is remembered as a hang.
        interface = open_interface(interface_name(candidate.device), candidate.gpu.render_node, self._linux)
        with closed_on_failure(interface.close):
            probe(interface, TIMEOUT)
        backend = AmdBackend(interface, cache=self._cache, notify=self._notify, resident=self._resident)
        with closed_on_failure(backend.close):
            barriers.prove(backend, self._notify)
        return backend

    def _failed_later(self, about: Situation, error: BackendError) -> None:
        """A model's step did not end. A reset that others caused, as when the machine slept, is not held against it."""
        if isinstance(error, FenceTimeout) or GUILTY in str(error):
            self.contacts.remember(about, error, "in a model's step: ")

    def report(self, candidate: Candidate, *, resident: bool = False) -> DeviceReport:
        """Try one and close it again. resident: try a resident program there, too."""
        from zinc_rt.backends.amdgpu import resident_proof

        gpu, further = candidate.gpu, ""
        try:
            with self.open(candidate) as backend:
                if resident:
                    further = resident_proof.prove(backend, self.contacts, candidate.about)
        except ZincError as error:
            return candidate.refused(
                brief(error), "see below", unsafe=not isinstance(error, (InterfaceError, LangError))
            )
        shown = f"computes right through {interface_name(candidate.device)} on {gpu.render_node} ({gpu.name}){further}"
        return DeviceReport(candidate.device, True, shown, "", True, gpu.render_node, candidate.card)

    def soak(self, candidate: Candidate, seconds: float) -> Contact:
        """Repeat the self-test, and remember for how long and how fast; Ctrl-C ends it early.

        Raises what `open` raises.
        """
        from zinc_rt.backends.gpu.selftest import SelfTest

        now, times = self._linux.monotonic_ns, deque[int](maxlen=_SAMPLES)
        with self.open(candidate) as backend, self.contacts.trial(candidate.about) as well:
            test, began = SelfTest(backend), now()
            last = began
            try:
                while last - began < seconds * 1e9:
                    before = now()
                    test.run()
                    last = now()
                    times.append(last - before)
                    if len(times) % 64 == 0:
                        well()
            except KeyboardInterrupt:
                if not times or now() - last > _ALIVE_NS:
                    raise  # the GPU does not answer: the marker stays
            except ZincError as error:
                self.contacts.remember(candidate.about, error)
                raise
            took, step = (last - began) / 1e9, median(times) / 1e9
            self.contacts.proven(candidate.about, took, step)
        found = self.contacts.recall(candidate.about)
        return found or Contact(PROVEN, 0.0, "", took, step)

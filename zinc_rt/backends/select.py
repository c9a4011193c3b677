"""Picking a device and opening its backend: what `auto` takes has opened, and on a GPU has computed right."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, Protocol

from zinc_rt.backends.base import Backend
from zinc_rt.backends.devices import (
    BY_DRIVER,
    INTERFACES,
    ON_GPU,
    RESIDENT_USES,
    Device,
    DeviceChoice,
    DeviceReport,
    DeviceUnavailable,
    ResidentUse,
    format_skipped,
    parse_device,
)
from zinc_rt.backends.probe import find_gpus, refusal
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.target import host_targets
from zinc_rt.mem.plan import available_memory
from zinc_rt.utils.checks import show
from zinc_rt.utils.linux import Linux, host
from zinc_rt.utils.notices import Detail

# A backend is imported when it is opened: each brings libraries of its own.
Kernels = Literal["native", "reference"]
KERNELS: tuple[Kernels, ...] = ("native", "reference")
_EMULATED = "the same machine code on an emulated R9700: for looking, slow"


@dataclass(frozen=True)
class BackendOptions:
    """Options of the CPU; with any of them `auto` means the CPU.

    kernels: "native", compiled for this machine, or "reference", the NumPy ones. threads, isa: see `CpuBackend`.
    memory: bytes that its user will plan with. No options of the CPU are gpu, the one that is emulated, and resident,
    see `ResidentUse`. Raises `UsageError`.
    """

    kernels: Kernels = "native"
    threads: int | None = None
    isa: str | None = None
    gpu: str | None = None
    resident: ResidentUse = "auto"
    memory: int | None = None

    def __post_init__(self) -> None:
        if self.memory is not None and self.kernels != "native":
            raise UsageError(
                f"--memory is for native kernels, but the kernels are {self.kernels}; leave out one of them"
            )
        if self.resident not in RESIDENT_USES:
            raise UsageError(f"resident is {show(self.resident)}, it must be {', '.join(RESIDENT_USES[:-1])} or never")

    @property
    def first_given(self) -> str:
        """The first option that was set, as the command spells it; empty if none."""
        kernels = self.kernels if self.kernels != "native" else None
        given = {"kernels": kernels, "threads": self.threads, "isa": self.isa, "memory": self.memory}
        return next((f"--{name}" for name, value in given.items() if value is not None), "")


def _cpu_reason() -> str:
    levels = host_targets()
    return (
        f"kernels compiled for {levels[0].name}" if levels else "reference kernels (NumPy), no native ones for this CPU"
    )


def probe_devices(
    *,
    linux: Linux | None = None,
    cache: CompileCache | None = None,
    notify: Callable[[str], None] | None = None,
    again: bool = False,
    remember: bool = True,
) -> list[DeviceReport]:
    """Every device in the order in which `auto` tries them, with the reason why it can or cannot run.

    Args:
        linux: the machine; None for this one.
        cache: where compiled kernels are kept, and what was found out before; None for the user's folder.
        notify: gets lines worth showing.
        again: try what `auto` would not: interfaces that failed before, unproven cards that drive a display, and
            resident programs.
        remember: whether to remember what is found out now.
    """
    found: list[DeviceReport] = []
    store = cache or CompileCache(default_cache_dir())
    for trials in _trials(DeviceChoice(Device.auto), linux or host(), store, notify, remember=remember):
        if isinstance(trials, Absent):
            kinds = INTERFACES.get(trials.report.device, (trials.report.device,))
            found += [replace(trials.report, device=device) for device in kinds]
            continue
        for candidate in trials.candidates(Device.auto):
            held = trials.held_back(candidate, candidate.device if again else Device.auto)
            found.append(held or trials.report(candidate, resident=again))
    return [*found, DeviceReport(Device.cpu, True, _cpu_reason()), DeviceReport(Device.emu, True, _EMULATED)]


def select_device(
    device: Device | DeviceChoice, notify: Callable[[str], None] | None = None, *, linux: Linux | None = None
) -> Device:
    """The device that would be opened: `auto` and `gpu` become the first that can run; the others are kept or refused.

    notify: gets one line where `auto` or `gpu` skipped something, with the reason. Raises what `open_backend` raises.
    """
    choice = parse_device(device)
    if choice.device in (Device.cpu, Device.emu):
        return choice.device
    options, cache = BackendOptions(kernels="reference"), CompileCache(default_cache_dir())
    taken, backend = _first(choice, options, cache, notify, linux)
    backend.close()
    return taken


def _first(
    choice: DeviceChoice,
    options: BackendOptions,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    linux: Linux | None,
) -> tuple[Device, Backend]:
    """The first device that opens, and on a GPU computes right, of those that the choice means."""
    if choice.device is Device.cpu:
        return Device.cpu, _open_cpu(options, cache, notify)
    if choice.device is Device.emu:
        from zinc_rt.backends.amdgpu.emulated import EmulatedBackend, gpu_model

        model = gpu_model(options.gpu)
        return Device.emu, EmulatedBackend(model, cache=cache, notify=notify, resident=options.resident)
    skipped: list[DeviceReport] = []
    failed: list[ZincError] = []
    absent, usual = [], True
    for trials in _trials(choice, linux or host(), cache, notify, resident=options.resident):
        if isinstance(trials, Absent):
            usual = usual and trials.usual
            if choice.device is not Device.auto or trials.report.device not in BY_DRIVER:
                absent.append(trials.report)
            continue
        for candidate in trials.candidates(choice.device, choice.card):
            held = trials.held_back(candidate, choice.device)
            if held is not None:
                if not held.usual:
                    skipped.append(held)
                continue
            try:
                backend = trials.open(candidate)
            except ZincError as error:
                from zinc_rt.amdgpu.errors import InterfaceError
                from zinc_rt.backends.diagnostics.crash_log import brief

                skipped.append(candidate.refused(brief(error)))
                if not isinstance(error, InterfaceError):
                    failed.append(error)
                continue
            if skipped and notify is not None:
                notify(format_skipped(candidate.device, skipped))
            return candidate.device, backend
    return _cpu_or_refuse(choice, [*absent, *skipped], failed, options, cache, notify, usual=usual and not skipped)


class DeviceTrials(Protocol):
    """The devices of a kind; candidates are its own. See `device_trials.Trials`."""

    def candidates(self, device: Device, card: str = "") -> Sequence[Any]: ...
    def held_back(self, candidate: Any, asked: Device) -> DeviceReport | None: ...
    def open(self, candidate: Any) -> Backend: ...
    def report(self, candidate: Any, *, resident: bool = False) -> DeviceReport: ...


@dataclass(frozen=True)
class Absent:
    """No device of a kind. usual: nobody expects one there."""

    report: DeviceReport
    usual: bool


def _trials(
    choice: DeviceChoice,
    linux: Linux,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    *,
    resident: ResidentUse = "auto",
    remember: bool = True,
) -> Iterator[DeviceTrials | Absent]:
    """The trials of the kinds of GPUs that a choice means, in the order in which they are taken; a kind is looked for
    when those before it are no use.
    """
    # Imported where they are needed: a start on a machine without a GPU shall not pay for them.
    on_auto = choice.device is Device.auto
    if choice.device not in BY_DRIVER:
        gpus = find_gpus(linux)
        reason, remedy = refusal(linux, gpus, choice.card)
        if reason:
            named = (Device.gpu, False, reason, "") if on_auto else (choice.device, False, reason, remedy)
            yield Absent(DeviceReport(*named, card=choice.card), not any(gpu.open_errno for gpu in gpus))
        else:
            from zinc_rt.backends.diagnostics.device_trials import Trials

            yield Trials(linux, gpus, cache, notify, remember=remember, resident=resident)
    for device in BY_DRIVER:
        if choice.device is device or (on_auto and not choice.card):
            from zinc_rt.backends.diagnostics.driver_trials import DriverTrials

            trials = DriverTrials(device, linux, cache, notify, remember=remember)
            absent = trials.absent(choice.card)
            yield trials if absent is None else Absent(absent, usual=True)


def _cpu_or_refuse(
    choice: DeviceChoice,
    skipped: Sequence[DeviceReport],
    failed: Sequence[ZincError],
    options: BackendOptions,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    usual: bool = False,
) -> tuple[Device, Backend]:
    """What there is without a GPU: the CPU for `auto`; the others are refused. usual: nothing is wrong with that."""
    if choice.device is Device.auto:
        if notify is not None:
            line = format_skipped(Device.cpu, skipped)
            notify(Detail(line) if usual else line)
        return Device.cpu, _open_cpu(options, cache, notify)
    if len(skipped) == len(failed) == 1:
        raise failed[0]
    raise DeviceUnavailable(_refusal(choice, skipped)) from (failed[0] if failed else None)


def _refusal(choice: DeviceChoice, skipped: Sequence[DeviceReport]) -> str:
    """Each reason once, then what helps."""
    several = len({report.reason for report in skipped}) > 1
    reasons = "; ".join(dict.fromkeys(f"{r.name}: {r.reason}" if several else r.reason for r in skipped))
    remedies = ", ".join(dict.fromkeys(report.remedy or "see `zinc check`" for report in skipped))
    return f"device {choice} cannot run: {reasons}; {remedies}"


def open_backend(
    device: Device | DeviceChoice,
    options: BackendOptions,
    cache: CompileCache,
    *,
    notify: Callable[[str], None] | None = None,
    linux: Linux | None = None,
) -> tuple[Device, Backend]:
    """Open a backend, and say for which device.

    Args:
        device: obeyed, or refused with the reason. `auto` takes the first device that opens and, on a GPU, computes
            right, `gpu` the first interface of a GPU; a card may be chosen for both.
        options: of the CPU; with any of them `auto` is the CPU.
        cache: where compiled kernels are kept, and what is known of GPUs.
        notify: gets lines worth showing, one of them where something was skipped.
        linux: the machine; None for this one.

    Raises:
        DeviceUnavailable: the device cannot run here.
        UsageError: an option of the CPU with a GPU, or a GPU to emulate with another device.
        BackendError: opening the device failed. `WrongResults` if a GPU computes wrong.
        UnsupportedTarget: no kernels for this processor.
    """
    choice = parse_device(device)
    if options.gpu is not None and choice.device is not Device.emu:
        raise UsageError(
            f"--gpu {options.gpu} names a GPU to emulate; it cannot be used with --device {choice}, only with"
            " --device emu"
        )
    if options.first_given:
        if choice.device in ON_GPU or choice.card:
            raise UsageError(f"{options.first_given} applies to the CPU only; it cannot be used with --device {choice}")
        choice = DeviceChoice(Device.cpu)
    if options.resident == "always" and choice.device is Device.cpu:
        raise UsageError("--resident always is for GPUs; it cannot be used with --device cpu or options of the CPU")
    return _first(choice, options, cache, notify, linux)


def _open_cpu(options: BackendOptions, cache: CompileCache, notify: Callable[[str], None] | None) -> Backend:
    if options.kernels == "native":
        from zinc_rt.backends.cpu.backend import CpuBackend

        return CpuBackend(threads=options.threads, isa=options.isa, cache=cache, notify=notify)
    from zinc_rt.backends.reference.backend import KEEP_BYTES, ReferenceBackend

    there = available_memory()
    keep = KEEP_BYTES if there is None else min(KEEP_BYTES, there // 2)
    return ReferenceBackend(threads=options.threads, keep_bytes=keep)

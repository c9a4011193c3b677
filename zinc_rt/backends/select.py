"""Picking a device and opening its backend: what `auto` takes has opened, and on a GPU has computed right."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import cache, cached_property
from typing import TYPE_CHECKING, Literal, TypeVar

from zinc_rt.backends.base import Backend
from zinc_rt.backends.devices import (
    INTERFACES,
    ON_GPU,
    PROBED,
    Device,
    DeviceReport,
    DeviceUnavailable,
    format_skipped,
)
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.lang.cache import CompileCache
from zinc_rt.lang.target import host_targets
from zinc_rt.linux import Linux, host
from zinc_rt.mem.plan import available_memory

# A backend is imported when it is opened: each brings libraries of its own.
if TYPE_CHECKING:
    from zinc_rt.amdgpu.interface import Interface
    from zinc_rt.backends.amdgpu.backend import AmdBackend
    from zinc_rt.backends.probe import Gpu

Kernels = Literal["native", "reference"]
KERNELS: tuple[Kernels, ...] = ("native", "reference")
_T = TypeVar("_T")
_EMULATED = "the same machine code on an emulated R9700: for looking, slow"
_USE_CPU, _SEE = "use cpu", "see `zinc check`"


@dataclass(frozen=True)
class BackendOptions:
    """Options of the CPU; with any of them `auto` means the CPU.

    kernels: "native", compiled for this machine, or "reference", the NumPy ones. threads, isa: see `CpuBackend`. gpu:
    no option of the CPU, but the card that is emulated.
    """

    kernels: Kernels = "native"
    threads: int | None = None
    isa: str | None = None
    gpu: str | None = None

    @property
    def first_given(self) -> str:
        """The first option that was set, as the command spells it; empty if none."""
        kernels = self.kernels if self.kernels != "native" else None
        given = {"kernels": kernels, "threads": self.threads, "isa": self.isa}
        return next((f"--{name}" for name, value in given.items() if value is not None), "")


def _cpu_reason() -> str:
    levels = host_targets()
    return (
        f"kernels compiled for {levels[0].name}" if levels else "reference kernels (NumPy), no native ones for this CPU"
    )


class _Probe:
    """Looks at the GPUs once, however many devices are asked for."""

    def __init__(self, linux: Linux) -> None:
        self._linux = linux
        self._reports: dict[Device, DeviceReport] = {}

    @cached_property
    def gpus(self) -> list[Gpu]:
        from zinc_rt.backends.probe import find_gpus

        return find_gpus(self._linux)

    def report(self, device: Device) -> DeviceReport:
        """Whether a device of `PROBED` can run."""
        if device is Device.cpu:
            return DeviceReport(device, True, _cpu_reason())
        if device is Device.emu:
            return DeviceReport(device, True, _EMULATED)
        if device not in self._reports:
            self._reports[device] = self._gpu_report(device)
        return self._reports[device]

    def _gpu_report(self, device: Device) -> DeviceReport:
        if not self._linux.is_linux:
            return DeviceReport(device, False, "AMD GPUs are driven on Linux only", _USE_CPU)
        if not self.gpus:
            return DeviceReport(device, False, "no AMD GPU is in sight", _USE_CPU)
        from zinc_rt.amdgpu.gfx import runs_kernels
        from zinc_rt.backends.probe import probe_interface

        eligible = [gpu for gpu in self.gpus if gpu.eligible and runs_kernels(gpu.gfx_target_version)]
        if not eligible:
            refusals = (gpu.refusal() or f"{gpu.render_node} is {gpu.name}: no kernels for it" for gpu in self.gpus)
            return DeviceReport(device, False, "; ".join(refusals), _SEE)
        name, errors = interface_name(device), []
        for gpu in eligible:
            result = probe_interface(name, gpu.render_node, self._linux)
            if result.seconds is not None:
                shown = f"a fence retired through {name} on {gpu.render_node} ({gpu.name})"
                return DeviceReport(device, True, shown, "", True, gpu.render_node)
            errors.append(f"{name}: {result.error}")
        return DeviceReport(device, False, "; ".join(errors), _SEE)


def interface_name(device: Device) -> str:
    """The interface of `gpu:kfd`, `gpu:cs` or `gpu:umq`."""
    return device.value.partition(":")[2]


@cache
def _host_probe() -> _Probe:
    """GPUs are tried out once a process: amdkfd binds a GPU to the first file that it is opened with."""
    return _Probe(host())


def _reports(devices: Iterable[Device], linux: Linux | None) -> Iterator[DeviceReport]:
    """Each is looked at when it is asked for."""
    probe = _host_probe() if linux is None else _Probe(linux)
    return (probe.report(device) for device in devices)


def probe_devices(*, linux: Linux | None = None) -> list[DeviceReport]:
    """Every device in the order in which `auto` tries them, with the reason why it can or cannot run.

    The interfaces of GPUs are tried out: only a fence that retires proves one.
    """
    return list(_reports(PROBED, linux))


def select_device(device: Device, notify: Callable[[str], None] | None = None, *, linux: Linux | None = None) -> Device:
    """The device that would be opened: `auto` and `gpu` become the first that can run; the others are kept or refused.

    notify: gets one line where `auto` or `gpu` skipped something, with the reason. Raises `DeviceUnavailable`.
    """
    return _first(device, lambda report: report.device, notify, linux)


def _first(
    device: Device, attempt: Callable[[DeviceReport], _T], notify: Callable[[str], None] | None, linux: Linux | None
) -> _T:
    """What `attempt` makes of the first device that can run. A GPU for which it raises a `ZincError` is skipped, too;
    where nothing is left, the first such error is raised.
    """
    devices = PROBED if device is Device.auto else INTERFACES.get(device, (device,))
    skipped: list[DeviceReport] = []
    failed: ZincError | None = None
    for report in _reports(devices, linux):
        if report.available:
            try:
                made = attempt(report)
            except ZincError as error:
                if report.device not in ON_GPU:
                    raise
                failed = failed or error
                skipped.append(replace(report, available=False, reason=str(error)))
                continue
            if skipped and notify is not None:
                notify(format_skipped(report.device, skipped))
            return made
        skipped.append(report)
    if failed is not None:
        raise failed
    reasons = "; ".join(dict.fromkeys(report.reason for report in skipped))
    remedies = ", ".join(dict.fromkeys(report.remedy for report in skipped if report.remedy))
    raise DeviceUnavailable(f"device {device.value} cannot run: {reasons}{'; ' if remedies else ''}{remedies}")


def open_backend(
    device: Device,
    options: BackendOptions,
    cache: CompileCache,
    *,
    notify: Callable[[str], None] | None = None,
    linux: Linux | None = None,
) -> tuple[Device, Backend]:
    """Open a backend, and say for which device.

    Args:
        device: obeyed, or refused with the reason. `auto` takes the first device that opens, `gpu` the first interface.
        options: of the CPU; with any of them `auto` is the CPU.
        cache: where compiled kernels are kept.
        notify: gets lines worth showing, one of them where something was skipped.
        linux: the machine; None for this one.

    Raises:
        DeviceUnavailable: the device cannot run here.
        UsageError: an option of the CPU with a GPU, or a card that is emulated with another device.
        BackendError: opening the device failed. `WrongResults` if a GPU computes wrong.
        UnsupportedTarget: no kernels for this processor.
    """
    if options.gpu is not None and device is not Device.emu:
        raise UsageError(
            f"--gpu {options.gpu} names a card to emulate; it cannot be used with --device {device.value}, only with"
            " --device emu"
        )
    if options.first_given:
        if device in ON_GPU:
            raise UsageError(
                f"{options.first_given} applies to the CPU only; it cannot be used with --device {device.value}"
            )
        device = Device.cpu
    return _first(device, lambda r: (r.device, _open(r, options, cache, notify, linux)), notify, linux)


def _open(
    report: DeviceReport,
    options: BackendOptions,
    cache: CompileCache,
    notify: Callable[[str], None] | None,
    linux: Linux | None,
) -> Backend:
    if report.device is Device.cpu:
        return _open_cpu(options, cache, notify)
    if report.device is Device.emu:
        from zinc_rt.backends.amdgpu.emulated import EmulatedBackend, gpu_model

        return EmulatedBackend(gpu_model(options.gpu), cache=cache, notify=notify)
    from zinc_rt.backends.probe import open_interface

    interface = open_interface(interface_name(report.device), report.render_node, linux or host())
    return _checked(interface, cache, notify)


def _open_cpu(options: BackendOptions, cache: CompileCache, notify: Callable[[str], None] | None) -> Backend:
    if options.kernels == "native":
        from zinc_rt.backends.cpu.backend import CpuBackend

        return CpuBackend(threads=options.threads, isa=options.isa, cache=cache, notify=notify)
    from zinc_rt.backends.reference.backend import KEEP_BYTES, ReferenceBackend

    there = available_memory()
    keep = KEEP_BYTES if there is None else min(KEEP_BYTES, there // 2)
    return ReferenceBackend(threads=options.threads, keep_bytes=keep)


def _checked(interface: Interface, cache: CompileCache, notify: Callable[[str], None] | None) -> AmdBackend:
    """A backend over the interface that has computed what the reference does. Raises `WrongResults`."""
    from zinc_rt.backends.amdgpu.backend import AmdBackend
    from zinc_rt.backends.amdgpu.selftest import check_results

    backend = AmdBackend(interface, cache=cache, notify=notify)
    try:
        check_results(backend)
    except BaseException:
        backend.close()
        raise
    return backend

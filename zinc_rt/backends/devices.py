"""The devices that a user can name: `cpu`, `gpu`, one interface of a GPU, the emulated GPU; and reports on them."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.checks import show
from zinc_rt.errors import UsageError, ZincError

DEVICE_VARIABLE = "ZINC_RT_TIER"


class Device(StrEnum):
    """What runs the model; `auto` is the best one that works."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"
    gpu_umq = "gpu:umq"
    gpu_kfd = "gpu:kfd"
    gpu_cs = "gpu:cs"
    gpu_kernel = "gpu:kfd,cs"
    emu = "emu"


INTERFACES: Mapping[Device, tuple[Device, ...]] = {
    Device.gpu: (Device.gpu_umq, Device.gpu_kfd, Device.gpu_cs),
    Device.gpu_kernel: (Device.gpu_kfd, Device.gpu_cs),
}
"""Devices that leave the interface open, and the interfaces in the order in which they are tried."""
PROBED = (*INTERFACES[Device.gpu], Device.cpu, Device.emu)
"""Every device that stands for itself, in the order in which `auto` tries them; it ends with the CPU."""
ON_GPU = frozenset({*INTERFACES, *INTERFACES[Device.gpu], Device.emu})
NAMES = tuple(device.value for device in Device if device is not Device.gpu_kernel)
"""What help, completion and messages offer."""
TIERS: Mapping[str, Device] = {
    "t_cpu": Device.cpu,
    "t1": Device.gpu_kernel,
    "t1_pm4": Device.gpu_kernel,
    "t2": Device.gpu_umq,
    "t2_umq": Device.gpu_umq,
}
"""Older names that are accepted wherever a device is named."""
_NOT_BUILT = frozenset({"t_metal", "t_intel", "t_cuda"})


class UnknownDevice(UsageError):
    """A device name that is not in the list."""


class DeviceUnavailable(ZincError):
    """The device that was asked for cannot run here."""


@dataclass(frozen=True)
class DeviceReport:
    """What `zinc check` says of a device.

    remedy: empty where nothing can be done, or nothing needs to be. proven: a fence retired through the interface of
    the GPU at `render_node`.
    """

    device: Device
    available: bool
    reason: str
    remedy: str = ""
    proven: bool = False
    render_node: str = ""


def parse_device(text: str) -> Device:
    """A device by name: one of `NAMES`, or an older name. Raises `UnknownDevice`, `DeviceUnavailable`."""
    if not isinstance(text, str):
        raise UnknownDevice(f"unknown device {show(text)}; use one of {', '.join(NAMES)}")
    if text in _NOT_BUILT:
        raise DeviceUnavailable(f"device {text} cannot run: not built; this runtime is for AMD GPUs and the CPU")
    try:
        return TIERS[text] if text in TIERS else Device(text)
    except ValueError:
        raise UnknownDevice(f"unknown device {show(text)}; use one of {', '.join(NAMES)}") from None


def device_from_env(environ: Mapping[str, str] | None = None) -> Device:
    """The device named by ZINC_RT_TIER, else `auto`. Raises what `parse_device` raises, naming the variable."""
    text = (os.environ if environ is None else environ).get(DEVICE_VARIABLE, "")
    if not text:
        return Device.auto
    try:
        return parse_device(text)
    except (UnknownDevice, DeviceUnavailable) as error:
        raise type(error)(f"{DEVICE_VARIABLE}: {error}") from None


def format_skipped(taken: Device, skipped: Sequence[DeviceReport]) -> str:
    """One line: the device that `auto` took, and what it skipped and why."""
    names = [report.device.value for report in skipped]
    reasons = list(dict.fromkeys(report.reason for report in skipped))
    if len(names) == len(INTERFACES[Device.gpu]) and len(reasons) == 1:
        names = [Device.gpu.value]
    proven = [report.reason for report in skipped if report.proven]
    return f"device {taken.value}; skipped {', '.join(names)}: {'; '.join(proven or reasons)}"

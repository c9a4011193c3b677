"""The devices that a user can name: `cpu`, `gpu`, an interface of a GPU, a card, `cuda`, `opencl`, the emulated GPU;
reports on them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from zinc_rt.errors import UsageError, ZincError
from zinc_rt.utils.checks import show
from zinc_rt.utils.environment import DEVICE

ResidentUse = Literal["auto", "always", "never"]
"""When a step on a GPU is one resident program (docs/how/amd.md): where the card has proven that and it is taken to be
faster, wherever it can be, or never."""
RESIDENT_USES: tuple[ResidentUse, ...] = ("auto", "always", "never")


class Device(StrEnum):
    """The device that runs the model; `auto` is the best one that works."""

    auto = "auto"
    cpu = "cpu"
    gpu = "gpu"
    gpu_umq = "gpu:umq"
    gpu_kfd = "gpu:kfd"
    gpu_cs = "gpu:cs"
    gpu_kernel = "gpu:kfd,cs"
    cuda = "cuda"
    opencl = "opencl"
    emu = "emu"


INTERFACES: Mapping[Device, tuple[Device, ...]] = {
    Device.gpu: (Device.gpu_cs, Device.gpu_kfd, Device.gpu_umq),
    Device.gpu_kernel: (Device.gpu_cs, Device.gpu_kfd),
}
"""Devices that leave the interface open, and the interfaces that they may mean; a card's generation has the order in
which they are tried.
"""
BY_DRIVER = (Device.cuda, Device.opencl)
"""Devices behind a driver of their maker's, in the order in which `auto` tries them, behind AMD's GPUs. Their cards
have numbers: "cuda:1" is the second.
"""
ON_GPU = frozenset({*INTERFACES, *INTERFACES[Device.gpu], *BY_DRIVER, Device.emu})
NAMES = tuple(device.value for device in Device if device is not Device.gpu_kernel)
"""What help, completion and messages offer."""
TIERS: Mapping[str, Device] = {
    "t_cpu": Device.cpu,
    "t1": Device.gpu_kernel,
    "t1_pm4": Device.gpu_kernel,
    "t2": Device.gpu_umq,
    "t2_umq": Device.gpu_umq,
    "t_cuda": Device.cuda,
    "t_intel": Device.opencl,
}
"""Older names that are accepted wherever a device is named."""
_NOT_BUILT = frozenset({"t_metal"})
_CHOOSE_CARD = frozenset({Device.auto, *INTERFACES, *INTERFACES[Device.gpu]})
_NODE = re.compile(r"(?:/dev/dri/)?(renderD\d{1,4})", re.ASCII)
_PCI = re.compile(r"(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])", re.ASCII | re.IGNORECASE)


class UnknownDevice(UsageError):
    """A device name that is not in the list."""


class DeviceUnavailable(ZincError):
    """The device that was asked for cannot run here."""


@dataclass(frozen=True)
class DeviceChoice:
    """The device that a user named. card: "renderD129", or a PCI address as "0000:03:00.0", or of a device behind a
    driver its number; empty for any.
    """

    device: Device
    card: str = ""

    def __str__(self) -> str:
        if not self.card:
            return self.device.value
        return f"{self.device.value}{':' if self.device in BY_DRIVER else '@'}{self.card}"


@dataclass(frozen=True)
class DeviceReport:
    """The report of `zinc check` on a device.

    remedy: empty where nothing can be done, or nothing needs to be. proven: the GPU at `render_node` computed what the
    reference does through this interface. card: names the GPU where there are several. unsafe: nothing more may be
    submitted through it: it failed just now or before, or the card drives a display and was never tried. usual: nobody
    expects this device to be taken.
    """

    device: Device
    available: bool
    reason: str
    remedy: str = ""
    proven: bool = False
    render_node: str = ""
    card: str = ""
    unsafe: bool = False
    usual: bool = False

    @property
    def name(self) -> str:
        """What `--device` takes for it."""
        return str(DeviceChoice(self.device, self.card))


def parse_device(text: str | DeviceChoice) -> DeviceChoice:
    """A device by name: one of `NAMES`, or an older name; for a GPU also a card, behind an @ or alone.

    Args:
        text: as "gpu:cs", "cuda:1", "gpu@03:00.0", "gpu:kfd@renderD129", "auto@0000:03:00.0", or
            "/dev/dri/renderD129", which means "gpu@renderD129".

    Raises:
        UnknownDevice: the name is none of these.
        DeviceUnavailable: the device was never built.
    """
    if isinstance(text, DeviceChoice):
        return text
    if not isinstance(text, str):
        raise UnknownDevice(f"unknown device {show(text)}; use one of {', '.join(NAMES)}")
    if text in _NOT_BUILT:
        raise DeviceUnavailable(f"device {text} cannot run: not built; there are {', '.join(NAMES)}")
    driver, colon, number = text.partition(":")
    if colon and driver in BY_DRIVER:
        if not (number.isascii() and number.isdigit()):
            raise UnknownDevice(
                f"device {show(text)}: behind the colon stands a number, as {driver}:0; see `zinc check`"
            )
        return DeviceChoice(Device(driver), str(int(number)))
    name, at, card = text.partition("@")
    if not at and _card(name):
        return DeviceChoice(Device.gpu, _card(name))
    try:
        device = TIERS[name] if name in TIERS else Device(name)
    except ValueError:
        raise UnknownDevice(f"unknown device {show(text)}; use one of {', '.join(NAMES)}") from None
    if not at:
        return DeviceChoice(device)
    if device not in _CHOOSE_CARD:
        raise UnknownDevice(f"device {show(text)} names a card, but {device.value} runs on none; leave @ and it out")
    if not _card(card):
        raise UnknownDevice(
            f"device {show(text)} names no card behind the @; write a render node or a PCI address, as gpu@renderD128"
            " or gpu@03:00.0"
        )
    return DeviceChoice(device, _card(card))


def _card(text: str) -> str:
    """A card in the one way in which it is written here; empty for what names none."""
    if node := _NODE.fullmatch(text):
        return node[1]
    if address := _PCI.fullmatch(text):
        return f"{address[1] or '0000'}:{address[2]}".lower()
    return ""


def device_from_env(environ: Mapping[str, str] | None = None) -> DeviceChoice:
    """The device named by ZINC_RT_TIER, else `auto`. Raises what `parse_device` raises, naming the variable."""
    text = (os.environ if environ is None else environ).get(DEVICE.name, "")
    if not text:
        return DeviceChoice(Device.auto)
    try:
        return parse_device(text)
    except (UnknownDevice, DeviceUnavailable) as error:
        raise type(error)(f"{DEVICE.name}: {error}") from None


def format_skipped(taken: Device, skipped: Sequence[DeviceReport]) -> str:
    """One line: the device that `auto` took, and what it skipped and why; what has one reason is named together."""
    names: dict[str, list[str]] = {}
    for report in skipped:
        why = f"{report.reason} ({report.remedy})" if report.remedy else report.reason
        names.setdefault(why, []).append(report.name)
    every = {device.value for device in INTERFACES[Device.gpu]}
    told = (f"{Device.gpu.value if set(who) == every else ', '.join(who)}: {why}" for why, who in names.items())
    return f"device {taken.value}; skipped {'; '.join(told)}"

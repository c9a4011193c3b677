"""The AMD GPUs of this machine: what sysfs and the render node say of each, and whether its interfaces retire work."""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zinc_rt.backends.devices import DeviceUnavailable
from zinc_rt.errors import ZincError
from zinc_rt.utils.linux import Linux

if TYPE_CHECKING:
    from zinc_rt.amdgpu.interface import Interface

DRM_CLASS = "/sys/class/drm"
AMD = 0x1002
PROBE_SECONDS = 2.0
NOT_INTEGRATED = "of those, gfx11.5 alone is used"


@dataclass(frozen=True)
class AmdCard:
    """A card that amdgpu drives.

    device_id: of PCI; vram, visible_vram, gtt: bytes, the last of system memory that it maps, 0 when sysfs does not
    say; open_errno: why the render node did not open or answer, None when it did; ip_major, gfx_target_version,
    compute_units, integrated: what it answered; pci: its address, as 0000:03:00.0; displays: connectors that something
    is connected to, or that are switched on; firmware: versions of ME, PFP, MEC and MES, empty when the kernel does not
    tell them.
    """

    render_node: str
    device_id: int
    vram: int = 0
    visible_vram: int = 0
    gtt: int = 0
    open_errno: int | None = None
    ip_major: int = 0
    gfx_target_version: int = 0
    compute_units: int = 0
    integrated: bool = False
    pci: str = ""
    displays: tuple[str, ...] = ()
    firmware: tuple[int, ...] = ()

    @property
    def short(self) -> str:
        """Its render node without the folder, as renderD128."""
        return self.render_node.rpartition("/")[2]

    @property
    def name(self) -> str:
        """Its graphics core, as gfx1201, when that is known."""
        from zinc_rt.amdgpu.gfx import gfx_name

        return gfx_name(self.gfx_target_version) if self.gfx_target_version else f"device {self.device_id:#06x}"

    @property
    def eligible(self) -> bool:
        """Whether the runtime may use it."""
        from zinc_rt.amdgpu.gfx import GENERATIONS

        oldest = next(gfx for gfx in GENERATIONS if gfx.executed)
        return self.open_errno is None and self.ip_major >= oldest.major and not self._in_processor

    @property
    def _in_processor(self) -> bool:
        """Whether it is part of a processor, of a generation that is used on cards alone."""
        from zinc_rt.amdgpu.gfx import gfx_of

        gfx = gfx_of(self.gfx_target_version)
        return self.integrated and not (gfx is not None and gfx.integrated)

    def refusal(self) -> str:
        """Why nothing runs on it; empty where compiled kernels do."""
        from zinc_rt.amdgpu.gfx import generations

        if self.open_errno is not None:
            return f"{self.render_node} cannot be used: {os.strerror(self.open_errno)}"
        if self._in_processor:
            return f"{self.render_node} is {self.name}, part of the processor: {NOT_INTEGRATED}"
        if can_run(self):
            return ""
        return f"{self.render_node} is {self.name}: kernels run on {generations(executed=True)}"


def find_gpus(linux: Linux) -> list[AmdCard]:
    """All of them, by the number of their render nodes. Never raises; none without Linux or amdgpu."""
    if not linux.is_linux:
        return []
    try:
        names = linux.list_dir(DRM_CLASS)
    except OSError:
        return []
    minors = sorted(int(name[7:]) for name in names if name.startswith("renderD") and name[7:].isdecimal())
    found = (_read(linux, minor) for minor in minors)
    return [gpu for gpu in found if gpu is not None]


def _read(linux: Linux, minor: int) -> AmdCard | None:
    folder, node = f"{DRM_CLASS}/renderD{minor}/device", f"/dev/dri/renderD{minor}"
    if _number(linux, f"{folder}/vendor", 16) != AMD:
        return None
    gpu = AmdCard(
        node,
        _number(linux, f"{folder}/device", 16),
        _number(linux, f"{folder}/mem_info_vram_total"),
        _number(linux, f"{folder}/mem_info_vis_vram_total"),
        _number(linux, f"{folder}/mem_info_gtt_total"),
        pci=_pci_address(linux, folder),
        displays=_displays(linux, folder),
    )
    return query(linux, gpu)


def _pci_address(linux: Linux, folder: str) -> str:
    """Empty when sysfs does not say it."""
    with contextlib.suppress(OSError):
        for line in linux.read_text(f"{folder}/uevent").splitlines():
            name, _, value = line.partition("=")
            if name == "PCI_SLOT_NAME":
                return value.strip().lower()
    return ""


def _displays(linux: Linux, folder: str) -> tuple[str, ...]:
    """Connectors of the PCI device, as DP-1. A screen that sleeps is connected and not enabled; a connector that was
    forced on need not be connected.
    """
    found = []
    with contextlib.suppress(OSError):
        cards = [name for name in linux.list_dir(f"{folder}/drm") if name.startswith("card")]
        for name in linux.list_dir(DRM_CLASS):
            card, _, connector = name.partition("-")
            if card in cards and connector and _drives(linux, f"{DRM_CLASS}/{name}"):
                found.append(connector)
    return tuple(found)


def _drives(linux: Linux, connector: str) -> bool:
    for file, word in (("status", "connected"), ("enabled", "enabled")):
        with contextlib.suppress(OSError):
            if linux.read_text(f"{connector}/{file}").strip() == word:
                return True
    return False


def query(linux: Linux, gpu: AmdCard) -> AmdCard:
    """The same card with what its render node answers. Never raises."""
    from zinc_rt.amdgpu import drm
    from zinc_rt.amdgpu.abi.cs import AMDGPU_HW_IP_COMPUTE
    from zinc_rt.amdgpu.abi.info import AMDGPU_IDS_FLAGS_FUSION, AMDGPU_INFO_DEV_INFO, DrmAmdgpuInfoDevice
    from zinc_rt.amdgpu.errors import IoctlFailed
    from zinc_rt.amdgpu.gfx import version_of

    about = {**vars(gpu), "open_errno": None}
    try:
        fd = linux.open(gpu.render_node)
    except OSError as error:
        return AmdCard(**{**about, "open_errno": error.errno or 0})
    device = DrmAmdgpuInfoDevice()
    try:
        ip = drm.query_hw_ip(fd, AMDGPU_HW_IP_COMPUTE, linux=linux)
        drm.query_info(fd, AMDGPU_INFO_DEV_INFO, device, linux=linux)
        about["firmware"] = _firmware(fd, linux)
    except IoctlFailed as error:
        return AmdCard(**{**about, "open_errno": error.errno})
    finally:
        with contextlib.suppress(OSError):
            linux.close(fd)
    about["ip_major"] = ip.hw_ip_version_major
    about["gfx_target_version"] = version_of(ip.ip_discovery_version)
    about["compute_units"] = device.cu_active_number
    about["integrated"] = bool(device.ids_flags & AMDGPU_IDS_FLAGS_FUSION)
    return AmdCard(**about)


def _firmware(fd: int, linux: Linux) -> tuple[int, ...]:
    from zinc_rt.amdgpu import drm
    from zinc_rt.amdgpu.abi import info
    from zinc_rt.amdgpu.errors import IoctlFailed

    versions = []
    kinds = (info.AMDGPU_INFO_FW_GFX_ME, info.AMDGPU_INFO_FW_GFX_PFP, info.AMDGPU_INFO_FW_GFX_MEC)
    try:
        for kind in (*kinds, info.AMDGPU_INFO_FW_MES):
            firmware = info.DrmAmdgpuInfoFirmware()
            drm.query_info(fd, info.AMDGPU_INFO_FW_VERSION, firmware, ip_type=kind, linux=linux)
            versions.append(firmware.ver)
    except IoctlFailed:
        return ()
    # MES packs its version with that of its interface; the lowest twelve bits count releases.
    return (*versions[:3], versions[3] & 0xFFF)


def _number(linux: Linux, path: str, base: int = 10) -> int:
    try:
        return int(linux.read_text(path), base)
    except (OSError, ValueError):
        return 0


def of_card(gpus: list[AmdCard], card: str) -> list[AmdCard]:
    """Those of the card, a render node or PCI address as `DeviceChoice` has it; all for "".

    Raises `DeviceUnavailable`, naming those that are there, where none is it.
    """
    found = [gpu for gpu in gpus if card in ("", gpu.short, gpu.pci)]
    if card and not found:
        there = ", ".join(f"{gpu.short} ({', '.join(filter(None, (gpu.pci, gpu.name)))})" for gpu in gpus)
        raise DeviceUnavailable(
            f"there is no AMD GPU {card} here; {f'there are: {there}' if there else 'none is in sight'}"
        )
    return found


def can_run(gpu: AmdCard) -> bool:
    """Whether there are kernels for it that were shown to run."""
    from zinc_rt.amdgpu.gfx import runs_kernels

    return gpu.eligible and runs_kernels(gpu.gfx_target_version)


def refusal(linux: Linux, gpus: list[AmdCard], card: str = "") -> tuple[str, str]:
    """Why none of the GPUs can be tried, and what helps; empty when one can.

    Raises `DeviceUnavailable` for a card that is not among them.
    """
    if not linux.is_linux:
        return "AMD GPUs are driven on Linux only", "use cpu"
    chosen = of_card(gpus, card)
    if not chosen:
        return "no AMD GPU is in sight", "use cpu"
    if any(map(can_run, chosen)):
        return "", ""
    return "; ".join(gpu.refusal() for gpu in chosen), "see `zinc check`"


@dataclass(frozen=True)
class InterfaceProbe:
    """Result of probing an interface.

    seconds: from a submission to its retired fence; None when it failed with `error`.
    """

    interface: str
    seconds: float | None
    error: str = ""


def open_interface(name: str, render_node: str, linux: Linux) -> Interface:
    """The interface `umq`, `kfd` or `cs` of a GPU. Raises `InterfaceError`."""
    if name == "umq":
        from zinc_rt.amdgpu.umq.interface import UserQueueInterface

        return UserQueueInterface(render_node, linux=linux)
    if name == "kfd":
        from zinc_rt.amdgpu.kfd.interface import KfdInterface

        return KfdInterface(render_node, linux=linux)
    from zinc_rt.amdgpu.cs.interface import CsInterface

    return CsInterface(render_node, linux=linux)


def probe_interface(name: str, render_node: str, linux: Linux) -> InterfaceProbe:
    """Submit through an interface and wait for the fence. Never raises a `ZincError`."""
    from zinc_rt.amdgpu.selftest import probe

    try:
        interface = open_interface(name, render_node, linux)
        try:
            return InterfaceProbe(name, probe(interface, PROBE_SECONDS))
        finally:
            interface.close()
    except (ZincError, OSError) as error:
        return InterfaceProbe(name, None, str(error))

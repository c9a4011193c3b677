"""`zinc check` on AMD GPUs: every step of every interface, with its fault and the remedy."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from zinc_rt.amdgpu.advice import KERNEL_LOG, LOAD, RESIZABLE_BAR, remedy
from zinc_rt.cli.machine import MachineFinding
from zinc_rt.utils.linux import Linux, host

if TYPE_CHECKING:
    from zinc_rt.backends.devices import DeviceReport
    from zinc_rt.backends.diagnostics.crash_log import Contacts
    from zinc_rt.backends.probe import AmdCard, InterfaceProbe
    from zinc_rt.seed.umq import KernelVersion, SmokeResult


_KFD = "/dev/kfd"
_PCI = "/sys/bus/pci/devices"
_FIRMWARE = ("ME", "PFP", "MEC", "MES")
# What amdgpu asks of gfx12's firmware before it offers user queues (gfx_v12_0.c).
_USERQ_MAJOR = 12
_USERQ_FIRMWARE = {(6, 16): (2780, 2840, 3050, 123), (7, 0): (3090, 3190, 3450, 147)}


def gpu_findings(
    linux: Linux | None = None, devices: Iterable[DeviceReport] = (), contacts: Contacts | None = None
) -> list[MachineFinding]:
    """Findings about the AMD GPUs of the machine. Interfaces are tried out; nothing stays open.

    devices: reports, whose unsafe interfaces are left alone. contacts: where it is remembered that a trial began.
    """
    from zinc_rt.backends.probe import find_gpus

    linux = linux or host()
    if not linux.is_linux:
        return [MachineFinding("AMD GPUs", "none: amdgpu exists on Linux only")]
    gpus = find_gpus(linux)
    if not gpus:
        return [_no_gpu(linux)]
    found = [MachineFinding("AMD GPUs", _list(gpus)), device_file(linux, _KFD)]
    unsafe = {(report.render_node, report.device.value): report for report in devices if report.unsafe}
    for gpu in gpus:
        found += _of_gpu(linux, gpu)
        for interface, look in _INTERFACES.items() if gpu.eligible else ():
            found += _interface(
                linux, gpu, interface, look, unsafe.get((gpu.render_node, f"gpu:{interface}")), contacts
            )
    return found


def _interface(
    linux: Linux, gpu: AmdCard, interface: str, look: _Look, report: DeviceReport | None, contacts: Contacts | None
) -> list[MachineFinding]:
    if report is not None:
        left = MachineFinding(f"{gpu.short} {interface}", "left alone, see above", False, report.remedy)
        return [_versions(gpu, gpu.short), left] if interface == "umq" else [left]
    if contacts is None:
        return look(linux, gpu, gpu.short)
    from zinc_rt.backends.diagnostics.crash_log import situation

    with contacts.trial(situation(linux, gpu, interface)):
        return look(linux, gpu, gpu.short)


def _list(gpus: list[AmdCard]) -> str:
    usable = sorted((gpu for gpu in gpus if gpu.eligible), key=lambda gpu: gpu.integrated)
    text = f"{len(gpus)} driven by amdgpu"
    return f"{text}; the runtime uses {usable[0].render_node}" if usable else f"{text}, none that the runtime can use"


def _no_gpu(linux: Linux) -> MachineFinding:
    cards = _cards_without_driver(linux)
    if cards:
        text = f"none driven by amdgpu, but {', '.join(cards)} is an AMD display device"
        return MachineFinding("AMD GPUs", text, False, f"{LOAD}; then see dmesg | grep amdgpu")
    return MachineFinding("AMD GPUs", "none: no render node in /sys/class/drm is AMD's")


def _cards_without_driver(linux: Linux) -> list[str]:
    cards = []
    with contextlib.suppress(OSError):
        for name in linux.list_dir(_PCI):
            with contextlib.suppress(OSError):
                vendor, kind = (linux.read_text(f"{_PCI}/{name}/{file}").strip() for file in ("vendor", "class"))
                if vendor == "0x1002" and kind.startswith("0x03"):
                    cards.append(name)
    return cards


def _of_gpu(linux: Linux, gpu: AmdCard) -> list[MachineFinding]:
    short = gpu.short
    found = [_device(gpu, short), device_file(linux, gpu.render_node, f"{short} file")]
    if gpu.open_errno is not None:
        return found
    found += _memory(gpu, short)
    if gpu.displays:
        found.append(MachineFinding(f"{short} display", f"drives {' and '.join(gpu.displays)}"))
    return found


def _device(gpu: AmdCard, short: str) -> MachineFinding:
    from zinc_rt.amdgpu.gfx import generations
    from zinc_rt.backends.probe import NOT_INTEGRATED
    from zinc_rt.mem.plan import format_bytes

    text = f"{gpu.name}, {format_bytes(gpu.vram)} of VRAM"
    if gpu.compute_units:
        text = f"{gpu.name}, {gpu.compute_units} compute units, {format_bytes(gpu.vram)} of VRAM"
    if gpu.eligible:
        return MachineFinding(short, text)
    if gpu.integrated:
        return MachineFinding(short, f"{text}; part of the processor: {NOT_INTEGRATED}")
    if gpu.open_errno is None:
        return MachineFinding(
            short, f"{text}; the GPU kernels are written for {generations(executed=True)}", False, "use --device cpu"
        )
    return MachineFinding(
        short, f"{text}; it does not answer: {os.strerror(gpu.open_errno)}", False, "see the next line"
    )


def _memory(gpu: AmdCard, short: str) -> list[MachineFinding]:
    """What holds weights, and whether the processor reaches it."""
    from zinc_rt.mem.plan import format_bytes

    if not gpu.integrated:
        return [_bar(gpu, short)]
    if not gpu.eligible:
        return []
    shares = f"{format_bytes(gpu.gtt)} of system memory (GTT), {format_bytes(gpu.vram)} carved out"
    remedy = "the kernel's ttm.pages_limit sets the first, the firmware's setup the second"
    return [MachineFinding(f"{short} memory", f"{shares}; models use the larger part", True, remedy)]


def _bar(gpu: AmdCard, short: str) -> MachineFinding:
    from zinc_rt.mem.plan import format_bytes

    name = f"{short} BAR"
    if not gpu.vram or not gpu.visible_vram:
        return MachineFinding(name, "the kernel does not say how much VRAM the processor reaches")
    if gpu.visible_vram >= gpu.vram:
        return MachineFinding(name, f"the processor reaches all {format_bytes(gpu.vram)} of VRAM")
    reach = f"the processor reaches {format_bytes(gpu.visible_vram)} of {format_bytes(gpu.vram)} of VRAM"
    return MachineFinding(name, reach, False, f"{RESIZABLE_BAR}; weights go through system memory meanwhile")


# User queues.


def _user_queue(linux: Linux, gpu: AmdCard, short: str) -> list[MachineFinding]:
    from zinc_rt.backends.probe import probe_interface
    from zinc_rt.seed.umq import admission_probe_path, create_free_smoke_path, probe_path
    from zinc_rt.seed.umq.smoke import explain

    name = f"{short} user queue"
    preflight, admission = probe_path(gpu.render_node, linux=linux), admission_probe_path(gpu.render_node, linux=linux)
    parameter = (
        "no parameter user_queue" if preflight.user_queue_mode is None else f"user_queue={preflight.user_queue_mode}"
    )
    seen = f"Linux {linux.kernel_release()}, {parameter}"
    firmware = _firmware(gpu, short, admission, preflight.kernel)
    if not admission.ok():
        reason, remedy = explain(admission)
        return [firmware, MachineFinding(name, f"{seen}: {reason}", False, remedy)]
    smoke = create_free_smoke_path(gpu.render_node, linux=linux)
    if not smoke.ok():
        reason, remedy = explain(smoke)
        return [
            firmware,
            MachineFinding(name, f"{seen}, {smoke.userq_slots} slots: {reason}{_code(smoke.errno)}", False, remedy),
        ]
    made = f"{seen}, {smoke.userq_slots} slots; a queue was made and freed"
    return [
        firmware,
        MachineFinding(name, made),
        _fence(f"{short} umq", probe_interface("umq", gpu.render_node, linux)),
    ]


def _firmware(gpu: AmdCard, short: str, admission: SmokeResult, kernel: KernelVersion | None) -> MachineFinding:
    from zinc_rt.amdgpu.drm import QueryStatus

    plain, versions = _versions(gpu, short), gpu.firmware
    missing = admission.query_status is QueryStatus.compute_userq_slots_missing
    if not versions or not missing or kernel is None or gpu.ip_major != _USERQ_MAJOR:  # the table's generation
        return plain
    least = next(
        (need for since, need in reversed(_USERQ_FIRMWARE.items()) if (kernel.major, kernel.minor) >= since), None
    )
    if least is None or all(have >= need for have, need in zip(versions, least)):
        return plain
    wanted = ", ".join(f"{what} {need}" for what, need in zip(_FIRMWARE, least))
    text = f"{plain.value}; user queues need {wanted}"
    return MachineFinding(plain.name, text, False, "update linux-firmware for user queues")


def _versions(gpu: AmdCard, short: str) -> MachineFinding:
    text = ", ".join(f"{what} {version}" for what, version in zip(_FIRMWARE, gpu.firmware))
    return MachineFinding(f"{short} firmware", text or "the kernel does not tell its versions")


# /dev/kfd.


def _kfd(linux: Linux, gpu: AmdCard, short: str) -> list[MachineFinding]:
    from zinc_rt.backends.probe import probe_interface
    from zinc_rt.seed.kfd.bring_up import bring_up_path
    from zinc_rt.seed.kfd.queue_smoke import create_compute_queue_smoke_path

    memory = bring_up_path(gpu.render_node, linux=linux)
    name = f"{short} kfd memory"
    if not memory.ok():
        word = memory.status.value
        return [MachineFinding(name, f"{word}{_code(memory.errno)}", False, remedy(word, memory.errno))]
    version = f"{memory.kfd_version_major}.{memory.kfd_version_minor}"
    found = [MachineFinding(name, f"interface {version}; a page went to the GPU and back")]
    queue = create_compute_queue_smoke_path(gpu.render_node, linux=linux)
    found.append(_queue(linux, gpu, f"{short} kfd queue", queue.status.value, queue.errno, queue.ok()))
    if queue.ok():
        found.append(_fence(f"{short} kfd", probe_interface("kfd", gpu.render_node, linux)))
    return found


def _queue(linux: Linux, gpu: AmdCard, name: str, word: str, code: int | None, ok: bool) -> MachineFinding:
    from zinc_rt.amdgpu.kfd.sizes import computed_ctl_stack_size, computed_cwsr_size, save_area
    from zinc_rt.amdgpu.kfd.topology import find_topology_node, render_minor_of

    node = find_topology_node(render_minor_of(gpu.render_node) or 0, linux=linux)
    if node is None:
        return MachineFinding(name, f"{word}{_code(code)}", False, remedy("topology_node_missing", None))
    area = save_area(node)
    given = f"save area {area.context:#x}, control stack {area.control_stack:#x}, {area.allocation:#x} allocated"
    computed = (computed_cwsr_size(node), computed_ctl_stack_size(node))
    mismatch = ""
    if node.cwsr_size and (node.cwsr_size, node.ctl_stack_size) != computed:
        mismatch = (
            f"; the kernel says {node.cwsr_size:#x} and {node.ctl_stack_size:#x} where {computed[0]:#x} and "
            f"{computed[1]:#x} are expected of {gpu.name}"
        )
    if ok:
        return MachineFinding(name, f"made and destroyed: {given}{mismatch}")
    if word == "create_queue_failed" and code == errno.EINVAL:
        text = f"{word}{_code(code)}: Linux {linux.kernel_release()} refuses the computed sizes: {given}{mismatch}"
        return MachineFinding(name, text, False, remedy(word, code))
    return MachineFinding(name, f"{word}{_code(code)}", False, remedy(word, code))


# Command submission.


def _cs(linux: Linux, gpu: AmdCard, short: str) -> list[MachineFinding]:
    from zinc_rt.backends.probe import probe_interface
    from zinc_rt.seed.cs.smoke import submit_nop_smoke_path

    smoke = submit_nop_smoke_path(gpu.render_node, timeout=2.0, linux=linux)
    name = f"{short} cs smoke"
    if smoke.status.value != "ok":
        return [MachineFinding(name, f"{smoke.status.value}{_code(smoke.errno)}", False, KERNEL_LOG)]
    rings = f"rings {smoke.available_rings:#x}"
    return [
        MachineFinding(name, f"{rings}; {smoke.submit_count} submissions retired and wrote what they should"),
        _fence(f"{short} cs", probe_interface("cs", gpu.render_node, linux)),
    ]


_Look = Callable[[Linux, "AmdCard", str], list[MachineFinding]]
_INTERFACES: dict[str, _Look] = {"umq": _user_queue, "kfd": _kfd, "cs": _cs}


def _fence(name: str, result: InterfaceProbe) -> MachineFinding:
    if result.seconds is None:
        return MachineFinding(name, result.error, False, KERNEL_LOG)
    return MachineFinding(name, f"a fence retired after {result.seconds * 1e3:.2f} ms")


def _code(code: int | None) -> str:
    return "" if code is None else f" ({os.strerror(code)}, errno {code})"


def device_file(linux: Linux, path: str, label: str = "") -> MachineFinding:
    """Try to open a device file for reading and writing, as every interface does."""
    from zinc_rt.amdgpu.advice import file_advice

    name = label or path
    try:
        fd = linux.open(path)
    except OSError as error:
        reason, remedy = file_advice(linux, path, error.errno or 0)
        return MachineFinding(name, reason, False, remedy)
    with contextlib.suppress(OSError):
        linux.close(fd)
    return MachineFinding(name, f"{path} can be opened")

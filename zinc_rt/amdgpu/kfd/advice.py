"""What a failed step means and what to do: one line for each way that amdkfd fails its users."""

from __future__ import annotations

import errno
import stat

from zinc_rt.amdgpu.abi.kfd import GetAvailableMemoryArgs
from zinc_rt.amdgpu.abi.requests import KFD_AVAILABLE_MEMORY
from zinc_rt.amdgpu.errors import InterfaceError
from zinc_rt.amdgpu.gfx import generations, gfx_name
from zinc_rt.amdgpu.kfd.calls import StepFailed
from zinc_rt.amdgpu.kfd.constants import KFD_DEVICE_NODE, MIN_KFD_MAJOR
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import save_area
from zinc_rt.amdgpu.kfd.topology import TopologyNode
from zinc_rt.linux import Linux

_KERNEL_LOG = "the kernel's log says why (dmesg, lines of amdgpu and kfd)"

_STEPS = {
    "get_version_failed": "asking amdkfd for its version",
    "acquire_vm_failed": "ACQUIRE_VM",
    "apertures_failed": "asking amdkfd for the GPU's address ranges",
    "va_reservation_failed": "reserving addresses",
    "map_incomplete": "MAP_MEMORY_TO_GPU",
    "map_failed": "MAP_MEMORY_TO_GPU",
    "mmap_failed": "mapping the GPU's memory into this process",
    "unmap_failed": "UNMAP_MEMORY_FROM_GPU",
    "free_failed": "FREE_MEMORY_OF_GPU",
    "runtime_enable_failed": "RUNTIME_ENABLE",
    "event_page_failed": "giving the event page to the GPU",
    "event_failed": "CREATE_EVENT",
    "doorbell_failed": "mapping the doorbells",
    "destroy_queue_failed": "DESTROY_QUEUE",
    "wait_failed": "WAIT_EVENTS",
}


def access_advice(linux: Linux, path: str, code: int | None) -> str:
    """Why a device file did not open."""
    if code == errno.ENOENT:
        return (
            "there is no such file: is the amdgpu module loaded? A container needs --device /dev/kfd --device /dev/dri"
        )
    if code in (errno.EACCES, errno.EPERM):
        try:
            found = linux.stat(path)
        except OSError:
            return "its owner and mode cannot be read either"
        return (
            f"it has mode {stat.S_IMODE(found.st_mode):04o}, owner {found.st_uid}, group {found.st_gid}; this process"
            f" has groups {', '.join(map(str, linux.groups()))}: add the user to that group (often render or video) and"
            " log in again, or give a container the group with --group-add"
        )
    if code == errno.EINVAL and path == KFD_DEVICE_NODE:
        return f"amdkfd has no GPU that it can use, or a reset holds it; {_KERNEL_LOG}"
    return _KERNEL_LOG


def interface_error(session: KfdSession, failed: StepFailed) -> InterfaceError:
    """A failed step as an error for users."""
    linux, code, what = session.linux, failed.errno, failed.what
    name, advice = _STEPS.get(failed.step, failed.step), _KERNEL_LOG
    match failed.step:
        case "kfd_open_failed":
            name, advice = f"opening {KFD_DEVICE_NODE}", access_advice(linux, KFD_DEVICE_NODE, code)
        case "render_node_open_failed":
            name, advice = f"opening {session.render_node}", access_advice(linux, session.render_node, code)
        case "kfd_version_too_old":
            major, minor = session.version
            name = f"amdkfd {major}.{minor}"
            advice = f"{MIN_KFD_MAJOR}.0 is the oldest version that this runtime knows; a newer kernel has it"
        case "acquire_vm_failed" if code == errno.EBUSY:
            advice = (
                "another part of this process has bound the GPU through a render file of its own (ROCm, for one), and"
                " amdkfd allows one per process: use a process of its own"
            )
        case "aperture_missing":
            name, advice = f"amdkfd names no address range of GPU {session.node.gpu_id}", "is it in this container?"
        case "va_outside_aperture":
            base, limit = session.aperture
            name = f"reserving addresses within {base:#x}..{limit:#x}"
            advice = "the system gave addresses that the GPU cannot reach"
        case "alloc_failed":
            name, advice = f"allocating {what}", _memory_advice(session, code, what)
        case "create_queue_failed":
            name, advice = "CREATE_QUEUE", _queue_advice(session, code)
    if what and failed.step in ("map_failed", "map_incomplete", "mmap_failed", "unmap_failed", "free_failed"):
        name = f"{name} of {what}"
    return InterfaceError(f"{name} ({session.render_node})", code, advice)


def no_node_error(linux: Linux, wanted: str, nodes: list[TopologyNode] | None) -> InterfaceError:
    """No GPU fits. nodes: those that there are, None when the topology cannot be read."""
    if nodes is None:
        return InterfaceError("finding a GPU", None, "amdkfd has no topology in sysfs: the amdgpu module is not loaded")
    if not nodes:
        return InterfaceError(
            "finding a GPU", None, "amdkfd shows none; a container needs --device /dev/kfd --device /dev/dri"
        )
    there = ", ".join(f"/dev/dri/renderD{n.drm_render_minor} {gfx_name(n.gfx_target_version)}" for n in nodes)
    return InterfaceError(wanted, None, f"{generations()} are supported; there are {there}")


def driver_text(session: KfdSession) -> str:
    """Which kernel and interface answered."""
    major, minor = session.version
    return f"Linux {session.linux.kernel_release()}, amdkfd {major}.{minor}"


def _memory_advice(session: KfdSession, code: int | None, what: str) -> str:
    if code == errno.ENOMEM:
        free = available_memory(session)
        left = "" if free is None else f"{free >> 20} MiB of VRAM are free; "
        return f"{left}amdkfd pins what it allocates, so all processes together must fit"
    if code == errno.EINVAL and "visible" in what:
        return "without a resizable BAR the processor reaches little of VRAM: turn it on in the firmware's setup"
    return _KERNEL_LOG


def _queue_advice(session: KfdSession, code: int | None) -> str:
    if code == errno.EINVAL:
        node, area = session.node, save_area(session.node)
        return (
            f"{driver_text(session)}, {gfx_name(node.gfx_target_version)}: we gave a save area of"
            f" {area.context:#x} bytes with a control stack of {area.control_stack:#x}, allocated {area.allocation:#x};"
            f" the node says cwsr_size {node.cwsr_size:#x}, ctl_stack_size {node.ctl_stack_size:#x}. Kernels from"
            " 6.12 on compare these exactly"
        )
    if code in (errno.ENOSPC, errno.EBUSY, errno.ENOMEM, errno.EPERM):
        return "this process, or all processes together, have as many queues as the GPU takes: end some"
    if code == errno.EIO:
        return "the GPU is being reset; try again in a minute"
    return _KERNEL_LOG


def available_memory(session: KfdSession) -> int | None:
    """Bytes of VRAM that can still be allocated, None when amdkfd does not tell."""
    args = GetAvailableMemoryArgs(gpu_id=session.node.gpu_id)
    try:
        session.linux.ioctl(session.kfd_fd, KFD_AVAILABLE_MEMORY.value, args)
    except OSError:
        return None
    return int(args.available)

"""A failed step as an error for users: words and remedy from `zinc_rt.amdgpu.advice`, the figures from here."""

from __future__ import annotations

import errno

from zinc_rt.amdgpu.abi.kfd import GetAvailableMemoryArgs
from zinc_rt.amdgpu.abi.requests import KFD_AVAILABLE_MEMORY
from zinc_rt.amdgpu.advice import CONTAINER, LOAD, RESIZABLE_BAR, file_advice, remedy
from zinc_rt.amdgpu.errors import InterfaceError, StepFailed
from zinc_rt.amdgpu.gfx import generations, gfx_name
from zinc_rt.amdgpu.kfd.constants import KFD_DEVICE_NODE, MIN_KFD_MAJOR
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import save_area
from zinc_rt.amdgpu.kfd.topology import TopologyNode
from zinc_rt.utils.linux import Linux

_OF_MEMORY = ("map_failed", "map_incomplete", "mmap_failed", "unmap_failed", "free_failed")


def interface_error(session: KfdSession, failed: StepFailed) -> InterfaceError:
    """The error of a step: the GPU, the known facts and the remedy."""
    linux, code, word, memory = session.linux, failed.errno, failed.word, failed.memory
    step, advice = failed.step, remedy(word, code)
    match word:
        case "kfd_open_failed":
            advice = "; ".join(file_advice(linux, KFD_DEVICE_NODE, code or 0))
        case "render_node_open_failed":
            step = f"opening {session.render_node}"
            advice = "; ".join(file_advice(linux, session.render_node, code or 0))
        case "kfd_version_too_old":
            major, minor = session.version
            step = f"amdkfd {major}.{minor}"
            advice = f"{MIN_KFD_MAJOR}.0 is the oldest version that this runtime knows: {advice}"
        case "aperture_missing":
            step = f"amdkfd names no address range of GPU {session.node.gpu_id}"
        case "va_outside_aperture":
            base, limit = session.aperture
            step = f"reserving addresses within {base:#x}..{limit:#x}"
            advice = "the system gave addresses that the GPU cannot reach"
        case "alloc_failed":
            step, advice = f"allocating {memory}", _memory_advice(session, code, memory, advice)
        case "create_queue_failed" if code == errno.EINVAL:
            advice = f"{_sizes(session)}. {advice}"
    if memory and word in _OF_MEMORY:
        step = f"{step} of {memory}"
    return InterfaceError(f"{step} ({session.render_node})", code, advice)


def no_node_error(linux: Linux, wanted: str, nodes: list[TopologyNode] | None) -> InterfaceError:
    """No GPU fits. nodes: those that there are, None when the topology cannot be read."""
    if nodes is None:
        return InterfaceError("finding a GPU", None, f"amdkfd has no topology in sysfs: {LOAD}")
    if not nodes:
        return InterfaceError("finding a GPU", None, f"amdkfd shows none; {CONTAINER}")
    there = ", ".join(f"/dev/dri/renderD{n.drm_render_minor} {gfx_name(n.gfx_target_version)}" for n in nodes)
    return InterfaceError(wanted, None, f"{generations()} are supported; there are {there}")


def driver_text(session: KfdSession) -> str:
    """Which kernel and interface answered."""
    major, minor = session.version
    return f"Linux {session.linux.kernel_release()}, amdkfd {major}.{minor}"


def _memory_advice(session: KfdSession, code: int | None, memory: str, advice: str) -> str:
    if code == errno.ENOMEM and (free := available_memory(session)) is not None:
        return f"{free >> 20} MiB of VRAM are free; {advice}"
    if code == errno.EINVAL and "visible" in memory:
        return f"without a resizable BAR the processor reaches little of VRAM: {RESIZABLE_BAR}"
    return advice


def _sizes(session: KfdSession) -> str:
    node, area = session.node, save_area(session.node)
    return (
        f"{driver_text(session)}, {gfx_name(node.gfx_target_version)}: we gave a save area of"
        f" {area.context:#x} bytes with a control stack of {area.control_stack:#x}, allocated {area.allocation:#x};"
        f" the node says cwsr_size {node.cwsr_size:#x}, ctl_stack_size {node.ctl_stack_size:#x}"
    )


def available_memory(session: KfdSession) -> int | None:
    """Bytes of VRAM that can still be allocated, None when amdkfd does not tell."""
    args = GetAvailableMemoryArgs(gpu_id=session.node.gpu_id)
    try:
        session.linux.ioctl(session.kfd_fd, KFD_AVAILABLE_MEMORY.value, args)
    except OSError:
        return None
    return int(args.available)

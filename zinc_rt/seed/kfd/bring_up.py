"""Is the way over /dev/kfd open as far as memory? Sixty-four KiB of addresses, a page, a number there and back."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_GTT, ALLOC_MEM_FLAGS_WRITABLE
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.topology import find_topology_node, render_minor_of
from zinc_rt.utils.linux import Linux, host

_WINDOW, _SCRATCH = 0x10000, 0x1000
_MAGIC = 0x5A494E435F525431  # "ZINC_RT1"


class BringUpStatus(StrEnum):
    """How far `bring_up_path` came: every member but `ok` names the step that failed."""

    ok = "ok"
    unsupported_os = "unsupported_os"
    kfd_open_failed = "kfd_open_failed"
    render_node_open_failed = "render_node_open_failed"
    get_version_failed = "get_version_failed"
    kfd_version_too_old = "kfd_version_too_old"
    topology_unreadable = "topology_unreadable"
    topology_node_missing = "topology_node_missing"
    acquire_vm_failed = "acquire_vm_failed"
    apertures_failed = "apertures_failed"
    aperture_missing = "aperture_missing"
    va_reservation_failed = "va_reservation_failed"
    va_outside_aperture = "va_outside_aperture"
    alloc_failed = "alloc_failed"
    map_failed = "map_failed"
    map_incomplete = "map_incomplete"
    mmap_failed = "mmap_failed"
    roundtrip_mismatch = "roundtrip_mismatch"
    unmap_failed = "unmap_failed"
    free_failed = "free_failed"


@dataclass
class BringUpResult:
    """What `bring_up_path` saw. gpuvm_base, gpuvm_limit: first and last address of the GPU's VM; errno: the kernel's
    answer at the step that failed, None when it gave none.
    """

    status: BringUpStatus
    render_node: str = DEFAULT_RENDER_NODE
    kfd_version_major: int = 0
    kfd_version_minor: int = 0
    gpu_id: int = 0
    gfx_target_version: int = 0
    simd_count: int = 0
    cwsr_size: int = 0
    ctl_stack_size: int = 0
    gpuvm_base: int = 0
    gpuvm_limit: int = 0
    scratch_va: int = 0
    errno: int | None = None

    def ok(self) -> bool:
        """Whether the number came back and everything was given back."""
        return self.status is BringUpStatus.ok


def bring_up_default(*, linux: Linux | None = None) -> BringUpResult:
    """`bring_up_path` of the default render node."""
    return bring_up_path(DEFAULT_RENDER_NODE, linux=linux)


def bring_up_path(render_node: str, *, linux: Linux | None = None) -> BringUpResult:
    """Open, check, allocate a page, map it, write and read it, give everything back. Never raises.

    One thing stays, once: the render node's file, which amdkfd binds to the process (`zinc_rt.amdgpu.kfd.process`).
    """
    linux = linux or host()
    result = BringUpResult(BringUpStatus.ok, str(render_node))
    try:
        if not linux.is_linux:
            raise StepFailed("unsupported_os")
        _bring_up(linux, result)
    except StepFailed as failed:
        result.status, result.errno = BringUpStatus(failed.word), failed.errno
    return result


def _bring_up(linux: Linux, result: BringUpResult) -> None:
    minor = render_minor_of(result.render_node)
    if minor is None:
        raise StepFailed("topology_unreadable")
    node = find_topology_node(minor, linux=linux)
    if node is None:
        raise StepFailed("topology_node_missing")
    result.gpu_id, result.gfx_target_version, result.simd_count = node.gpu_id, node.gfx_target_version, node.simd_count
    result.cwsr_size, result.ctl_stack_size = node.cwsr_size, node.ctl_stack_size
    session = KfdSession(linux, node, result.render_node)
    try:
        session.open()
        _round_trip(session, result)
    finally:
        result.kfd_version_major, result.kfd_version_minor = session.version
        result.gpuvm_base, result.gpuvm_limit = session.aperture
        session.close()


def _round_trip(session: KfdSession, result: BringUpResult) -> None:
    scratch = Memory(session, _SCRATCH, "bring-up page", _WINDOW)
    try:
        scratch.create(ALLOC_MEM_FLAGS_GTT | ALLOC_MEM_FLAGS_WRITABLE, visible=True)
        result.scratch_va = scratch.va
        session.linux.store64(scratch.va, _MAGIC)
        session.linux.store_fence()
        if session.linux.load64(scratch.va) != _MAGIC:
            raise StepFailed("roundtrip_mismatch")
        scratch.destroy()
    finally:
        scratch.discard()

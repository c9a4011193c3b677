"""Does amdkfd create a PM4 queue here? The five pieces of memory that one needs, created, some NOPs, destroyed.

No doorbell rings: nothing runs. `zinc_rt.amdgpu.kfd.interface` is what runs.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from zinc_rt.amdgpu.abi.kfd import CreateQueueArgs
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.interface import DEFAULT_RENDER_NODE
from zinc_rt.amdgpu.kfd.constants import ALLOC_MEM_FLAGS_GTT, ALLOC_MEM_FLAGS_WRITABLE
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.queue_calls import create_queue, destroy_queue, queue_arguments
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import eop_bytes, save_area
from zinc_rt.amdgpu.kfd.topology import find_topology_node, render_minor_of
from zinc_rt.amdgpu.user_ring import dwords_at
from zinc_rt.seed.pm4_packet import PacketBuilder
from zinc_rt.utils.linux import PAGE, Linux, host

_RING = 0x10000
_FLAGS = ALLOC_MEM_FLAGS_GTT | ALLOC_MEM_FLAGS_WRITABLE


class ComputeQueueSmokeStatus(StrEnum):
    """How far `create_compute_queue_smoke_path` came: every member but `ok` names the step that failed."""

    ok = "ok"
    unsupported_os = "unsupported_os"
    topology_node_missing = "topology_node_missing"
    kfd_open_failed = "kfd_open_failed"
    render_node_open_failed = "render_node_open_failed"
    get_version_failed = "get_version_failed"
    kfd_version_too_old = "kfd_version_too_old"
    acquire_vm_failed = "acquire_vm_failed"
    apertures_failed = "apertures_failed"
    aperture_missing = "aperture_missing"
    va_reservation_failed = "va_reservation_failed"
    bo_alloc_failed = "bo_alloc_failed"
    bo_map_failed = "bo_map_failed"
    create_queue_failed = "create_queue_failed"
    destroy_queue_failed = "destroy_queue_failed"


_Status = ComputeQueueSmokeStatus
_STATUS_OF_STEP = {
    "va_outside_aperture": _Status.va_reservation_failed,
    "alloc_failed": _Status.bo_alloc_failed,
    "mmap_failed": _Status.bo_map_failed,
    "map_failed": _Status.bo_map_failed,
    "map_incomplete": _Status.bo_map_failed,
}


@dataclass
class ComputeQueueSmokeResult:
    """What `create_compute_queue_smoke_path` saw. Addresses are the GPU's; sizes are bytes.

    doorbell_offset: as CREATE_QUEUE returned it, for an mmap; wptr_value, rptr_value: the pointers while the queue
    existed, dwords; errno: the kernel's answer at the step that failed; destroy_errno: that of DESTROY_QUEUE.
    """

    status: ComputeQueueSmokeStatus
    render_node: str = DEFAULT_RENDER_NODE
    gpu_id: int = 0
    gfx_target_version: int = 0
    queue_id: int = 0
    doorbell_offset: int = 0
    ring_va: int = 0
    ring_size: int = 0
    wptr_va: int = 0
    rptr_va: int = 0
    eop_va: int = 0
    eop_size: int = 0
    cwsr_va: int = 0
    cwsr_bo_size: int = 0
    ctx_save_restore_size: int = 0
    ctl_stack_size: int = 0
    create_queue_arg_size: int = ctypes.sizeof(CreateQueueArgs)
    wptr_value: int = 0
    rptr_value: int = 0
    nop_dwords_staged: int = 0
    errno: int | None = None
    destroy_errno: int | None = None

    def ok(self) -> bool:
        """Whether the queue was created, filled and destroyed, and no ioctl failed."""
        return self.status is ComputeQueueSmokeStatus.ok and self.errno is None and self.destroy_errno is None


def create_compute_queue_smoke_default(*, linux: Linux | None = None) -> ComputeQueueSmokeResult:
    """`create_compute_queue_smoke_path` of the default render node."""
    return create_compute_queue_smoke_path(DEFAULT_RENDER_NODE, linux=linux)


def create_compute_queue_smoke_path(render_node: str, *, linux: Linux | None = None) -> ComputeQueueSmokeResult:
    """Allocate ring, pointers, end-of-pipe buffer and save area, create the queue, stage NOPs, destroy it, give
    everything back. Never raises. The render node's file stays, as with `bring_up_path`.
    """
    linux = linux or host()
    result = ComputeQueueSmokeResult(_Status.ok, str(render_node))
    try:
        if not linux.is_linux:
            raise StepFailed("unsupported_os")
        _open_and_smoke(linux, result)
    except StepFailed as failed:
        result.status, result.errno = _STATUS_OF_STEP.get(failed.word) or _Status(failed.word), failed.errno
    return result


def _open_and_smoke(linux: Linux, result: ComputeQueueSmokeResult) -> None:
    minor = render_minor_of(result.render_node)
    node = None if minor is None else find_topology_node(minor, linux=linux)
    if node is None:
        raise StepFailed("topology_node_missing")
    result.gpu_id, result.gfx_target_version = node.gpu_id, node.gfx_target_version
    session = KfdSession(linux, node, result.render_node)
    memories: list[Memory] = []
    try:
        session.open()
        _smoke(session, memories, result)
    finally:
        for memory in reversed(memories):
            memory.discard()
        session.close()


def _smoke(session: KfdSession, memories: list[Memory], result: ComputeQueueSmokeResult) -> None:
    linux, node = session.linux, session.node

    def memory(size: int, label: str, *, visible: bool = False) -> Memory:
        made = Memory(session, size, label)
        memories.append(made)
        made.create(_FLAGS, visible=visible)
        return made

    area = save_area(node)
    result.ctx_save_restore_size, result.ctl_stack_size = area.context, area.control_stack
    ring = memory(_RING, "ring", visible=True)
    result.ring_va, result.ring_size = ring.va, ring.size
    wptr, rptr = memory(PAGE, "write pointer", visible=True), memory(PAGE, "read pointer", visible=True)
    result.wptr_va, result.rptr_va = wptr.va, rptr.va
    for pointer in (wptr, rptr):
        linux.store64(pointer.va, 0)
    eop = None
    if eop_bytes(node.gfx_target_version):
        eop = memory(eop_bytes(node.gfx_target_version), "end-of-pipe buffer")
        result.eop_va, result.eop_size = eop.va, eop.size
    cwsr = memory(area.allocation, "save area")
    result.cwsr_va, result.cwsr_bo_size = cwsr.va, cwsr.size

    args = queue_arguments(node, ring, wptr.va, rptr.va, eop, cwsr)
    create_queue(session, args)
    result.queue_id, result.doorbell_offset = args.queue_id, args.doorbell_offset
    try:
        result.nop_dwords_staged = _stage_nops(ring)
        result.wptr_value, result.rptr_value = linux.load64(wptr.va), linux.load64(rptr.va)
    finally:
        _destroy(session, args.queue_id, result)


def _stage_nops(ring: Memory) -> int:
    words = np.zeros(8, np.uint32)
    builder = PacketBuilder(words)
    builder.write_nop(3)
    builder.write_nop(1)
    staged = builder.written()
    dwords_at(ring.va, ring.size // 4)[: len(staged)] = staged
    return len(staged)


def _destroy(session: KfdSession, queue_id: int, result: ComputeQueueSmokeResult) -> None:
    try:
        destroy_queue(session, queue_id)
    except StepFailed as failed:
        result.destroy_errno = failed.errno
        raise

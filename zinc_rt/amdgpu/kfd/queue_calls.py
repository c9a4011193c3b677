"""Creating and destroying a PM4 compute queue of amdkfd."""

from __future__ import annotations

from contextlib import suppress

from zinc_rt.amdgpu.abi.kfd import CreateQueueArgs, DestroyQueueArgs
from zinc_rt.amdgpu.abi.requests import KFD_CREATE_QUEUE, KFD_DESTROY_QUEUE
from zinc_rt.amdgpu.errors import StepFailed
from zinc_rt.amdgpu.kfd.calls import call, step
from zinc_rt.amdgpu.kfd.constants import QUEUE_PERCENTAGE, QUEUE_PRIORITY, QUEUE_TYPE_COMPUTE
from zinc_rt.amdgpu.kfd.memory import Memory
from zinc_rt.amdgpu.kfd.process import kept_state
from zinc_rt.amdgpu.kfd.session import KfdSession
from zinc_rt.amdgpu.kfd.sizes import save_area
from zinc_rt.amdgpu.kfd.topology import TopologyNode


def queue_arguments(
    node: TopologyNode, ring: Memory, wptr_va: int, rptr_va: int, eop: Memory | None, cwsr: Memory
) -> CreateQueueArgs:
    """What CREATE_QUEUE takes: the 88 bytes that every version knows. amdkfd wants each buffer to be one whole mapping;
    the pointers may share a page.
    """
    area = save_area(node)
    return CreateQueueArgs(
        ring_base_address=ring.va,
        write_pointer_address=wptr_va,
        read_pointer_address=rptr_va,
        ring_size=ring.size,
        gpu_id=node.gpu_id,
        queue_type=QUEUE_TYPE_COMPUTE,
        queue_percentage=QUEUE_PERCENTAGE,
        queue_priority=QUEUE_PRIORITY,
        eop_buffer_address=eop.va if eop is not None else 0,
        eop_buffer_size=eop.size if eop is not None else 0,
        ctx_save_restore_address=cwsr.va,
        ctx_save_restore_size=area.context,
        ctl_stack_size=area.control_stack,
    )


def create_queue(session: KfdSession, args: CreateQueueArgs) -> None:
    """Fills in `queue_id` and `doorbell_offset`. One at a time in a process. Raises `StepFailed`."""
    with kept_state(session.linux).lock, step("create_queue_failed"):
        call(session.linux, session.kfd_fd, KFD_CREATE_QUEUE, args)


def destroy_queue(session: KfdSession, queue_id: int) -> None:
    """Raises `StepFailed`. The memory of a queue stays locked while it exists, so a failure is followed by a second
    attempt; when the scheduler fails (ETIME, EIO) amdkfd has dropped the queue already, and that one changes nothing.
    """
    try:
        with step("destroy_queue_failed"):
            call(session.linux, session.kfd_fd, KFD_DESTROY_QUEUE, DestroyQueueArgs(queue_id))
    except StepFailed:
        with suppress(OSError):
            session.linux.ioctl(session.kfd_fd, KFD_DESTROY_QUEUE.value, DestroyQueueArgs(queue_id))
        raise

"""The rules for the buffers that a queue uses (`kfd_queue.c`): the driver looks at the address space, not at handles.

Each buffer must be one mapping that starts exactly at the address and has exactly the expected number of pages. The
mapping cannot be removed while a queue uses it. Every broken rule is a bare EINVAL on a real kernel; here the trace
names it.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import TYPE_CHECKING

from amdgpu_emu.abi.kfd import KFD_IOC_QUEUE_TYPE_COMPUTE, KFD_IOC_QUEUE_TYPE_COMPUTE_AQL
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.profiles import KernelProfile
from amdgpu_emu.vm import Mapping
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import ProcessDevice

EOP_BYTES = 4096
"""A node's eop_buffer_size, gfx9 and later."""


@dataclass
class QueueProperties:
    """The arguments of CREATE_QUEUE: addresses of the GPU and bytes."""

    type: int
    ring: int
    ring_bytes: int
    write_pointer: int
    read_pointer: int
    eop: int = 0
    eop_bytes: int = 0
    save_area: int = 0
    save_bytes: int = 0
    control_bytes: int = 0
    metadata_bytes: int = 0

    @property
    def is_compute(self) -> bool:
        """Whether the queue takes PM4 or AQL, not SDMA."""
        return self.type in (KFD_IOC_QUEUE_TYPE_COMPUTE, KFD_IOC_QUEUE_TYPE_COMPUTE_AQL)


def relaxed(profile: KernelProfile) -> bool:
    """Whether sizes are rounded up to pages before they are compared, and an EOP buffer may be larger than 4096.

    6.12.107, 7.2 and 7.3 have that change, kernels of about 6.14 to 6.18 as first released do not.
    """
    return not (profile.since(6, 14) and not profile.since(7, 0))


def acquire(device: ProcessDevice, wanted: QueueProperties) -> list[Mapping]:
    """Check and hold all buffers of a queue, write and read pointer first. Raises `CallRefused` (EINVAL)."""
    profile, model = device.kfd.machine.profile, device.gpu.model
    page = ~(PAGE - 1)
    held = [
        _exactly(device, "write pointer", wanted.write_pointer & page, PAGE),
        _exactly(device, "read pointer", wanted.read_pointer & page, PAGE),
        ring(device, wanted.ring, wanted.ring_bytes + wanted.metadata_bytes),
    ]
    if not wanted.is_compute:
        return held
    if wanted.eop:
        expected = wanted.eop_bytes
        if (expected < EOP_BYTES) if relaxed(profile) else (expected != EOP_BYTES):
            rule = "at least" if relaxed(profile) else "exactly"
            raise CallRefused(errno.EINVAL, f"eop_buffer_size {expected}: must be {rule} {EOP_BYTES}")
        held.append(_exactly(device, "EOP buffer", wanted.eop, _round(expected) if relaxed(profile) else expected))
    if wanted.control_bytes != model.ctl_stack_size:
        raise CallRefused(
            errno.EINVAL, f"ctl_stack_size {wanted.control_bytes}: must be exactly the node's {model.ctl_stack_size}"
        )
    if wanted.save_bytes < model.cwsr_size:
        raise CallRefused(
            errno.EINVAL, f"ctx_save_restore_size {wanted.save_bytes}: must be at least the node's {model.cwsr_size}"
        )
    total = _round(wanted.save_bytes + model.debug_memory_size)
    try:
        held.append(_exactly(device, "save area", wanted.save_area, total))
    except CallRefused:
        if not device.kfd.svm.always_mapped(wanted.save_area, total):
            raise
    return held


def ring(device: ProcessDevice, address: int, size: int) -> Mapping:
    """Find the mapping of a queue's ring. Raises `CallRefused` (EINVAL)."""
    return _exactly(device, "ring", address, _round(size) if relaxed(device.kfd.machine.profile) else size)


def _exactly(device: ProcessDevice, what: str, address: int, size: int) -> Mapping:
    mapping = device.vm.starting_at(address & ~(PAGE - 1))
    if mapping is None:
        raise CallRefused(errno.EINVAL, f"{what}: no mapping starts at {address:#x}; {device.vm.nearest(address)}")
    pages = size // PAGE
    if pages and mapping.size != pages * PAGE:  # less than a page is not compared
        raise CallRefused(
            errno.EINVAL, f"{what}: the mapping at {address:#x} has {mapping.size:#x} bytes, not {pages * PAGE:#x}"
        )
    return mapping


def _round(size: int) -> int:
    return (size + PAGE - 1) // PAGE * PAGE

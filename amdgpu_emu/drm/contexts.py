"""Contexts of a process. Each has entities, one per IP and ring, with numbered submissions."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi.cs import (
    AMDGPU_CTX_NO_RESET,
    AMDGPU_CTX_OP_ALLOC_CTX,
    AMDGPU_CTX_OP_FREE_CTX,
    AMDGPU_CTX_OP_GET_STABLE_PSTATE,
    AMDGPU_CTX_OP_QUERY_STATE,
    AMDGPU_CTX_OP_QUERY_STATE2,
    AMDGPU_CTX_OP_SET_STABLE_PSTATE,
    AMDGPU_CTX_PRIORITY_HIGH,
    AMDGPU_CTX_PRIORITY_LOW,
    AMDGPU_CTX_PRIORITY_NORMAL,
    AMDGPU_CTX_PRIORITY_VERY_HIGH,
    AMDGPU_CTX_PRIORITY_VERY_LOW,
    AMDGPU_CTX_QUERY2_FLAGS_GUILTY,
    AMDGPU_CTX_QUERY2_FLAGS_RESET,
    AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST,
    AMDGPU_CTX_UNKNOWN_RESET,
    AMDGPU_HW_IP_COMPUTE,
    AMDGPU_HW_IP_DMA,
    AMDGPU_HW_IP_GFX,
    AMDGPU_HW_IP_NUM,
    DrmAmdgpuCtx,
)
from amdgpu_emu.abi.requests import AMDGPU_CTX
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.errors import CallRefused

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile

MAX_CONTEXTS = 4095
"""Contexts of one open file before Linux 7.0."""
OUTSTANDING = 32
"""Unfinished submissions that the kernel allows per entity (amdgpu.sched_jobs)."""
ENTITIES = {AMDGPU_HW_IP_GFX: 1, AMDGPU_HW_IP_COMPUTE: 4, AMDGPU_HW_IP_DMA: 2}
"""Rings that a context has per IP; IPs not listed have one."""
_PRIORITIES = (
    AMDGPU_CTX_PRIORITY_VERY_LOW,
    AMDGPU_CTX_PRIORITY_LOW,
    AMDGPU_CTX_PRIORITY_NORMAL,
    AMDGPU_CTX_PRIORITY_HIGH,
    AMDGPU_CTX_PRIORITY_VERY_HIGH,
)
_STABLE_PSTATE_MASK = 0xF
_STABLE_PSTATE_PEAK = 4


class Entity:
    """One ring as a context sees it. next_sequence: the number of its next submission, from 1."""

    def __init__(self, context: Context, ip_type: int, ring: int) -> None:
        self.context, self.ip_type, self.ring = context, ip_type, ring
        self.next_sequence = 1
        self.last: Fence | None = None  # of the job that was last handed to the hardware
        self._fences: dict[int, Fence] = {}

    def __str__(self) -> str:
        return f"context {self.context.number}, IP {self.ip_type}, ring {self.ring}"

    @property
    def error(self) -> int:
        """The errno of the last job that reached the hardware; every later use of the entity fails with it."""
        return self.last.error if self.last is not None and self.last.done else 0

    def add(self, fence: Fence) -> int:
        """Add a submission; returns its number."""
        sequence = self.next_sequence
        self._fences[sequence] = fence
        self._fences.pop(sequence - OUTSTANDING, None)
        self.next_sequence += 1
        return sequence

    @property
    def oldest(self) -> Fence | None:
        """The fence that must be done before another submission fits."""
        return self._fences.get(self.next_sequence - OUTSTANDING)

    def fence(self, sequence: int) -> Fence | None:
        """The fence of a submission; None if it was done long ago.

        Raises `CallRefused` for numbers not submitted yet.
        """
        if sequence == (1 << 64) - 1:
            sequence = self.next_sequence - 1
        if sequence >= self.next_sequence:
            raise CallRefused(
                errno.EINVAL, f"fence {sequence} of {self}: the next submission will be {self.next_sequence}"
            )
        return self._fences.get(sequence)


class Context:
    """A context of an open file. guilty: one of its jobs hung."""

    def __init__(self, file: DrmFile) -> None:
        self.file, self.number = file, 0
        self.guilty = False
        self.resets = self.resets_seen = file.gpu.resets
        self.generation = file.gpu.generation
        self.stable_pstate = 0
        self._entities: dict[tuple[int, int], Entity] = {}

    def find(self, ip_type: int, instance: int, ring: int) -> Entity:
        """Find an entity, in any state. Raises `CallRefused` (EINVAL)."""
        if ip_type >= AMDGPU_HW_IP_NUM:
            raise CallRefused(errno.EINVAL, f"IP type {ip_type}: there are {AMDGPU_HW_IP_NUM}")
        if instance:
            raise CallRefused(errno.EINVAL, f"IP instance {instance}: there is one")
        if ring >= ENTITIES.get(ip_type, 1):
            raise CallRefused(errno.EINVAL, f"ring {ring} of IP {ip_type}: a context has {ENTITIES.get(ip_type, 1)}")
        return self._entities.setdefault((ip_type, ring), Entity(self, ip_type, ring))

    def entity(self, ip_type: int, instance: int, ring: int) -> Entity:
        """Find an entity that still works. Raises `CallRefused`: EINVAL, or the error of its last job."""
        found = self.find(ip_type, instance, ring)
        if found.error:
            raise CallRefused(found.error, f"{found}: its last job ended with an error, the entity is dead")
        return found

    @property
    def has_failed_entity(self) -> bool:
        """Whether an entity's last job hung."""
        return any(entity.error == errno.ETIME for entity in self._entities.values())


def context_of(file: DrmFile, number: int) -> Context:
    """Find a context by number. Raises `CallRefused` (EINVAL)."""
    context = file.contexts.get(number)
    if context is None:
        raise CallRefused(errno.EINVAL, f"context {number} does not exist")
    return context


def ctx(file: DrmFile, args: DrmAmdgpuCtx) -> None:
    """Serve CTX."""
    op, flags, number, priority = args.in_.op, args.in_.flags, args.in_.ctx_id, args.in_.priority
    if op not in (AMDGPU_CTX_OP_ALLOC_CTX, AMDGPU_CTX_OP_FREE_CTX, *_OPERATIONS):
        raise CallRefused(errno.EINVAL, f"context operation {op} does not exist")
    if flags and op != AMDGPU_CTX_OP_SET_STABLE_PSTATE:
        raise CallRefused(errno.EINVAL, f"flags of context operation {op} must be 0, not {flags:#x}")
    if op == AMDGPU_CTX_OP_ALLOC_CTX:
        _alloc(file, args, priority)
    elif op == AMDGPU_CTX_OP_FREE_CTX:
        if file.contexts.remove(number) is None:
            raise CallRefused(errno.EINVAL, f"context {number} does not exist")
    else:
        _OPERATIONS[op](context_of(file, number), args)


def _alloc(file: DrmFile, args: DrmAmdgpuCtx, priority: int) -> None:
    high = priority in _PRIORITIES and priority > AMDGPU_CTX_PRIORITY_NORMAL  # invalid values silently mean normal
    if high and not file.is_privileged:
        raise CallRefused(errno.EACCES, f"priority {priority} needs CAP_SYS_NICE")
    context = Context(file)
    number = file.contexts.add(context)
    if number is None:
        raise CallRefused(errno.ENOSPC, f"{MAX_CONTEXTS} contexts exist")
    context.number = args.out_alloc.ctx_id = number


def _query(context: Context, args: DrmAmdgpuCtx) -> None:
    now = context.file.gpu.resets
    args.out_state.flags = args.out_state.hangs = 0
    changed = context.resets_seen != now
    args.out_state.reset_status = AMDGPU_CTX_UNKNOWN_RESET if changed else AMDGPU_CTX_NO_RESET
    context.resets_seen = now


def _query2(context: Context, args: DrmAmdgpuCtx) -> None:
    gpu, flags = context.file.gpu, 0
    if context.resets != gpu.resets:
        flags |= AMDGPU_CTX_QUERY2_FLAGS_RESET
    if context.generation != gpu.generation:
        flags |= AMDGPU_CTX_QUERY2_FLAGS_VRAMLOST
    guilty = context.has_failed_entity if context.file.since(7, 0) else context.guilty
    if guilty:
        flags |= AMDGPU_CTX_QUERY2_FLAGS_GUILTY
    args.out_state.flags = flags
    args.out_state.hangs = 0


def _get_stable_pstate(context: Context, args: DrmAmdgpuCtx) -> None:
    args.out_pstate.flags = context.stable_pstate


def _set_stable_pstate(context: Context, args: DrmAmdgpuCtx) -> None:
    flags = args.in_.flags
    if flags & ~_STABLE_PSTATE_MASK or flags > _STABLE_PSTATE_PEAK:
        raise CallRefused(errno.EINVAL, f"stable power state {flags:#x}: the highest is {_STABLE_PSTATE_PEAK}")
    context.stable_pstate = flags


_OPERATIONS = {
    AMDGPU_CTX_OP_QUERY_STATE: _query,
    AMDGPU_CTX_OP_QUERY_STATE2: _query2,
    AMDGPU_CTX_OP_GET_STABLE_PSTATE: _get_stable_pstate,
    AMDGPU_CTX_OP_SET_STABLE_PSTATE: _set_stable_pstate,
}
HANDLERS = (Handler(AMDGPU_CTX, ctx),)

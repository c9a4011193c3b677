"""The CS ioctl: submits indirect buffers to the kernel's rings. The call returns before the work is done."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi.cs import DrmAmdgpuCs
from amdgpu_emu.abi.requests import AMDGPU_CS
from amdgpu_emu.dispatch import Handler
from amdgpu_emu.drm.bo_lists import EMPTY, BoList
from amdgpu_emu.drm.chunks import Submission, first_pass, read_chunks, second_pass
from amdgpu_emu.drm.contexts import Entity, context_of
from amdgpu_emu.drm.fences import Fence, wait_until
from amdgpu_emu.drm.gem import check_pages
from amdgpu_emu.drm.jobs import Job
from amdgpu_emu.drm.rings import RingId
from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject

if TYPE_CHECKING:
    from amdgpu_emu.drm.file import DrmFile


def cs(file: DrmFile, args: DrmAmdgpuCs) -> None:
    """Serve CS, checked in the kernel's order."""
    number, handle, count, chunks_at = args.in_.ctx_id, args.in_.bo_list_handle, args.in_.num_chunks, args.in_.chunks
    if not count:
        raise CallRefused(errno.EINVAL, "a submission of 0 chunks")
    context = context_of(file, number)
    if context.guilty and not file.since(7, 0):
        raise CallRefused(errno.ECANCELED, f"context {number} is guilty of a hang")
    chunks = read_chunks(chunks_at, count)
    submission = Submission(file, context)
    try:
        first_pass(submission, chunks)
        if context.generation != file.gpu.generation:
            raise CallRefused(errno.ECANCELED, f"VRAM was lost since context {number} was made")
        second_pass(submission, chunks)
        listed = _list(submission, handle)
        for gem, _ in listed.entries:
            if gem.user_pages is not None:
                check_pages(*gem.user_pages)
        args.out.handle = _submit(submission, listed)
    finally:
        if submission.bo_list is not None:
            submission.bo_list.release()


def _list(submission: Submission, handle: int) -> BoList:
    """The buffers of the submission."""
    if not handle:
        return submission.bo_list or EMPTY
    if submission.bo_list is not None:
        raise CallRefused(errno.EINVAL, "a chunk of buffer handles and a list: one of them is allowed")
    found = submission.file.bo_lists.get(handle)
    if found is None:
        raise CallRefused(errno.ENOENT, f"list {handle} does not exist")
    return found


def _submit(submission: Submission, listed: BoList) -> int:
    file, leader = submission.file, submission.leader
    assert leader is not None
    gems = [gem for gem, _ in listed.entries]
    for gem in gems:
        gem.get()
    try:
        _wait_for_room(file, leader)
        file.process.submits(f"a submission to {leader}")
        resident = frozenset(gem.bo for gem in gems)
        fence = Fence(f"submission {leader.next_sequence} of {leader}")
        sequence = leader.add(fence)
        members = [entity for entity in submission.buffers if entity is not leader]
        jobs = [_job(submission, entity, 0, Fence(f"gang member on {entity}"), resident) for entity in members]
        jobs.append(_job(submission, leader, sequence, fence, resident))
        for job in jobs:
            file.add_job(job)
            for gem in gems:
                gem.add_fence(job.fence)
        for syncobj, point in submission.signals:
            syncobj.add(fence, point)
        for job in jobs:
            file.device.ring(RingId(job.entity.ip_type, job.entity.ring)).submit(job)
        file.gpu.kick()
        return sequence
    finally:
        for gem in gems:
            gem.put()


def _job(submission: Submission, entity: Entity, sequence: int, fence: Fence, resident: frozenset[BufferObject]) -> Job:
    user_fence = submission.user_fence if sequence else None
    return Job(
        submission.file, entity, submission.indirect_buffers(entity), sequence, fence, submission.waits, resident,
        submission.file.gpu.generation, user_fence,
    )  # fmt: skip


def _wait_for_room(file: DrmFile, entity: Entity) -> None:
    """The call blocks while so many submissions of the entity are under way."""
    wait_until(file, lambda: entity.oldest is None or entity.oldest.done, None)


HANDLERS = (Handler(AMDGPU_CS, cs),)

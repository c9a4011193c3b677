"""Jobs of kernel rings, and the page tables that a job sees."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.memory import BufferObject
from amdgpu_emu.vm import GpuVm, Mapping

if TYPE_CHECKING:
    from amdgpu_emu.drm.contexts import Entity
    from amdgpu_emu.drm.file import DrmFile


@dataclass(frozen=True)
class IndirectBuffer:
    """An indirect buffer: PM4 at an address. memory_sync: caches are invalidated before it."""

    va: int
    n_dwords: int
    memory_sync: bool


@dataclass(eq=False)
class Job:
    """A job of a kernel ring. sequence: its number on its entity, 0 for a gang's members; waits: fences that come
    first; resident: buffers that the kernel made resident for it; generation: of VRAM's contents, when it was
    submitted; user_fence: where its number goes at the end.
    """

    file: DrmFile
    entity: Entity
    buffers: list[IndirectBuffer]
    sequence: int
    fence: Fence
    waits: list[Fence]
    resident: frozenset[BufferObject]
    generation: int
    user_fence: tuple[BufferObject, int] | None = None
    vm: JobVm = field(init=False)
    started: Fence = field(init=False)

    def __post_init__(self) -> None:
        self.vm = JobVm(self)
        self.started = self.fence.started = Fence(f"{self.name} started")

    @property
    def name(self) -> str:
        """The job's name in messages."""
        return f"submission {self.sequence} of {self.entity}"


class JobVm(GpuVm):
    """The address space as it was when the job was submitted: later changes of the page tables wait for the job.

    Touching a buffer that is mapped but neither in the job's list nor always valid is a finding: real hardware may
    find it evicted.
    """

    def __init__(self, job: Job) -> None:
        super().__init__(job.file.vm.label)
        tables = job.file.vm.frozen()
        self._starts, self._by_start = tables._starts, tables._by_start
        self._job = job
        self._reported: set[BufferObject] = set()

    def walk(self, va: int, size: int, access: str) -> Iterator[tuple[Mapping, int, int]]:
        """Cut a range into pieces, as `GpuVm.walk`; reports buffers that are not resident for the job."""
        for piece in super().walk(va, size, access):
            bo = piece[0].bo
            if bo not in self._job.resident and bo not in self._reported and self._job.file.needs_list(bo):
                self._reported.add(bo)
                self._job.file.machine.report(
                    "not-resident",
                    f"{self._job.name} touches {piece[0]} at {va:#x}, which is neither in its list of buffers nor "
                    "always valid",
                )
            yield piece

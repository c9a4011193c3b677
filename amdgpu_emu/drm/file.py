"""An open render node: its address space on the GPU, its handles, and the way from an ioctl's number to its handler."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

from amdgpu_emu.abi import requests
from amdgpu_emu.abi.cs import AMDGPU_HW_IP_COMPUTE, AMDGPU_HW_IP_DMA, AMDGPU_HW_IP_GFX
from amdgpu_emu.abi.requests import kind_of, number_of
from amdgpu_emu.dispatch import serve, table
from amdgpu_emu.drm import (
    bo_lists,
    contexts,
    core,
    gem,
    gem_ops,
    info,
    prime,
    submission,
    syncobj_ioctls,
    userq,
    userq_fences,
    va,
    waits,
)
from amdgpu_emu.drm.bo_lists import BoList
from amdgpu_emu.drm.contexts import MAX_CONTEXTS, Context
from amdgpu_emu.drm.device import DrmDevice, device_of
from amdgpu_emu.drm.fences import Fence
from amdgpu_emu.drm.gem import Gem
from amdgpu_emu.drm.handles import Handles
from amdgpu_emu.drm.jobs import Job
from amdgpu_emu.drm.syncobj import Syncobj
from amdgpu_emu.drm.userq import UserQueue
from amdgpu_emu.errors import CallRefused, GpuFault
from amdgpu_emu.file import OpenFile
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.vm import GpuVm, Mapping
from zinc_rt.utils.linux import PAGE, Argument

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.process import Process

_TABLE = table(
    *core.HANDLERS, *gem.HANDLERS, *gem_ops.HANDLERS, *va.HANDLERS, *info.HANDLERS, *contexts.HANDLERS,
    *bo_lists.HANDLERS, *submission.HANDLERS, *waits.HANDLERS, *syncobj_ioctls.HANDLERS, *prime.HANDLERS,
    *userq.HANDLERS, *userq_fences.HANDLERS,
)  # fmt: skip
_SINCE = {
    requests.AMDGPU_USERQ.number: (6, 16),
    requests.AMDGPU_USERQ_SIGNAL.number: (6, 16),
    requests.AMDGPU_USERQ_WAIT.number: (6, 16),
}
_NOT_ON_RENDER_NODES = {
    0x01, 0x02, 0x03, 0x04, 0x05, 0x06, 0x07, 0x08, 0x0A, 0x0B, 0x0D, 0x10, 0x11, 0x1E, 0x1F, 0x3A, *range(0xA0, 0xBF),
    *range(0xC6, 0xCA), 0xCE, 0xD0,
}  # fmt: skip
"""Numbers of DRM core calls that only primary nodes take."""
FENCE_PAGE = va.VM_SIZE - va.RESERVED_TOP + 0x200000
"""GPU address of the page with the progress of a file's user queues: in the reserved top, behind the context
save area."""


class DrmFile(OpenFile):
    """An open /dev/dri/renderD*. vm: its page tables; gems, contexts, bo_lists, syncobjs, user_queues: what its
    handles name; last_fault: the last page fault of its jobs.
    """

    def __init__(self, process: Process, gpu: Gpu) -> None:
        super().__init__(process)
        self.gpu: Gpu = gpu
        self.device: DrmDevice = device_of(gpu)
        self.path = gpu.render_node
        self.vm = GpuVm(f"process {process.number} on {gpu.render_node}")
        self.gems: Handles[Gem] = Handles()
        self.contexts: Handles[Context] = Handles(last=None if self.since(7, 0) else MAX_CONTEXTS)
        self.bo_lists: Handles[BoList] = Handles()
        self.syncobjs: Handles[Syncobj] = Handles()
        self.user_queues: Handles[UserQueue] = Handles()
        self.vm_fences: list[Fence] = []
        self.last_fault: GpuFault | None = None
        self._gem_by_bo: dict[BufferObject, Gem] = {}
        self._fence_page: BufferObject | None = None
        self.device.files.append(self)

    def since(self, major: int, minor: int) -> bool:
        """Whether the kernel is at least of this version."""
        return self.machine.profile.since(major, minor)

    @property
    def is_privileged(self) -> bool:
        """Whether the process has CAP_SYS_NICE."""
        return self.machine.uid == 0

    @property
    def has_user_queues(self) -> bool:
        """Whether the driver offers user queues on this card."""
        return self.machine.profile.offers_user_queues(self.gpu.model.firmware) and self.gpu.model.gfx[0] >= 11

    def rings(self, ip_type: int) -> int:
        """Number of kernel rings of an IP; 0 with the module parameter user_queue=2."""
        if self.has_user_queues and self.machine.profile.user_queue == 2:
            return 0
        have = {AMDGPU_HW_IP_GFX: 1, AMDGPU_HW_IP_COMPUTE: self.gpu.model.compute_rings, AMDGPU_HW_IP_DMA: 2}
        return min(have.get(ip_type, 0), contexts.ENTITIES.get(ip_type, 1))

    def has_ring(self, ip_type: int, ring: int) -> bool:
        """Whether the device has a kernel ring."""
        return ring < self.rings(ip_type)

    def check_device(self) -> None:
        """Raise `CallRefused` (ENODEV) when the device is off the bus."""
        if self.gpu.lost:
            raise CallRefused(errno.ENODEV, f"{self.path}: the device is gone")

    def ioctl(self, request: int, argument: Argument) -> int:
        """Serve a DRM ioctl. Raises `CallRefused`."""
        self.check_device()
        number = number_of(request)
        if kind_of(request) != ord("d"):
            raise CallRefused(errno.ENOTTY, f"type {kind_of(request):#x} is not DRM's")
        handler = _TABLE.get(number)
        if handler is None or (number in _SINCE and not self.since(*_SINCE[number])):
            if number in _NOT_ON_RENDER_NODES:
                raise CallRefused(errno.EACCES, f"DRM ioctl {number:#x} is not for render nodes")
            raise CallRefused(errno.EINVAL, f"{self.machine.profile.name} has no DRM ioctl {number:#x}")
        return serve(handler, self, request, argument)

    # Buffers.

    def open_gem(self, gem: Gem) -> int:
        """Give a GEM object a handle. Raises `CallRefused` (EPERM) for one that belongs to another address space."""
        if gem.owner is not None and gem.owner is not self:
            raise CallRefused(errno.EPERM, f"{gem.bo.label} is always valid in another address space")
        gem.get()
        gem.node.allow(self)
        self._gem_by_bo[gem.bo] = gem
        return self.gems.add(gem) or 0

    def forget_gem(self, gem: Gem) -> None:
        """Remove a GEM object whose handle was closed: its GPU addresses and this file's hold on it."""
        for mapping in self.vm.of(gem.bo):
            self.vm.remove(mapping)
        del self._gem_by_bo[gem.bo]
        gem.node.revoke(self)
        gem.put()

    def needs_list(self, bo: BufferObject) -> bool:
        """Whether a job that touches the buffer has to list it: a GEM object that is not always valid here."""
        gem = self._gem_by_bo.get(bo)
        return gem is not None and gem.owner is not self

    def find_map(self, length: int, protection: int, offset: int) -> BufferObject:
        """The buffer at an mmap offset. Raises `CallRefused` for offsets this file may not map."""
        self.check_device()
        node = self.device.node_at(offset)
        pages = -(-length // PAGE) * PAGE
        if node is None or pages > -(-node.bo.size // PAGE) * PAGE:
            raise CallRefused(errno.EINVAL, f"{length} bytes at offset {offset:#x}: no such buffer begins there")
        if self not in node.users:
            raise CallRefused(errno.EACCES, f"{node.bo.label} was not opened by this file")
        if node.refused:
            raise CallRefused(errno.EPERM, f"{node.bo.label} cannot be mapped: {node.refused}")
        return node.bo

    # Work.

    def add_job(self, job: Job) -> None:
        """Add the fence of a job that uses this address space."""
        self.vm_fences = [fence for fence in self.vm_fences if not fence.done]
        self.vm_fences.append(job.fence)

    def fence_page(self) -> int:
        """Sign-extended address of the page with the progress of the user queues."""
        if self._fence_page is None:
            label = f"fences of process {self.process.number}"
            self._fence_page = self.gpu.allocate(PAGE, Placement.GTT, label, uncached=True)
            mapping = Mapping(FENCE_PAGE, PAGE, self._fence_page, 0, readable=True, writable=False, executable=False)
            self.vm.insert(mapping)
        return FENCE_PAGE | va.HOLE_END

    def free_fence_slot(self) -> int:
        """The lowest free word of that page."""
        taken = {queue.slot for queue in self.user_queues.values()}
        return next(slot for slot in range(PAGE // 8) if slot not in taken)

    # The end.

    def release(self) -> None:
        """Free everything that the file holds; what was not freed before is a finding."""
        held = self._held()
        if held and not self.gpu.lost:  # a device that is gone takes nothing back
            self.machine.report("leak", f"{self.path} was released with {', '.join(held)}")
        for queue in self.user_queues.values():
            queue.destroy()
        for one in self.bo_lists.values():
            one.release()
        for handle in self.gems:
            gem = self.gems.remove(handle)
            if gem is not None:
                self.forget_gem(gem)
        if self._fence_page is not None:
            self.gpu.release(self._fence_page)
        self.device.files.remove(self)

    def _held(self) -> list[str]:
        handles: dict[str, Handles[Any]] = {
            "GEM handles": self.gems,
            "contexts": self.contexts,
            "lists of buffers": self.bo_lists,
            "sync objects": self.syncobjs,
            "user queues": self.user_queues,
        }
        found = [f"{name} {', '.join(map(str, held))}" for name, held in handles.items() if len(held)]
        mappings = [mapping for mapping in self.vm if mapping.bo is not self._fence_page]
        return found + [f"mapping {mapping}" for mapping in mappings]

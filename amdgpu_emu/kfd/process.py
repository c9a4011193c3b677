"""amdkfd's state of a process: shared by all its opens of /dev/kfd, kept until the process ends."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.abi.kfd import AcquireVmArgs
from amdgpu_emu.drm.file import DrmFile
from amdgpu_emu.errors import CallRefused, GpuFault
from amdgpu_emu.gpu import Gpu
from amdgpu_emu.kfd.doorbells import Doorbells
from amdgpu_emu.kfd.events import Events
from amdgpu_emu.kfd.memory import KfdMemory, Memories
from amdgpu_emu.kfd.queues import Queues
from amdgpu_emu.kfd.smi import SmiFile
from amdgpu_emu.kfd.svm import SvmRanges
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.vm import GpuVm, Mapping
from zinc_rt.utils.linux import PAGE

if TYPE_CHECKING:
    from amdgpu_emu.process import Process

TRAP_BYTES = 8192
"""Bytes of the trap handler of context save and restore, with its data, in every address space of KFD."""
TRAP_VA = (1 << 48) - 0x410000


class ProcessDevice:
    """A process's state on one GPU. drm: the open render node whose address space it is, None before ACQUIRE_VM."""

    def __init__(self, kfd: KfdProcess, gpu: Gpu) -> None:
        self.kfd, self.gpu = kfd, gpu
        self.drm: DrmFile | None = None
        self.doorbells = Doorbells(gpu, lambda cell, value: kfd.queues.rang(self, cell, value))
        self.trap_handler = (0, 0)
        self.scratch_va = 0
        self.policy = (0, 0)
        self._trap: Mapping | None = None
        self._registers: BufferObject | None = None
        gpu.at_reset.append(self.was_reset)

    @property
    def id(self) -> int:
        """The GPU's id in KFD calls."""
        return self.gpu.gpu_id

    @property
    def vm(self) -> GpuVm:
        """The address space on the GPU. Call `bind` first."""
        assert self.drm is not None
        return self.drm.vm

    def trap_page(self) -> BufferObject | None:
        """The trap handler's memory, or None before the address space exists."""
        return None if self._trap is None else self._trap.bo

    def registers(self) -> BufferObject:
        """The page of remapped registers, which flush the host data path."""
        if self._registers is None:
            self._registers = self.gpu.allocate(PAGE, Placement.DOORBELL, "remapped registers")
        return self._registers

    def bind(self, code: int = errno.ENODEV) -> None:
        """Raise `CallRefused` with `code` before ACQUIRE_VM, with ENODEV once the GPU is gone."""
        if self.gpu.lost:
            raise CallRefused(errno.ENODEV, f"GPU {self.id} is gone")
        if self.drm is None:
            raise CallRefused(code, f"no address space: ACQUIRE_VM for GPU {self.id} comes first")

    def acquire(self, drm: DrmFile) -> None:
        """Take over an open render node's address space, until the process ends."""
        drm.get()
        self.drm = drm
        if not self.gpu.model.integrated:
            bo = self.gpu.allocate(TRAP_BYTES, Placement.GTT, "trap handler")
            self._trap = Mapping(TRAP_VA, TRAP_BYTES, bo, 0, True, False, True)
            self.vm.insert(self._trap)

    def was_reset(self) -> None:
        """Handle a reset of the whole card: its queues are dead, its memory is lost."""
        self.kfd.queues.kill(self, "the GPU was reset")
        self.kfd.events.gpu_reset(self.gpu)
        self.kfd.tell_smi(self, "reset")

    def release(self) -> None:
        """Free everything at the end of the process."""
        self.gpu.at_reset.remove(self.was_reset)
        self.doorbells.release()
        if self._registers is not None:
            self.gpu.release(self._registers)
        if self._trap is not None:
            self.vm.remove(self._trap)
            self.gpu.release(self._trap.bo)
        if self.drm is not None:
            self.drm.put()
            self.drm = None


class KfdProcess:
    """The KFD state of a process, made by its first open.

    strict_runtime: doorbells do nothing before RUNTIME_ENABLE was called and an event page was set, as some firmware
    is said to do (hardware.md 5.2); off by default.
    """

    def __init__(self, process: Process) -> None:
        self.process, self.machine = process, process.machine
        self.strict_runtime = False
        self.runtime_called = self.runtime_enabled = False
        self.svm = SvmRanges()
        self.events = Events(self)
        self.queues = Queues(self)
        self.memories = Memories()
        self.smi: list[SmiFile] = []
        self.devices = {gpu.gpu_id: ProcessDevice(self, gpu) for gpu in process.machine.gpus}

    def device(self, gpu_id: int, code: int = errno.EINVAL) -> ProcessDevice:
        """Find a device by the GPU id of a call. Raises `CallRefused`."""
        found = self.devices.get(gpu_id)
        if found is None:
            known = ", ".join(str(known) for known in self.devices)
            raise CallRefused(code, f"no GPU has the id {gpu_id}; there are {known or 'none'}")
        return found

    def memory(self, handle: int, code: int) -> KfdMemory:
        """Find a buffer by handle. Raises `CallRefused` with `code` for an unknown number."""
        return self.memories.find(handle, code)

    def fault(self, device: ProcessDevice, fault: GpuFault) -> None:
        """Handle a page fault: take all queues of the process off that GPU and set the memory events."""
        self.queues.kill(device, f"a page fault: {fault}")
        self.events.memory_fault(device.gpu, fault)
        self.tell_smi(device, "vmfault")
        self.machine.dmesg.append(f"amdgpu: page fault of process {self.process.number} on GPU {device.id}: {fault}")

    def tell_smi(self, device: ProcessDevice, what: str) -> None:
        """Write an event to the files that SMI_EVENTS made."""
        for file in self.smi:
            if file.gpu is device.gpu:
                file.lines.append(what)

    def exit(self) -> None:
        """End the process: everything that it still holds is a finding, and is freed."""
        self.queues.release()
        self.memories.release(self)
        for number in self.events.numbers():
            self.machine.report("leak", f"event {number:#x} was not destroyed")
        for device in self.devices.values():
            device.release()


def acquire_vm(kfd: KfdProcess, args: AcquireVmArgs) -> None:
    """Serve ACQUIRE_VM: KFD takes the address space of an open render node, one for the life of the process."""
    drm = kfd.process.file(args.drm_fd)
    if drm is None:
        raise CallRefused(errno.EINVAL, f"{args.drm_fd} is not an open descriptor")
    device = kfd.device(args.gpu_id)
    if device.gpu.lost:
        raise CallRefused(errno.ENODEV, f"GPU {device.id} is gone")
    if device.drm is drm:
        return
    if device.drm is not None:
        raise CallRefused(errno.EBUSY, f"GPU {device.id} has the address space of another open render node, for good")
    if not isinstance(drm, DrmFile):
        raise CallRefused(errno.EINVAL, f"{drm.path} is not an amdgpu render node")
    if drm.gpu is not device.gpu:
        raise CallRefused(errno.EINVAL, f"{drm.path} is not the render node of GPU {device.id}")
    device.acquire(drm)

"""Files that SMI_EVENTS makes: what happened to a GPU, for watchers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdgpu_emu.file import OpenFile
from zinc_rt.amdgpu.abi.kfd import SmiEventsArgs

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.kfd.process import KfdProcess


class SmiFile(OpenFile):
    """lines: what a reader would get."""

    path = "anonymous file of SMI events"

    def __init__(self, kfd: KfdProcess, gpu: Gpu) -> None:
        super().__init__(kfd.process)
        self.gpu, self.lines = gpu, list[str]()
        self._kfd = kfd
        kfd.smi.append(self)

    def release(self) -> None:
        self._kfd.smi.remove(self)


def smi_events(kfd: KfdProcess, args: SmiEventsArgs) -> None:
    """SMI_EVENTS."""
    args.anon_fd = kfd.process.add_file(SmiFile(kfd, kfd.device(args.gpuid).gpu))

"""Files of SMI_EVENTS, which report events of a GPU."""

from __future__ import annotations

from typing import TYPE_CHECKING

from amdgpu_emu.abi.kfd import SmiEventsArgs
from amdgpu_emu.file import OpenFile

if TYPE_CHECKING:
    from amdgpu_emu.gpu import Gpu
    from amdgpu_emu.kfd.process import KfdProcess


class SmiFile(OpenFile):
    """A file of SMI events. lines: the text that a reader gets."""

    path = "anonymous file of SMI events"

    def __init__(self, kfd: KfdProcess, gpu: Gpu) -> None:
        super().__init__(kfd.process)
        self.gpu, self.lines = gpu, list[str]()
        self._kfd = kfd
        kfd.smi.append(self)

    def release(self) -> None:
        """Stop collecting events."""
        self._kfd.smi.remove(self)


def smi_events(kfd: KfdProcess, args: SmiEventsArgs) -> None:
    """Serve SMI_EVENTS."""
    args.anon_fd = kfd.process.add_file(SmiFile(kfd, kfd.device(args.gpuid).gpu))

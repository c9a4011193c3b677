"""An open file of the emulated kernel."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.errors import KernelError
from amdgpu_emu.memory import BufferObject
from zinc_rt.linux import Argument

if TYPE_CHECKING:
    from amdgpu_emu.process import Process


class OpenFile:
    """What a descriptor stands for. Others in the kernel may hold it too: `get`, `put`."""

    path = "?"

    def __init__(self, process: Process) -> None:
        self.process, self.machine = process, process.machine
        self._references = 1

    def get(self) -> None:
        """One more holder."""
        self._references += 1

    def put(self) -> None:
        """One holder less; with the last one it is released."""
        self._references -= 1
        if not self._references:
            self.release()

    def ioctl(self, request: int, argument: Argument) -> int:
        """Serve it. Raises `KernelError`."""
        raise KernelError(errno.ENOTTY, f"{self.path} takes no ioctls")

    def find_map(self, length: int, protection: int, offset: int) -> BufferObject:
        """The buffer that an mmap shall show from its start. Raises `KernelError`."""
        raise KernelError(errno.ENODEV, f"{self.path} cannot be mapped")

    def release(self) -> None:
        """The last holder is gone."""

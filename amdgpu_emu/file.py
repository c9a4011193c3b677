"""An open file of the emulated kernel."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

from amdgpu_emu.errors import CallRefused
from amdgpu_emu.memory import BufferObject
from zinc_rt.utils.linux import Argument

if TYPE_CHECKING:
    from amdgpu_emu.process import Process


class OpenFile:
    """An open file, counted: descriptors and other kernel objects hold it (`get`, `put`)."""

    path = "?"

    def __init__(self, process: Process) -> None:
        self.process, self.machine = process, process.machine
        self._references = 1

    def get(self) -> None:
        """Count one more holder."""
        self._references += 1

    def put(self) -> None:
        """Count one holder less; the last one releases the file."""
        self._references -= 1
        if not self._references:
            self.release()

    def ioctl(self, request: int, argument: Argument) -> int:
        """Serve an ioctl and return its result. Raises `CallRefused`."""
        raise CallRefused(errno.ENOTTY, f"{self.path} takes no ioctls")

    def find_map(self, length: int, protection: int, offset: int) -> BufferObject:
        """The buffer whose first bytes an mmap of this file shows. Raises `CallRefused`."""
        raise CallRefused(errno.ENODEV, f"{self.path} cannot be mapped")

    def release(self) -> None:
        """Give back what the file holds; called when the last holder is gone."""

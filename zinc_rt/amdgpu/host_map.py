"""Arrays over mapped device memory that stay valid: the map goes when the last array that looks at it goes."""

from __future__ import annotations

import ctypes
import weakref
from contextlib import suppress
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.utils.linux import Linux


class HostMap:
    """`size` bytes of device memory at `address` of this process, which somebody else has mapped."""

    def __init__(self, linux: Linux, address: int, size: int) -> None:
        self._linux, self._address, self._size = linux, address, size
        self._base: Any = (ctypes.c_uint8 * size).from_address(address)

    def view(self) -> npt.NDArray[np.uint8]:
        """u8[size] of the memory itself."""
        return np.frombuffer(self._base, np.uint8)

    def retire(self) -> bool:
        """Called once, before the map is undone. True: arrays still look at it, so leave the map alone; it is undone
        with the last of them.
        """
        looking = weakref.ref(self._base)
        self._base = None
        base = looking()
        if base is None:
            return False
        weakref.finalize(base, _unmap, self._linux, self._address, self._size).atexit = False
        return True


def _unmap(linux: Linux, address: int, size: int) -> None:
    with suppress(OSError):
        linux.munmap(address, size)

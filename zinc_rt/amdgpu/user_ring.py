"""A ring of packets in memory that the processor writes and the GPU reads, with its pointers and its doorbell.

KFD queues and user queues have it in common. The write pointer counts dwords since the queue was made, in 64 bits, and
never wraps; packets may wrap around the end of the ring. How much may be written is the caller's to know: the two kinds
of queue report differently what the GPU has read.
"""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from zinc_rt.utils.linux import Linux


def dwords_at(address: int, n: int) -> npt.NDArray[np.uint32]:
    """View of `n` dwords of memory, u32[n]; valid as long as the memory is mapped."""
    return np.ctypeslib.as_array((ctypes.c_uint32 * n).from_address(address))


class UserRing:
    """words: the ring, u32[n_dwords]; written: the write pointer. Addresses are this process's."""

    def __init__(self, linux: Linux, ring: int, n_dwords: int, wptr: int, rptr: int, doorbell: int) -> None:
        self._linux, self._wptr, self._rptr, self._doorbell = linux, wptr, rptr, doorbell
        self.words = dwords_at(ring, n_dwords)
        self.written = 0

    def __len__(self) -> int:
        return len(self.words)

    def read_pointer(self) -> int:
        """What the GPU says of how far it has read."""
        return self._linux.load64(self._rptr)

    def put(self, words: npt.NDArray[np.uint32]) -> None:
        """Store dwords behind the others, u32[n], round the end of the ring. There must be room."""
        n, at = len(words), self.written % len(self.words)
        first = min(n, len(self.words) - at)
        self.words[at : at + first] = words[:first]
        self.words[: n - first] = words[first:]
        self.written += n

    def kick(self) -> None:
        """Tell the GPU: the packets are in memory before the pointer is, the pointer before the doorbell."""
        self._linux.store_fence()
        self._linux.store64(self._wptr, self.written)
        self._linux.store_fence()
        self._linux.store64(self._doorbell, self.written)

"""The packets around an indirect buffer in the ring: order and caches before it, the fence behind it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.gfx import Gfx
from zinc_rt.amdgpu.packets import MAX_DWORDS, NO_CACHES
from zinc_rt.amdgpu.pm4.builder import PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4.values import Compare, ReleaseData, ReleaseInt

_ROOM = 64


class SubmissionPackets:
    """The packets, built once: only five dwords differ between submissions. u32[n_dwords]."""

    def __init__(
        self, fence_va: int, gfx: Gfx, *, flush_hdp: bool, inherit_vmid: bool = False, partial_flush: bool = True
    ) -> None:
        """fence_va: where the sequence number is written. flush_hdp: whether host writes to VRAM must be waited for, as
        on cards; parts of a processor have other registers for it, and the processor's stores go past them.
        inherit_vmid: for user queues of the render node, whose indirect buffers are read in the address space that the
        queue's descriptor names. partial_flush: see `DeviceInfo`.
        """
        self._words = np.zeros(_ROOM, np.uint32)
        builder = PacketBuilder(self._words)
        # "After all earlier ones": their waves are done, then what host and waves wrote is seen.
        self._wait = None
        if partial_flush:
            builder.cs_partial_flush()
        else:  # the fence of the submission before says the same
            self._wait = builder.cursor
            builder.wait_mem(fence_va, 0, Compare.EQUAL)
        if flush_hdp:
            builder.hdp_flush()
        builder.acquire_mem(gfx.acquire_host)
        self._indirect = builder.cursor
        builder.indirect_buffer(0, 1, inherit_vmid=inherit_vmid)
        self._release = builder.cursor
        builder.release_mem(fence_va, 0, control=gfx.release_control)
        self._words = self._words[: builder.cursor]
        self._length_flags = int(self._words[self._indirect + 3]) & ~MAX_DWORDS

    @property
    def n_dwords(self) -> int:
        """Dwords of a submission in the ring."""
        return len(self._words)

    def build(self, va: int, n_dwords: int, sequence: int) -> npt.NDArray[np.uint32]:
        """For `n_dwords` of PM4 at an address; valid until the next call."""
        words, at = self._words, self._indirect
        words[at + 1 : at + 4] = lo32(va), hi32(va), n_dwords | self._length_flags
        if self._wait is not None:
            words[self._wait + 4] = lo32(sequence - 1)
        words[self._release + 5 : self._release + 7] = lo32(sequence), hi32(sequence)
        return words


def interrupt_packets(mailbox: int, event: int) -> npt.NDArray[np.uint32]:
    """Raise an interrupt for an event when everything before is done."""
    words = np.zeros(_ROOM, np.uint32)
    builder = PacketBuilder(words)
    builder.release_mem(
        mailbox, event, control=NO_CACHES, data=ReleaseData.LOW32, interrupt=ReleaseInt.AFTER_WRITE, context_id=event
    )
    return words[: builder.cursor]

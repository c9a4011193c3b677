"""From a command list to PM4: one lowering for all interfaces.

The first dispatch sets every register that matters to it, since nothing is known about what ran before: program,
resources, start and size of the workgroup, no limits, all compute units of all shader engines, no scratch, restart at
zero, user data, and what the preambles of other programs set. A later one sets what differs, for within one indirect
buffer nobody else writes registers, and a queue that is preempted gets them back. Register offsets as in the gfx12
headers; gfx11 has the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.command_list import Barrier, CommandList, Copy, Item, ListedDispatch, Write
from zinc_rt.amdgpu.gfx import Gfx
from zinc_rt.amdgpu.pm4 import PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import CS_W32_EN, DISPATCH_INITIATOR_COMPUTE
from zinc_rt.amdgpu.pm4.values import Compare, EventIndex, EventType, ReleaseData
from zinc_rt.errors import BackendError

PAD_DWORDS = 64
"""Packets end at a multiple of this; every kernel and queue asks for less."""
MAX_DWORDS = 0xF_FFFF
"""Of the longest indirect buffer."""
FENCE_VALUE = 5
"""Where in `fence_packets` the fence's value is, its low dword and then its high one."""
NO_CACHES = EventType.CACHE_FLUSH_AND_INV_TS | EventIndex.END_OF_PIPE << 8
"""First body dword of a RELEASE_MEM that does nothing to the caches."""
_ALL = 0xFFFFFFFF
_ENGINES = 8
"""Shader engines that may be there: gfx1100 has six. Linux opens the first four on its own rings and on user queues of
the render node (`gfx_v11_0_compute_mqd_init`, `gfx_v12_0_compute_mqd_init`), and all of them on KFD's alone.
"""
INTERLEAVE = 64
"""Threads for one shader engine before the next gets some: each workgroup goes to the next engine, so that few of them
use all. RADV has 64, as is PAL's default, and radeonsi 256. Valid: 0, 64, 128, 256, 512.
"""
_BARRIER = 23  # most dwords of its packets, as below
_RESET = 5
_DISPATCH = 80
_RELEASE = 8

Words = npt.NDArray[np.uint32]


def lower(
    commands: CommandList, gfx: Gfx, marks: tuple[int, int] | None = None, *, flag_va: int | None = None
) -> list[int]:
    """The packets of a list up to its fence, which `fence_packets` makes. Raises `BackendError` when they are too many.

    They begin with a full barrier: the submission before may still run. marks: where to count the dispatches that are
    done, and from which number on, so that it can be told which one hangs. flag_va: a dword of uncached memory, for
    GPUs on which barriers cannot wait by CS_PARTIAL_FLUSH; None for the others.
    """
    items = _needed(commands.items)
    builder = PacketBuilder([0] * (sum(map(_room, items)) + _BARRIER + 2 + _RESET))
    builder.write_nop(1)
    waits = _Waits(builder, flag_va)
    waits.barrier(gfx.acquire_host)
    mark_va, done = marks or (0, 0)
    registers = _Registers()
    for item in items:
        if isinstance(item, ListedDispatch):
            _dispatch(builder, item, registers)
            done += 1
            if marks is not None:
                builder.release_mem(mark_va, done, control=gfx.release_control)
        elif isinstance(item, Copy):
            _copy(builder, item)
        elif isinstance(item, Write):
            builder.write_data(item.target, item.values)
        else:
            waits.barrier(gfx.acquire_kernel if item.light else gfx.acquire_host)
    if builder.cursor + 3 * _RELEASE + PAD_DWORDS > MAX_DWORDS:
        raise BackendError(
            f"{commands.label} takes {builder.cursor} dwords of packets; one submission has at most {MAX_DWORDS}:"
            " split it"
        )
    return list(builder.written())


def fence_packets(n_before: int, gfx: Gfx, signal_va: int, value: int = 0) -> list[int]:
    """What follows `n_before` dwords: the signal once all work is done and visible, and the padding."""
    start = n_before % PAD_DWORDS
    builder = PacketBuilder([0] * (start + _RELEASE + 2 * PAD_DWORDS))
    builder.cursor = start
    builder.release_mem(signal_va, value, control=gfx.release_control)
    builder.pad_to_alignment(PAD_DWORDS)
    return list(builder.words[start : builder.cursor])


def started_packets(clock_va: int) -> list[int]:
    """What begins a submission that is measured: the GPU's counter, 64 bits."""
    builder = PacketBuilder([0] * _RELEASE)
    builder.copy_clock(clock_va)
    return list(builder.written())


def ended_packets(clock_va: int) -> list[int]:
    """What ends it, before the fence: the same when all work is done."""
    builder = PacketBuilder([0] * _RELEASE)
    builder.release_mem(clock_va, 0, control=NO_CACHES, data=ReleaseData.GPU_CLOCK)
    return list(builder.written())


def _needed(items: Sequence[Item]) -> list[Item]:
    """Without barriers at either end, where there is one anyway, and with the stronger one of neighbours."""
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Barrier) and (not kept or isinstance(kept[-1], Barrier)):
            if kept and not item.light:
                kept[-1] = item
            continue
        kept.append(item)
    return kept[:-1] if kept and isinstance(kept[-1], Barrier) else kept


def _room(item: Item) -> int:
    if isinstance(item, ListedDispatch):
        return _DISPATCH + _RELEASE
    if isinstance(item, Copy):
        return 6 * (item.n_bytes // 4)
    return 4 + len(item.values) if isinstance(item, Write) else _BARRIER


_SAME = {
    **dict.fromkeys((reg.START_X, reg.START_Y, reg.START_Z), 0),
    **dict.fromkeys((reg.PIPELINESTAT_ENABLE, reg.PERFCOUNT_ENABLE), 0),
    reg.RESOURCE_LIMITS: 0,
    **dict.fromkeys(reg.STATIC_THREAD_MGMT[:_ENGINES], _ALL),
    reg.TMPRING_SIZE: 0,
    **dict.fromkeys((reg.RESTART_X, reg.RESTART_Y, reg.RESTART_Z), 0),
    **dict.fromkeys(reg.USER_ACCUM, 0),
    reg.DISPATCH_INTERLEAVE: INTERLEAVE,
    reg.DISPATCH_TUNNEL: 0,
}
"""Registers that are the same for every dispatch. Mesa writes the last three kinds in each preamble (`ac_preamble.c`),
so a kernel ring has them as another program left them.
"""
_HEADER = 2
"""Dwords of a packet that sets registers, beside their values."""


class _Registers:
    """Registers with the values that they have got in this indirect buffer."""

    def __init__(self) -> None:
        self._values: dict[int, int] = {}

    def set(self, builder: PacketBuilder, wanted: Mapping[int, int], filled: Iterable[int] = ()) -> None:
        """Write those that differ. One or two between them that do not are written too: a packet more costs as much.

        filled: registers that need some value, whichever.
        """
        known = self._values
        wanted = {**dict.fromkeys((offset for offset in filled if offset not in known), 0), **wanted}
        changed = sorted(offset for offset, value in wanted.items() if known.get(offset) != value)
        known.update(wanted)
        for before, offset in pairwise(tuple(changed)):
            between = range(before + 1, offset)
            if len(between) <= _HEADER and all(other in known for other in between):
                changed += between
        builder.set_sh_regs({offset: known[offset] for offset in changed})


def _user_registers(rsrc2: int) -> int:
    """How many the kernel gets; of gfx11 more than it reads."""
    return rsrc2 >> 1 & 0x1F


def _dispatch(builder: PacketBuilder, item: ListedDispatch, registers: _Registers) -> None:
    program, threads = item.program, item.threads
    registers.set(
        builder,
        {
            **_SAME,
            reg.PGM_LO: lo32(program.va >> 8),
            reg.PGM_HI: hi32(program.va >> 8),
            reg.PGM_RSRC1: program.rsrc1,
            reg.PGM_RSRC2: program.rsrc2,
            reg.PGM_RSRC3: program.rsrc3,
            reg.NUM_THREAD_X: threads[0],
            reg.NUM_THREAD_Y: threads[1],
            reg.NUM_THREAD_Z: threads[2],
            **dict(enumerate(item.user_data, reg.USER_DATA_0)),
        },
        range(reg.USER_DATA_0, reg.USER_DATA_0 + _user_registers(program.rsrc2)),
    )
    initiator = DISPATCH_INITIATOR_COMPUTE | (CS_W32_EN if program.wave32 else 0)
    builder.dispatch_direct_initiator(*item.groups, initiator)


def _copy(builder: PacketBuilder, item: Copy) -> None:
    step = 8 if not (item.source | item.target | item.n_bytes) % 8 else 4
    copy = builder.copy_data64 if step == 8 else builder.copy_dword
    for at in range(0, item.n_bytes, step):
        copy(item.source + at, item.target + at)


class _Waits:
    """Barriers of a list: all waves before are done, then caches are dropped."""

    def __init__(self, builder: PacketBuilder, flag_va: int | None) -> None:
        self._builder, self._flag_va, self._count = builder, flag_va, 0
        if flag_va is not None:
            # The list before has waited for all that it let be stored here; the same list left its last number.
            builder.write_data32(flag_va, 0)

    def barrier(self, gcr: int) -> None:
        """One barrier; gcr: which caches."""
        builder = self._builder
        if self._flag_va is None:
            builder.cs_partial_flush()
        else:
            self._count += 1
            builder.release_mem(self._flag_va, self._count, control=NO_CACHES, data=ReleaseData.LOW32)
            builder.wait_mem(self._flag_va, self._count, Compare.EQUAL)
        builder.acquire_mem(gcr)

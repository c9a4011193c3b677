"""From a batch to PM4: one lowering for all interfaces.

A dispatch sets every register that matters to it, since nothing is known about what ran before: program, resources,
start and size of the workgroup, no limits, all compute units of all four shader engines, no scratch, restart at zero,
user data. Register offsets as in the gfx12 headers; gfx11 has the same.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from zinc_rt.amdgpu.command_list import Barrier, CommandList, Copy, Dispatch, Item, Write
from zinc_rt.amdgpu.pm4 import PacketBuilder
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST, ACQUIRE_KERNEL, CS_W32_EN, DISPATCH_INITIATOR_COMPUTE
from zinc_rt.errors import BackendError

PAD_DWORDS = 64
"""Packets end at a multiple of this; every kernel and queue asks for less."""
MAX_DWORDS = 0xF_FFFF
_ALL = 0xFFFFFFFF
_BARRIER = 10  # dwords of its packets, as below
_DISPATCH = 64
_RELEASE = 8

Words = npt.NDArray[np.uint32]


def packets_of(batch: CommandList) -> Words:
    """What `lower` makes of a batch, made once as long as its items stay the same. Raises `BackendError`."""
    if batch.lowered is None or batch.lowered[0] != batch.items:
        batch.lowered = list(batch.items), np.array(lower(batch), np.uint32)
    words: Words = batch.lowered[1]
    return words


def lower(batch: CommandList, marks: tuple[int, int] | None = None) -> list[int]:
    """The packets of a batch up to its fence, which `fence_packets` makes. Raises `BackendError` when they are too
    many.

    They begin with a full barrier: the submission before may still run. marks: where to count
    the dispatches that are done, and from which number on; for who wants to know which one hangs.
    """
    items = _needed(batch.items)
    builder = PacketBuilder([0] * (sum(map(_room, items)) + _BARRIER + 2))
    builder.write_nop(1)
    _barrier(builder, Barrier())
    mark_va, done = marks or (0, 0)
    for item in items:
        if isinstance(item, Dispatch):
            _dispatch(builder, item)
            done += 1
            if marks is not None:
                builder.release_mem_signal(mark_va, done)
        elif isinstance(item, Copy):
            _copy(builder, item)
        elif isinstance(item, Write):
            builder.write_data(item.target, item.values)
        else:
            _barrier(builder, item)
    if builder.cursor + _RELEASE + PAD_DWORDS > MAX_DWORDS:
        raise BackendError(
            f"{batch.label} takes {builder.cursor} dwords of packets; one submission has at most {MAX_DWORDS}: split it"
        )
    return list(builder.written())


def fence_packets(n_before: int, signal_va: int, value: int) -> list[int]:
    """What follows `n_before` dwords: the signal once all work is done and visible, and the padding."""
    builder = PacketBuilder([0] * (n_before + _RELEASE + 2 * PAD_DWORDS))
    builder.cursor = n_before
    builder.release_mem_signal(signal_va, value)
    builder.pad_to_alignment(PAD_DWORDS)
    return list(builder.words[n_before : builder.cursor])


def _needed(items: Sequence[Item]) -> list[Item]:
    """Without barriers at either end, where there is one anyway, and with one, the stronger, of neighbours."""
    kept: list[Item] = []
    for item in items:
        if isinstance(item, Barrier) and (not kept or isinstance(kept[-1], Barrier)):
            if kept and not item.light:
                kept[-1] = item
            continue
        kept.append(item)
    return kept[:-1] if kept and isinstance(kept[-1], Barrier) else kept


def _room(item: Item) -> int:
    if isinstance(item, Dispatch):
        return _DISPATCH + _RELEASE
    if isinstance(item, Copy):
        return 6 * (item.n_bytes // 4)
    return 4 + len(item.values) if isinstance(item, Write) else _BARRIER


def _dispatch(builder: PacketBuilder, item: Dispatch) -> None:
    program = item.program
    builder.set_sh_reg(reg.PGM_LO, (program.va >> 8 & _ALL, program.va >> 40))
    builder.set_sh_reg(reg.PGM_RSRC1, (program.rsrc1, program.rsrc2))
    builder.set_sh_reg_one(reg.PGM_RSRC3, program.rsrc3)
    builder.set_sh_reg(reg.START_X, (0, 0, 0, *item.threads, 0, 0))  # up to PERFCOUNT_ENABLE
    # RESOURCE_LIMITS, thread management of engines 0 and 1, TMPRING_SIZE, of engines 2 and 3, RESTART_X, _Y, _Z.
    builder.set_sh_reg(reg.RESOURCE_LIMITS, (0, _ALL, _ALL, 0, _ALL, _ALL, 0, 0, 0))
    builder.set_sh_reg(reg.USER_DATA_0, item.user_data)
    initiator = DISPATCH_INITIATOR_COMPUTE | (CS_W32_EN if program.wave32 else 0)
    builder.dispatch_direct_initiator(*item.groups, initiator)


def _copy(builder: PacketBuilder, item: Copy) -> None:
    step = 8 if not (item.source | item.target | item.n_bytes) % 8 else 4
    copy = builder.copy_data64 if step == 8 else builder.copy_data32
    for at in range(0, item.n_bytes, step):
        copy(item.source + at, item.target + at)


def _barrier(builder: PacketBuilder, item: Barrier) -> None:
    builder.cs_partial_flush()
    builder.acquire_mem(ACQUIRE_KERNEL if item.light else ACQUIRE_HOST)

"""The functions that run packets, by opcode."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from amdgpu_emu.cp import control_packets as control
from amdgpu_emu.cp import memory_packets as memory
from amdgpu_emu.cp import order_packets as order
from amdgpu_emu.cp.queue import CpQueue, Fields
from zinc_rt.amdgpu.pm4 import opcodes as op

Handler = Callable[[CpQueue, tuple[int, ...], Fields], Iterator[str] | None]
"""The function of a packet: takes queue, body and fields; returns the remaining steps if it has to wait."""

HANDLERS: dict[int, Handler] = {
    op.NOP: control.nop,
    op.SET_SH_REG: control.set_sh,
    op.SET_UCONFIG_REG: control.set_uconfig,
    op.SET_CONTEXT_REG: control.set_context,
    op.LOAD_SH_REG_INDEX: control.load_sh,
    op.DISPATCH_DIRECT: control.dispatch_direct,
    op.DISPATCH_INDIRECT: control.dispatch_indirect,
    op.INDIRECT_BUFFER: control.indirect_buffer,
    op.COND_EXEC: control.cond_exec,
    op.WRITE_DATA: memory.write_data,
    op.COPY_DATA: memory.copy_data,
    op.WAIT_REG_MEM: memory.wait,
    op.EVENT_WRITE: order.event,
    op.RELEASE_MEM: order.release,
    op.ACQUIRE_MEM: order.acquire,
}

"""Packets by which the command processor itself writes, copies and waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from amdgpu_emu.cp.queue import CpQueue, Fields
from amdgpu_emu.errors import GpuHang
from amdgpu_emu.gpu import POLLING
from zinc_rt.amdgpu.pm4 import values as v

_COMPARE: dict[int, Callable[[int, int], bool]] = {
    v.Compare.ALWAYS: lambda a, b: True,
    v.Compare.LESS: lambda a, b: a < b,
    v.Compare.LESS_EQUAL: lambda a, b: a <= b,
    v.Compare.EQUAL: lambda a, b: a == b,
    v.Compare.NOT_EQUAL: lambda a, b: a != b,
    v.Compare.GREATER_EQUAL: lambda a, b: a >= b,
    v.Compare.GREATER: lambda a, b: a > b,
}
_SYMBOL = ("always", "<", "<=", "==", "!=", ">=", ">")


def write_data(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run WRITE_DATA: write dwords to memory or registers, at once."""
    values: tuple[int, ...] = f["values"]
    _engine(f)
    data = np.array(values, "<u4").tobytes()
    dst = f["dst_sel"]
    if dst == v.WriteDst.REGISTER:
        for i, value in enumerate(values):
            queue.registers.write(f["address"] + (0 if f["one_address"] else i), value)
    elif dst in (v.WriteDst.MEMORY, v.WriteDst.L2):
        through = dst == v.WriteDst.MEMORY
        if f["one_address"]:
            data = data[-4:]
        queue.gpu.caches.write(queue.vm, f["address"], data, through=through)
    elif dst == v.WriteDst.MEMORY_GRBM:
        queue.report("dead-write", "WRITE_DATA with dst_sel 1 (memory through GRBM) writes nothing; use 5")
    else:
        raise GpuHang(f"dst_sel {dst} is not for compute queues")


def copy_data(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run COPY_DATA: copy 32 or 64 bits, at once."""
    _engine(f)
    wide = f["count_sel"] == v.Count.QWORD
    n = 8 if wide else 4
    source, target, kind = f["source"], f["target"], f["src_sel"]
    if kind in (v.CopySrc.L2_OBSOLETE, v.CopySrc.L2):
        data = queue.gpu.caches.read(queue.vm, source, n, bypass=queue.bypasses(f["src_temporal"])).tobytes()
    elif kind == v.CopySrc.REGISTER:
        low = queue.registers.read(source)
        high = queue.registers.read(source + 1) if wide else 0
        data = (low | high << 32).to_bytes(8, "little")[:n]
    elif kind == v.CopySrc.IMMEDIATE:
        data = source.to_bytes(8, "little")[:n]
    elif kind in (v.CopySrc.GPU_CLOCK, v.CopySrc.SYSTEM_CLOCK):
        data = queue.gpu.clock().to_bytes(8, "little")[:n]
    elif kind == v.CopySrc.PERF_COUNTER:
        data = bytes(n)
    else:
        raise GpuHang(f"src_sel {kind} is not emulated")
    dst = f["dst_sel"]
    if dst == v.CopyDst.REGISTER:
        for i in range(0, n, 4):
            queue.registers.write(target + i // 4, int.from_bytes(data[i : i + 4], "little"))
    elif dst in (v.CopyDst.MEMORY, v.CopyDst.L2):
        queue.gpu.caches.write(queue.vm, target, data, through=dst == v.CopyDst.MEMORY)
    elif dst == v.CopyDst.MEMORY_GRBM:
        queue.report("dead-write", "COPY_DATA with dst_sel 1 (memory through GRBM) writes nothing; use 5")
    else:
        raise GpuHang(f"dst_sel {dst} is not emulated")


def _engine(f: Fields) -> None:
    if f["engine_sel"] != v.EngineSelect.ME:
        raise GpuHang(f"engine_sel {f['engine_sel']}: a compute queue has engine 0 (ME) alone")


def wait(queue: CpQueue, body: tuple[int, ...], f: Fields) -> Iterator[str] | None:
    """Run WAIT_REG_MEM: stop until a comparison with memory or a register holds."""
    _engine(f)
    holds = _COMPARE[f["function"]]
    if f["mem_space"] == v.PollSpace.MEMORY:
        if f["operation"] == v.WaitOperation.WRITE_WAIT:
            raise GpuHang("operation 1 (write, wait) is for registers")
        bypass = queue.bypasses(f["temporal"])

        def look(past: bool = bypass) -> int:
            return queue.gpu.caches.read32(queue.vm, f["address"], bypass=past)
    else:
        where = f["register"]
        if f["operation"] == v.WaitOperation.WRITE_WAIT:
            queue.registers.write(f["register"], f["reference"])
            where = f["register_2"]

        def look(past: bool = False) -> int:
            return queue.registers.read(where)

    if holds(look() & f["mask"], f["reference"]):
        return None
    return _poll(queue, f, look, holds)


def _poll(queue: CpQueue, f: Fields, look: Callable[..., int], holds: Callable[[int, int], bool]) -> Iterator[str]:
    yield from queue.pipe.drain()  # time passes
    while not holds(look() & f["mask"], f["reference"]):
        try:
            yield POLLING
        except GpuHang as hang:
            raise GpuHang(f"{hang}; {_unmet(f, look)}") from hang


def _unmet(f: Fields, look: Callable[..., int]) -> str:
    now, truth = look(), look(True)
    text = f"the value is {now:#x}, wanted is {_SYMBOL[f['function']]} {f['reference']:#x}"
    if now != truth:
        text += f"; memory holds {truth:#x}, which the L2 hides: acquire (GL2_INV), or use uncached memory"
    return text

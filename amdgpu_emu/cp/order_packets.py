"""Packets that wait for waves, write caches back and invalidate them."""

from __future__ import annotations

from collections.abc import Iterator

from amdgpu_emu.caches import Actions
from amdgpu_emu.cp.queue import CpQueue, Fields
from amdgpu_emu.errors import GpuFault, GpuHang
from zinc_rt.amdgpu.pm4 import values as v

_END_OF_PIPE = {v.EventType.CACHE_FLUSH_TS, v.EventType.CACHE_FLUSH_AND_INV_TS, v.EventType.BOTTOM_OF_PIPE_TS}


def event(queue: CpQueue, body: tuple[int, ...], f: Fields) -> Iterator[str] | None:
    """Run EVENT_WRITE: wait for waves."""
    if f["event_type"] != v.EventType.CS_PARTIAL_FLUSH:
        raise GpuHang(f"event {v.EventType(f['event_type']).name} is not emulated")
    if f["event_index"] != v.EventIndex.PARTIAL_FLUSH or len(body) > 1:
        raise GpuHang("CS_PARTIAL_FLUSH needs event index 4 and no address")
    if not queue.gpu.flush_waits:
        return None
    if not queue.pipe.has_waves:
        queue.redundant("CS_PARTIAL_FLUSH with no waves running")
    return queue.pipe.drain() if queue.pipe else None


def acquire(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run ACQUIRE_MEM: write caches back and invalidate them."""
    for name in ("gl1_range", "gl2_range"):
        if f[name] != v.Range.ALL:
            raise GpuHang(f"{name} {f[name]}: parts of a cache are not emulated")
    if f["gli_inv"] not in (v.CodeInv.NONE, v.CodeInv.ALL):
        raise GpuHang(f"gli_inv {f['gli_inv']}: parts of a cache are not emulated")
    actions = Actions.of_acquire(body[-1])
    if queue.gpu.machine.report_redundant is not None:
        for text in queue.gpu.caches.useless(actions):
            queue.redundant(f"ACQUIRE_MEM: {text}")
    queue.gpu.caches.act(actions)


def release(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run RELEASE_MEM: act when all earlier work is done, without stopping the queue."""
    data, interrupt, address = f["data_sel"], f["int_sel"], f["address"]
    if not queue.eop_buffer:
        raise GpuFault(0, "write", "the queue has no end-of-pipe buffer", "RELEASE_MEM needs one")
    wanted = v.EventIndex.END_OF_PIPE if f["event_type"] in _END_OF_PIPE else v.EventIndex.END_OF_SHADER
    if f["event_type"] not in _END_OF_PIPE and f["event_type"] != v.EventType.CS_DONE:
        raise GpuHang(f"event {v.EventType(f['event_type']).name} is no end of pipe")
    if f["event_index"] != wanted:
        raise GpuHang(f"event index {f['event_index']}; the event needs {int(wanted)}")
    n = 0 if data == v.ReleaseData.NONE else 4 if data == v.ReleaseData.LOW32 else 8
    if n and address % n:
        raise GpuHang(f"address {address:#x} is not a multiple of {n}")
    if interrupt == v.ReleaseInt.INTERRUPT and n:
        raise GpuHang("int_sel 1 (interrupt alone) goes with data_sel 0")
    if n:
        list(queue.vm.walk(address, n, "write"))
    actions, vm = Actions.of_release(body[0]), queue.vm
    # Before gfx12 the policy or dst_sel may send the value past the L2; since then only the memory's type does.
    through = queue.bypasses(f["temporal"]) or (f["dst_sel"] == v.ReleaseDst.MEMORY and not queue.temporal)

    def fence() -> None:
        queue.gpu.caches.act(actions)
        if n:
            timed = data in (v.ReleaseData.GPU_CLOCK, v.ReleaseData.SYSTEM_CLOCK)
            value = queue.gpu.clock() if timed else f["value"]
            queue.gpu.caches.write(vm, address, value.to_bytes(8, "little")[:n], through=through)
        if interrupt and queue.interrupt is not None:
            queue.interrupt(f["context_id"])

    queue.pipe.fence(fence, queue.gpu.fence_delay if queue.on_user_ring else 0.0)

"""What each packet does."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from zinc_rt.emu.caches import Actions
from zinc_rt.emu.cp.pipe import Pipe
from zinc_rt.emu.cp.position import PacketFault, PacketHang, Position
from zinc_rt.emu.cp.registers import Registers
from zinc_rt.emu.errors import GpuFault, GpuHang
from zinc_rt.emu.gpu import POLLING, Gpu
from zinc_rt.emu.shader import Dispatch
from zinc_rt.emu.shader_memory import ShaderMemory
from zinc_rt.emu.vm import GpuVm
from zinc_rt.pm4 import opcodes as op
from zinc_rt.pm4 import registers as reg
from zinc_rt.pm4 import values as v

Fields = dict[str, Any]
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
_END_OF_PIPE = {v.Event.CACHE_FLUSH_TS, v.Event.CACHE_FLUSH_AND_INV_TS, v.Event.BOTTOM_OF_PIPE_TS}


class Executor:
    """Runs parsed packets; the processor reads `call`, `jump` and `skip` after each.

    call: an indirect buffer to run next, then to come back; jump: one to go on with; skip: dwords to leave out;
    position: of the packet, which the processor keeps.
    """

    def __init__(self, gpu: Gpu, name: str, interrupt: Callable[[int], None] | None, eop_buffer: bool) -> None:
        self.gpu, self.name = gpu, name
        self.vm = GpuVm("none")
        self.registers = Registers(gpu.model.gfx, self.report)
        self.pipe = Pipe()
        self.on_user_ring = False
        self.call: tuple[int, int] | None = None
        self.jump: tuple[int, int] | None = None
        self.skip = 0
        self.position = Position(name)
        self._interrupt, self._eop_buffer = interrupt, eop_buffer
        self._inner = False
        self._reported: set[str] = set()
        self._handlers: dict[int, Callable[[tuple[int, ...], Fields], Iterator[str] | None]] = {
            op.NOP: lambda body, f: None,
            op.SET_SH_REG: self._set_sh,
            op.SET_UCONFIG_REG: self._set_uconfig,
            op.SET_CONTEXT_REG: self._set_context,
            op.LOAD_SH_REG_INDEX: self._load_sh,
            op.DISPATCH_DIRECT: self._dispatch_direct,
            op.DISPATCH_INDIRECT: self._dispatch_indirect,
            op.WRITE_DATA: self._write_data,
            op.COPY_DATA: self._copy_data,
            op.WAIT_REG_MEM: self._wait,
            op.INDIRECT_BUFFER: self._indirect_buffer,
            op.COND_EXEC: self._cond_exec,
            op.EVENT_WRITE: self._event,
            op.RELEASE_MEM: self._release,
            op.ACQUIRE_MEM: self._acquire,
        }

    def begin(self, vm: GpuVm) -> None:
        """Start on a stream in an address space. What an earlier one that failed had left is forgotten."""
        self.vm, self.call, self.jump, self.skip = vm, None, None, 0

    def run(self, opcode: int, body: tuple[int, ...], fields: Fields, inner: bool) -> Iterator[str] | None:
        """Run one; the steps that are left, when it has to wait. inner: it lies in an indirect buffer."""
        self._inner = inner
        return self._handlers[opcode](body, fields)

    def report(self, kind: str, text: str) -> None:
        """A finding, once."""
        if text not in self._reported:
            self._reported.add(text)
            self.gpu.machine.report(kind, f"{self.name}: {text}")

    def _redundant(self, text: str) -> None:
        if self.gpu.machine.report_redundant is not None:
            self.gpu.machine.report_redundant.append(f"{self.name}: {text}")

    # Registers.

    def _set_sh(self, body: tuple[int, ...], f: Fields) -> None:
        if f["index"] or f["vmid_shift"]:
            raise GpuHang("index and vmid_shift are for the kernel's own streams")
        self.registers.set_sh(f["register"], f["values"])

    def _set_uconfig(self, body: tuple[int, ...], f: Fields) -> None:
        if f["register"] + len(f["values"]) > reg.UCONFIG_COUNT:
            raise GpuHang(f"the user-configuration space has {reg.UCONFIG_COUNT:#x} registers")
        for i, value in enumerate(f["values"], reg.UCONFIG_BASE + f["register"]):
            self.registers.write(i, value)

    def _set_context(self, body: tuple[int, ...], f: Fields) -> None:
        raise GpuHang("context registers are for graphics; a compute queue does not take the packet")

    def _load_sh(self, body: tuple[int, ...], f: Fields) -> None:
        if f["index"] != v.LoadIndex.ADDRESS or f["data_format"] != v.LoadFormat.VALUES:
            raise GpuHang("only values at an address are emulated")
        if not f["n_registers"] or f["n_registers"] > reg.SH_COUNT:
            raise GpuHang(f"n_registers is {f['n_registers']}; 1 to {reg.SH_COUNT} are possible")
        data = self.gpu.caches.read(self.vm, f["address"], 4 * f["n_registers"])
        self.registers.set_sh(f["register"], data.view("<u4").tolist())

    # Dispatches.

    def _dispatch_direct(self, body: tuple[int, ...], f: Fields) -> None:
        if not (f["x"] and f["y"] and f["z"]):
            raise GpuHang(f"{f['x']}x{f['y']}x{f['z']} groups; none of them may be zero")
        self._dispatch(f["x"], f["y"], f["z"], body[3])

    def _dispatch_indirect(self, body: tuple[int, ...], f: Fields) -> None:
        x, y, z = self.gpu.caches.read(self.vm, f["address"], 12).view("<u4").tolist()
        if x and y and z:  # counts that kernels computed may be zero
            self._dispatch(x, y, z, body[2])

    def _dispatch(self, x: int, y: int, z: int, initiator: int) -> None:
        if not initiator & 1:
            self.report(
                "dispatch-disabled", "a dispatch without COMPUTE_SHADER_EN (bit 0 of the initiator) runs nothing"
            )
            return
        dispatch = self.registers.dispatch(x, y, z, initiator)
        list(self.vm.walk(dispatch.address, 4, "execute"))
        if dispatch.scratch is not None:
            size = dispatch.scratch.bytes_per_wave * dispatch.scratch.waves
            list(self.vm.walk(dispatch.scratch.base, size, "write"))
        self.gpu.machine.shader.issued(dispatch)
        self.pipe.waves(partial(self._run, dispatch, ShaderMemory(self.gpu.caches, self.vm), replace(self.position)))

    def _run(self, dispatch: Dispatch, memory: ShaderMemory, position: Position) -> None:
        try:
            self.gpu.machine.shader.run(dispatch, memory)
        except GpuFault as fault:
            raise PacketFault(position, fault) from fault
        except GpuHang as hang:
            raise PacketHang(position, str(hang)) from hang
        except Exception as error:
            raise PacketHang(position, f"{dispatch} failed: {type(error).__name__}: {error}") from error
        memory.retire()

    # Memory.

    def _write_data(self, body: tuple[int, ...], f: Fields) -> None:
        values: tuple[int, ...] = f["values"]
        self._engine(f)
        data = np.array(values, "<u4").tobytes()
        dst = f["dst_sel"]
        if dst == v.WriteDst.REGISTER:
            for i, value in enumerate(values):
                self.registers.write(f["address"] + (0 if f["one_address"] else i), value)
        elif dst in (v.WriteDst.MEMORY, v.WriteDst.L2):
            through = dst == v.WriteDst.MEMORY
            if f["one_address"]:
                data = data[-4:]
            self.gpu.caches.write(self.vm, f["address"], data, through=through)
        elif dst == v.WriteDst.MEMORY_GRBM:
            self.report("dead-write", "WRITE_DATA with dst_sel 1 (memory through GRBM) writes nothing; use 5")
        else:
            raise GpuHang(f"dst_sel {dst} is not for compute queues")

    def _copy_data(self, body: tuple[int, ...], f: Fields) -> None:
        self._engine(f)
        wide = f["count_sel"] == v.Count.QWORD
        n = 8 if wide else 4
        source, target, kind = f["source"], f["target"], f["src_sel"]
        if kind in (v.CopySrc.MEMORY, v.CopySrc.L2):
            bypass = f["src_cache_policy"] == v.CachePolicy.BYPASS
            data = self.gpu.caches.read(self.vm, source, n, bypass=bypass).tobytes()
        elif kind == v.CopySrc.REGISTER:
            low = self.registers.read(source)
            high = self.registers.read(source + 1) if wide else 0
            data = (low | high << 32).to_bytes(8, "little")[:n]
        elif kind == v.CopySrc.IMMEDIATE:
            data = source.to_bytes(8, "little")[:n]
        elif kind in (v.CopySrc.GPU_CLOCK, v.CopySrc.SYSTEM_CLOCK):
            data = _clock().to_bytes(8, "little")[:n]
        elif kind == v.CopySrc.PERF_COUNTER:
            data = bytes(n)
        else:
            raise GpuHang(f"src_sel {kind} is not emulated")
        dst = f["dst_sel"]
        if dst == v.CopyDst.REGISTER:
            for i in range(0, n, 4):
                self.registers.write(target + i // 4, int.from_bytes(data[i : i + 4], "little"))
        elif dst in (v.CopyDst.MEMORY, v.CopyDst.L2):
            self.gpu.caches.write(self.vm, target, data, through=dst == v.CopyDst.MEMORY)
        elif dst == v.CopyDst.MEMORY_GRBM:
            self.report("dead-write", "COPY_DATA with dst_sel 1 (memory through GRBM) writes nothing; use 5")
        else:
            raise GpuHang(f"dst_sel {dst} is not emulated")

    def _engine(self, f: Fields) -> None:
        if f["engine_sel"] != v.Engine.ME:
            raise GpuHang(f"engine_sel {f['engine_sel']}: a compute queue has engine 0 (ME) alone")

    def _wait(self, body: tuple[int, ...], f: Fields) -> Iterator[str] | None:
        self._engine(f)
        holds = _COMPARE[f["function"]]
        if f["mem_space"] == v.Space.MEMORY:
            if f["operation"] == v.WaitOperation.WRITE_WAIT:
                raise GpuHang("operation 1 (write, wait) is for registers")
            bypass = f["cache_policy"] == v.CachePolicy.BYPASS

            def look(past: bool = bypass) -> int:
                return self.gpu.caches.read32(self.vm, f["address"], bypass=past)
        else:
            where = f["register"]
            if f["operation"] == v.WaitOperation.WRITE_WAIT:
                self.registers.write(f["register"], f["reference"])
                where = f["register_2"]

            def look(past: bool = False) -> int:
                return self.registers.read(where)

        if holds(look() & f["mask"], f["reference"]):
            return None
        return self._poll(f, look, holds)

    def _poll(self, f: Fields, look: Callable[..., int], holds: Callable[[int, int], bool]) -> Iterator[str]:
        yield from self.pipe.drain()  # time passes
        while not holds(look() & f["mask"], f["reference"]):
            try:
                yield POLLING
            except GpuHang as hang:
                raise GpuHang(f"{hang}; {self._unmet(f, look)}") from hang

    @staticmethod
    def _unmet(f: Fields, look: Callable[..., int]) -> str:
        now, truth = look(), look(True)
        text = f"the value is {now:#x}, wanted is {_SYMBOL[f['function']]} {f['reference']:#x}"
        if now != truth:
            text += (
                f"; memory holds {truth:#x}, which the L2 hides: acquire (GL2_INV), bypass it or use uncached memory"
            )
        return text

    # Order.

    def _event(self, body: tuple[int, ...], f: Fields) -> Iterator[str] | None:
        if f["event_type"] != v.Event.CS_PARTIAL_FLUSH:
            raise GpuHang(f"event {v.Event(f['event_type']).name} is not emulated")
        if f["event_index"] != v.EventIndex.PARTIAL_FLUSH or len(body) > 1:
            raise GpuHang("CS_PARTIAL_FLUSH needs event index 4 and no address")
        if not self.pipe.has_waves:
            self._redundant("CS_PARTIAL_FLUSH with no waves running")
        return self.pipe.drain() if self.pipe else None

    def _acquire(self, body: tuple[int, ...], f: Fields) -> None:
        for name in ("gl1_range", "gl2_range"):
            if f[name] != v.Range.ALL:
                raise GpuHang(f"{name} {f[name]}: parts of a cache are not emulated")
        if f["gli_inv"] not in (v.CodeInv.NONE, v.CodeInv.ALL):
            raise GpuHang(f"gli_inv {f['gli_inv']}: parts of a cache are not emulated")
        actions = Actions.of_acquire(body[-1])
        if self.gpu.machine.report_redundant is not None:
            for text in self.gpu.caches.useless(actions):
                self._redundant(f"ACQUIRE_MEM: {text}")
        self.gpu.caches.act(actions)

    def _release(self, body: tuple[int, ...], f: Fields) -> None:
        data, interrupt, address = f["data_sel"], f["int_sel"], f["address"]
        if not self._eop_buffer:
            raise GpuFault(0, "write", "the queue has no end-of-pipe buffer", "RELEASE_MEM needs one")
        wanted = v.EventIndex.END_OF_PIPE if f["event_type"] in _END_OF_PIPE else v.EventIndex.END_OF_SHADER
        if f["event_type"] not in _END_OF_PIPE and f["event_type"] != v.Event.CS_DONE:
            raise GpuHang(f"event {v.Event(f['event_type']).name} is no end of pipe")
        if f["event_index"] != wanted:
            raise GpuHang(f"event index {f['event_index']}; the event needs {int(wanted)}")
        n = 0 if data == v.ReleaseData.NONE else 4 if data == v.ReleaseData.LOW32 else 8
        if n and address % n:
            raise GpuHang(f"address {address:#x} is not a multiple of {n}")
        if interrupt == v.ReleaseInt.INTERRUPT and n:
            raise GpuHang("int_sel 1 (interrupt alone) goes with data_sel 0")
        if n:
            list(self.vm.walk(address, n, "write"))
        actions, vm = Actions.of_release(body[0]), self.vm
        in_l2 = f["dst_sel"] == v.ReleaseDst.L2 and f["cache_policy"] != v.CachePolicy.BYPASS

        def fence() -> None:
            self.gpu.caches.act(actions)
            if n:
                clock = data in (v.ReleaseData.GPU_CLOCK, v.ReleaseData.SYSTEM_CLOCK)
                value = (_clock() if clock else f["value"]).to_bytes(8, "little")[:n]
                self.gpu.caches.write(vm, address, value, through=not in_l2)
            if interrupt and self._interrupt is not None:
                self._interrupt(f["context_id"])

        self.pipe.fence(fence, self.gpu.fence_delay if self.on_user_ring else 0.0)

    # Flow.

    def _indirect_buffer(self, body: tuple[int, ...], f: Fields) -> None:
        if not f["valid"]:
            raise GpuHang("bit 23 (VALID) of the size is clear")
        if f["vmid"] or f["priv"]:
            raise GpuHang("vmid and priv are for the kernel")
        if not f["n_dwords"]:
            raise GpuHang("an indirect buffer needs at least one dword")
        target = (f["address"], f["n_dwords"])
        if self._inner:
            if not f["chain"]:
                raise GpuHang("an indirect buffer cannot call another; it can only chain (bit 20)")
            self.jump = target
        elif f["chain"]:
            raise GpuHang("a ring cannot chain (bit 20): it would never come back")
        else:
            self.call = target

    def _cond_exec(self, body: tuple[int, ...], f: Fields) -> None:
        if not self.gpu.caches.read32(self.vm, f["address"]):
            self.skip = f["n_dwords"]


def _clock() -> int:
    """The GPU's 100 MHz counter."""
    return time.monotonic_ns() // 10

"""Packets that set registers, start waves, and jump."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from amdgpu_emu.cp.position import PacketFault, PacketHang, Position
from amdgpu_emu.cp.queue import CpQueue, Fields
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.shader import Dispatch
from amdgpu_emu.shader_memory import ShaderMemory
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4 import values as v

_INHERIT_MISSING = (
    "bit 30 (INHERIT_VMID_MQD_COMPUTE) is clear: a user queue whose descriptor says PRIV_STATE would read the indirect "
    "buffer in the kernel's address space"
)
_INHERIT_SET = "bit 30 (INHERIT_VMID_MQD_COMPUTE) is for user queues of the render node alone"


def nop(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run NOP: do nothing."""


def set_sh(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run SET_SH_REG: write shader registers."""
    if f["index"] or f["vmid_shift"]:
        raise GpuHang("index and vmid_shift are for the kernel's own streams")
    queue.registers.set_sh(f["register"], f["values"], inner=queue.inner)


def set_uconfig(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run SET_UCONFIG_REG: write registers of the user configuration."""
    if f["register"] + len(f["values"]) > reg.UCONFIG_COUNT:
        raise GpuHang(f"the user-configuration space has {reg.UCONFIG_COUNT:#x} registers")
    for i, value in enumerate(f["values"], reg.UCONFIG_BASE + f["register"]):
        queue.registers.write(i, value)


def set_context(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run SET_CONTEXT_REG: refused, since compute queues lack these registers."""
    raise GpuHang("context registers are for graphics; a compute queue does not take the packet")


def load_sh(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run LOAD_SH_REG_INDEX: write shader registers from memory."""
    if f["index"] != v.LoadIndex.ADDRESS or f["data_format"] != v.LoadFormat.VALUES:
        raise GpuHang("only values at an address are emulated")
    if not f["n_registers"] or f["n_registers"] > reg.SH_COUNT:
        raise GpuHang(f"n_registers is {f['n_registers']}; 1 to {reg.SH_COUNT} are possible")
    data = queue.gpu.caches.read(queue.vm, f["address"], 4 * f["n_registers"])
    queue.registers.set_sh(f["register"], data.view("<u4").tolist(), inner=queue.inner)


def dispatch_direct(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run DISPATCH_DIRECT: start waves."""
    if not (f["x"] and f["y"] and f["z"]):
        raise GpuHang(f"{f['x']}x{f['y']}x{f['z']} groups; none of them may be zero")
    _dispatch(queue, f["x"], f["y"], f["z"], body[3])


def dispatch_indirect(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run DISPATCH_INDIRECT: start waves; their number is read from memory."""
    x, y, z = queue.gpu.caches.read(queue.vm, f["address"], 12).view("<u4").tolist()
    if x and y and z:  # counts computed by kernels may be zero
        _dispatch(queue, x, y, z, body[2])


def _dispatch(queue: CpQueue, x: int, y: int, z: int, initiator: int) -> None:
    if not initiator & 1:
        queue.report("dispatch-disabled", "a dispatch without COMPUTE_SHADER_EN (bit 0 of the initiator) runs nothing")
        return
    dispatch = queue.registers.dispatch(x, y, z, initiator)
    list(queue.vm.walk(dispatch.address, 4, "execute"))
    if dispatch.scratch is not None:
        size = dispatch.scratch.bytes_per_wave * dispatch.scratch.waves
        list(queue.vm.walk(dispatch.scratch.base, size, "write"))
    if queue.gpu.machine.dispatch_hangs(queue.kind):
        raise GpuHang(f"{dispatch} never ends, as this machine was told")
    queue.gpu.machine.shader.issued(dispatch)
    queue.pipe.waves(partial(_run, queue, dispatch, ShaderMemory(queue.gpu.caches, queue.vm), replace(queue.position)))


def _run(queue: CpQueue, dispatch: Dispatch, memory: ShaderMemory, position: Position) -> None:
    try:
        queue.gpu.machine.shader.run(dispatch, memory)
    except GpuFault as fault:
        raise PacketFault(position, fault) from fault
    except GpuHang as hang:
        raise PacketHang(position, str(hang)) from hang
    except Exception as error:
        raise PacketHang(position, f"{dispatch} failed: {type(error).__name__}: {error}") from error
    memory.retire()
    try:
        queue.spend(dispatch)
    except GpuHang as hang:
        raise PacketHang(position, str(hang)) from hang


def indirect_buffer(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run INDIRECT_BUFFER: call or jump."""
    if not f["valid"]:
        raise GpuHang("bit 23 (VALID) of the size is clear")
    if f["vmid"] or f["priv"]:
        raise GpuHang("vmid and priv are for the kernel")
    if not f["n_dwords"]:
        raise GpuHang("an indirect buffer needs at least one dword")
    of_user = queue.kind == "umq"
    if f["inherit_vmid"] != of_user:
        queue.report("address-space", _INHERIT_MISSING if of_user else _INHERIT_SET)
    target = (f["address"], f["n_dwords"])
    if queue.inner:
        if not f["chain"]:
            raise GpuHang("an indirect buffer cannot call another; it can only chain (bit 20)")
        queue.jump = target
    elif f["chain"]:
        raise GpuHang("a ring cannot chain (bit 20): it would never come back")
    else:
        queue.call = target


def cond_exec(queue: CpQueue, body: tuple[int, ...], f: Fields) -> None:
    """Run COND_EXEC: skip packets."""
    if not queue.gpu.caches.read32(queue.vm, f["address"]):
        queue.skip = f["n_dwords"]

"""Jumps, barriers, waits, the end of a program, and instructions that do nothing here because time is not modelled."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.events import END, REST, WAIT, Split, Targets
from amdgpu_emu.core.operands import scalar_index, wide
from amdgpu_emu.core.state import VCC, Array, Group, Step
from amdgpu_emu.core.waits import compile_wait, stores_under_way, wait_of
from amdgpu_emu.isa.instruction import Encoding, Instruction

NOTHING: Final = frozenset(
    {
        "s_nop", "s_delay_alu", "s_clause", "s_setprio", "s_setprio_inc_wg", "s_inst_prefetch", "s_icache_inv",
        "s_ttracedata", "s_ttracedata_imm", "s_set_inst_prefetch_distance", "s_wait_alu", "s_wait_event", "s_wakeup",
        "s_incperflevel", "s_decperflevel", "s_sethalt", "s_waitcnt_depctr",
    }
)  # fmt: skip
_DEALLOC_VGPRS: Final = 3
_BARRIER: Final = -1


def compile_control(ins: Instruction, lanes: int) -> Step | None:
    """Compile a control instruction; None if the instruction is of another kind. Raises `Unsupported`."""
    name = ins.name
    if name in NOTHING:
        return lambda g: None
    if name in _TABLE:
        return _TABLE[name](ins)
    if ins.format is Encoding.SOPP or name.startswith("s_waitcnt_"):
        wait = compile_wait(ins)
        if wait is None:
            raise Unsupported(f"{name} is not executed by this shader core")
        return wait
    return None


def _target(ins: Instruction) -> int:
    offset = ins.modifiers.get("simm16", 0) & 0xFFFF
    return ins.address + ins.size + 4 * (offset - (offset >> 15 << 16))


def _branch(ins: Instruction) -> Step:
    target = _target(ins)
    return lambda g: target


def _conditional(ins: Instruction) -> Step:
    target, condition = _target(ins), _CONDITIONS[ins.name.removeprefix("s_cbranch_")]

    def run(g: Group) -> Any:
        taken = condition(g)
        if taken is True or taken is False:
            return target if taken else None
        n = np.count_nonzero(taken)
        if n == len(taken):
            return target
        return Split(taken, target) if n else None

    return run


def _execz(g: Group) -> Any:
    return False if g.mask is None else ~g.mask.any(axis=1)


def _vccz(g: Group) -> Array:
    zero: Array = g.s[VCC] == 0
    return zero if g.lanes == 32 else zero & (g.s[VCC + 1] == 0)


_CONDITIONS: Final[dict[str, Callable[[Group], Any]]] = {
    "scc0": lambda g: ~g.scc,
    "scc1": lambda g: g.scc,
    "vccz": _vccz,
    "vccnz": lambda g: ~_vccz(g),
    "execz": _execz,
    "execnz": lambda g: True if g.mask is None else g.mask.any(axis=1),
}


def _end(ins: Instruction) -> Step:
    return lambda g: END


def _signal(ins: Instruction) -> Step:
    """s_barrier_signal, s_barrier_signal_isfirst of the workgroup's barrier, -1."""
    if not ins.src or ins.src[0].value & 0xFFFFFFFF != _BARRIER & 0xFFFFFFFF:
        raise Unsupported(f"{ins.name} of another barrier than the workgroup's (-1)")
    if "isfirst" in ins.name:
        raise Unsupported(f"{ins.name}: which wave is first is left to chance")

    def run(g: Group) -> None:
        _arrive_at_barrier(g, "dscnt")

    return run


def _arrive_at_barrier(g: Group, counter: str) -> None:
    pending = stores_under_way(g)
    if pending is not None:
        raise ShaderError(
            f"the barrier is signalled before {pending.kind} at {pending.at:#x} is done: {wait_of(counter)} is"
            " missing or waits for too few"
        )
    g.shared.signal(g)


def _barrier(ins: Instruction) -> Step:
    """s_barrier of gfx11: signal and wait in one."""

    def run(g: Group) -> Any:
        _arrive_at_barrier(g, "lgkmcnt")
        return WAIT

    return run


def _wait(ins: Instruction) -> Step:
    if ins.modifiers.get("simm16", _BARRIER) & 0xFFFF != _BARRIER & 0xFFFF:
        raise Unsupported(f"{ins.name} of another barrier than the workgroup's (-1)")

    def run(g: Group) -> Any:
        lost = g.signals <= g.waits
        if lost.any():
            raise ShaderError("waits at a barrier that the wave has not signalled", wave=int(np.argmax(lost)))
        return WAIT

    return run


def _message(ins: Instruction) -> Step:
    if ins.modifiers.get("simm16", 0) & 0xFF != _DEALLOC_VGPRS:
        raise Unsupported("s_sendmsg of a message other than MSG_DEALLOC_VGPRS")
    return lambda g: None


def _rest(ins: Instruction) -> Step:
    return lambda g: REST


def _put_pc(g: Group, index: int, address: int) -> None:
    g.put_s(index, np.uint32(address & 0xFFFFFFFF))
    g.put_s(index + 1, np.uint32(address >> 32 & 0xFFFFFFFF))


def _jump(g: Group, index: int) -> Any:
    addresses = wide(g.s[index], g.s[index + 1])
    first = int(addresses[0])
    return first if (addresses == addresses[0]).all() else Targets(addresses)


def _calls(ins: Instruction) -> Step:
    """s_getpc_b64, s_setpc_b64, s_swappc_b64, s_call_b64."""
    behind = ins.address + ins.size
    d = scalar_index(ins.dst[0]) if ins.dst else None
    s = scalar_index(ins.src[0]) if ins.src else None

    def run(g: Group) -> Any:
        where = None
        if ins.name in ("s_setpc_b64", "s_swappc_b64"):
            assert s is not None
            where = _jump(g, s)
        if ins.name == "s_call_b64":
            where = _target(ins)
        if d is not None:
            _put_pc(g, d, behind)
        return where

    return run


def _mode(ins: Instruction) -> Step:
    """s_round_mode, s_denorm_mode."""
    value, shift = ins.modifiers.get("simm16", 0) & 15, 0 if ins.name == "s_round_mode" else 4

    def run(g: Group) -> None:
        g.mode = (g.mode & ~(15 << shift)) | (value << shift)

    return run


def _stop(ins: Instruction) -> Step:
    def run(g: Group) -> None:
        raise ShaderError("the program runs off its end: s_endpgm is missing")

    return run


def _trap(ins: Instruction) -> Step:
    def run(g: Group) -> None:
        raise ShaderError("the program traps, and there is no trap handler")

    return run


_TABLE: Final[dict[str, Callable[[Instruction], Step]]] = {
    "s_branch": _branch, "s_endpgm": _end, "s_barrier_signal": _signal, "s_barrier_signal_isfirst": _signal,
    "s_barrier": _barrier, "s_barrier_wait": _wait,
    "s_sendmsg": _message, "s_sleep": _rest, "s_sleep_var": _rest, "s_getpc_b64": _calls,
    "s_setpc_b64": _calls, "s_swappc_b64": _calls, "s_call_b64": _calls, "s_round_mode": _mode, "s_denorm_mode": _mode,
    "s_code_end": _stop, "s_trap": _trap, **{f"s_cbranch_{c}": _conditional for c in _CONDITIONS},
}  # fmt: skip

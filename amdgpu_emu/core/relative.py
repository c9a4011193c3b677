"""Registers whose number depends on M0: v_movrel*, v_swaprel_b32, s_movrel*.

M0 is added to the number in the instruction; of the forms with `_2`, and of v_swaprel_b32, bits 0 to 9 to the source's
and bits 16 to 25 to the destination's (RDNA 4 ISA).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.operands import reader, scalar_index
from amdgpu_emu.core.state import M0, Array, Group, Step
from amdgpu_emu.isa.instruction import Instruction, Operand, OperandKind

_N_SGPRS: Final = 106
_WHOLE: Final = (0, 0xFFFFFFFF)
_SOURCE: Final = (0, 0x3FF)
_TARGET: Final = (16, 0x3FF)


def is_relative(name: str) -> bool:
    """Whether M0 changes the number of one of the instruction's registers."""
    return name.startswith(("v_movrel", "v_swaprel", "s_movrel"))


def dynamic(ins: Instruction) -> tuple[Operand, ...]:
    """The operands whose register number depends on M0."""
    moved = ins.dst if "movreld" in ins.name else ins.src if "movrels_" in ins.name else (*ins.dst, *ins.src)
    return tuple(op for op in moved if op.kind in (OperandKind.VGPR, OperandKind.SGPR))


def _numbers(g: Group, base: int, field: tuple[int, int], limit: int, width: int, letter: str) -> Array:
    """The register number of each wave, i64[n]."""
    shift, mask = field
    found: Array = base + ((g.s[M0].astype(np.int64) >> shift) & mask)
    beyond = found + width > limit
    if beyond.any():
        wave = int(np.argmax(beyond))
        raise ShaderError(
            f"M0 moves {letter}{base} to {letter}{int(found[wave])}, beyond the {limit} registers", wave=wave
        )
    return found


def _fetch(g: Group, numbers: Array) -> Array:
    """Read a vector register whose number differs by wave, u32[n, lanes]."""
    waves = np.arange(g.n)
    for register in np.unique(numbers).tolist():
        if g.pend_v >> register & 1:
            raise ShaderError(f"v{register} is used before a load that is under way has filled it")
        if g.undef_v >> register & 1:
            bad = g.active() & (numbers == register)[:, None] & ~g.v_defined[register]
            if bad.any():
                wave, lane = (int(k) for k in np.argwhere(bad)[0])
                raise ShaderError(f"v{register} is read and was never written", wave=wave, lane=lane)
    return np.array(g.v[numbers, waves])


def _store(g: Group, numbers: Array, value: Any) -> None:
    for register in np.unique(numbers).tolist():
        if g.pend_v >> register & 1:
            raise ShaderError(f"v{register} is overwritten before a load that is under way has filled it")
        on = g.active() & (numbers == register)[:, None]
        np.copyto(g.v[register], value, where=on)
        if g.undef_v >> register & 1:
            g.define(register, on)


def _moves(name: str) -> tuple[tuple[int, int] | None, tuple[int, int] | None]:
    """The fields of M0 that move the source and the destination; None: M0 does not move it."""
    if name.endswith("sd_2_b32") or "swaprel" in name:
        return _SOURCE, _TARGET
    kind = name.partition("movrel")[2].partition("_")[0]
    return (_WHOLE if "s" in kind else None), (_WHOLE if "d" in kind else None)


def move_vector(ins: Instruction, lanes: int) -> Step:
    """v_movreld_b32, v_movrels_b32, v_movrelsd_b32, v_movrelsd_2_b32, v_swaprel_b32."""
    if "dpp_ctrl" in ins.modifiers or "dpp8" in ins.modifiers:
        raise Unsupported(f"DPP with {ins.name}")
    source, target = _moves(ins.name)
    s, d = ins.src[0], ins.dst[0]
    plain = reader(s, "u") if source is None else None
    swap = "swap" in ins.name

    def run(g: Group) -> None:
        to = _numbers(g, d.index, target or (0, 0), g.n_vgprs, 1, "v")
        if plain is not None:
            _store(g, to, plain(g))
            return
        of = _numbers(g, s.index, source or (0, 0), g.n_vgprs, 1, "v")
        value = _fetch(g, of)
        other = _fetch(g, to) if swap else None
        _store(g, to, value)
        if other is not None:
            _store(g, of, other)

    return run


def move_scalar(ins: Instruction) -> Step:
    """s_movrels_b32, s_movreld_b32 and their 64-bit forms; s_movrelsd_2_b32."""
    source, target = _moves(ins.name)
    width = 2 if ins.name.endswith("b64") else 1
    s, d = ins.src[0], ins.dst[0]
    plain = [reader(_word(s, k), "u", scalar=True) for k in range(width)] if source is None else None
    if (source is not None and s.kind is not OperandKind.SGPR) or (
        target is not None and d.kind is not OperandKind.SGPR
    ):
        raise Unsupported(f"{ins.name} of another register than s0 to s{_N_SGPRS - 1}")
    fixed = scalar_index(d)
    assert fixed is not None

    def run(g: Group) -> None:
        waves = np.arange(g.n)
        if plain is not None:
            values = [np.array(np.broadcast_to(read(g), (g.n,))) for read in plain]
        else:
            of = _numbers(g, s.index, source or (0, 0), _N_SGPRS, width, "s")
            _arrived(g, of, width, "used")
            for k in range(width):
                missing = ~g.s_defined[of + k, waves]
                if missing.any():
                    wave = int(np.argmax(missing))
                    raise ShaderError(f"s{int(of[wave]) + k} is read and was never written", wave=wave)
            values = [g.s[of + k, waves] for k in range(width)]
        if target is None:
            for k, value in enumerate(values):
                g.put_s(fixed + k, value)
            return
        to = _numbers(g, d.index, target, _N_SGPRS, width, "s")
        _arrived(g, to, width, "overwritten")
        for k, value in enumerate(values):
            g.s[to + k, waves] = value
            g.s_defined[to + k, waves] = True
            for register in np.unique(to + k).tolist():
                if g.s_defined[register].all():
                    g.undef_s &= ~(1 << register)

    return run


def _arrived(g: Group, numbers: Array, width: int, verb: str) -> None:
    for register in np.unique(numbers).tolist():
        if g.pend_s >> register & (1 << width) - 1:
            raise ShaderError(f"s{register} is {verb} before a load that is under way has filled it")


def _word(op: Operand, k: int) -> Operand:
    """One of the words of a wide operand."""
    if op.kind in (OperandKind.LITERAL, OperandKind.INTEGER, OperandKind.FLOAT):
        return Operand(OperandKind.LITERAL, value=op.value >> 32 * k & 0xFFFFFFFF)
    return Operand(op.kind, op.index + k) if op.dwords > 1 or not k else Operand(OperandKind.INTEGER, value=0)


VECTOR: Final[dict[str, Callable[[Instruction, int], Step]]] = dict.fromkeys(
    ("v_movreld_b32", "v_movrels_b32", "v_movrelsd_b32", "v_movrelsd_2_b32", "v_swaprel_b32"), move_vector
)
SCALAR: Final[dict[str, Callable[[Instruction], Step]]] = dict.fromkeys(
    ("s_movrels_b32", "s_movrels_b64", "s_movreld_b32", "s_movreld_b64", "s_movrelsd_2_b32"), move_scalar
)

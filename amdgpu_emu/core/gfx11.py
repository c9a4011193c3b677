"""gfx11 code as this core executes it: each instruction under the name that gfx12 has for the same operation.

The two generations differ in encodings, in names, in how results are awaited, in barriers and in the registers that
waves start with (`launch`). What an instruction computes is the same, with the exceptions that are refused here.

Sources: RDNA 3 and RDNA 4 ISA documents; LLVM's AMDGPU back end for limits of single cores.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final

from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.shader import Dispatch

_NAMES: Final = {
    "s_add_u32": "s_add_co_u32",
    "s_sub_u32": "s_sub_co_u32",
    "s_add_i32": "s_add_co_i32",
    "s_sub_i32": "s_sub_co_i32",
    "s_addc_u32": "s_add_co_ci_u32",
    "s_subb_u32": "s_sub_co_ci_u32",
    "s_addk_i32": "s_addk_co_i32",
    "v_mad_u64_u32": "v_mad_co_u64_u32",
    "v_mad_i64_i32": "v_mad_co_i64_i32",
}
_FLOAT_EXTREME: Final = re.compile(
    r"((?:v_|v_dual_|v_pk_|s_|ds_)(?:min|max|min3|max3|med3|minmax|maxmin))((?:_rtn)?_f(?:16|32|64))"
)
"""Of two quiet numbers and NaN they give what min_num and max_num do while MODE.IEEE is 0."""
_COMPARED: Final = re.compile(r"s_cmpk_(\w\w)_([iu])32")
_SMALLEST: Final = {(11, 0, 0): 16, (11, 0, 2): 16}
"""Scalar registers that waves of 32 lanes must start with on cores with the fault that LLVM calls UserSGPRInit16Bug."""
_DX10_CLAMP, _IEEE = 1 << 21, 1 << 23  # of RSRC1


def as_gfx12(ins: Instruction, lanes: int = 32) -> Instruction:
    """The same operation by its name on gfx12. lanes: of a wave. Raises `Unsupported` for what this core does not
    execute.
    """
    second = as_gfx12(ins.second, lanes) if ins.second is not None else None
    name = ins.name
    if name.startswith(("v_wmma", "v_swmmac")):
        raise Unsupported(f"{name} of gfx11 is not executed: its operands lie otherwise than on gfx12")
    if lanes == 64 and name.startswith(("ds_permute", "ds_bpermute")):
        raise Unsupported(f"{name} with 64 lanes is not executed: gfx11 stays within each half of the wave")
    if name.startswith(("v_cmp_f_", "v_cmp_t_", "v_cmpx_f_", "v_cmpx_t_")):
        raise Unsupported(f"{name} is not executed by this shader core")
    if (compared := _COMPARED.fullmatch(name)) is not None:
        return _compared(ins, compared[1], compared[2])
    name = _NAMES.get(name, _FLOAT_EXTREME.sub(_with_num, name))
    if name == ins.name and second is None:
        return ins
    return replace(ins, name=name, second=second)


def _with_num(found: re.Match[str]) -> str:
    return f"{found[1]}_num{found[2]}"


def _compared(ins: Instruction, condition: str, sign: str) -> Instruction:
    """A comparison with 16 bits of the instruction, as one with a constant."""
    value = ins.modifiers.get("simm16", 0) & 0xFFFF
    if sign == "i":
        value = (value ^ 0x8000) - 0x8000 & 0xFFFFFFFF
    constant = Operand(OperandKind.INTEGER, value=value)
    return replace(
        ins, name=f"s_cmp_{condition}_{sign}32", format=Encoding.SOPC, src=(ins.src[0], constant), modifiers={}
    )


def check_dispatch(dispatch: Dispatch) -> None:
    """Raise `Unsupported` where a dispatch starts waves as they must not be started on gfx11, or in a mode that is not
    modelled.
    """
    if dispatch.rsrc1 & _IEEE or not dispatch.rsrc1 & _DX10_CLAMP:
        raise Unsupported("RSRC1 has IEEE_MODE, or lacks DX10_CLAMP: the floats of gfx11 are modelled otherwise")
    if dispatch.rsrc2 >> 10 & 1:
        raise Unsupported("RSRC2 asks for the size of a workgroup (TG_SIZE_EN), which this core does not give")
    least, given = (
        _SMALLEST.get(dispatch.gfx, 0) if dispatch.wave32 else 0,
        dispatch.n_user_sgprs + sum(places(dispatch)),
    )
    if given < least:
        raise Unsupported(
            f"waves start with {given} scalar registers; this core must start them with {least} at least, or loses some"
        )


def places(dispatch: Dispatch) -> tuple[bool, bool, bool]:
    """Which of the workgroup's ids follow the user data: x, y and z (TGID_*_EN)."""
    x, y, z = (bool(dispatch.rsrc2 >> bit & 1) for bit in (7, 8, 9))
    return x, y, z

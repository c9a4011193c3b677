"""Text of the 16-bit immediates of SOPP and SOPK: waits, delays, messages, hardware registers."""

from __future__ import annotations

from typing import Final

_HWREGS: Final = {
    1: "MODE", 2: "STATUS", 4: "STATE_PRIV", 5: "GPR_ALLOC", 6: "LDS_ALLOC", 7: "IB_STS", 10: "PERF_SNAPSHOT_DATA",
    11: "PERF_SNAPSHOT_PC_LO", 12: "PERF_SNAPSHOT_PC_HI", 15: "PERF_SNAPSHOT_DATA1", 16: "PERF_SNAPSHOT_DATA2",
    17: "EXCP_FLAG_PRIV", 18: "EXCP_FLAG_USER", 19: "TRAP_CTRL", 20: "SCRATCH_BASE_LO", 21: "SCRATCH_BASE_HI",
    23: "HW_ID1", 24: "HW_ID2", 29: "SHADER_CYCLES_LO", 30: "SHADER_CYCLES_HI", 31: "DVGPR_ALLOC_LO",
    32: "DVGPR_ALLOC_HI",
}  # fmt: skip
_MESSAGES: Final = {
    1: "INTERRUPT", 2: "HS_TESSFACTOR", 3: "DEALLOC_VGPRS", 9: "GS_ALLOC_REQ", 128: "RTN_GET_DOORBELL",
    129: "RTN_GET_DDID", 130: "RTN_GET_TMA", 131: "RTN_GET_REALTIME", 132: "RTN_SAVE_WAVE", 133: "RTN_GET_TBA",
    134: "RTN_GET_TBA_TO_PC", 135: "RTN_GET_SE_AID_ID",
}  # fmt: skip
_DELAYS: Final = (
    "", "VALU_DEP_1", "VALU_DEP_2", "VALU_DEP_3", "VALU_DEP_4", "TRANS32_DEP_1", "TRANS32_DEP_2", "TRANS32_DEP_3",
    "FMA_ACCUM_CYCLE_1", "SALU_CYCLE_1", "SALU_CYCLE_2", "SALU_CYCLE_3",
)  # fmt: skip
_SKIPS: Final = ("", "NEXT", "SKIP_1", "SKIP_2", "SKIP_3", "SKIP_4")
# Name, first bit, width; a field of ones waits for nothing.
_DEPCTR: Final = (
    ("hold_cnt", 7, 1),
    ("sa_sdst", 0, 1),
    ("va_vdst", 12, 4),
    ("va_sdst", 9, 3),
    ("va_ssrc", 8, 1),
    ("va_vcc", 1, 1),
    ("vm_vsrc", 2, 3),
)
_DEPCTR_UNUSED: Final = 0x60
_WAITCNT: Final = (("vmcnt", 10, 6), ("expcnt", 0, 3), ("lgkmcnt", 4, 6))


def immediate(kind: str, value: int) -> str:
    """Text of the operand of a SOPP instruction; kind: the word in its signature."""
    match kind:
        case "none":
            return ""
        case "signed":
            return str(value - 0x10000 if value >> 15 else value)
        case "hex":
            return f"{value:#x}"
        case "rel":
            return str(value & 0xFFFF)
        case "end":
            return str(value) if value else ""
        case "delay":
            return _delay(value)
        case "depctr":
            return _depctr(value)
        case "waitcnt":
            return _waitcnt(value)
        case "msg":
            return message(value)
    return str(value) if value <= 64 else f"{value:#x}"


def _delay(value: int) -> str:
    first, skip, second = value & 15, value >> 4 & 7, value >> 7 & 15
    if not value:
        return "0"
    parts = (("instid0", _DELAYS[first]), ("instskip", _SKIPS[skip]), ("instid1", _DELAYS[second]))
    return " | ".join(f"{name}({word})" for name, word in parts if word)


def _depctr(value: int) -> str:
    shown = [
        f"depctr_{name}({value >> shift & (1 << bits) - 1})"
        for name, shift, bits in _DEPCTR
        if value >> shift & (1 << bits) - 1 != (1 << bits) - 1
    ]
    return f"{value:#x}" if value & _DEPCTR_UNUSED or not shown else " ".join(shown)


def _waitcnt(value: int) -> str:
    fields = [(name, value >> shift & (1 << bits) - 1, (1 << bits) - 1) for name, shift, bits in _WAITCNT]
    idle = all(n == top for _, n, top in fields)
    return " ".join(f"{name}({n})" for name, n, top in fields if idle or n != top)


def message(value: int) -> str:
    """Text of the operand of s_sendmsg*."""
    return f"sendmsg(MSG_{_MESSAGES[value]})" if value in _MESSAGES else f"sendmsg({value}, 0, 0)"


def hwreg(value: int) -> str:
    """Text of the operand of s_getreg_b32 and s_setreg_*: register, first bit and width."""
    number, first, size = value & 0x3F, value >> 6 & 0x1F, (value >> 11) + 1
    name = f"HW_REG_{_HWREGS[number]}" if number in _HWREGS else str(number)
    return f"hwreg({name})" if (first, size) == (0, 32) else f"hwreg({name}, {first}, {size})"

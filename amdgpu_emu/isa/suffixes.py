"""Text behind the operands: DPP, the bits of packed operands, cache policy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amdgpu_emu.isa.instruction import Instruction

_SCOPES: Final = ("", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_SYS, _DEV = 3, 2
_LOADS: Final = ("", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "")
_STORES: Final = ("", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")
_ATOMICS: Final = ("", "RETURN", "NT", "NT_RETURN")
_ROWS: Final = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_share", 0x160: "row_xmask"}


def dpp(m: Mapping[str, int]) -> list[str]:
    """Text of DPP's lane selection."""
    if "dpp8" in m:
        lanes = ",".join(str(m["dpp8"] >> 3 * i & 7) for i in range(8))
        return [f"dpp8:[{lanes}]", *(["fi:1"] if m["fi"] else [])]
    if "dpp_ctrl" not in m:
        return []
    parts = [_control(m["dpp_ctrl"]), f"row_mask:{m['row_mask']:#x}", f"bank_mask:{m['bank_mask']:#x}"]
    return parts + [f"{k}:1" for k in ("bound_ctrl", "fi") if m[k]]


def _control(value: int) -> str:
    if value < 0x100:
        return f"quad_perm:[{','.join(str(value >> 2 * i & 3) for i in range(4))}]"
    if value in {0x140, 0x141}:
        return "row_mirror" if value == 0x140 else "row_half_mirror"
    return f"{_ROWS[value & ~0xF]}:{value & 0xF}"


def packed(i: Instruction) -> list[str]:
    """Text of VOP3P's modifiers that differ from their usual values."""
    m, n = i.modifiers, len(i.src)
    mixed = i.name.startswith("v_fma_mix")
    usual = {"op_sel": 0, "op_sel_hi": 0 if mixed else (1 << n) - 1, "neg_lo": 0, "neg_hi": 0}
    names = ("op_sel", "op_sel_hi") if mixed else tuple(usual)
    if i.name.startswith("v_swmmac"):
        keys = [f"index_key:{m['op_sel']}"] if m["op_sel"] else []
        return keys + _lists(m, [k for k in ("neg_lo", "neg_hi") if m[k]], n)
    shown = [k for k in names if m[k] != usual[k]]
    return _lists(m, shown, n)


def _lists(m: Mapping[str, int], shown: list[str], n: int) -> list[str]:
    return [f"{k}:[{','.join(str(m[k] >> b & 1) for b in range(n))}]" for k in shown]


def cache_policy(i: Instruction) -> list[str]:
    """Text of temporal hint and scope."""
    th, scope = i.modifiers.get("th", 0), i.modifiers.get("scope", 0)
    parts = [bit for bit in ("glc", "slc", "dlc") if i.modifiers.get(bit)]
    if th:
        parts.append(f"th:{_hint(i, th, scope)}")
    if scope:
        parts.append(f"scope:{_SCOPES[scope]}")
    return parts


def _hint(i: Instruction, th: int, scope: int) -> str:
    if "atomic" in i.name:
        if th & 4:
            return f"TH_ATOMIC_CASCADE_{'NT' if th & 2 else 'RT'}" if scope >= _DEV else f"TH_ATOMIC_{th:#x}"
        return f"TH_ATOMIC_{_ATOMICS[th]}"
    store = "store" in i.name
    if th == 3 and scope == _SYS:
        return f"TH_{'STORE' if store else 'LOAD'}_BYPASS"
    word = (_STORES if store else _LOADS)[th]
    return f"TH_{'STORE' if store else 'LOAD'}_{word}" if word else f"{th:#x}"

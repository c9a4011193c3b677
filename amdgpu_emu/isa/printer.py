"""Instructions as LLVM's assembly.

Where LLVM has several spellings, this is the one of the disassembler of LLVM 19 for gfx1201: vector registers without
halves in VOP3 (the halves stand in op_sel), and in the short formats with .h for the upper half, which LLVM writes only
when it is asked for real 16-bit registers. For gfx11 both halves are marked, in VOP3 as well, and no op_sel is written,
as newer versions do. Branch targets are a distance in words, and hardware registers have the names of gfx12.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from amdgpu_emu.isa.immediates import hwreg, immediate, message
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind
from amdgpu_emu.isa.opcodes import names

_SCOPES: Final = ("", "SCOPE_SE", "SCOPE_DEV", "SCOPE_SYS")
_SYS, _DEV = 3, 2
_LOADS: Final = ("", "NT", "HT", "LU", "NT_RT", "RT_NT", "NT_HT", "")
_STORES: Final = ("", "NT", "HT", "RT_WB", "NT_RT", "RT_NT", "NT_HT", "NT_WB")
_ATOMICS: Final = ("", "RETURN", "NT", "NT_RETURN")
_ROWS: Final = {0x100: "row_shl", 0x110: "row_shr", 0x120: "row_ror", 0x150: "row_share", 0x160: "row_xmask"}

_FLOATS = ("0.5", "-0.5", "1.0", "-1.0", "2.0", "-2.0", "4.0", "-4.0")
_APERTURES = ("src_shared_base", "src_shared_limit", "src_private_base", "src_private_limit")
_MEMORY = {Encoding.FLAT, Encoding.GLOBAL, Encoding.SCRATCH, Encoding.BUFFER, Encoding.SMEM, Encoding.DS}
_SHORT = {Encoding.VOP1, Encoding.VOP2, Encoding.VOPC}
_OMOD = {1: "mul:2", 2: "mul:4", 3: "div:2"}


def text(instruction: Instruction, gfx: int = 12) -> str:
    """Print one instruction, without its address. gfx: the generation it was decoded for, 12 or 11."""
    if instruction.second is not None:
        halves = (instruction, instruction.second)
        return " :: ".join(f"{h.name} {', '.join(operand(o) for o in (*h.dst, *_shown(h)))}" for h in halves)
    if instruction.format in {Encoding.SOPP, Encoding.SOPK}:
        return _immediate(instruction, gfx)
    if instruction.format in _MEMORY:
        return _memory(instruction)
    name, suffix = instruction.name, ""
    signs = instruction.format is not Encoding.VOP3P or instruction.name.startswith("v_fma_mix")
    marks = ("", ".h") if instruction.format in _SHORT else ("", "")
    halves_named = gfx == 11 and instruction.format in {*_SHORT, Encoding.VOP3}
    if instruction.name == "v_mov_b16" or halves_named:
        marks = (".l", ".h")
    operands = [operand(o, marks, signs=signs) for o in (*instruction.dst, *instruction.src)]
    if instruction.name.startswith("v_cmpx"):
        operands = operands[1:]
    if instruction.name.startswith("s_sendmsg_rtn"):
        operands[1] = message(instruction.src[0].value)
    if instruction.name.startswith("v_"):
        name += _suffix(instruction, gfx)
        suffix = _modifiers(instruction, op_sel=not halves_named)
    return " ".join(part for part in (name, ", ".join(operands) + suffix) if part)


def operand(o: Operand, marks: tuple[str, str] = ("", ""), *, signs: bool = True) -> str:
    """Print one operand. marks: of the lower and the upper half of a register; signs: write neg and abs."""
    plain = _plain(o)
    if o.kind is OperandKind.VGPR and o.bits == 16:
        plain += marks[o.op_sel]
    if not signs:
        return plain
    if o.abs:
        plain = f"|{plain}|"
    if not o.neg:
        return plain
    return (
        f"neg({plain})"
        if o.kind in {OperandKind.INTEGER, OperandKind.FLOAT, OperandKind.LITERAL} and not o.abs
        else f"-{plain}"
    )


def _plain(o: Operand) -> str:
    kind, n = o.kind, o.index
    if kind in {OperandKind.VGPR, OperandKind.SGPR, OperandKind.TTMP}:
        return f"{kind.value}{n}" if o.dwords == 1 else f"{kind.value}[{n}:{n + o.dwords - 1}]"
    if kind in {OperandKind.VCC, OperandKind.EXEC}:
        return kind.value if o.dwords == 2 else f"{kind.value}_{'hi' if n else 'lo'}"
    if kind is OperandKind.INTEGER:
        return str(o.value if o.value <= 64 else o.value - (1 << o.value.bit_length()))
    if kind is OperandKind.FLOAT:
        if n < len(_FLOATS):
            return _FLOATS[n]
        return "0.15915494309189532" if o.bits == 64 else "0.15915494"
    if kind is OperandKind.LITERAL:
        return f"{_literal(o):#x}"
    if kind is OperandKind.APERTURE:
        return _APERTURES[n - 235]
    if kind is OperandKind.HWREG:
        return hwreg(o.value)
    return str(kind.value)


def _literal(o: Operand) -> int:
    """The 32 bits of the encoding."""
    if o.dwords == 1:
        return o.value
    return o.value >> 32 if o.value and not o.value & 0xFFFFFFFF else o.value & 0xFFFFFFFF


def _shown(i: Instruction) -> tuple[Operand, ...]:
    """Sources without what LLVM leaves out: the VCC of the halves of VOPD."""
    if i.format is Encoding.VOPD:
        return tuple(
            o for o in i.src if o.kind is not OperandKind.VCC or i.name != "v_dual_cndmask_b32" or o is not i.src[-1]
        )
    return i.src


def _suffix(i: Instruction, gfx: int) -> str:
    """_e32 or _e64 where a name is in both, and _dpp."""
    moved = "_dpp" if "dpp_ctrl" in i.modifiers or "dpp8" in i.modifiers else ""
    if not i.src:
        return ""
    if i.format in _SHORT:
        if i.format is Encoding.VOPC and moved:
            return ""
        return moved or ("" if names(i.format, gfx)[i.name].has("1") else "_e32")
    both = any(i.name in names(form, gfx) for form in _SHORT)
    return f"_e64{moved}" if both or moved else ""


def _modifiers(i: Instruction, *, op_sel: bool) -> str:
    """What stands behind the operands; op_sel: write which halves of registers are meant."""
    m = i.modifiers
    parts: list[str] = []
    if i.format is Encoding.VOP3P:
        parts += packed_text(i)
    elif m.get("op_sel") and i.name.startswith("v_cvt_sr_"):
        parts.append(f"byte_sel:{m['op_sel'] >> 2}")
    elif m.get("op_sel") and i.name in {"v_cvt_f32_fp8", "v_cvt_f32_bf8"}:
        # The bits of the byte's number are reversed (RDNA 4 ISA, V_CVT_F32_FP8).
        parts.append(f"byte_sel:{m['op_sel'] >> 1 | (m['op_sel'] & 1) << 1}")
    elif m.get("op_sel") and i.name == "v_fmac_f16":
        parts.append(f"op_sel:[{m['op_sel'] & 1},{m['op_sel'] >> 1 & 1},0,{m['op_sel'] >> 3}]")
    elif m.get("op_sel") and (op_sel or "permlane" in i.name):
        n = 2 if "permlane" in i.name else len(i.src)
        bits = [m["op_sel"] >> b & 1 for b in range(n)]
        bits += [] if "permlane" in i.name else [m["op_sel"] >> 3]
        parts.append(f"op_sel:[{','.join(map(str, bits))}]")
    if m.get("clamp"):
        parts.append("clamp")
    if m.get("omod"):
        parts.append(_OMOD[m["omod"]])
    parts += dpp_text(m)
    return "".join(f" {p}" for p in parts)


def _immediate(i: Instruction, gfx: int) -> str:
    if i.format is Encoding.SOPP:
        return " ".join(p for p in (i.name, immediate(_kind(i, gfx), i.modifiers["simm16"])) if p)
    kind = _kind(i, gfx)
    parts = [operand(o) for o in (*i.dst, *i.src)]
    if kind in {"imm", "rel"}:
        value = i.modifiers["simm16"] & 0xFFFF
        parts.append(str(value) if kind == "rel" else f"{value:#x}")
    return f"{i.name} {', '.join(parts)}"


def _kind(i: Instruction, gfx: int) -> str:
    return names(i.format, gfx)[i.name].src[-1].kind


def _memory(i: Instruction) -> str:
    m, parts = i.modifiers, []
    operands = [operand(o) for o in (*i.dst, *i.src)]
    if i.format is Encoding.SMEM:
        return _scalar_memory(i)
    if i.format in {Encoding.GLOBAL, Encoding.SCRATCH}:
        operands = ["off" if o == "null" else o for o in operands]
    if i.format is Encoding.BUFFER and i.src:
        if i.dst and "atomic" in i.name:
            operands = operands[1:]
        at = len(operands) - 3
        operands[at] = "off" if operands[at] == "null" else operands[at]
        parts += [word for word in ("idxen", "offen") if m[word]]
    if i.format is Encoding.DS:
        if i.name == "ds_swizzle_b32" and m["offset"]:
            parts.append(f"offset:{_swizzle(m['offset'])}")
        parts += [f"{k}:{m[k]}" for k in ("offset0", "offset1") if m.get(k)]
    if m.get("offset") and i.name != "ds_swizzle_b32":
        parts.append(f"offset:{m['offset']}")
    parts += cache_text(i)
    return " ".join(p for p in (i.name, ", ".join(operands), *parts) if p)


def _scalar_memory(i: Instruction) -> str:
    m = i.modifiers
    operands = [operand(o) for o in (*i.dst, *i.src)]
    if not i.src:
        return i.name
    offset = f"{'-' if m['offset'] < 0 else ''}{abs(m['offset']):#x}"
    if "length" in m:
        return f"{i.name} {', '.join((*operands[:-1], offset, operands[-1], str(m['length'])))}"
    if i.src[-1].kind is OperandKind.NULL:
        operands[-1] = offset
    else:
        operands[-1] += f" offset:{offset}"
    return " ".join((f"{i.name} {', '.join(operands)}", *cache_text(i)))


def _swizzle(offset: int) -> str:
    """ds_swizzle_b32: RDNA 4 ISA, "DS_SWIZZLE_B32"."""
    if offset & 0xFF00 == 0x8000:
        return f"swizzle(QUAD_PERM,{','.join(str(offset >> 2 * k & 3) for k in range(4))})"
    if offset >> 15:
        return str(offset)
    keep, put, flip = offset & 31, offset >> 5 & 31, offset >> 10
    if keep == 31 and not put and flip:
        if not flip & (flip - 1):
            return f"swizzle(SWAP,{flip})"
        if not flip & (flip + 1):
            return f"swizzle(REVERSE,{flip + 1})"
    group = 32 - keep
    if not flip and not group & (group - 1) and put < group and keep < 31:
        return f"swizzle(BROADCAST,{group},{put})"
    letters = []
    for bit in (16, 8, 4, 2, 1):
        if keep & bit:
            letters.append(
                "p" if not put & bit and not flip & bit else "i" if not put & bit else "0" if flip & bit else "1"
            )
        else:
            letters.append("1" if (put ^ flip) & bit else "0")
    return f'swizzle(BITMASK_PERM,"{"".join(letters)}")'


def dpp_text(m: Mapping[str, int]) -> list[str]:
    """Text of DPP's lane selection."""
    if "dpp8" in m:
        lanes = ",".join(str(m["dpp8"] >> 3 * i & 7) for i in range(8))
        return [f"dpp8:[{lanes}]", *(["fi:1"] if m["fi"] else [])]
    if "dpp_ctrl" not in m:
        return []
    parts = [_dpp_control(m["dpp_ctrl"]), f"row_mask:{m['row_mask']:#x}", f"bank_mask:{m['bank_mask']:#x}"]
    return parts + [f"{k}:1" for k in ("bound_ctrl", "fi") if m[k]]


def _dpp_control(value: int) -> str:
    if value < 0x100:
        return f"quad_perm:[{','.join(str(value >> 2 * i & 3) for i in range(4))}]"
    if value in {0x140, 0x141}:
        return "row_mirror" if value == 0x140 else "row_half_mirror"
    return f"{_ROWS[value & ~0xF]}:{value & 0xF}"


def packed_text(i: Instruction) -> list[str]:
    """Text of VOP3P's modifiers that differ from their usual values."""
    m, n = i.modifiers, len(i.src)
    mixed = i.name.startswith("v_fma_mix")
    usual = {"op_sel": 0, "op_sel_hi": 0 if mixed else (1 << n) - 1, "neg_lo": 0, "neg_hi": 0}
    names = ("op_sel", "op_sel_hi") if mixed else tuple(usual)
    if i.name.startswith("v_swmmac"):
        keys = [f"index_key:{m['op_sel']}"] if m["op_sel"] else []
        return keys + _bit_lists(m, [k for k in ("neg_lo", "neg_hi") if m[k]], n)
    shown = [k for k in names if m[k] != usual[k]]
    return _bit_lists(m, shown, n)


def _bit_lists(m: Mapping[str, int], shown: list[str], n: int) -> list[str]:
    return [f"{k}:[{','.join(str(m[k] >> b & 1) for b in range(n))}]" for k in shown]


def cache_text(i: Instruction) -> list[str]:
    """Text of temporal hint and scope."""
    th, scope = i.modifiers.get("th", 0), i.modifiers.get("scope", 0)
    parts = [bit for bit in ("glc", "slc", "dlc") if i.modifiers.get(bit)]
    if th:
        parts.append(f"th:{_cache_hint(i, th, scope)}")
    if scope:
        parts.append(f"scope:{_SCOPES[scope]}")
    return parts


def _cache_hint(i: Instruction, th: int, scope: int) -> str:
    if "atomic" in i.name:
        if th & 4:
            return f"TH_ATOMIC_CASCADE_{'NT' if th & 2 else 'RT'}" if scope >= _DEV else f"TH_ATOMIC_{th:#x}"
        return f"TH_ATOMIC_{_ATOMICS[th]}"
    store = "store" in i.name
    if th == 3 and scope == _SYS:
        return f"TH_{'STORE' if store else 'LOAD'}_BYPASS"
    word = (_STORES if store else _LOADS)[th]
    return f"TH_{'STORE' if store else 'LOAD'}_{word}" if word else f"{th:#x}"

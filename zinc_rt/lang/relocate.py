"""The pc-relative relocations that are patched when an object becomes a run of bytes.

Numbers and formulas: "System V ABI, AMD64 supplement", table 4.9, and "ELF for the Arm 64-bit Architecture",
chapter "Relocation". S + A is the target's offset in the run, P the place's; pages are 4 KiB and the run starts on one.
"""

from __future__ import annotations

import struct
from typing import Final

from zinc_rt.lang.errors import CompileError

# x86-64: type -> (name, format of the signed difference).
_X86: Final = {2: ("R_X86_64_PC32", "<i"), 4: ("R_X86_64_PLT32", "<i"), 24: ("R_X86_64_PC64", "<q")}

_X86_NAMES: Final = {
    **{kind: row[0] for kind, row in _X86.items()},
    1: "R_X86_64_64",
    9: "R_X86_64_GOTPCREL",
    41: "R_X86_64_GOTPCRELX",
    42: "R_X86_64_REX_GOTPCRELX",
}

# aarch64, data: type -> (name, format of the signed difference).
_ARM_DATA: Final = {260: ("R_AARCH64_PREL64", "<q"), 261: ("R_AARCH64_PREL32", "<i")}
# aarch64, branches: type -> (name, bits of the word offset, position of its field).
_ARM_BRANCH: Final = {
    279: ("R_AARCH64_TSTBR14", 14, 5),
    280: ("R_AARCH64_CONDBR19", 19, 5),
    282: ("R_AARCH64_JUMP26", 26, 0),
    283: ("R_AARCH64_CALL26", 26, 0),
}
# aarch64, addresses in two halves: ADRP and ADR, then the low 12 bits scaled by the access (type -> name, shift).
_ADR_PREL_LO21, _ADR_PREL_PG_HI21 = 274, 275
_ARM_LOW: Final = {
    277: ("R_AARCH64_ADD_ABS_LO12_NC", 0),
    278: ("R_AARCH64_LDST8_ABS_LO12_NC", 0),
    284: ("R_AARCH64_LDST16_ABS_LO12_NC", 1),
    285: ("R_AARCH64_LDST32_ABS_LO12_NC", 2),
    286: ("R_AARCH64_LDST64_ABS_LO12_NC", 3),
    299: ("R_AARCH64_LDST128_ABS_LO12_NC", 4),
}
_ARM_NAMES: Final = {
    _ADR_PREL_LO21: "R_AARCH64_ADR_PREL_LO21",
    _ADR_PREL_PG_HI21: "R_AARCH64_ADR_PREL_PG_HI21",
    **{kind: row[0] for table in (_ARM_DATA, _ARM_BRANCH, _ARM_LOW) for kind, row in table.items()},
    257: "R_AARCH64_ABS64",
    311: "R_AARCH64_ADR_GOT_PAGE",
    312: "R_AARCH64_LD64_GOT_LO12_NC",
}
# AMD devices: type -> (name, bits by which the difference is shifted). LLVM, "User Guide for AMDGPU Backend",
# relocation records. The others' names are for messages.
_AMD: Final = {10: ("R_AMDGPU_REL32_LO", 0), 11: ("R_AMDGPU_REL32_HI", 32)}
_AMD_NAMES: Final = {
    1: "R_AMDGPU_ABS32_LO",
    2: "R_AMDGPU_ABS32_HI",
    **{kind: row[0] for kind, row in _AMD.items()},
}


def relocation_name(arch: str, kind: int) -> str:
    """For messages: the ABI's name where known here, else the number."""
    names = {"x86_64": _X86_NAMES, "aarch64": _ARM_NAMES, "amdgcn": _AMD_NAMES}[arch]
    return names.get(kind, f"{arch} relocation {kind}")


def apply(code: bytearray, arch: str, kind: int, place: int, target: int) -> bool:
    """Patch the reference at offset `place` to offset `target` (S + A); False: the type is not one of these.

    Raises `CompileError` when the distance does not fit and struct.error when `place` is outside.
    """
    if arch == "x86_64" and kind in _X86:
        name, form = _X86[kind]
        _data(code, name, form, place, target - place)
    elif arch == "aarch64" and kind in _ARM_DATA:
        name, form = _ARM_DATA[kind]
        _data(code, name, form, place, target - place)
    elif arch == "aarch64" and kind in _ARM_BRANCH:
        name, bits, at = _ARM_BRANCH[kind]
        _field(code, place, _fits(name, (target - place) >> 2, bits, target - place, 4), bits, at)
    elif arch == "aarch64" and kind in (_ADR_PREL_LO21, _ADR_PREL_PG_HI21):
        distance = target - place if kind == _ADR_PREL_LO21 else (target >> 12) - (place >> 12)
        value = _fits(_ARM_NAMES[kind], distance, 21, distance, 1)
        _field(code, place, value & 3, 2, 29)
        _field(code, place, value >> 2, 19, 5)
    elif arch == "aarch64" and kind in _ARM_LOW:
        name, shift = _ARM_LOW[kind]
        low = target & 0xFFF
        if low & ((1 << shift) - 1):
            raise CompileError(f"{name}: offset {target} is not a multiple of {1 << shift}")
        _field(code, place, low >> shift, 12, 10)
    elif arch == "amdgcn" and kind in _AMD:
        struct.pack_into("<I", code, place, (target - place) >> _AMD[kind][1] & 0xFFFFFFFF)
    else:
        return False
    return True


def _data(code: bytearray, name: str, form: str, place: int, distance: int) -> None:
    _fits(name, distance, 8 * struct.calcsize(form), distance, 1)
    struct.pack_into(form, code, place, distance)


def _fits(name: str, value: int, bits: int, distance: int, unit: int) -> int:
    """`value` when it is a whole number of units that a signed field of `bits` holds."""
    if distance % unit or not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise CompileError(f"{name}: a distance of {distance} bytes does not fit; the module is too large")
    return value


def _field(code: bytearray, place: int, value: int, bits: int, at: int) -> None:
    """Set `bits` bits from bit `at` of the instruction at `place`."""
    mask = ((1 << bits) - 1) << at
    (word,) = struct.unpack_from("<I", code, place)
    struct.pack_into("<I", code, place, (word & ~mask) | ((value << at) & mask))

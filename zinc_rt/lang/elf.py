"""A linker for one relocatable ELF object: the result is bytes that work at any page-aligned address.

Only what LLVM writes for self-contained kernels is taken: code, read-only data, pc-relative references between them.
Everything else is refused by name. Formats: the System V gABI and its processor supplements.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.relocate import apply, relocation_name

ALIGNMENT: Final = 64  # of the whole run, and of the data after the code: no cache line holds both
_MAX_ALIGNMENT: Final = 4096  # what a mapping gives
_MACHINES: Final = {"x86_64": 62, "aarch64": 183, "amdgcn": 224}

_HEADER: Final = struct.Struct("<4sBBBB8xHHIQQQIHHHHHH")
_SECTION: Final = struct.Struct("<IIQQQQIIQQ")
_SYMBOL: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_REL: Final = struct.Struct("<QQ")

_SHT_PROGBITS, _SHT_SYMTAB, _SHT_RELA, _SHT_NOBITS, _SHT_REL, _SHT_NOTE = 1, 2, 4, 8, 9, 7
_SHT_UNWIND: Final = 0x70000001
_SHF_WRITE, _SHF_ALLOC, _SHF_EXEC, _SHF_TLS = 1, 2, 4, 0x400
_STT_FUNC: Final = 2


class Section(NamedTuple):
    """A row of the section table; `data` is empty for sections without bytes in the file."""

    name: str
    type: int
    flags: int
    size: int
    link: int
    info: int
    align: int
    data: memoryview


class Symbol(NamedTuple):
    """A row of the symbol table; `section` 0 means undefined."""

    name: str
    binding: int
    type: int
    section: int
    value: int
    size: int


@dataclass(frozen=True)
class Linked:
    """A linked object: its bytes, the offsets of exported functions, and further sections."""

    code: bytes
    entries: dict[str, int]  # exported symbol -> offset in bytes
    functions: dict[str, tuple[int, int]]  # every function in order of its place: offset, size in bytes
    extra: dict[str, bytes]  # sections that are no part of the program, by name
    constants: bool  # whether the code is followed by data that it reads


def link(data: bytes, arch: str, exports: Sequence[str], ir: str = "") -> Linked:
    """The object `data` for `arch` ("x86_64", "aarch64", "amdgcn") as one run of bytes.

    `ir` is the text that it was made from, for messages. Raises `CompileError` for an undefined symbol, writable data,
    any reference that is not pc-relative inside the object, a missing export, and for bytes that are no such object.
    """
    try:
        sections = _sections(memoryview(data), arch)
        symbols = _symbols(sections)
        _refuse_undefined(symbols, ir)
        defined = {s.name for s in symbols if s.type == _STT_FUNC}
        if missing := [name for name in exports if name not in defined]:
            raise CompileError(f"{missing[0]!r} is to be exported, but the module defines no such function")
        places = _place(sections)
        code = bytearray(-(-(max(p + sections[i].size for i, p in places.items())) // ALIGNMENT) * ALIGNMENT)
        for i, place in places.items():
            code[place : place + sections[i].size] = sections[i].data
        _relocate(code, arch, sections, symbols, places)
    except (struct.error, IndexError, OverflowError, UnicodeDecodeError) as error:
        raise CompileError(f"LLVM's object cannot be read: {error}") from None
    functions = {
        s.name: (places[s.section] + s.value, s.size)
        for s in sorted(symbols, key=lambda s: (s.section, s.value))
        if s.type == _STT_FUNC and s.section in places
    }
    for name in exports:
        if name not in functions or functions[name][0] >= len(code):
            raise CompileError(f"LLVM's object has {name!r} outside its code")
    extra = {s.name: bytes(s.data) for s in sections if s.type == _SHT_PROGBITS and not s.flags & _SHF_ALLOC}
    constants = any(not sections[i].flags & _SHF_EXEC for i in places)
    return Linked(bytes(code), {name: functions[name][0] for name in exports}, functions, extra, constants)


def _sections(data: memoryview, arch: str) -> list[Section]:
    magic, bits, order, _, _, kind, machine, _, _, _, table, _, _, _, _, entry, count, names = _HEADER.unpack_from(data)
    if magic != b"\x7fELF" or (bits, order, kind) != (2, 1, 1) or machine != _MACHINES[arch]:
        raise CompileError(f"LLVM's object is no relocatable little-endian ELF64 for {arch}")
    if entry != _SECTION.size or not 0 < count < 0xFF00 or names >= count:
        raise CompileError(f"LLVM's object has a section table of {count} entries of {entry} bytes")
    rows = [_SECTION.unpack_from(data, table + i * entry) for i in range(count)]
    strings = data[rows[names][4] : rows[names][4] + rows[names][5]]
    sections = []
    for name, type_, flags, _, offset, size, link_, info, align, _ in rows:
        held = data[offset : offset + size] if type_ != _SHT_NOBITS else data[:0]
        if type_ != _SHT_NOBITS and len(held) != size:
            raise CompileError(f"LLVM's object ends before its section {_string(strings, name)}")
        sections.append(Section(_string(strings, name), type_, flags, size, link_, info, max(align, 1), held))
    return sections


def _string(table: memoryview, offset: int) -> str:
    return bytes(table[offset : offset + 4096]).split(b"\0", 1)[0].decode()


def _symbols(sections: list[Section]) -> list[Symbol]:
    for section in sections:
        if section.type == _SHT_SYMTAB:
            names = sections[section.link].data
            return [
                Symbol(_string(names, name), info >> 4, info & 15, index, value, size)
                for name, info, _, index, value, size in _SYMBOL.iter_unpack(section.data)
            ]
    raise CompileError("LLVM's object has no symbols, so it defines no function")


def _refuse_undefined(symbols: list[Symbol], ir: str) -> None:
    names = sorted({s.name for s in symbols[1:] if s.section == 0})
    if not names:
        return
    if names[0].startswith("llvm."):
        why = "a misspelt intrinsic, or one that this target does not have"
    elif re.search(rf'@"?{re.escape(names[0])}\b', ir):
        why = "declared but not defined in the module"
    else:
        # For operations that the target does not have, and for loops that it recognises as a memset, say.
        why = 'a library call that LLVM put in; write the operation out, or give the function "no-builtins"'
    more = f" (and {len(names) - 1} more: {', '.join(names[1:4])})" if len(names) > 1 else ""
    raise CompileError(f"undefined symbol {names[0]!r}: {why}{more}")


def _place(sections: list[Section]) -> dict[int, int]:
    """Offsets of the sections that make up the program: code first, then the data it reads."""
    program = []
    for i, s in enumerate(sections):
        if not s.flags & _SHF_ALLOC or s.size == 0 or s.type == _SHT_NOTE or _is_unwind(s):
            continue
        if s.flags & (_SHF_WRITE | _SHF_TLS) or s.type != _SHT_PROGBITS:
            what = "holds addresses" if s.name.startswith(".data.rel.ro") else "is writable"
            raise CompileError(f"section {s.name} of {s.size} bytes {what}; kernels have code and plain constants only")
        if s.align > _MAX_ALIGNMENT or s.align & (s.align - 1):
            raise CompileError(f"section {s.name} wants an alignment of {s.align}; the limit is {_MAX_ALIGNMENT}")
        program.append(i)
    program.sort(key=lambda i: not sections[i].flags & _SHF_EXEC)
    if not program or not sections[program[0]].flags & _SHF_EXEC:
        raise CompileError("the module holds no code")
    places, end, data_begun = {}, 0, False
    for i in program:
        align = sections[i].align
        if not sections[i].flags & _SHF_EXEC and not data_begun:
            align, data_begun = max(align, ALIGNMENT), True
        places[i] = -(-end // align) * align
        end = places[i] + sections[i].size
    return places


def _is_unwind(section: Section) -> bool:
    """Tables for stack unwinding: nothing throws through a kernel."""
    return section.type == _SHT_UNWIND or section.name == ".eh_frame"


def _relocate(
    code: bytearray, arch: str, sections: list[Section], symbols: list[Symbol], places: dict[int, int]
) -> None:
    """Patch everything by which the program refers to itself."""
    for section in sections:
        if section.info not in places:
            continue
        base = places[section.info]
        if section.type == _SHT_REL:  # AMD devices alone have these; the addend is what the place holds
            rows = [
                (at, info, *struct.unpack_from("<i", code, base + at)) for at, info in _REL.iter_unpack(section.data)
            ]
        elif section.type == _SHT_RELA:
            rows = list(_RELA.iter_unpack(section.data))
        else:
            continue
        for offset, info, addend in rows:
            kind, symbol = info & 0xFFFFFFFF, symbols[info >> 32]
            # A GPU gets one function of a module and the data: others may not be where the code looks for them.
            called = arch == "amdgcn" and symbol.section in places and sections[symbol.section].flags & _SHF_EXEC
            if symbol.section not in places or called:
                raise _needs_loader(arch, kind, symbol)
            target = places[symbol.section] + symbol.value + addend
            if not apply(code, arch, kind, base + offset, target):
                raise _needs_loader(arch, kind, symbol)


def _needs_loader(arch: str, kind: int, symbol: Symbol) -> CompileError:
    to = f" to {symbol.name}" if symbol.name else ""
    gpu = "inline its functions"
    cpu = "only pc-relative references inside the module are linked"
    return CompileError(f"{relocation_name(arch, kind)}{to} needs a loader; {gpu if arch == 'amdgcn' else cpu}")

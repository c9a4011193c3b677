"""Decoding: what LLVM said about recorded encodings, what is refused, what operands mean."""

from __future__ import annotations

import re
import struct
from functools import cache
from pathlib import Path
from random import Random

import pytest

from amdgpu_emu.isa.decoder import decode, instructions
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind, UnknownInstruction
from amdgpu_emu.isa.listing import listing, target
from amdgpu_emu.isa.opcodes import opcodes
from amdgpu_emu.isa.printer import text
from tests.amdgpu_emu.isa.encodings import encodings

VGPR = 256


def words(*values: int) -> bytes:
    return struct.pack(f"<{len(values)}I", *values)


def one(*values: int, wave: int = 32) -> Instruction:
    return decode(words(*values), wave=wave)


@cache
def sample() -> list[tuple[int, bytes, str]]:
    """Lanes, bytes, and the text that LLVM 19 gives them and assembles to them again."""
    lines = Path(__file__).with_name("gfx1201.txt").read_text(encoding="ascii").splitlines()
    return [(int(wave), bytes.fromhex(code), rest) for wave, code, rest in (line.split(" ", 2) for line in lines)]


def test_recorded_encodings_print_as_llvm_prints_them() -> None:
    wrong = [
        f"{code.hex()}: {theirs!r}, we {mine!r}"
        for wave, code, theirs in sample()
        if (mine := text(decode(code, wave=wave))) != theirs
    ]
    assert wrong == []
    assert len(sample()) > 1500


def test_recorded_encodings_are_as_long_as_they_decode() -> None:
    assert all(decode(code, wave=wave).size == len(code) for wave, code, _ in sample())


# LLVM 19 knows the first only with real 16-bit registers, and assembles the others as VOP1.
UNRECORDED = {"v_mov_b16", "v_nop", "v_pipeflush"}


def test_the_record_has_every_opcode() -> None:
    seen: dict[Encoding, set[str]] = {form: set() for form in Encoding}
    for wave, code, _ in sample():
        i = decode(code, wave=wave)
        seen[i.format] |= {i.name} | ({i.second.name} if i.second else set())
    for form in Encoding:
        there = {op.name for op in opcodes(form).values()}
        assert there - seen[form] == (UNRECORDED if form is Encoding.VOP3 else set()), form


def test_registers_of_the_text_are_the_operands() -> None:
    """Every register in LLVM's text is an operand of the decoded instruction with the same width."""
    for wave, code, theirs in sample():
        i = decode(code, wave=wave)
        plain = theirs.split(" row_")[0].split(" quad_")[0].split(" dpp8")[0]
        found = sorted(_registers(plain))
        halves = (i, i.second) if i.second else (i,)
        ours = sorted(
            (o.kind.value, o.index, o.dwords)
            for h in halves
            for o in (*h.dst, *h.src)
            if o.kind in {OperandKind.VGPR, OperandKind.SGPR, OperandKind.TTMP}
        )
        if "buffer_atomic" in i.name and i.dst:
            ours.remove((OperandKind.VGPR.value, i.dst[0].index, i.dst[0].dwords))  # written once for both
        assert found == ours, theirs


def _registers(line: str) -> list[tuple[str, int, int]]:
    out = [(m[1], int(m[2]), int(m[3]) - int(m[2]) + 1) for m in re.finditer(r"\b(v|s|ttmp)\[(\d+):(\d+)\]", line)]
    return out + [(m[1], int(m[2]), 1) for m in re.finditer(r"\b(v|s|ttmp)(\d+)\b", line)]


def test_random_words_raise_nothing_else() -> None:
    r = Random(5)
    refused = []
    for wave in (32, 64):
        for _ in range(4000):
            code = r.randbytes(r.choice((16, 16, 16, 4, 8, 3)))
            try:
                text(decode(code, 0x1000, wave=wave))
            except UnknownInstruction as error:
                refused.append(error)
    assert len(refused) > 1300
    assert all(e.address == 0x1000 and "at 0x1000: " in str(e) for e in refused)


def test_random_fields_raise_nothing_else() -> None:
    understood = 0
    for _, _, code in encodings(seed=11, each=4):
        try:
            found = decode(code)
        except UnknownInstruction:
            continue
        understood += 1
        assert text(found)
        assert words(*found.words) == code[: found.size]
    assert understood > 3000


@pytest.mark.parametrize("wave", [32, 64])
def test_code_that_ends_in_an_instruction_is_refused(wave: int) -> None:
    for lanes, code, _ in sample():
        if lanes == wave:
            for end in range(0, len(code), 2):
                with pytest.raises(UnknownInstruction, match="the code ends in it"):
                    decode(code[:end], wave=wave)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ((0xBF800000 | 127 << 16,), "SOPP BFFF0000 at 0x0: there is no opcode 127"),
        ((0xBE800000 | 200 << 8,), "SOP1 BE80C800 at 0x0: there is no opcode 200"),
        ((0xD4000000 | 0x3FF << 16, 0), "VOP3 D7FF0000 at 0x0: there is no opcode 1023"),
        ((0xF8000000, 0), "instruction F8000000 at 0x0: no known format"),
        ((0xBE800100 | 20 << 16 | 5,), "2 scalar registers from s5 on are not aligned"),
        ((0xBE800100 | 105 << 16 | 4,), "from s105"),
        ((0x7E000200 | 230,), "operand 230 has no meaning"),
        ((0xBF9F0001,), "SIMM16 is 0x1, and must be 0"),
        ((0xD8DC0000 | 1 << 16, 0x04000000), "a bit between OP and OFFSET1"),
        ((0xEE05007C, 1 << 17 | 4, 0), "SVE is 0x1"),
        ((0xEE05007C, 4, 255), "2 vector registers from v255 on pass v255"),
        ((0xEC050006, 4, 0), "SADDR is 6, and must be NULL"),
        ((0xD5030000 | 20, VGPR | (VGPR + 1) << 9 | 3 << 18), "src2 is 0x3"),
        ((0xD5030800 | 20, VGPR | (VGPR + 1) << 9), "op_sel 0x1 selects what is not there"),
        ((0xD51B0000 | 20, VGPR | (VGPR + 1) << 9 | 1 << 29), "the sign of an integer"),
        ((0xD51B8000 | 20, VGPR | (VGPR + 1) << 9), "clamp is set"),
        ((0x060204FA, 0xFF017001), "dpp_ctrl 0x170 has no meaning"),
        ((0x0C0204FA, 0xFF0001FF), "it takes no DPP"),
        ((0xD6130000, 4 | 5 << 9 | 6 << 18), "it reads 3 scalar values, and may read 2"),
        ((0xC8C6080C | 0x100, 0x01000100 | 8 << 9 | 4), "source 0 of both halves"),
        ((0xCA100301, 0x02000102), "VSRC1 of a move"),
        ((0xD7600000 | 20, 4 | 4 << 9), "operand 4 is no vector register"),
        ((0xD7600000 | 20, VGPR | VGPR << 9), "v0 stands where a scalar is needed"),
        ((0xCC440000 | 0x4000, VGPR | VGPR << 9 | 0x1FF << 18 | 3 << 27), "8 vector registers from v255"),
        ((0xCC160000, VGPR | VGPR << 9 | VGPR << 18), "op_sel_hi is 0"),
        ((0xBF870000 | 12,), "delay 0xc has no meaning"),
        ((0xBE804E04,), "operand 4 is no barrier"),
    ],
    ids=str,
)
def test_what_is_refused_and_why(code: tuple[int, ...], message: str) -> None:
    with pytest.raises(UnknownInstruction, match=re.escape(message)):
        one(*code)


def test_the_address_is_in_the_message() -> None:
    code = words(0xBF800000, 0xBF800000, 0xBFFF0000)
    assert decode(code, 0x7000, at=4).address == 0x7004
    with pytest.raises(UnknownInstruction, match="at 0x7008") as caught:
        list(instructions(code, 0x7000))
    assert caught.value.address == 0x7008


def s_mov_b32(source: int) -> Operand:
    return one(0xBE800000 | 20 << 16 | source).src[0]


def test_constants_have_the_bits_of_their_operand() -> None:
    assert s_mov_b32(192) == Operand(OperandKind.INTEGER, value=64)
    assert s_mov_b32(208).value == 2**32 - 16
    assert [s_mov_b32(240 + i).value for i in range(8)] == [
        struct.unpack("<I", struct.pack("<f", x))[0] for x in (0.5, -0.5, 1, -1, 2, -2, 4, -4)
    ]
    assert s_mov_b32(248).value == 0x3E22F983, "1 / (2 pi), ISA document"
    wide = one(0xBE800100 | 20 << 16 | 193).src[0]
    assert (wide.value, wide.bits, wide.dwords) == (2**64 - 1, 64, 2)
    half = one(0x64000000 | 20 << 17 | 8 << 9 | 242)  # v_add_f16 v20, 1.0, v8
    assert (half.src[0].value, half.src[0].bits) == (0x3C00, 16)
    double = one(0x04000000 | 20 << 17 | 8 << 9 | 243)  # v_add_f64 v[20:21], -1.0, v[8:9]
    assert double.src[0].value == struct.unpack("<Q", struct.pack("<d", -1))[0]
    packed = one(0xCC0F4000 | 20, 242 | (VGPR + 8) << 9 | 3 << 27)  # v_pk_add_f16 v20, 1.0, v8
    assert packed.src[0].value == 0x3C00


def test_literals_are_extended_as_the_operand_needs() -> None:
    literal = 0x80000001
    assert one(0x04000000 | 20 << 17 | 8 << 9 | 255, literal).src[0].value == literal << 32, "f64: the high word"
    assert one(0xA9800000 | 20 << 16 | 8 << 8 | 255, literal).src[0].value == literal, "u64: zeros"
    assert one(0x86800000 | 20 << 16 | 8 << 8 | 255, literal).src[0].value == literal | 0xFFFFFFFF << 32, (
        "i64: the sign"
    )
    assert one(0x64000000 | 20 << 17 | 8 << 9 | 255, 0x1234).src[0].value == 0x1234


def test_halves_of_registers() -> None:
    low, high = one(0x64000000 | 20 << 17 | 8 << 9 | VGPR + 4), one(0x64000000 | 148 << 17 | 136 << 9 | VGPR + 132)
    assert [(o.index, o.op_sel) for o in (*low.dst, *low.src)] == [(20, 0), (4, 0), (8, 0)]
    assert [(o.index, o.op_sel) for o in (*high.dst, *high.src)] == [(20, 1), (4, 1), (8, 1)]
    assert text(high) == "v_add_f16_e32 v20.h, v4.h, v8.h"
    wide = one(0x7E000000 | 20 << 17 | 11 << 9 | VGPR + 132)  # v_cvt_f32_f16: only the source has 16 bits
    assert (wide.dst[0].index, wide.src[0].index, wide.src[0].op_sel) == (20, 4, 1)
    long = one(0xD7035000 | 200, VGPR + 201 | (VGPR + 202) << 9)  # v_add_nc_u16 op_sel:[0,1,1]
    assert [(o.index, o.op_sel) for o in (*long.dst, *long.src)] == [(200, 1), (201, 0), (202, 1)]


def test_lane_masks_are_as_wide_as_the_wave() -> None:
    compare = 0xD4140000 | 20, 4 | 8 << 9  # v_cmp_gt_f32 s20, s4, s8
    assert [(o.index, o.dwords) for w in (32, 64) for o in one(*compare, wave=w).dst] == [(20, 1), (20, 2)]
    select = 0x02000000 | 20 << 17 | 8 << 9 | VGPR
    assert [one(select, wave=w).src[2] for w in (32, 64)] == [
        Operand(OperandKind.VCC, 0, 1, bits=32),
        Operand(OperandKind.VCC, 0, 2, bits=64),
    ]
    assert one(0x7D000000 | 20 << 17 | 8 << 9 | VGPR, wave=64).dst[0] == Operand(OperandKind.EXEC, 0, 2, bits=64)
    with pytest.raises(UnknownInstruction, match="waves of 64 lanes"):
        one(0xCA240080, 0x0700009F, wave=64)


def test_matrix_operands_shrink_with_more_lanes() -> None:
    wmma = 0xCC444000 | 20, VGPR + 40 | (VGPR + 80) << 9 | 128 << 18 | 3 << 27  # v_wmma_i32_16x16x16_iu8, C = 0
    assert [[o.dwords for o in (*i.dst, *i.src[:2])] for i in (one(*wmma), one(*wmma, wave=64))] == [
        [8, 2, 2],
        [4, 1, 1],
    ]
    assert one(*wmma).src[2].value == 0


def test_packed_operands_say_which_halves() -> None:
    i = one(0xCC0F4000 | 20 | 1 << 11, VGPR + 4 | (VGPR + 8) << 9 | 1 << 27 | 2 << 29)  # op_sel:[1,0] op_sel_hi:[1,0]
    assert [o.op_sel for o in i.src] == [0b11, 0b00]
    assert [(o.neg, o.abs) for o in i.src] == [(False, False), (True, False)]
    mix = one(0xCC200000 | 20 | 1 << 11, VGPR + 4 | (VGPR + 8) << 9 | (VGPR + 12) << 18 | 1 << 27)
    assert [(o.bits, o.op_sel) for o in mix.src] == [(16, 1), (32, 0), (32, 0)]


def test_two_operations_at_once() -> None:
    i = one(0xCA240080, 0x0700009F)
    assert text(i) == "v_dual_mov_b32 v7, 0 :: v_dual_and_b32 v0, 31, v0"
    assert i.second is not None
    assert (i.dst[0].index, i.second.dst[0].index, i.size, i.second.size) == (7, 0, 8, 8)


def test_memory_operands() -> None:
    load = one(0xEE05C006, 20 | 2 << 18, 4 | (0xFFFFF0) << 8)  # global_load_b128 v[20:23], v4, s[6:7] offset:-16
    assert [(o.kind, o.index, o.dwords) for o in (*load.dst, *load.src)] == [
        (OperandKind.VGPR, 20, 4),
        (OperandKind.VGPR, 4, 1),
        (OperandKind.SGPR, 6, 2),
    ]
    assert load.modifiers == {"offset": -16, "scope": 2, "th": 0}
    store = one(0xEE06807C, 9 << 23, 4)  # global_store_b32 v[4:5], v9, off
    assert [(o.kind, o.index, o.dwords) for o in store.src] == [
        (OperandKind.VGPR, 4, 2),
        (OperandKind.VGPR, 9, 1),
        (OperandKind.NULL, 0, 1),
    ]
    for th, returned in ((0, 0), (1, 1)):
        atomic = one(0xEE0D407C, 9 << 23 | th << 20, 4)
        assert len(atomic.dst) == returned
    with pytest.raises(UnknownInstruction, match="VDST of an atomic"):
        one(0xEE0D407C, 9 << 23 | 5, 4)


def test_listing_says_where_branches_go() -> None:
    code = words(0xBFA0FFFF, 0xBFA00001, 0xBF800000, 0xBFB00000)
    assert [target(i) for i in instructions(code, 0x100)] == [0x100, 0x10C, None, None]
    lines = listing(code, 0x100)
    assert lines[0].split() == ["s_branch", "65535", "//", "000000000100:", "BFA0FFFF", "->", "0x100"]
    assert lines[3].split() == ["s_endpgm", "//", "00000000010C:", "BFB00000"]

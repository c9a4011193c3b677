"""The builder against the words that hardware and other runtimes agree on."""

from __future__ import annotations

import ctypes
from array import array

import numpy as np
import pytest

from tests.amdgpu.pm4.raw import words_raw
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_HOST, ACQUIRE_KERNEL, RELEASE_CONTROL, PacketBuilder, hi32, lo32
from zinc_rt.amdgpu.pm4.decoder import decode
from zinc_rt.amdgpu.pm4.errors import InvalidField, OutOfSpace
from zinc_rt.errors import ZincError
from zinc_rt.seed import pm4_packet as page

A = 0x1_0001_0008
LO, HI = 0x0001_0008, 1

WORDS = {
    "nop": (lambda b: b.write_nop(1), [0xC0001000, 0]),
    "nop 0": (lambda b: b.write_nop(0), [0xC0001000, 0]),
    "nop 3": (lambda b: b.write_nop(3), [0xC0021000, 0, 0, 0]),
    "one register": (lambda b: b.set_sh_reg_one(0x228, 7), [0xC0017600, 0x228, 7]),
    "registers": (lambda b: b.set_sh_reg(0x207, [1, 2, 3]), [0xC0037600, 0x207, 1, 2, 3]),
    "no registers": (lambda b: b.set_sh_reg(0x207, []), []),
    "user data": (
        lambda b: b.set_user_data64(4, 0x11223344AABBCCDD),
        [0xC0027600, 0x244, 0xAABBCCDD, 0x11223344],
    ),
    "dispatch": (lambda b: b.dispatch_direct(1, 2, 3), [0xC0031500, 1, 2, 3, 0]),
    "dispatch that runs": (lambda b: b.dispatch_direct_initiator(4, 1, 1, 5), [0xC0031500, 4, 1, 1, 5]),
    "signal": (
        lambda b: b.release_mem_signal(A, 0x5A494E4352541001),
        [0xC0064900, 0x06600514, 0x40000000, LO, HI, 0x52541001, 0x5A494E43, 0],
    ),
    "write 64": (lambda b: b.write_data64(A, 0x1_0000_0002), [0xC0043700, 0x00100500, LO, HI, 2, 1]),
    "copy 32": (lambda b: b.copy_data32(0x1_0000_0004, A), [0xC0044000, 0x00100501, 4, 1, LO, HI]),
    "flush": (lambda b: b.cs_partial_flush(), [0xC0004600, 0x407]),
    "acquire": (
        lambda b: b.acquire_mem(0x10180),
        [0xC0065800, 0, 0xFFFFFFFF, 0xFF, 0, 0, 10, 0x10180],
    ),
    "hdp flush": (
        lambda b: b.hdp_flush(),
        [0xC0053C00, 0x45, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4],
    ),
    "wait for memory": (lambda b: b.wait_mem(A, 26), [0xC0053C00, 0x15, LO, HI, 26, 0xFFFFFFFF, 4]),
    "wait for equality": (
        lambda b: b.wait_mem(A, 26, v.Compare.EQUAL),
        [0xC0053C00, 0x13, LO, HI, 26, 0xFFFFFFFF, 4],
    ),
    "call": (lambda b: b.indirect_buffer(A, 64), [0xC0023F00, LO, HI, 64 | 1 << 23]),
    "chain": (lambda b: b.indirect_buffer(A, 64, chain=True), [0xC0023F00, LO, HI, 64 | 1 << 20 | 1 << 23]),
    "fence of 32 bits": (
        lambda b: b.release_mem(A, 27, control=0x0070F514, data=v.ReleaseData.LOW32),
        [0xC0064900, 0x0070F514, 0x20000000, LO, HI, 27, 0, 0],
    ),
    "fence with interrupt": (
        lambda b: b.release_mem(
            A, 3, control=0x514, data=v.ReleaseData.LOW32, interrupt=v.ReleaseInt.AFTER_WRITE, context_id=3
        ),
        [0xC0064900, 0x00000514, 0x22000000, LO, HI, 3, 0, 3],
    ),
    "indirect dispatch": (lambda b: b.dispatch_indirect(A, 5), [0xC0021600, LO, HI, 5]),
    "condition": (lambda b: b.cond_exec(A, 9), [0xC0032200, LO, HI, 0, 9]),
    "load registers": (
        lambda b: b.packet("LOAD_SH_REG_INDEX", address=A, register=0x240, n_registers=4),
        [0xC0036300, LO, HI, 0x240, 4],
    ),
    "write 32": (lambda b: b.write_data32(A, 5), [0xC0033700, 0x00100500, LO, HI, 5]),
    "copy a dword": (lambda b: b.copy_dword(0x1_0000_0004, A), [0xC0044000, 0x00100502, 4, 1, LO, HI]),
    "copy the clock": (lambda b: b.copy_clock(A), [0xC0044000, 0x00110509, 0, 0, LO, HI]),
    "copy 64": (lambda b: b.copy_data64(A, A + 8), [0xC0044000, 0x00110502, LO, HI, LO + 8, HI]),
    "clock": (
        lambda b: b.packet("COPY_DATA", src_sel=9, dst_sel=5, count_sel=1, wr_confirm=1, target=A),
        [0xC0044000, 0x00110509, 0, 0, LO, HI],
    ),
    "uconfig": (lambda b: b.packet("SET_UCONFIG_REG", register=0x41, values=(1,)), [0xC0017900, 0x41, 1]),
    "context": (lambda b: b.packet("SET_CONTEXT_REG", register=0x41, values=(1,)), [0xC0016900, 0x41, 1]),
    "runs of registers": (
        lambda b: b.set_sh_regs({0x20D: 2, 0x212: 3, 0x20C: 1}),
        [0xC0027600, 0x20C, 1, 2, 0xC0017600, 0x212, 3],
    ),
}


@pytest.mark.parametrize("name", WORDS)
def test_words(name):
    build, words = WORDS[name]
    builder = PacketBuilder([0] * 64)
    build(builder)
    assert list(builder.written()) == words
    assert builder.cursor == len(words)


@pytest.mark.parametrize("name", [name for name, (_, words) in WORDS.items() if words])
def test_a_packet_fits_or_nothing_happens(name):
    build, words = WORDS[name]
    exact = PacketBuilder([9] * len(words))
    build(exact)
    assert exact.space == 0
    short = PacketBuilder([9] * (len(words) - 1))
    with pytest.raises(OutOfSpace, match="do not fit"):
        build(short)
    assert short.cursor == 0
    assert short.words == [9] * (len(words) - 1)


@pytest.mark.parametrize(
    "buffer",
    [
        [0] * 16,
        np.zeros(16, np.uint32),
        array("I", [0] * 16),
        (ctypes.c_uint32 * 16)(),
        memoryview(bytearray(64)).cast("I"),
    ],
    ids=lambda b: type(b).__name__,
)
def test_any_buffer_of_dwords(buffer):
    builder = PacketBuilder(buffer)
    builder.write_data64(A, 0xFFFFFFFF_FFFFFFFE)
    assert [int(w) for w in builder.written()] == [0xC0043700, 0x00100500, LO, HI, 0xFFFFFFFE, 0xFFFFFFFF]


def test_written_is_a_view_where_slices_are():
    words = np.zeros(8, np.uint32)
    builder = PacketBuilder(words)
    builder.write_nop(1)
    assert np.shares_memory(builder.written(), words)


def test_reset_keeps_the_buffer():
    builder = PacketBuilder([0] * 8)
    builder.set_sh_reg_one(0x20C, 1)
    builder.reset()
    assert builder.cursor == 0
    assert builder.words[:3] == [0xC0017600, 0x20C, 1]
    assert list(builder.written()) == []


@pytest.mark.parametrize(
    ("before", "n", "after"),
    [(5, 4, 8), (8, 4, 8), (7, 4, 12), (6, 4, 8), (63, 64, 128), (2, 64, 64), (5, 0, 5), (5, 1, 5), (3, 2, 6)],
)
def test_pad_to_alignment(before, n, after):
    builder = PacketBuilder([0] * 256)
    words_raw(builder, [0] * before)
    builder.pad_to_alignment(n)
    assert builder.cursor == after
    if after > before:
        assert builder.words[before] == 3 << 30 | (after - before - 2) << 16 | 0x1000


def test_a_dispatch_padded_to_four_has_eight_dwords():
    builder = PacketBuilder([0] * 16)
    builder.dispatch_direct(1, 1, 1)
    builder.pad_to_alignment(4)
    assert len(builder.written()) == 8


def test_a_dispatch_in_two_dwords():
    with pytest.raises(OutOfSpace):
        PacketBuilder([0, 0]).dispatch_direct(1, 1, 1)


@pytest.mark.parametrize(
    ("build", "text"),
    [
        (lambda b: b.set_sh_reg_one(0x400, 0), "there are 0x400"),
        (lambda b: b.set_sh_reg(0x3FF, [0, 0]), "2 registers from 0x3ff"),
        (lambda b: b.set_sh_reg_one(-1, 0), "from -0x1"),
        (lambda b: b.set_sh_reg_one(0x240, 1 << 32), "0x100000000 is no dword"),
        (lambda b: b.set_sh_reg_one(0x240, -1), "-0x1 is no dword"),
        (lambda b: b.release_mem_signal(A + 4, 1), "not a multiple of 8"),
        (lambda b: b.copy_data32(A + 2, A), "not a multiple of 4"),
        (lambda b: b.write_data64(A, 1 << 64), "no 64-bit number"),
        (lambda b: b.write_data64(-4, 1), "no 64-bit number"),
        (lambda b: b.indirect_buffer(A, 0), "1 to 1048575"),
        (lambda b: b.indirect_buffer(A, 1 << 20), "1 to 1048575"),
        (lambda b: b.write_nop(0x4000), "at most 16383"),
        (lambda b: b.packet("RELEASE_MEM", event_type=64), "6 bits"),
        (lambda b: b.packet("RELEASE_MEM", colour=1), "no field colour"),
        (lambda b: b.packet("DRAW"), "no packet is named DRAW"),
        (lambda b: b.packet("SET_SH_REG", values=5), "must be a sequence"),
        (lambda b: b.packet("NOP", payload=(1 << 32,)), "at most 32 bits"),
        (lambda b: b.packet("DISPATCH_DIRECT", x=(1,)), "must be one number"),
    ],
)
def test_values_that_do_not_fit(build, text):
    builder = PacketBuilder([7] * 0x5000)
    with pytest.raises(InvalidField, match=text) as caught:
        build(builder)
    assert isinstance(caught.value, (ZincError, ValueError))
    assert builder.cursor == 0
    assert set(builder.words) == {7}


def test_registers_from_the_first_to_the_last():
    for offset, n in ((0, 1), (reg.SH_COUNT - 3, 3)):
        builder = PacketBuilder([0] * 8)
        builder.set_sh_reg(offset, [7] * n)
        assert builder.words[1 : 2 + n] == [offset, *[7] * n]
    for offset, n in ((-1, 1), (reg.SH_COUNT - 2, 3)):
        with pytest.raises(InvalidField, match=f"{n} registers from"):
            PacketBuilder([0] * 8).set_sh_reg(offset, [7] * n)


def test_an_address_with_a_tag_is_read_as_it_was_written():
    builder = PacketBuilder([0] * 8)
    fields = {"address": 0x1234_5678_9ABC, "index": 1, "register": 0x240, "n_registers": 4}
    builder.packet("LOAD_SH_REG_INDEX", **fields)
    (packet,) = decode(builder.words[: builder.cursor])
    assert {name: packet.fields[name] for name in fields} == fields


def test_longest_packet():
    builder = PacketBuilder([0] * 0x4000)
    builder.write_nop(0x3FFF)
    assert builder.words[0] == 0xFFFE1000  # one more would be the NOP without a body
    assert builder.space == 0


def test_named_fields_give_the_same_words():
    builder = PacketBuilder([0] * 64)
    builder.packet(
        "RELEASE_MEM", event_type=v.EventType.CACHE_FLUSH_AND_INV_TS, event_index=v.EventIndex.END_OF_PIPE, gl2_wb=1,
        seq=v.Sequence.FORWARD, temporal=v.Temporal.LU, data_sel=v.ReleaseData.WORD64, address=A, value=9,
    )  # fmt: skip
    assert builder.words[1] == RELEASE_CONTROL == 0x06600514
    builder.reset()
    caches = dict.fromkeys(("gli_inv", "glm_wb", "glm_inv", "glk_inv", "glv_inv", "gl1_inv", "gl2_inv", "gl2_wb"), 1)
    builder.packet("ACQUIRE_MEM", **caches)
    assert builder.words[7] == ACQUIRE_HOST == 0xC3B1
    builder.reset()
    builder.packet("ACQUIRE_MEM", glk_inv=1, glv_inv=1, seq=v.Sequence.FORWARD)
    assert builder.words[7] == ACQUIRE_KERNEL == 0x10180


def test_halves():
    assert lo32(0x11223344AABBCCDD) == 0xAABBCCDD
    assert hi32(0x11223344AABBCCDD) == 0x11223344


def test_the_seed_page_is_complete():
    names = {
        "Error": OutOfSpace, "SH_REG_NUM_THREAD_X": 0x207, "SH_REG_PGM_LO": 0x20C, "SH_REG_PGM_RSRC1": 0x212,
        "SH_REG_RESOURCE_LIMITS": 0x215, "SH_REG_PGM_RSRC3": 0x228, "COMPUTE_USER_DATA_0": 0x240,
        "DISPATCH_INITIATOR_COMPUTE": 5, "PacketBuilder": PacketBuilder, "lo32": lo32, "hi32": hi32,
    }  # fmt: skip
    assert len(names) == 11
    for name, value in names.items():
        assert getattr(page, name) == value
        assert name in page.__all__
    methods = (
        "__init__", "reset", "written", "write_nop", "set_sh_reg", "set_sh_reg_one", "set_user_data64",
        "dispatch_direct", "dispatch_direct_initiator", "release_mem_signal", "write_data64", "copy_data32",
        "pad_to_alignment",
    )  # fmt: skip
    assert len(methods) == 13
    assert all(callable(getattr(page.PacketBuilder, name)) for name in methods)

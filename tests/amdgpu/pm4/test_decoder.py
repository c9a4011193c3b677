"""The decoder: what traced streams mean, and that it is the builder's inverse on anything."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.amdgpu.pm4 import opcodes as op
from zinc_rt.amdgpu.pm4 import registers as reg
from zinc_rt.amdgpu.pm4.builder import PacketBuilder, encode
from zinc_rt.amdgpu.pm4.decoder import DecodedPacket, decode, render
from zinc_rt.amdgpu.pm4.errors import InvalidField
from zinc_rt.amdgpu.pm4.fields import Address, Bits, Long, Rest, TaggedAddress, Value

# One dispatch as another runtime sends it to a gfx1201, and what its own documents say that it means.
TRACED = [
    (
        [0xC0053C00, 0x15, 0x1000, 0x1, 5, 0xFFFFFFFF, 4],
        "WAIT_REG_MEM",
        {"function": 5, "mem_space": 1, "operation": 0, "address": 0x1_0000_1000, "reference": 5, "poll_interval": 4},
    ),
    (
        [0xC0053C00, 0x45, 0xE26, 0xE27, 0xFFFFFFFF, 0xFFFFFFFF, 4],
        "WAIT_REG_MEM",
        {"function": 5, "mem_space": 0, "operation": 1, "register": 0xE26, "register_2": 0xE27},
    ),
    (
        [0xC0065800, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0xC3F1],
        "ACQUIRE_MEM",
        {
            "gli_inv": 1, "glm_wb": 1, "glm_inv": 1, "glk_wb": 1, "glk_inv": 1, "glv_inv": 1, "gl1_inv": 1,
            "gl2_inv": 1, "gl2_wb": 1, "seq": 0, "coher_cntl": 0, "coher_size": 0xFFFFFFFFFFFFFFFF,
        },
    ),
    (
        [0xC0065800, 0, 0xFFFFFFFF, 0xFFFFFFFF, 0, 0, 0, 0x3F0],
        "ACQUIRE_MEM",
        {"gli_inv": 0, "gl2_inv": 0, "gl2_wb": 0, "glv_inv": 1, "glk_inv": 1},
    ),
    ([0xC0027600, 0x20C, 0x1000000, 0], "SET_SH_REG", {"register": 0x20C, "values": (0x1000000, 0)}),
    ([0xC0031500, 4, 1, 1, 0x8005], "DISPATCH_DIRECT", {"x": 4, "cs_w32_en": 1, "compute_shader_en": 1}),
    ([0xC0004600, 0x407], "EVENT_WRITE", {"event_type": 7, "event_index": 4}),
    (
        [0xC0064900, 0x0070F514, 0x20000000, 0x2000, 1, 6, 0, 0],
        "RELEASE_MEM",
        {
            "event_type": 0x14, "event_index": 5, "glm_wb": 1, "glm_inv": 1, "glv_inv": 1, "gl1_inv": 1, "gl2_inv": 1,
            "gl2_wb": 1, "seq": 1, "data_sel": 1, "int_sel": 0, "dst_sel": 0, "address": 0x1_0000_2000, "value": 6,
        },
    ),
    (
        [0xC0064900, 0x514, 0x22000000, 0x3000, 1, 9, 0, 9],
        "RELEASE_MEM",
        {"gl2_wb": 0, "data_sel": 1, "int_sel": 2, "context_id": 9},
    ),
    ([0xC0023F00, 0x4000, 1, 64 | 1 << 23], "INDIRECT_BUFFER", {"n_dwords": 64, "valid": 1, "chain": 0}),
]  # fmt: skip


def rebuild(packets: list[DecodedPacket]) -> list[int]:
    """The stream again, from the packets' fields; as it was where a packet is malformed."""
    return [word for packet in packets for word in rebuilt(packet)]


def rebuilt(packet: DecodedPacket) -> tuple[int, ...]:
    spec = packet.spec
    if spec is None or packet.problems or len(packet.words) < 2:
        return packet.words
    try:
        body = encode(spec.opcode, packet.fields, len(packet.words) - 1)
    except InvalidField:
        return packet.words
    flags = packet.words[0] & (op.PREDICATE | op.SHADER_TYPE)
    return (op.header(spec.opcode, len(body)) | flags, *body)


@pytest.mark.parametrize(("words", "name", "fields"), TRACED)
def test_traced_packets(words, name, fields):
    (packet,) = decode(words)
    assert packet.name == name
    assert packet.problems == ()
    assert {key: packet.fields[key] for key in fields} == fields


def test_a_whole_stream_keeps_its_places():
    stream = [word for words, _, _ in TRACED for word in words]
    packets = decode(stream)
    assert [packet.name for packet in packets] == [name for _, name, _ in TRACED]
    at = 0
    for packet, (words, _, _) in zip(packets, TRACED, strict=True):
        assert packet.offset == at
        at += len(words)
    assert rebuild(packets) == stream


def lines(words: list[int], gfx: int = 12) -> list[str]:
    return list(render(decode(words), gfx))


def test_lines_are_readable():
    assert lines([0xC0043700, 0x00100500, 0x10008, 1, 2, 1]) == [
        "     0  C0043700  WRITE_DATA dst_sel=MEMORY wr_confirm=1 address=0x100010008 values=[0x2, 0x1]"
    ]
    assert lines([0xC0027600, 0x212, 0xE0000001, 0x90]) == [
        "     0  C0027600  SET_SH_REG"
        " COMPUTE_PGM_RSRC1=0xe0000001(vgprs=1 wgp_mode=1 mem_ordered=1 fwd_progress=1)"
        " COMPUTE_PGM_RSRC2=0x90(user_sgpr=8 tgid_x_en=1)"
    ]
    assert lines([0xC0004600, 0x407]) == [
        "     0  C0004600  EVENT_WRITE event_type=CS_PARTIAL_FLUSH event_index=PARTIAL_FLUSH"
    ]
    assert lines([0xC01F1000] + [0] * 32) == ["     0  C01F1000  NOP 33 dwords"]


def test_generations_name_bits_differently():
    words = [0xC0017600, 0x212, 1 << 21]
    assert "dx10_clamp=1" in lines(words, 11)[0]
    assert "wg_rr_en=1" in lines(words, 12)[0]


def test_registers_of_both_generations():
    common = {
        0x200: "DISPATCH_INITIATOR", 0x201: "DIM_X", 0x204: "START_X", 0x207: "NUM_THREAD_X", 0x20A:
        "PIPELINESTAT_ENABLE", 0x20B: "PERFCOUNT_ENABLE", 0x20C: "PGM_LO", 0x20E: "DISPATCH_PKT_ADDR_LO",
        0x210: "DISPATCH_SCRATCH_BASE_LO", 0x212: "PGM_RSRC1", 0x213: "PGM_RSRC2", 0x214: "VMID",
        0x215: "RESOURCE_LIMITS", 0x216: "STATIC_THREAD_MGMT_SE0", 0x217: "STATIC_THREAD_MGMT_SE1",
        0x218: "TMPRING_SIZE", 0x219: "STATIC_THREAD_MGMT_SE2", 0x21A: "STATIC_THREAD_MGMT_SE3",
        0x21B: "RESTART_X", 0x21E: "THREAD_TRACE_ENABLE", 0x228: "PGM_RSRC3", 0x22F: "DISPATCH_INTERLEAVE",
        0x240: "USER_DATA_0", 0x24F: "USER_DATA_15",
    }  # fmt: skip
    for gfx in (11, 12):
        table = reg.registers(gfx)
        assert {offset: table[offset].name for offset in common} == {k: f"COMPUTE_{n}" for k, n in common.items()}
        assert all(offset == register.offset for offset, register in table.items())
    spans = {
        (12, 0x213, "lds_size"): (15, 9), (12, 0x213, "user_sgpr"): (1, 5), (12, 0x213, "tidig_comp_cnt"): (11, 2),
        (12, 0x213, "dynamic_vgpr"): (6, 1), (11, 0x213, "trap_present"): (6, 1), (12, 0x228, "inst_pref_size"): (4, 8),
        (11, 0x228, "inst_pref_size"): (4, 6), (12, 0x228, "glg_en"): (13, 1), (12, 0x218, "wavesize"): (12, 18),
        (11, 0x218, "wavesize"): (12, 15), (12, 0x207, "interleave_bits"): (13, 3), (12, 0x200, "cs_w32_en"): (15, 1),
        (12, 0x200, "use_thread_dimensions"): (5, 1), (12, 0x212, "vgprs"): (0, 6), (12, 0x212, "float_mode"): (12, 8),
        (12, 0x212, "fp16_ovfl"): (26, 1), (12, 0x213, "wgp_takeover"): (31, 1),
    }  # fmt: skip
    for (gfx, offset, name), (low, bits) in spans.items():
        fields = {f.name: (f.low, f.bits) for f in reg.registers(gfx)[offset].fields}
        assert fields[name] == (low, bits), (gfx, name)


def test_register_fields_there_and_back():
    rsrc2 = reg.registers(12)[reg.PGM_RSRC2]
    value = rsrc2.encode({"user_sgpr": 8, "tgid_x_en": 1, "tidig_comp_cnt": 1})
    assert value == 8 << 1 | 1 << 7 | 1 << 11
    assert rsrc2.decode(value)["user_sgpr"] == 8
    assert rsrc2.reserved(value) == 0
    assert reg.registers(12)[reg.PGM_RSRC3].reserved(1 << 12) == 1 << 12


MALFORMED = [
    ([0x80000000], "a header of type 2"),
    ([0x00001234], "a header of type 0"),
    ([0x40000000, 0x40000000], "a header of type 1"),
    ([0xC0001004, 0], "header bits 0x4"),
    ([0xC0000000, 0], "unknown opcode"),
    ([0xC0041500, 1, 1, 1, 5, 0], "the body has 5 dwords; it must have 4"),
    ([0xC0031500, 1, 1, 1], "it has 4 body dwords; the stream ends after 3"),
    ([0xC0031500, 1, 1, 1, 5 | 1 << 7], "reserved bits 0x80"),
    ([0xC0023700, 0x500, 0x1000, 0], "at least 4"),
    ([0xC0033700, 0x500, 0x1002, 0, 1], "not a multiple of 4"),
    ([0xC0033700, 0x500, 0x1000, 0x10000, 1], "not a 48-bit address"),
    ([0xC0033700, 0x400, 0x1000, 0, 1], "dst_sel 4 is reserved"),
    ([0xC0044000, 0x00110501, 4, 0, 8, 0], "source 0x4 is not a multiple of 8"),
    ([0xC0053C00, 0x17, 0x1000, 0, 0, 0, 4], "function 7 is reserved"),
    ([0xC0004600, 0x403], "event_type 3 is reserved"),
    ([0xC0017600, 0x400, 1], "the SH space has 0x400"),
    ([0xC0032200, 0x1000, 0, 1, 4], "reserved is 0x1"),
]


@pytest.mark.parametrize(("words", "problem"), MALFORMED)
def test_malformed_packets_say_why(words, problem):
    packet = decode([0xC0001000, 0, *words])[1]
    assert packet.offset == 2
    assert any(problem in text for text in packet.problems), packet.problems
    assert problem in packet.text()


def test_dwords_between_packets_are_one_entry():
    packets = decode([0xC0001000, 0, 1, 2, 3, 0xC0001000, 0])
    assert [(p.name, p.offset, len(p.words)) for p in packets] == [("NOP", 0, 2), ("malformed", 2, 3), ("NOP", 5, 2)]


def test_a_nop_without_a_body():
    assert [(p.name, len(p.words)) for p in decode([0xFFFF1000, 0xFFFF1000, 0xC0001000, 0])] == [
        ("NOP", 1),
        ("NOP", 1),
        ("NOP", 2),
    ]


def test_foreign_packets_have_names():
    (packet,) = decode([0xC0022800, 0x80000000, 0x80000000, 0])
    assert packet.name == "CONTEXT_CONTROL"
    assert packet.problems == ()


def test_names_and_opcodes_are_unique():
    assert len({spec.name for spec in op.PACKETS.values()}) == len(op.PACKETS)
    assert not set(op.PACKETS) & set(op.OTHER_NAMES)
    numbers = {
        "NOP": 0x10, "DISPATCH_DIRECT": 0x15, "DISPATCH_INDIRECT": 0x16, "COND_EXEC": 0x22, "WRITE_DATA": 0x37,
        "WAIT_REG_MEM": 0x3C, "INDIRECT_BUFFER": 0x3F, "COPY_DATA": 0x40, "EVENT_WRITE": 0x46, "RELEASE_MEM": 0x49,
        "ACQUIRE_MEM": 0x58, "LOAD_SH_REG_INDEX": 0x63, "SET_CONTEXT_REG": 0x69, "SET_SH_REG": 0x76,
        "SET_UCONFIG_REG": 0x79,
    }  # fmt: skip
    assert {spec.name: opcode for opcode, spec in op.PACKETS.items()} == numbers


# Properties.

dwords = st.integers(0, 0xFFFFFFFF)
addresses = st.integers(0, (1 << 44) - 1).map(lambda n: n * 8)


@st.composite
def packets(draw: st.DrawFn) -> tuple[str, dict[str, int | tuple[int, ...]]]:
    """A well-formed packet of the table as a name and fields."""
    spec = draw(st.sampled_from(list(op.PACKETS.values())))
    fields: dict[str, int | tuple[int, ...]] = {}
    first = 0
    slots = list(spec.layout)
    for i, slot in enumerate(slots):
        if isinstance(slot, Bits):
            for field in slot.fields:
                named = None if field.values is None else [int(x) for x in field.values if x < 1 << field.bits]
                value = draw(st.integers(0, (1 << field.bits) - 1) if named is None else st.sampled_from(named))
                fields[field.name] = value
            if i == 0:
                first = slot.encode(fields)[0]
                slots[1:] = spec.layout_of(first, None)[1:]
        elif isinstance(slot, (Address, TaggedAddress)):
            fields[slot.name] = draw(addresses)
            if isinstance(slot, TaggedAddress):
                fields[slot.tag.name] = draw(st.integers(0, 1))
        elif isinstance(slot, Long):
            fields[slot.name] = draw(st.integers(0, (1 << 64) - 1))
        elif isinstance(slot, Rest):
            fields[slot.name] = tuple(draw(st.lists(dwords, min_size=slot.minimum, max_size=20)))
        elif isinstance(slot, Value):
            fields[slot.name] = draw(st.integers(0, (1 << slot.bits) - 1))
    if "register" in fields and "values" in fields:
        fields["register"] = draw(st.integers(0, 0x3E0))
    return spec.name, fields


@given(st.lists(packets(), max_size=12))
def test_build_decode_rebuild(wanted):
    builder = PacketBuilder([0] * 512)
    for name, fields in wanted:
        builder.packet(name, **fields)
    words = list(builder.written())
    found = decode(words)
    assert [packet.name for packet in found] == [name for name, _ in wanted]
    for packet, (_, fields) in zip(found, wanted, strict=True):
        assert packet.problems == ()
        assert {name: packet.fields[name] for name in fields} == fields
    assert rebuild(found) == words


headers = st.builds(
    lambda opcode, n, low: 3 << 30 | n << 16 | opcode << 8 | low,
    st.sampled_from([*op.PACKETS, 0x11, 0, 0xFF]),
    st.integers(0, 12) | st.just(0x3FFF),
    st.sampled_from([0, 0, 0, 1, 2, 4]),
)


@given(st.lists(headers | dwords | st.integers(0, 40), max_size=60))
def test_any_stream_is_read_whole_and_comes_back(words):
    found = decode(words)
    assert sum(len(packet.words) for packet in found) == len(words)
    assert [word for packet in found for word in packet.words] == words
    assert rebuild(found) == words
    text = list(render(found))
    assert len(text) == len(found)
    assert all("\n" not in line for line in text)


def test_hints_of_gfx12_are_cache_policies_before() -> None:
    """The same bits under the words of each generation."""
    release = [0xC0064900, 0x06600514, 0x40000000, 0x10000, 1, 0x2A, 0, 0]
    call = [0xC0023F00, 0x1000, 1, 0x10800040]
    inherit = [0xC0023F00, 0x1000, 1, 0x40800040]
    new, old = (" ".join(p.text(gfx) for p in decode([*release, *call, *inherit])) for gfx in (12, 11))
    assert "temporal=LU" in new
    assert "temporal=NT" in new
    assert "cache_policy" not in new
    assert "cache_policy=BYPASS" in old
    assert "cache_policy=STREAM" in old
    assert "temporal" not in old
    assert "inherit_vmid=1" in new
    assert rebuild(decode([*release, *call, *inherit])) == [*release, *call, *inherit]

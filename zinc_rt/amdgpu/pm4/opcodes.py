"""The one table of PM4 packets: opcodes, dwords, bit fields.

Facts: amdgpu's packet headers (nvd.h), `docs/how/pm4.md` names what was seen in traced streams. Only packets of compute
queues are here; what else exists has a name (`OTHER_NAMES`), so that a foreign stream can be read.
"""

from __future__ import annotations

from zinc_rt.amdgpu.pm4 import values as v
from zinc_rt.amdgpu.pm4.fields import Address, Bits, Field, Layout, Long, PacketSpec, Rest, TaggedAddress, Value, bits

TYPE3 = 3
MAX_BODY = 0x3FFF
"""Body dwords of the longest packet: a count of 0x3FFF (body - 1) is taken by the NOP that has no body."""
NOP_ALONE = 0xFFFF1000
"""A NOP of one dword: its count field is all ones. Kernels pad their rings with it."""

NOP = 0x10
DISPATCH_DIRECT = 0x15
DISPATCH_INDIRECT = 0x16
COND_EXEC = 0x22
WRITE_DATA = 0x37
WAIT_REG_MEM = 0x3C
INDIRECT_BUFFER = 0x3F
COPY_DATA = 0x40
EVENT_WRITE = 0x46
RELEASE_MEM = 0x49
ACQUIRE_MEM = 0x58
LOAD_SH_REG_INDEX = 0x63
SET_CONTEXT_REG = 0x69
SET_SH_REG = 0x76
SET_UCONFIG_REG = 0x79

PREDICATE, SHADER_TYPE = 1 << 0, 1 << 1
HEADER_RESERVED = 0xFC
"""Bits of a header that are zero."""

INITIATOR = bits(
    Field("compute_shader_en", 0),
    Field("partial_tg_en", 1),
    Field("force_start_at_000", 2),
    Field("ordered_append_enbl", 3),
    Field("ordered_append_mode", 4),
    Field("use_thread_dimensions", 5),
    Field("order_mode", 6),
    Field("scalar_l1_inv_vol", 10),
    Field("vector_l1_inv_vol", 11),
    Field("ping_pong_en", 12),
    Field("tunnel_enable", 13),
    Field("restore", 14),
    Field("cs_w32_en", 15),
    Field("ampm_perf_en", 16),
    Field("interleave_2d_en", 18),
    Field("ttrace_queue_id", 29, 3),
)
"""COMPUTE_DISPATCH_INITIATOR, the last dword of a dispatch. Bits 12, 18 and 29..31 are new in gfx12."""

_TEMPORAL = Field("temporal", 25, 2, v.Temporal)
_REGISTERS = (
    bits(Field("register", 0, 16), Field("vmid_shift", 23, 5), Field("index", 28, 4)),
    Rest("values"),
)

_WRITE_CONTROL = bits(
    Field("dst_sel", 8, 4, v.WriteDst),
    Field("one_address", 16),
    Field("wr_confirm", 20),
    _TEMPORAL,
    Field("engine_sel", 30, 2, v.EngineSelect),
)

_COPY_CONTROL = bits(
    Field("src_sel", 0, 4, v.CopySrc),
    Field("dst_sel", 8, 4, v.CopyDst),
    Field("src_temporal", 13, 2, v.Temporal),
    Field("count_sel", 16, 1, v.Count),
    Field("wr_confirm", 20),
    Field("dst_temporal", 25, 2, v.Temporal),
    Field("pq_exe_status", 29),
    Field("engine_sel", 30, 2, v.EngineSelect),
)

_WAIT_CONTROL = bits(
    Field("function", 0, 3, v.Compare),
    Field("mem_space", 4, 2, v.PollSpace),
    Field("operation", 6, 2, v.WaitOperation),
    Field("engine_sel", 8, 1, v.EngineSelect),
    _TEMPORAL,
)
_WAIT_TAIL = (Value("reference"), Value("mask"), bits(Field("poll_interval", 0, 16), Field("offload", 31)))

GCR = bits(
    Field("gli_inv", 0, 2, v.CodeInv), Field("gl1_range", 2, 2, v.Range), Field("glm_wb", 4), Field("glm_inv", 5),
    Field("glk_wb", 6), Field("glk_inv", 7), Field("glv_inv", 8), Field("gl1_inv", 9), Field("gl2_us", 10),
    Field("gl2_range", 11, 2, v.Range), Field("gl2_discard", 13), Field("gl2_inv", 14), Field("gl2_wb", 15),
    Field("seq", 16, 2, v.Sequence), Field("range_is_pa", 18),
)  # fmt: skip
"""gcr_cntl of ACQUIRE_MEM: what happens to which cache. GLI instructions, GLM metadata (ignored by gfx12), GLK scalar,
GLV vector, GL1 between them and L2 on gfx11, GL2 the L2 itself; WB write back, INV invalidate.
"""

_RELEASE_CONTROL = bits(
    Field("event_type", 0, 6, v.EventType), Field("event_index", 8, 4, v.EventIndex), Field("glm_wb", 12),
    Field("glm_inv", 13), Field("glv_inv", 14), Field("gl1_inv", 15), Field("gl2_us", 16), Field("gl2_range", 17, 2),
    Field("gl2_discard", 19), Field("gl2_inv", 20), Field("gl2_wb", 21), Field("seq", 22, 2, v.Sequence),
    Field("glk_wb", 24), _TEMPORAL, Field("execute", 28), Field("glk_inv", 30), Field("pws_enable", 31),
)  # fmt: skip
_RELEASE_SELECT = bits(
    Field("dst_sel", 16, 2, v.ReleaseDst),
    Field("int_sel", 24, 3, v.ReleaseInt),
    Field("data_sel", 29, 3, v.ReleaseData),
)


def _copy(first: int, n_body: int | None) -> Layout:
    wide = first >> 16 & 1
    source, target = first & 0xF, first >> 8 & 0xF
    in_memory = Address("source", 8 if wide else 4)
    src: Long = in_memory if source in (v.CopySrc.L2_OBSOLETE, v.CopySrc.L2) else Long("source")
    dst = Address("target", 8 if wide else 4) if target in _COPY_TO_MEMORY else Long("target")
    return _COPY_CONTROL, src, dst


_COPY_TO_MEMORY = (v.CopyDst.MEMORY, v.CopyDst.L2, v.CopyDst.MEMORY_GRBM)


def _write(first: int, n_body: int | None) -> Layout:
    memory = first >> 8 & 0xF != v.WriteDst.REGISTER
    return _WRITE_CONTROL, Address("address") if memory else Long("address"), Rest("values")


def _wait(first: int, n_body: int | None) -> Layout:
    if first >> 4 & 3 == v.PollSpace.MEMORY:
        return _WAIT_CONTROL, Address("address"), *_WAIT_TAIL
    return _WAIT_CONTROL, Value("register", 18), Value("register_2", 18), *_WAIT_TAIL


def _event(first: int, n_body: int | None) -> Layout:
    return (*_EVENT, Address("address", 8)) if n_body is not None and n_body > 1 else _EVENT


_RELEASE: Layout = (_RELEASE_CONTROL, _RELEASE_SELECT, Address("address"), Long("value"), Value("context_id"))


_EVENT: tuple[Bits, ...] = (
    bits(Field("event_type", 0, 6, v.EventType), Field("event_index", 8, 4, v.EventIndex), Field("mode", 29, 2)),
)

PACKETS = {
    spec.opcode: spec
    for spec in (
        PacketSpec("NOP", NOP, (Rest("payload"),)),
        PacketSpec("DISPATCH_DIRECT", DISPATCH_DIRECT, (Value("x"), Value("y"), Value("z"), INITIATOR)),
        PacketSpec("DISPATCH_INDIRECT", DISPATCH_INDIRECT, (Address("address"), INITIATOR)),
        PacketSpec("COND_EXEC", COND_EXEC, (Address("address"), Value("reserved", 0), Value("n_dwords", 14))),
        PacketSpec("WRITE_DATA", WRITE_DATA, (_WRITE_CONTROL, Address("address"), Rest("values")), _write),
        PacketSpec("WAIT_REG_MEM", WAIT_REG_MEM, _wait(v.PollSpace.MEMORY << 4, None), _wait, shader_type=False),
        PacketSpec(
            "INDIRECT_BUFFER",
            INDIRECT_BUFFER,
            (
                Address("address"),
                bits(
                    Field("n_dwords", 0, 20), Field("chain", 20), Field("offload_polling", 21), Field("valid", 23),
                    Field("vmid", 24, 4), Field("temporal", 28, 2, v.Temporal),
                    Field("inherit_vmid", 30), Field("priv", 31),
                ),
            ),
        ),
        PacketSpec("COPY_DATA", COPY_DATA, _copy(v.CopySrc.L2 | v.CopyDst.MEMORY << 8, None), _copy),
        PacketSpec("EVENT_WRITE", EVENT_WRITE, _EVENT, _event),
        PacketSpec("RELEASE_MEM", RELEASE_MEM, _RELEASE, shader_type=False),
        PacketSpec(
            "ACQUIRE_MEM",
            ACQUIRE_MEM,
            (
                bits(Field("coher_cntl", 0, 31), Field("engine_sel", 31, 1, v.EngineSelect)),
                Long("coher_size"), Long("coher_base"), Value("poll_interval", 16), GCR,
            ),
        ),
        PacketSpec(
            "LOAD_SH_REG_INDEX",
            LOAD_SH_REG_INDEX,
            (
                TaggedAddress("address", Field("index", 0, 1, v.LoadIndex)),
                bits(Field("register", 0, 16), Field("data_format", 31, 1, v.LoadFormat)),
                Value("n_registers", 14),
            ),
        ),
        PacketSpec("SET_CONTEXT_REG", SET_CONTEXT_REG, _REGISTERS),
        PacketSpec("SET_SH_REG", SET_SH_REG, _REGISTERS),
        PacketSpec("SET_UCONFIG_REG", SET_UCONFIG_REG, _REGISTERS),
    )
}  # fmt: skip
"""By opcode."""

OTHER_NAMES = {
    0x11: "SET_BASE", 0x12: "CLEAR_STATE", 0x1E: "ATOMIC_MEM", 0x20: "SET_PREDICATION", 0x21: "REG_RMW",
    0x23: "PRED_EXEC", 0x24: "DRAW_INDIRECT", 0x27: "DRAW_INDEX_2", 0x28: "CONTEXT_CONTROL",
    0x2D: "DRAW_INDEX_AUTO", 0x32: "INDIRECT_BUFFER_PRIV", 0x33: "INDIRECT_BUFFER_CNST", 0x39: "MEM_SEMAPHORE",
    0x41: "CP_DMA", 0x42: "PFP_SYNC_ME", 0x43: "SURFACE_SYNC", 0x45: "COND_WRITE", 0x47: "EVENT_WRITE_EOP",
    0x48: "EVENT_WRITE_EOS", 0x4A: "PREAMBLE_CNTL", 0x50: "DMA_DATA", 0x51: "CONTEXT_REG_RMW", 0x59: "REWIND",
    0x5A: "INTERRUPT", 0x5C: "INDIRECT_BUFFER_PASID", 0x5D: "PRIME_UTCL2", 0x5F: "LOAD_SH_REG",
    0x61: "LOAD_CONTEXT_REG", 0x68: "SET_CONFIG_REG", 0x6A: "SET_CONTEXT_REG_INDEX", 0x77: "SET_SH_REG_OFFSET",
    0x78: "SET_QUEUE_REG", 0x7A: "SET_UCONFIG_REG_INDEX", 0x8B: "SWITCH_BUFFER", 0x90: "FRAME_CONTROL",
    0x93: "WAIT_REG_MEM64", 0x94: "COND_PREEMPT", 0x95: "HDP_FLUSH", 0x98: "INVALIDATE_TLBS", 0x99: "AQL_PACKET",
    0x9B: "SET_SH_REG_INDEX", 0xA0: "SET_RESOURCES", 0xA1: "MAP_PROCESS", 0xA2: "MAP_QUEUES", 0xA3: "UNMAP_QUEUES",
    0xA4: "QUERY_STATUS", 0xA5: "RUN_LIST", 0xD2: "RUN_CLEANER_SHADER", 0xF0: "SET_Q_PREEMPTION_MODE",
}  # fmt: skip
"""Packets that exist in the headers and are not decoded further: graphics, or the kernel's own."""


def header(opcode: int, n_body: int) -> int:
    """The first dword of a packet with `n_body` dwords behind it."""
    return TYPE3 << 30 | (n_body - 1 & 0x3FFF) << 16 | opcode << 8


def name_of(opcode: int) -> str:
    """A packet's name, or its number."""
    spec = PACKETS.get(opcode)
    return spec.name if spec is not None else OTHER_NAMES.get(opcode, f"opcode {opcode:#04x}")

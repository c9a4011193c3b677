"""Registers of compute dispatches (COMPUTE_*) with their bit fields, for gfx11 and gfx12.

`SET_SH_REG` counts from 0x2C00; the numbers here are offsets from there, as in the packet. Sources: register headers
and traced streams. Where the generations differ, the tables say so: `registers(11)`, `registers(12)`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

from zinc_rt.amdgpu.pm4.fields import DWORD, Field, Fields
from zinc_rt.amdgpu.pm4.opcodes import INITIATOR

SH_BASE, SH_COUNT = 0x2C00, 0x400
"""Dword address of the first shader register, and how many there are."""
CONTEXT_COUNT = 0x400
UCONFIG_BASE, UCONFIG_COUNT = 0xC000, 0x4000

DISPATCH_INITIATOR = 0x200
START_X, START_Y, START_Z = 0x204, 0x205, 0x206
NUM_THREAD_X, NUM_THREAD_Y, NUM_THREAD_Z = 0x207, 0x208, 0x209
PIPELINESTAT_ENABLE, PERFCOUNT_ENABLE = 0x20A, 0x20B
PGM_LO, PGM_HI = 0x20C, 0x20D
SCRATCH_BASE_LO, SCRATCH_BASE_HI = 0x210, 0x211
PGM_RSRC1, PGM_RSRC2 = 0x212, 0x213
RSRC1_PRIV = 1 << 20
"""Of PGM_RSRC1: waves run privileged, which keeps the hardware from trapping them (kfdtest)."""
RESOURCE_LIMITS = 0x215
STATIC_THREAD_MGMT = (0x216, 0x217, 0x219, 0x21A, 0x22B, 0x22C, 0x22D, 0x22E, 0x223)
"""Of shader engines 0 to 8: which compute units a dispatch may use. The last is gfx12's."""
TMPRING_SIZE = 0x218
RESTART_X, RESTART_Y, RESTART_Z = 0x21B, 0x21C, 0x21D
USER_ACCUM = (0x224, 0x225, 0x226, 0x227)
PGM_RSRC3 = 0x228
DISPATCH_INTERLEAVE = 0x22F
"""Its low ten bits: how many threads go to one shader engine before the next one gets some."""
DISPATCH_TUNNEL = 0x27D
USER_DATA_0, USER_DATA_COUNT = 0x240, 16

HDP_FLUSH_REQUEST, HDP_FLUSH_DONE = 0x0E26, 0x0E27
"""Dword addresses: ask for the flush of host writes to VRAM, see it done (nbio 4.3, nbif 6.3.1)."""

LDS_GRANULE = 512
"""Bytes that RSRC2's lds_size counts in."""


@dataclass(frozen=True)
class Register:
    """One register; `fields` is empty where it is one number."""

    name: str
    offset: int
    fields: tuple[Field, ...] = ()

    def decode(self, value: int) -> dict[str, int]:
        """Its fields by name."""
        return {field.name: field.of(value) for field in self.fields}

    def encode(self, fields: Fields) -> int:
        """The number with these fields, the others zero. Raises `InvalidField`, `KeyError`."""
        by_name = {field.name: field for field in self.fields}
        return sum(by_name[name].place(value) for name, value in fields.items() if not isinstance(value, tuple))

    def reserved(self, value: int) -> int:
        """Bits that are set and mean nothing."""
        return value & ~sum(field.mask for field in self.fields) & DWORD if self.fields else 0


_RSRC1 = (
    Field("vgprs", 0, 6),
    Field("sgprs", 6, 4),
    Field("priority", 10, 2),
    Field("float_mode", 12, 8),
    Field("priv", 20),
)
_RSRC1_11 = (*_RSRC1, Field("dx10_clamp", 21), Field("debug_mode", 22), Field("ieee_mode", 23))
_RSRC1_12 = (*_RSRC1, Field("wg_rr_en", 21), Field("debug_mode", 22), Field("disable_perf", 23))
_RSRC1_TAIL = (
    Field("bulky", 24),
    Field("cdbg_user", 25),
    Field("fp16_ovfl", 26),
    Field("wgp_mode", 29),
    Field("mem_ordered", 30),
    Field("fwd_progress", 31),
)


def _rsrc2(bit6: str, *tail: Field) -> tuple[Field, ...]:
    return (
        Field("scratch_en", 0), Field("user_sgpr", 1, 5), Field(bit6, 6), Field("tgid_x_en", 7), Field("tgid_y_en", 8),
        Field("tgid_z_en", 9), Field("tg_size_en", 10), Field("tidig_comp_cnt", 11, 2), Field("excp_en_msb", 13, 2),
        Field("lds_size", 15, 9), Field("excp_en", 24, 7), *tail,
    )  # fmt: skip


_COUNT_11 = (Field("full", 0, 16), Field("partial", 16, 16))
_COUNT_X_12 = (Field("full", 0, 13), Field("interleave_bits", 13, 3), Field("partial", 16, 16))
_COUNT_12 = (Field("full", 0, 13), Field("partial", 16, 16))
_LIMITS = (
    Field("waves_per_sh", 0, 10),
    Field("tg_per_cu", 12, 4),
    Field("lock_threshold", 16, 6),
    Field("simd_dest_cntl", 22),
    Field("force_simd_dist", 23),
    Field("cu_group_count", 24, 3),
)
_CU_EN = (Field("sa0_cu_en", 0, 16), Field("sa1_cu_en", 16, 16))


def _tmpring(bits: int) -> tuple[Field, ...]:
    return Field("waves", 0, 12), Field("wavesize", 12, bits)


_RSRC3_11 = (
    Field("shared_vgpr_cnt", 0, 4),
    Field("inst_pref_size", 4, 6),
    Field("trap_on_start", 10),
    Field("trap_on_end", 11),
    Field("image_op", 31),
)
_RSRC3_12 = (Field("inst_pref_size", 4, 8), Field("glg_en", 13), Field("image_op", 31))


@cache
def registers(gfx: int = 12) -> Mapping[int, Register]:
    """By offset. gfx: 11 or 12, the major version of the graphics core; 10 reads like 11."""
    new = gfx >= 12
    found = [
        Register("COMPUTE_DISPATCH_INITIATOR", DISPATCH_INITIATOR, INITIATOR.fields),
        *_xyz("COMPUTE_DIM", 0x201),
        *_xyz("COMPUTE_START", START_X),
        Register("COMPUTE_NUM_THREAD_X", NUM_THREAD_X, _COUNT_X_12 if new else _COUNT_11),
        Register("COMPUTE_NUM_THREAD_Y", NUM_THREAD_Y, _COUNT_12 if new else _COUNT_11),
        Register("COMPUTE_NUM_THREAD_Z", NUM_THREAD_Z, _COUNT_12 if new else _COUNT_11),
        Register("COMPUTE_PIPELINESTAT_ENABLE", PIPELINESTAT_ENABLE, (Field("enable", 0),)),
        Register("COMPUTE_PERFCOUNT_ENABLE", PERFCOUNT_ENABLE, (Field("enable", 0),)),
        Register("COMPUTE_PGM_LO", PGM_LO),
        Register("COMPUTE_PGM_HI", PGM_HI, (Field("data", 0, 8),)),
        *_pair("COMPUTE_DISPATCH_PKT_ADDR", 0x20E),
        *_pair("COMPUTE_DISPATCH_SCRATCH_BASE", SCRATCH_BASE_LO),
        Register("COMPUTE_PGM_RSRC1", PGM_RSRC1, (_RSRC1_12 if new else _RSRC1_11) + _RSRC1_TAIL),
        Register(
            "COMPUTE_PGM_RSRC2",
            PGM_RSRC2,
            _rsrc2("dynamic_vgpr", Field("wgp_takeover", 31)) if new else _rsrc2("trap_present"),
        ),
        Register("COMPUTE_VMID", 0x214, (Field("data", 0, 4),)),
        Register("COMPUTE_RESOURCE_LIMITS", RESOURCE_LIMITS, _LIMITS),
        *(
            Register(f"COMPUTE_STATIC_THREAD_MGMT_SE{i}", at, _CU_EN)
            for i, at in enumerate(STATIC_THREAD_MGMT[: 9 if new else 8])
        ),
        Register("COMPUTE_TMPRING_SIZE", TMPRING_SIZE, _tmpring(18 if new else 15)),
        *_xyz("COMPUTE_RESTART", RESTART_X),
        Register("COMPUTE_THREAD_TRACE_ENABLE", 0x21E, (Field("enable", 0),)),
        Register("COMPUTE_MISC_RESERVED", 0x21F),
        Register("COMPUTE_DISPATCH_ID", 0x220),
        Register("COMPUTE_THREADGROUP_ID", 0x221),
        Register("COMPUTE_REQ_CTRL", 0x222),
        *(Register(f"COMPUTE_USER_ACCUM_{i}", at) for i, at in enumerate(USER_ACCUM)),
        Register("COMPUTE_PGM_RSRC3", PGM_RSRC3, _RSRC3_12 if new else _RSRC3_11),
        Register("COMPUTE_DDID_INDEX", 0x229),
        Register("COMPUTE_SHADER_CHKSUM", 0x22A),
        Register("COMPUTE_DISPATCH_INTERLEAVE", DISPATCH_INTERLEAVE),
        Register("COMPUTE_RELAUNCH", 0x230),
        *_pair("COMPUTE_WAVE_RESTORE_ADDR", 0x231),
        Register("COMPUTE_WAVE_RESTORE_CONTROL", 0x233),
        *(Register(f"COMPUTE_USER_DATA_{i}", USER_DATA_0 + i) for i in range(USER_DATA_COUNT)),
        Register("COMPUTE_DISPATCH_TUNNEL", DISPATCH_TUNNEL),
        Register("COMPUTE_DISPATCH_END", 0x27E),
        Register("COMPUTE_NOWHERE", 0x27F),
    ]
    return {register.offset: register for register in found}


def _xyz(name: str, offset: int) -> list[Register]:
    return [Register(f"{name}_{axis}", offset + i) for i, axis in enumerate("XYZ")]


def _pair(name: str, offset: int) -> list[Register]:
    return [Register(f"{name}_LO", offset), Register(f"{name}_HI", offset + 1)]

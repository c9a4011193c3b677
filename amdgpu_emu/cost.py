"""A simple model of the time of a dispatch on a real card, from the counts of the emulated shader core.

A dispatch takes as long as its slowest part; the parts overlap perfectly:

    launch    starting its waves, and the packet itself
    memory    each distinct line read, and each distinct half line written, once, at the memory's bandwidth: caches are
              empty at first, and large
    cache     what vector loads and stores move between the registers and the caches of their compute units: the bytes
              of their lanes, or, where that is more, the half lines in which these lie
    valu      vector instructions, on the SIMDs that have waves
    lds       local memory
    issue     scalar instructions, branches and waits, one of a kind each cycle on a SIMD
    latency   one wave after the other: its instructions, and the whole way to memory for each round of loads

Before all but launch and latency lies one way to memory, when there are loads at all; where it is the longer part, the
bound is called latency, too. So a load whose lanes are a line apart costs a line for each lane, from memory and from
the cache.

A real dispatch is slower where waves come in clumps, banks or channels collide, caches are thrashed or clocks drop.
The model has none of these effects, and no constant was fitted. The result is a bound to compare measurements with.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Self

from amdgpu_emu.core.counters import HALF, LINE
from amdgpu_emu.models import R9700, GpuModel

if TYPE_CHECKING:
    from amdgpu_emu.core.counters import Counters
    from amdgpu_emu.shader import Dispatch

# What a card has.
BANDWIDTH: Final = 576e9
"""Bytes per second of the R9700, as this project's goals count them. 256 pins at 20 Gbit/s, as an RX 9070 has them,
would be 640e9; this is nine tenths of that. Other cards: by width and clock of their memory."""
SIMDS: Final = 2
"""SIMDs of a compute unit (AMD, RDNA whitepaper). Each issues one vector instruction of 32 lanes per cycle."""
LDS_BYTES_PER_CYCLE: Final = 128
"""LDS bytes per cycle of a compute unit: 32 banks of 4 bytes (RDNA 4 ISA guide, "Local Data Share")."""
CACHE_BYTES_PER_CYCLE: Final = 64
"""Bytes per cycle of a compute unit's vector cache, all of one line. An assumption, on the slow side: half a line."""
DISPATCH_SECONDS: Final = 0.016e-6
"""Seconds of a DISPATCH_DIRECT packet, on the GPU's side: a published figure for gfx1201."""
WAVES_PER_CYCLE: Final = 1
"""Waves that a shader engine starts per cycle. An assumption: it has one workgroup manager."""

# How long a wave waits; cycles are those of LLVM's scheduling model for generation 11 (SISchedule.td).
MEMORY_SECONDS: Final = 0.4e-6
"""Cycles from a load to its data, without contention. An assumption: three times LLVM's 320 cycles (WriteVMEM), which
hold for a cache; this is for VRAM."""
LDS_CYCLES: Final = 20
"""WriteLDS."""
DEPENDENT_CYCLES: Final = 4
"""Write32Bit is 5: 4 beyond its own, when the next instruction needs the result, which the compiler marks with
s_delay_alu."""

# Cycles of a SIMD for 32 lanes. All else takes 1, both halves of a VOPD pair together too.
QUARTER_RATE: Final = 4
"""Transcendentals and 32-bit integer products (WriteTrans32, WriteQuarterRate32)."""
DOUBLE_RATE: Final = 32
"""64-bit floats (AMD's profiler manual for RDNA 3.5: one lane a cycle; WriteDouble of 38 agrees)."""
WMMA_CYCLES: Final = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}
"""16x16x16 products, by the type of their factors: the advertised 191 TFLOPS of FP16, 383 TOPS of INT8 at 2.92 GHz are
1024 and 2048 operations a cycle of a compute unit, and a product has 8192."""

# Registers and local memory, of LLVM (AMDGPUBaseInfo) for cards with the large register file.
MAX_WAVES: Final = 16
VGPRS: Final = 1536
VGPR_STEP: Final = 24
LDS_BYTES: Final = 64 << 10

_SCALAR: Final = {
    "s_load": "scalar loads", "s_buffer": "scalar loads", "s_wait": "waits", "s_delay": "waits", "s_nop": "waits",
    "s_clause": "waits", "s_branch": "branches", "s_cbranch": "branches", "s_endpgm": "branches",
    "s_barrier": "branches", "s_sendmsg": "branches",
}  # fmt: skip
_NO_DATA: Final = ("_inv", "_wb", "_wbinv", "_prefetch_b8")
_QUARTER: Final = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos|s)_|v_mul_(lo|hi)_[iu]32|v_mad_(co_)?[iu]64_[iu]32")
_MATRIX: Final = re.compile(r"v_(s?)wmma.*_16x16x(\d+)_(f16|bf16|iu8|iu4|fp8|bf8)")
_WIDTH: Final = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)(?!\d)")


@dataclass(frozen=True)
class Work:
    """Counts of one dispatch. lanes: of a wave; vgprs: registers of a lane; lds_bytes: of a workgroup; paired:
    workgroups may spread over two compute units; names: instructions that waves executed, by name; rounds, lds_rounds:
    how often waves waited for loads from memory, or only from LDS, that they had not waited for yet; late, late_rounds:
    the part of names and rounds that the last workgroup alone did; bytes and lines as in `Counters`.
    """

    waves: int
    workgroups: int
    lanes: int
    vgprs: int
    lds_bytes: int
    paired: bool
    names: Mapping[str, int]
    instructions: Mapping[str, int] = field(default_factory=dict)
    bytes_read: int = 0
    bytes_written: int = 0
    unique_read: int = 0
    unique_written: int = 0
    lines: int = 0
    stray: int = 0
    read_lines: int = 0
    written_halves: int = 0
    rounds: int = 0
    lds_rounds: int = 0
    late: Mapping[str, int] = field(default_factory=dict)
    late_rounds: int = 0

    @classmethod
    def of(cls, dispatch: Dispatch, counters: Counters, rounds: int, lds_rounds: int, late_rounds: int = 0) -> Self:
        """Make the counts of a dispatch from those of a shader core with `measure`."""
        return cls(
            counters.waves, counters.workgroups, 32 if dispatch.wave32 else 64, counters.vgprs, counters.lds_bytes,
            bool(dispatch.rsrc1 >> 29 & 1), dict(counters.names), dict(counters.instructions),
            counters.bytes_read + counters.scalar_bytes, counters.bytes_written, counters.unique_read,
            counters.unique_written, counters.lines, counters.stray, counters.read_lines, counters.written_halves,
            rounds, lds_rounds, dict(counters.late), late_rounds,
        )  # fmt: skip

    def scaled(self, factor: int, shared_read: int = 0) -> Self:
        """Scale the counts as if `factor` times as many workgroups had done the same, on bytes of their own but for
        `shared_read`, which lie in lines of their own.
        """
        shared_lines = -(-shared_read // LINE)
        return replace(
            self,
            waves=self.waves * factor,
            workgroups=self.workgroups * factor,
            names={
                name: (n - self.late.get(name, 0)) * factor + self.late.get(name, 0) for name, n in self.names.items()
            },
            instructions={name: n * factor for name, n in self.instructions.items()},
            bytes_read=self.bytes_read * factor,
            bytes_written=self.bytes_written * factor,
            unique_read=(self.unique_read - shared_read) * factor + shared_read,
            unique_written=self.unique_written * factor,
            lines=self.lines * factor,
            stray=self.stray * factor,
            read_lines=(self.read_lines - shared_lines) * factor + shared_lines,
            written_halves=self.written_halves * factor,
            rounds=(self.rounds - self.late_rounds) * factor + self.late_rounds,
            lds_rounds=self.lds_rounds * factor,
        )

    @property
    def memory_bytes(self) -> int:
        """Bytes that come from memory and go to it."""
        return max(self.unique_read, LINE * self.read_lines) + max(self.unique_written, HALF * self.written_halves)

    @property
    def occupancy(self) -> int:
        """Waves that a SIMD holds at once, by registers and LDS; 0: not even one workgroup fits."""
        step = VGPR_STEP * 32 // self.lanes
        by_registers = VGPRS * 32 // self.lanes // (-(-max(self.vgprs, 1) // step) * step)
        units = 2 if self.paired else 1
        each = -(-self.waves // max(self.workgroups, 1))
        groups = units * SIMDS * min(MAX_WAVES, by_registers) // max(each, 1)
        if self.lds_bytes:
            groups = min(groups, units * LDS_BYTES // self.lds_bytes)
        return min(MAX_WAVES, by_registers, -(-groups * each // (units * SIMDS)))


@dataclass(frozen=True)
class Cost:
    """The predicted time of a dispatch. seconds: in all; parts: seconds of each part alone; bound: the slowest;
    bandwidth: share of the memory's that the distinct bytes take, without what else is in their lines.
    """

    seconds: float
    parts: Mapping[str, float]
    bound: str
    bandwidth: float


def bandwidth_of(model: GpuModel) -> float:
    """Memory bandwidth of a card in bytes per second."""
    return BANDWIDTH * (model.memory_bits * model.memory_clock_mhz) / (R9700.memory_bits * R9700.memory_clock_mhz)


def vector_cycles(name: str, lanes: int = 32) -> int:
    """Cycles that a vector instruction occupies its SIMD; waves of 64 lanes take two turns."""
    matrix = _MATRIX.match(name)
    if matrix:  # a sparse one has half of its factors
        return WMMA_CYCLES[matrix[3]] * int(matrix[2]) // (32 if matrix[1] else 16)
    cycles = QUARTER_RATE if _QUARTER.match(name) else 1
    if "_f64" in name:
        cycles = DOUBLE_RATE * cycles
    return cycles * lanes // 32


def moved_bytes(name: str, lanes: int = 32) -> int:
    """Bytes between registers and memory or LDS when all lanes take part."""
    if name.endswith(_NO_DATA):
        return 0
    widths = _WIDTH.findall(name)
    pair = 2 if "_2addr_" in name else 1
    return lanes * pair * max(int(widths[-1]) // 8 if widths else 4, 1)


def predict(work: Work, model: GpuModel = R9700) -> Cost:
    """Predict the time of a dispatch on a card. Raises `ValueError` for a workgroup that does not fit."""
    if not work.occupancy:
        raise ValueError(f"a workgroup with {work.vgprs} VGPRs and {work.lds_bytes} bytes of LDS fits no compute unit")
    clock = model.clock_mhz * 1e6
    spread = 2 if work.paired else 1
    units = min(model.cu, max(work.workgroups, 1) * spread)  # compute units with work
    simds = min(units * SIMDS, max(work.waves, 1))
    ports = _ports(work)
    busiest = max(n for name, n in ports.items() if name not in ("valu", "cache", "lds")) / simds
    parts = {
        "memory": work.memory_bytes / bandwidth_of(model),
        "cache": ports["cache"] / units / clock,
        "valu": ports["valu"] / simds / clock,
        "lds": ports["lds"] / units / clock,
        "issue": busiest / clock,
    }
    first = MEMORY_SECONDS if work.rounds else 0.0
    bound = max(parts, key=lambda name: parts[name])
    busy = parts[bound]
    parts["latency"] = _latency(work, model)
    parts["alone"] = _alone(work, model)
    parts["launch"] = DISPATCH_SECONDS + work.waves / (WAVES_PER_CYCLE * model.shader_engines) / clock
    running = max(busy + first, parts["latency"])
    if parts["latency"] >= busy + first or busy < first:
        bound = "latency"
    if parts["launch"] >= running:
        bound = "launch"
    seconds = max(parts["launch"], DISPATCH_SECONDS + running + parts["alone"])
    return Cost(seconds, parts, bound, (work.unique_read + work.unique_written) / seconds / bandwidth_of(model))


def _ports(work: Work) -> dict[str, float]:
    """Cycles by resource: of compute units for cache and lds, of SIMDs for the others."""
    ports = dict.fromkeys(("valu", "cache", "lds", "scalar", "waits", "branches", "scalar loads"), 0.0)
    ports["cache"] = work.stray * HALF / CACHE_BYTES_PER_CYCLE
    for name, n in work.names.items():
        if name.startswith("v_"):
            ports["valu"] += n * vector_cycles(name, work.lanes)
        elif name.startswith("ds_"):
            ports["lds"] += n * max(moved_bytes(name, work.lanes) / LDS_BYTES_PER_CYCLE, 1)
        elif name.startswith("s_"):
            ports[_SCALAR.get("_".join(name.split("_")[:2]), "scalar")] += n
        else:
            ports["cache"] += n * moved_bytes(name, work.lanes) / CACHE_BYTES_PER_CYCLE
    return ports


def _latency(work: Work, model: GpuModel) -> float:
    """Seconds of all waves, as many at once as fit, if each wave could issue in every cycle."""
    if not work.waves:
        return 0.0
    shared = {name: n - work.late.get(name, 0) for name, n in work.names.items()}
    cycles = _wave_cycles(shared, work.lanes) + work.lds_rounds * LDS_CYCLES
    rounds = work.rounds - work.late_rounds
    wave = (cycles / (model.clock_mhz * 1e6) + rounds * MEMORY_SECONDS) / work.waves
    return wave * max(1.0, work.waves / (work.occupancy * model.cu * SIMDS))


def _alone(work: Work, model: GpuModel) -> float:
    """Seconds of what the last workgroup does behind all others, its waves side by side."""
    if not work.late_rounds and not work.late:
        return 0.0
    each = work.waves / max(work.workgroups, 1)
    seconds = _wave_cycles(work.late, work.lanes) / (model.clock_mhz * 1e6) + work.late_rounds * MEMORY_SECONDS
    return seconds / each


def _wave_cycles(names: Mapping[str, int], lanes: int) -> float:
    """Cycles of instructions one after the other, with the waits for their operands."""
    cycles = sum(n * (vector_cycles(name, lanes) if name[:2] == "v_" else 1) for name, n in names.items())
    return cycles + names.get("s_delay_alu", 0) * DEPENDENT_CYCLES

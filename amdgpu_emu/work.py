"""`Work`: what a dispatch did, in counts that the cost model reads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, Self

from amdgpu_emu.core.counters import HALF, LINE
from amdgpu_emu.rates import PORTS, port, vector_cycles
from amdgpu_emu.residency import L2, MEMORY

if TYPE_CHECKING:
    from amdgpu_emu.core.counters import Counters
    from amdgpu_emu.shader import Dispatch

SIMDS: Final = 2
"""SIMDs of a compute unit (AMD, RDNA whitepaper). Each issues one vector instruction of 32 lanes per cycle."""
# Registers and local memory, of LLVM (AMDGPUBaseInfo) for cards with the large register file.
MAX_WAVES: Final = 16
VGPRS: Final = 1536
VGPR_STEP: Final = 24
LDS_BYTES: Final = 64 << 10
_KEPT: Final = ("lanes", "vgprs", "lds_bytes", "paired", "pieces")
_LATE: Final = ("late", "late_rounds", "late_waves")


@dataclass(frozen=True)
class Work:
    """Counts of one dispatch. lanes: of a wave; vgprs: registers of a lane; lds_bytes: of a workgroup; paired:
    workgroups may spread over two compute units; names: instructions that waves executed, by name; rounds, lds_rounds:
    how often waves waited for loads from memory, or only from LDS, that they had not waited for yet; late, late_rounds:
    the part of names and rounds that last workgroups alone did; late_waves: their waves side by side, by the one of
    them that waits most often, 0 for those of one workgroup; levels: rounds, but for the late ones, by the level
    of `residency` that they waited for, empty: all for memory; asked_lines: distinct lines that workgroups read, summed
    over these; l2_lines, infinity_lines: of `read_lines`, those that lay in a cache before; pieces: matrices of experts
    that rows chose, one for each row; bytes and lines as in `Counters`.
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
    late_waves: float = 0.0
    levels: Mapping[int, int] = field(default_factory=dict)
    asked_lines: int = 0
    l2_lines: int = 0
    infinity_lines: int = 0
    pieces: int = 0

    @classmethod
    def of(cls, dispatch: Dispatch, counters: Counters, rounds: int, lds_rounds: int, **more: Any) -> Self:
        """Make the counts of a dispatch from those of a shader core with `measure`. more: other fields."""
        return cls(
            counters.waves, counters.workgroups, 32 if dispatch.wave32 else 64, counters.vgprs, counters.lds_bytes,
            bool(dispatch.rsrc1 >> 29 & 1), dict(counters.names), dict(counters.instructions),
            counters.bytes_read + counters.scalar_bytes, counters.bytes_written, counters.unique_read,
            counters.unique_written, counters.lines, counters.stray, counters.read_lines, counters.written_halves,
            rounds, lds_rounds, dict(counters.late), **more,
        )  # fmt: skip

    def scaled(self, factor: int, shared_read: int = 0) -> Self:
        """Scale the counts as if `factor` times as many workgroups had done the same, on bytes of their own but for
        `shared_read`, which lie in lines of their own.
        """
        shared = {"unique_read": shared_read, "read_lines": -(-shared_read // LINE), "rounds": self.late_rounds}
        shared["l2_lines"] = min(self.l2_lines, shared["read_lines"])

        changed: dict[str, Any] = {}
        for name in _counts():
            value, fixed = getattr(self, name), shared.get(name, 0)
            changed[name] = (
                {key: n * factor for key, n in value.items()}
                if isinstance(value, Mapping)
                else (value - fixed) * factor + fixed
            )
        changed["names"] = {key: n - (factor - 1) * self.late.get(key, 0) for key, n in changed["names"].items()}
        return replace(self, **changed)

    def extended(self, more: Work, share: float) -> Self:
        """The counts of a dispatch for which this one and `more` are samples: each count goes on as from here to there,
        `share` times as far; 1 is `more` itself.
        """

        def further(value: int, other: int) -> int:
            return max(0, round(value + share * (other - value)))

        changed: dict[str, Any] = {}
        for name in _counts():
            value, other = getattr(self, name), getattr(more, name)
            changed[name] = (
                {key: further(value.get(key, 0), other.get(key, 0)) for key in {**value, **other}}
                if isinstance(value, Mapping)
                else further(value, other)
            )
        return replace(self, **changed)

    def with_last(self, without: Work, last: Work, waits: int, times: int) -> Self:
        """The counts with what the last workgroups do behind all others, `times` of them side by side. without, last: a
        few workgroups, of which none is the last or one; waits: how often the wave waits that waits most often then.
        """
        late = {name: n - without.names.get(name, 0) for name, n in last.names.items()}
        late = {name: n for name, n in late.items() if n > 0}
        rounds = last.rounds - without.rounds
        changed: dict[str, Any] = {}
        for name in _counts():
            value, more, less = (getattr(work, name) for work in (self, last, without))
            if name == "levels":  # of rounds that are not late
                continue
            changed[name] = (
                {
                    key: value.get(key, 0) + times * max(0, more.get(key, 0) - less.get(key, 0))
                    for key in {**more, **value}
                }
                if isinstance(value, Mapping)
                else value + times * max(0, more - less)
            )
        changed |= {"late": {name: n * times for name, n in late.items()}, "late_rounds": rounds * times}
        return replace(self, **changed, late_waves=times * rounds / max(waits, 1))

    def nearer(self, n_bytes: int) -> Self:
        """The counts with so many bytes of what was read from memory lying in the L2 instead."""
        far = self.read_lines - self.l2_lines - self.infinity_lines
        lines = min(n_bytes // LINE, far)
        levels = dict(self.levels or {MEMORY: self.rounds - self.late_rounds})
        moved = round(levels.get(MEMORY, 0) * lines / max(far, 1))
        levels |= {MEMORY: levels.get(MEMORY, 0) - moved, L2: levels.get(L2, 0) + moved}
        return replace(self, l2_lines=self.l2_lines + lines, levels=levels)

    @property
    def memory_bytes(self) -> int:
        """Bytes that come from memory, or the cache before it, and go to it."""
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

    @cached_property
    def ports(self) -> dict[str, float]:
        """What goes through each port of `rates`: bytes of cache and LDS, else cycles."""
        found = dict.fromkeys(PORTS, 0.0)
        found["cache"] = self.stray * HALF
        for name, n in self.names.items():
            where, much = port(name, self.lanes)
            found[where] += n * much
        return found

    @cached_property
    def shared_cycles(self) -> float:
        """Cycles of the instructions of all waves, one after the other, but for those of the last workgroup alone."""
        return cycles({name: n - self.late.get(name, 0) for name, n in self.names.items()}, self.lanes)

    @cached_property
    def delays(self) -> tuple[int, int]:
        """Instructions that need the result just before them: of all waves, and of the last workgroup alone."""
        late = self.late.get("s_delay_alu", 0)
        return self.names.get("s_delay_alu", 0) - late, late


def cycles(names: Mapping[str, int], lanes: int) -> float:
    """Cycles of instructions one after the other, if none waits for its operands."""
    return sum(n * (vector_cycles(name, lanes) if name[:2] == "v_" else 1) for name, n in names.items())


def _counts() -> Iterator[str]:
    """The fields that grow with the number of workgroups."""
    return (f.name for f in fields(Work) if f.name not in _KEPT and f.name not in _LATE)

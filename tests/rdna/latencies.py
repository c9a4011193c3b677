"""What a loop of machine code waits for, one after the other, and what it costs."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amdgpu_emu.isa.decoder import instructions
from amdgpu_emu.isa.instruction import Instruction
from amdgpu_emu.isa.listing import target
from amdgpu_emu.rates import vector_cycles
from zinc_rt.lang import GpuKernel

_COUNTED: Final = {"global_load": "loadcnt", "s_load": "kmcnt", "ds_load": "dscnt"}
_WAIT: Final = re.compile(r"s_wait_(loadcnt|kmcnt|dscnt|loadcnt_dscnt)$")


@dataclass(frozen=True)
class Loop:
    """An innermost loop. latencies: how many times a turn waits for vector loads of which it had not asked for one
    before an earlier such wait, so that their ways to memory lie one behind the other; scalar: the same for scalar
    loads; loads, valu: vector loads, and cycles of vector instructions, of a turn; names: the instructions.
    """

    latencies: int
    scalar: int
    loads: int
    valu: int
    names: tuple[str, ...]

    def count(self, pattern: str) -> int:
        """How many instructions of a turn begin like that."""
        return sum(bool(re.match(pattern, name)) for name in self.names)


def loops(kernel: GpuKernel) -> list[Loop]:
    """The innermost loops of a gfx12 kernel with vector loads, in order. Branches forward count as not taken."""
    code = list(instructions(kernel.code[: kernel.size], wave=kernel.wave))
    places = {i.address: n for n, i in enumerate(code)}
    spans = [(places[to], n) for n, i in enumerate(code) if (to := target(i)) is not None and to <= i.address]
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    found = [_loop(code[first : last + 1]) for first, last in sorted(inner)]
    return [loop for loop in found if loop.loads]


def main_loop(kernel: GpuKernel) -> Loop:
    """The loop with the most vector instructions."""
    return max(loops(kernel), key=lambda loop: loop.valu)


def _loop(body: Sequence[Instruction]) -> Loop:
    names = tuple(i.name for i in body)
    return Loop(
        depth(body, "loadcnt"),
        depth(body, "kmcnt"),
        sum(name.startswith("global_load") for name in names),
        sum(vector_cycles(name) for name in names if name.startswith("v_")),
        names,
    )


def depth(body: Sequence[Instruction], counter: str) -> int:
    """Latencies of a turn when all take equally long and nothing else takes time: those that a further turn adds."""
    time, under_way, ends = 0, [], []
    for _ in range(3):
        for i in body:
            if _COUNTED.get("_".join(i.name.split("_")[:2])) == counter:
                under_way.append(time + 1)
            elif (wait := _WAIT.match(i.name)) and counter in wait[1]:
                left = i.modifiers["simm16"] & 63 if wait[1] != "loadcnt_dscnt" else i.modifiers["simm16"] >> 8
                arrived = under_way[: max(len(under_way) - left, 0)]
                time = max([time, *arrived])
                del under_way[: len(arrived)]
        ends.append(time)
    return ends[-1] - ends[-2]

"""What the loops of RDNA 4 kernels wait for, one after the other, and what they cost, read from the machine code.

python benchmarks/loop_latencies.py [NAME]...

Prints of each innermost loop with vector loads, for a turn: waits for vector loads that lie one behind the other (one
is the best), the same for scalar loads, vector loads, cycles of vector instructions; and of the kernel the waves that
a SIMD holds. All products of one row of activations by default, some of several rows, experts and attention.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from amdgpu_emu.isa.decoder import instructions
from amdgpu_emu.isa.instruction import Instruction
from amdgpu_emu.isa.listing import target
from amdgpu_emu.rates import vector_cycles
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.catalogue import (
    QUANTIZED,
    KernelEntry,
    attention_kernel,
    gated_experts,
    gated_rows,
    matvec_rows,
)
from zinc_rt.lang import GpuKernel
from zinc_rt.lang.gpu import gpu_kernel

_COUNTED: Final = {"global_load": "loadcnt", "s_load": "kmcnt", "ds_load": "dscnt"}
BLOCKS: Final = (
    ("Q8_0", 2), ("Q4_0", 4), ("Q8_0", 8), ("Q4_0", 8), ("Q4_K", 8), ("Q5_K", 8), ("Q6_K", 8), ("MXFP4", 8), ("F16", 8),
)  # fmt: skip
"""Formats and rows of activations."""
_WAIT: Final = re.compile(r"s_wait_(loadcnt|kmcnt|dscnt|loadcnt_dscnt)$")


@dataclass(frozen=True)
class Loop:
    """An innermost loop. latencies: how many times a turn waits for vector loads of which it had not asked for one
    before an earlier such wait, so that their ways to memory lie one behind the other; scalar: the same for scalar
    loads; loads, valu: vector loads, and cycles of vector instructions, of a turn.
    """

    latencies: int
    scalar: int
    loads: int
    valu: int


def loops(kernel: GpuKernel) -> list[Loop]:
    """The innermost loops of a gfx12 kernel with vector loads, in order. Branches forward count as not taken."""
    code = list(instructions(kernel.code[: kernel.size], wave=kernel.wave))
    places = {i.address: n for n, i in enumerate(code)}
    spans = [(places[to], n) for n, i in enumerate(code) if (to := target(i)) is not None and to <= i.address]
    inner = [s for s in spans if not any(o != s and s[0] <= o[0] and o[1] <= s[1] for o in spans)]
    found = [_loop(code[first : last + 1]) for first, last in sorted(inner)]
    return [loop for loop in found if loop.loads]


def _loop(body: Sequence[Instruction]) -> Loop:
    names = tuple(i.name for i in body)
    return Loop(
        depth(body, "loadcnt"),
        depth(body, "kmcnt"),
        sum(name.startswith("global_load") for name in names),
        sum(vector_cycles(name) for name in names if name.startswith("v_")),
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


def entries() -> dict[str, KernelEntry]:
    """The kernels by the names that the command line takes."""
    one = {f"matvec_{kind.lower()}": KERNELS[f"matvec_{kind.lower()}"] for kind in (*QUANTIZED, "F32", "F16", "BF16")}
    rows = {f"{kind} x {n}": matvec_rows(kind, n) for kind, n in BLOCKS}
    return (
        one
        | rows
        | {
            "experts": gated_experts("Q4_K", "Q4_K", packed=True, bias=False, activation="silu"),
            "mixed": gated_rows("Q4_K", "Q6_K", 8, packed=True, bias=True, activation="silu"),
            "attention": attention_kernel(128, 4, sinks=True),
            "attention of blocks": attention_kernel(256, 2, quantized=True),
        }
    )


def main(names: Sequence[str]) -> None:
    """Print the table."""
    found = entries()
    print(f"{'kernel':24} {'waits':>5} {'scalar':>6} {'loads':>5} {'cycles':>6} {'waves':>5}")
    for name in names or found:
        kernel = gpu_kernel(found[name].spec)
        for loop in loops(kernel):
            numbers = f"{loop.latencies:5} {loop.scalar:6} {loop.loads:5} {loop.valu:6} {kernel.occupancy:5}"
            print(f"{name:24} {numbers}")


if __name__ == "__main__":
    main(sys.argv[1:])

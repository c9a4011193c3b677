"""NVIDIA's matrix instruction on OpenCL's CPU driver, by exchange of lanes, for kernels of the fake CUDA driver.

`TARGET` is SPIR-V with the word `mma_s8`, from what NVIDIA documents of `mma.m16n8k32` and `mma.m16n8k16` with signed
bytes: lane 4g + t has of A rows g and g + 8, columns 4t to 4t + 3 of each 16; of B the same columns of its row g; and
of the sums rows g and g + 8, columns 2t and 2t + 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import GpuKernel
from zinc_rt.lang.gpu_library import gpu_kernels
from zinc_rt.lang.machines.spirv64 import MACHINE, builtin
from zinc_rt.lang.target import TARGETS

TARGET = replace(TARGETS["spirv-plain"], name="spirv with mma", isa=TARGETS["spirv-plain"].isa | {"mma"})


def _mma_s8(c: Any, total: Sequence[str], a: Sequence[str], b: Sequence[str]) -> list[str]:
    def do(text: str) -> str:
        return str(c.f.value(text))

    def of_lane(word: str, lane: str) -> str:
        return builtin(c.f, "_Z17sub_group_shufflejj", "i32", [("i32", word), ("i32", lane)], "convergent nounwind")

    lane, sums = MACHINE.lane_id(c), list(total)
    group, own = do(f"and i32 {lane}, 28"), do(f"and i32 {lane}, 3")
    columns = [do(f"shl i32 {own}, 3"), do(f"or i32 {do(f'shl i32 {own}, 3')}, 4")]  # lanes 4 (2t), 4 (2t + 1)
    for t in range(4):
        rows = [of_lane(word, do(f"or i32 {group}, {t}")) for word in a]
        for k, word in enumerate(b):
            for n, column in enumerate(columns):
                other = of_lane(word, do(f"or i32 {column}, {t}"))
                for half in (0, 1):
                    at = 2 * half + n
                    sums[at] = MACHINE.dot4(c, sums[at], rows[2 * k + half], other, True)
    return sums


def kernels(specs: dict[str, Spec], **options: Any) -> dict[str, GpuKernel]:
    """As `gpu_kernels`, for `TARGET`; OpenCL's driver takes them as its own."""
    TARGETS[TARGET.name] = TARGET
    MACHINE.mma_s8 = _mma_s8  # type: ignore[method-assign]
    try:
        made = gpu_kernels(specs, TARGET.name, **options)
    finally:
        del TARGETS[TARGET.name], MACHINE.mma_s8
    return {name: replace(kernel, target="spirv-plain") for name, kernel in made.items()}

"""Every kernel of zinc_rt.kernels.gpu compiled, and its instructions as LLVM lists them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from tests.compiled import gpu_kernel, kernel_images
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu.catalogue import KernelEntry, attention_kernel, head_form, heads_kernel
from zinc_rt.lang import TARGETS, GpuKernel
from zinc_rt.lang.gpu import describe_kernel

ENTRIES: Mapping[str, KernelEntry] = {
    **KERNELS,
    "heads": heads_kernel(head_form(128, 64, interleaved=False, norm=True, cache=True)),
    "heads_unrotated": heads_kernel(head_form(64, 0, interleaved=False, norm=True, cache=True)),
    "attention": attention_kernel(128, 4, sinks=True),
    "attention_packed": attention_kernel(128, 4, packed=True),
}
"""The catalogue, and of the kernels that are made for a shape one shape each."""

HEADS = ((128, 64, False), (80, 20, True), (80, 20, False), (8, 4, False), (288, 32, True), (40, 0, False))
"""Elements of a head, rotated pairs, whether they are neighbours."""
HEADS_FORMS = ((False, True), (True, False), (True, True))
"""Whether there is a norm, whether the result goes into the cache."""
ATTENTION = ((128, 2, 4), (80, 1, 3), (8, 2, 2), (64, 1, 9))
"""Elements of a head, key-value heads, query heads to each of them."""
BLOCKS = (
    *(("Q4_0", 3), ("Q6_K", 3), ("F16", 3), ("Q5_K", 2), ("BF16", 4), ("F32", 8), ("F16", 8)),
    *((kind, 8) for kind in ("Q8_0", "Q5_1", "Q4_K", "Q6_K", "Q2_K", "Q3_K", "IQ4_XS", "MXFP4", "NVFP4", "IQ2_XS")),
)
"""A format of each way to read weights, with rows of activations."""

# Float operations that are fused: a product and a sum in one rounding. Integers have others.
_FUSED = r"(v_|s_|v_dual_)(pk_)?(fma|mac|mad)(?!\w*_[iu]\d)"


@cache
def kernel_of(name: str, target: str = "gfx1201") -> GpuKernel:
    """One of them with its listing."""
    return gpu_kernel(ENTRIES[name].spec, target, disassemble=True)


@cache
def kernels(target: str = "gfx1201") -> dict[str, GpuKernel]:
    """All of them."""
    return compiled(ENTRIES, target, disassemble=True)


def compiled(
    entries: Mapping[str, KernelEntry], target: str = "gfx1201", *, disassemble: bool = False
) -> dict[str, GpuKernel]:
    """Kernels by the entries' names; together, since each compile process takes a while to start."""
    made = kernel_images([entry.spec for entry in entries.values()], TARGETS[target], disassemble=disassemble)
    pairs = zip(entries.items(), made, strict=True)
    return {name: describe_kernel(entry.spec, image) for (name, entry), image in pairs}


def instructions(kernel: GpuKernel) -> list[str]:
    """Instructions in order, the two halves of a dual one apart, without their bytes."""
    lines = (line.split(";")[0].strip() for line in kernel.assembly.splitlines())
    return [part.strip() for line in lines if line and not line.endswith(":") for part in line.split("::")]


def count(kernel: GpuKernel, pattern: str) -> int:
    """How many instructions begin like that."""
    return sum(bool(re.match(pattern, line)) for line in instructions(kernel))


def fused(kernel: GpuKernel) -> int:
    """Fused float operations that are not part of a division (five each) or of a square root (two each)."""
    return count(kernel, _FUSED) - 5 * count(kernel, "v_div_fmas") - 2 * count(kernel, r"v_(s_)?sqrt")

"""Real code: the listing that LLVM makes with each kernel that we compile, against ours.

Where LLVM spells one thing in several ways: the listing writes the target of a branch as "" and the distance of a table
as its symbol, since the linker fills both in later; nothing else differs.
"""

from __future__ import annotations

import re
import struct
from functools import cache

import pytest

from amdgpu_emu.isa.decoder import decode, instructions
from amdgpu_emu.isa.instruction import Instruction
from amdgpu_emu.isa.listing import target
from amdgpu_emu.isa.printer import text
from tests.compiled import gpu_kernel, kernel_images
from tests.lang import gpu_kernels
from zinc_rt.kernels.amd.catalogue import KERNELS
from zinc_rt.kernels.gpu import catalogue
from zinc_rt.lang import TARGETS, GpuKernel, Spec
from zinc_rt.lang.gpu import describe_kernel


@cache
def specs() -> dict[str, Spec]:
    shaped = {
        "attention": catalogue.attention_kernel(128, 4),
        "attention_packed": catalogue.attention_kernel(128, 4, packed=True),
        "heads": catalogue.heads_kernel(catalogue.head_form(128, 64, interleaved=False, norm=True, cache=True)),
        "heads_interleaved": catalogue.heads_kernel(
            catalogue.head_form(64, 32, interleaved=True, norm=False, cache=False)
        ),
        "matvec_rows": catalogue.matvec_rows("Q4_0", 4),
    }
    found = {name: entry.spec for name, entry in {**KERNELS, **shaped}.items()}
    return found | {f"language_{f.name}": Spec(f) for f in gpu_kernels.ALL}


SOME = (
    *("argmax_keys", "embed_iq3_s", "embed_bf16", "matvec_q4_k", "matvec_f16", "norm_quantized", "quantize"),
    *("attention_packed", "heads_interleaved", "matvec_rows"),
)
"""With the kernels that try the language they hold what the others are made of; those are slow tests."""
SOON = ("embed_bf16", "matvec_q4_k", "norm_quantized", "quantize", "attention_packed")
"""Of these, the ones that are compiled for gfx11 by default."""
names = pytest.mark.parametrize(
    "name", [n if n in SOME or n.startswith("language_") else pytest.param(n, marks=pytest.mark.slow) for n in specs()]
)


@cache
def kernel_of(name: str, cpu: str = "gfx1201") -> GpuKernel:
    """In a module of its own, so that its listing is its own."""
    return gpu_kernel(specs()[name], cpu, disassemble=True)


@cache
def kernels(cpu: str = "gfx1201") -> dict[str, GpuKernel]:
    """All for a target."""
    wanted = {n: s for n, s in specs().items() if cpu == "gfx1201" or not n.startswith("language_")}
    made = kernel_images(list(wanted.values()), TARGETS[cpu], disassemble=True)
    return {n: describe_kernel(s, image) for (n, s), image in zip(wanted.items(), made, strict=True)}


def paired(assembly: str) -> list[tuple[str, bytes]]:
    """Text and bytes of each line of LLVM's listing."""
    found = re.findall(r"^\t(.*?)\s*; ([0-9A-F ]+)$", assembly, re.M)
    return [(line, struct.pack(f"<{len(w.split())}I", *(int(x, 16) for x in w.split()))) for line, w in found]


def spelt(line: str) -> str:
    """A line of LLVM's listing with 0 for what the linker fills in."""
    return re.sub(r"\btable\d+@rel32@(lo|hi)\+\d+$", "0x0", re.sub(r'""$', "0", line))


@names
def test_every_instruction_prints_as_llvm_lists_it(name: str) -> None:
    kernel = kernel_of(name)
    lines = paired(kernel.assembly)
    ours = [(decode(code, wave=kernel.wave), code) for _, code in lines]
    assert [text(i) for i, _ in ours] == [spelt(line) for line, _ in lines]
    assert [i.size for i, _ in ours] == [len(code) for _, code in ours]


def code_of(kernel: GpuKernel, gfx: int = 12) -> list[Instruction]:
    """The kernel's instructions, which fill its code to the last byte; behind them are tables and padding."""
    found = list(instructions(kernel.code[: kernel.size], wave=kernel.wave, gfx=gfx))
    assert sum(i.size for i in found) == kernel.size
    return found


def tables(found: list[Instruction]) -> list[tuple[int, int]]:
    """Where the code takes the address of a table: what s_getpc_b64 gives there, and the distance added to it."""
    out = []
    for here, i in enumerate(found):
        if i.name == "s_getpc_b64":
            low = next(n for n in found[here + 1 :] if n.name == "s_add_co_u32")
            out.append((i.address + i.size, low.src[1].value))
    return out


@names
def test_decoding_covers_the_code_exactly(name: str) -> None:
    kernel = kernel_of(name)
    found = code_of(kernel)
    assert len(paired(kernel.assembly)) == len(found) > 0
    starts = {i.address for i in found}
    assert all(t in starts for i in found if (t := target(i)) is not None)
    read = [near + offset for near, offset in tables(found)]
    assert bool(read) == bool(kernel.constants)
    assert all(kernel.size <= at < kernel.size + kernel.constants and at % 4 == 0 for at in read)
    behind = kernel.code[kernel.size + kernel.constants :]
    assert {i.name for i in instructions(behind, wave=kernel.wave)} == {"s_code_end"}


@pytest.mark.slow
@pytest.mark.parametrize("cpu", ["gfx1200", "gfx1100", "gfx1151"])
def test_the_same_kernels_for_other_targets(cpu: str) -> None:
    """Of gfx11 we decode what is needed for this."""
    compare(list(kernels(cpu).values()), 12 if cpu == "gfx1200" else 11)


def test_some_kernels_for_gfx11() -> None:
    compare([kernel_of(name, "gfx1100") for name in SOON], 11)


def compare(kernels: list[GpuKernel], gfx: int) -> None:
    """Each instruction prints as LLVM lists it, and jumps meet instructions."""
    for kernel in kernels:
        lines = paired(kernel.assembly)
        ours = [text(decode(code, wave=kernel.wave, gfx=gfx), gfx) for _, code in lines]
        assert ours == [spelt(line) for line, _ in lines]
        found = code_of(kernel, gfx)
        # Loops are aligned with s_nop on gfx11, which the listing leaves out.
        real = [i.name for i in found]
        if gfx == 11:
            real = [name for name in real if name != "s_nop"]
        assert len(real) == sum(not (gfx == 11 and line.startswith("s_nop")) for line, _ in lines)
        starts = {i.address for i in found}
        assert all(t in starts for i in found if (t := target(i)) is not None)

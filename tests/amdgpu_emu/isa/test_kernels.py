"""Real code: the listing that LLVM makes with each kernel that we compile, against ours.

Where LLVM spells one thing in several ways: the listing writes the target of a branch as "", since the linker fills it
in later; nothing else differs.
"""

from __future__ import annotations

import re
import struct
from functools import cache

import pytest

from amdgpu_emu.isa.decoder import decode, instructions
from amdgpu_emu.isa.listing import target
from amdgpu_emu.isa.printer import text
from tests.lang import gpu_kernels
from zinc_rt.kernels.rdna import catalogue
from zinc_rt.lang import TARGETS, GpuKernel, Spec, emit_module
from zinc_rt.lang.compiler import Compiler
from zinc_rt.lang.gpu import describe_kernel


def specs() -> dict[str, Spec]:
    attention, merge = catalogue.attention_kernels(128, 4)
    shaped = {
        "attention": attention,
        "merge": merge,
        "heads": catalogue.heads_kernel(128, 64, interleaved=False, norm=True, cache=True),
        "heads_interleaved": catalogue.heads_kernel(64, 32, interleaved=True, norm=False, cache=False),
        "matvec_rows": catalogue.matvec_rows("Q4_0", 4),
    }
    found = {name: entry.spec for name, entry in {**catalogue.KERNELS, **shaped}.items()}
    return found | {f"language_{f.name}": Spec(f) for f in gpu_kernels.ALL}


@cache
def kernels(cpu: str = "gfx1201") -> dict[str, GpuKernel]:
    """Each in a module of its own, so that its listing is its own."""
    wanted = {n: s for n, s in specs().items() if cpu == "gfx1201" or not n.startswith("language_")}
    modules = [emit_module(s.symbol, [s], TARGETS[cpu]) for s in wanted.values()]
    images = Compiler().compile(modules, disassemble=True)
    return {n: describe_kernel(s, image) for (n, s), image in zip(wanted.items(), images, strict=True)}


def paired(assembly: str) -> list[tuple[str, bytes]]:
    """Text and bytes of each line of LLVM's listing."""
    found = re.findall(r"^\t(.*?)\s*; ([0-9A-F ]+)$", assembly, re.M)
    return [(line, struct.pack(f"<{len(w.split())}I", *(int(x, 16) for x in w.split()))) for line, w in found]


@pytest.mark.parametrize("name", specs())
def test_every_instruction_prints_as_llvm_lists_it(name: str) -> None:
    kernel = kernels()[name]
    lines = paired(kernel.assembly)
    ours = [(decode(code, wave=kernel.wave), code) for _, code in lines]
    assert [text(i) for i, _ in ours] == [re.sub(r'""$', "0", line) for line, _ in lines]
    assert [i.size for i, _ in ours] == [len(code) for _, code in ours]


@pytest.mark.parametrize("name", specs())
def test_decoding_covers_the_code_exactly(name: str) -> None:
    kernel = kernels()[name]
    found = list(instructions(kernel.code, wave=kernel.wave))
    assert sum(i.size for i in found) == len(kernel.code)
    starts = {i.address for i in found}
    assert kernel.size in starts
    assert len(paired(kernel.assembly)) == sum(i.address < kernel.size for i in found) > 0
    targets = [t for i in found if (t := target(i)) is not None]
    assert all(t in starts and t < kernel.size for t in targets)
    assert {i.name for i in found if i.address >= kernel.size} == {"s_code_end"}


@pytest.mark.parametrize("cpu", ["gfx1200", "gfx1100", "gfx1151"])
def test_the_same_kernels_for_other_targets(cpu: str) -> None:
    """Of gfx11 we decode what is needed for this."""
    gfx = 12 if cpu == "gfx1200" else 11
    for kernel in kernels(cpu).values():
        lines = paired(kernel.assembly)
        ours = [text(decode(code, wave=kernel.wave, gfx=gfx), gfx) for _, code in lines]
        assert ours == [re.sub(r'""$', "0", line) for line, _ in lines]
        found = list(instructions(kernel.code, wave=kernel.wave, gfx=gfx))
        assert sum(i.size for i in found) == len(kernel.code)
        # Loops are aligned with s_nop on gfx11, which the listing leaves out.
        real = [i.name for i in found if i.address < kernel.size]
        if gfx == 11:
            real = [name for name in real if name != "s_nop"]
        assert len(real) == sum(not (gfx == 11 and line.startswith("s_nop")) for line, _ in lines)
        starts = {i.address for i in found}
        assert all(t in starts for i in found if (t := target(i)) is not None)

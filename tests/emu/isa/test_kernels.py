"""Real code: the listing that LLVM makes with each kernel that we compile, against ours.

Where LLVM spells one thing in several ways: the listing writes the target of a branch as "", since the linker fills it
in later; nothing else differs.
"""

from __future__ import annotations

import re
import struct

import pytest

from tests.lang.test_language_gpu import ALL, compiled
from zinc_rt.emu.isa.decoder import decode, instructions
from zinc_rt.emu.isa.listing import target
from zinc_rt.emu.isa.printer import text


def paired(assembly: str) -> list[tuple[str, bytes]]:
    """Text and bytes of each line of LLVM's listing."""
    found = re.findall(r"^\t(.*?)\s*; ([0-9A-F ]+)$", assembly, re.M)
    return [(line, struct.pack(f"<{len(w.split())}I", *(int(x, 16) for x in w.split()))) for line, w in found]


def words_of(line: str) -> str:
    return re.sub(r'""$', "0", line)


@pytest.mark.parametrize("name", ALL)
def test_every_instruction_prints_as_llvm_lists_it(name: str) -> None:
    lines = paired(compiled()[name].assembly)
    assert lines
    for line, code in lines:
        i = decode(code)
        assert (text(i), i.size) == (words_of(line), len(code))


@pytest.mark.parametrize("name", ALL)
def test_decoding_covers_the_code_exactly(name: str) -> None:
    kernel = compiled()[name]
    found = list(instructions(kernel.code))
    assert sum(i.size for i in found) == len(kernel.code)
    starts = {i.address for i in found}
    assert kernel.size in starts
    assert len(paired(kernel.assembly)) == sum(i.address < kernel.size for i in found)
    targets = [t for i in found if (t := target(i)) is not None]
    assert all(t in starts and t < kernel.size for t in targets)
    assert {i.name for i in found if i.address >= kernel.size} == {"s_code_end"}

"""No memory instruction is executed that the model does not define and the tests do not run."""

from __future__ import annotations

from collections.abc import Iterator

from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.core.program import Program
from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import Encoding, Instruction, UnknownInstruction
from amdgpu_emu.isa.opcodes import names
from tests.amdgpu_emu.core import test_memory_buffers, test_memory_lds, test_memory_vector
from tests.amdgpu_emu.core.memory_model import DEFINITIONS
from tests.amdgpu_emu.isa.against_llvm import SAMPLE
from tests.amdgpu_emu.isa.encodings import encodings

FORMATS = (Encoding.DS, Encoding.GLOBAL, Encoding.FLAT, Encoding.SCRATCH, Encoding.BUFFER, Encoding.SMEM)
REFUSED = {
    "global_load_tr_b64": "its order of lanes is not documented, and is not that of 16-bit numbers",
    "global_atomic_ordered_add_b64": "it needs the ordered identifiers of waves of the graphics pipeline",
    **dict.fromkeys(
        (name for name in names(Encoding.BUFFER) if "_format_" in name), "they convert texels, which is graphics"
    ),
}


def memory_instructions() -> Iterator[tuple[Instruction, int]]:
    """Recorded ones, one of each, and random ones; and the lanes of their waves."""
    codes = [line.split(maxsplit=2)[:2] for line in SAMPLE.read_text(encoding="ascii").splitlines()]
    recorded = [(bytes.fromhex(code), int(lanes)) for lanes, code in codes]
    random = [(code, lanes) for lanes in (32, 64) for _, _, code in encodings(lanes, 3)]
    for code, lanes in (*recorded, *random):
        try:
            ins = decode(code, 0x1000, wave=lanes)
        except UnknownInstruction:
            continue
        if ins.format in FORMATS:
            yield ins, lanes


def outcome(ins: Instruction, lanes: int) -> tuple[str, str]:
    """Whether the core executes or refuses it, and what it says."""
    try:
        Program(lambda a, n: b"", 256, lanes)._compile(ins)
    except Unsupported as error:
        return "refused", str(error)
    return "executed", ""


def test_what_the_core_executes_is_defined_and_what_it_refuses_is_known() -> None:
    executed, refused = set(), set()
    for ins, lanes in memory_instructions():
        found, text = outcome(ins, lanes)
        if found == "refused":
            assert ins.name in text
        (executed if found == "executed" else refused).add(ins.name)
    known = {name for form in FORMATS for name in names(form)}
    assert executed == set(DEFINITIONS)
    assert known - executed == set(REFUSED)
    assert refused & executed == {"global_load_tr_b128"}  # in waves of 64 it is another instruction


def test_every_definition_is_run() -> None:
    covered = [test_memory_vector.COVERED, test_memory_lds.COVERED, test_memory_buffers.COVERED]
    assert set().union(*covered) == set(DEFINITIONS)
    assert sum(map(len, covered)) == len(DEFINITIONS)

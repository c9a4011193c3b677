"""No arithmetic instruction runs without a definition in these tests that its results were compared with."""

from __future__ import annotations

from collections.abc import Iterable

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.program import Program
from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import Encoding, Instruction, Operand, OperandKind, UnknownInstruction
from amdgpu_emu.isa.opcodes import OperandType
from tests.amdgpu_emu.core import (  # noqa: F401
    test_definitions,
    test_matrix,
    test_mixed,
    test_scalars,
    test_special,
    test_transcendentals,
)
from tests.amdgpu_emu.core.defined.harness import BY_TEST, DEFINED, OPCODES
from tests.amdgpu_emu.core.one import literal, sgpr, vgpr
from tests.amdgpu_emu.isa.encodings import FORMATS, encodings

ELSEWHERE = {
    "s_sleep_var": "does what s_sleep does, which test_kernels runs",
    "s_barrier_signal": "test_strict, test_kernels",
}
"""Instructions of these formats that compute nothing, and where they are tested."""
REFUSED = {
    "s_barrier_signal_isfirst", "s_barrier_init", "s_barrier_join", "s_wakeup_barrier", "s_get_barrier_state",
    "s_rfe_b64", "s_sendmsg_rtn_b32", "s_sendmsg_rtn_b64", "s_version",
}  # fmt: skip
"""All that the core does not execute of SOP1, SOP2, SOPC, SOPK, VOP1, VOP2, VOPC, VOP3, VOP3SD, VOP3P, VOPD."""
WIDE = {32: "32 lanes", 64: "64 lanes"}


def operand(kind: OperandType, place: int, scalar: bool, lanes: int) -> Operand:
    """Some operand of a type."""
    bits = kind.bits or lanes
    if kind.kind == "hwreg":
        return Operand(OperandKind.HWREG, 1, value=1)
    if kind.place == "k":
        return literal(0, bits)
    if kind.place == "j":
        return Operand(OperandKind.INTEGER, value=0xFFFFFFFF)
    if kind.kind == "m" and not scalar:
        return Operand(OperandKind.VCC, 0, lanes // 32, bits=lanes)
    if scalar or kind.place == "s":
        return sgpr(8 + 4 * place, max(1, bits // 32))
    return vgpr(8 + 8 * place, bits)


def compiled(name: str, lanes: int) -> bool:
    """Whether the core takes it, in a plain form."""
    form, op = OPCODES[name]
    if form is Encoding.VOPD and lanes == 64:
        return False
    scalar = form in (Encoding.SOP1, Encoding.SOP2, Encoding.SOPC, Encoding.SOPK)
    src = tuple(operand(t, k, scalar, lanes) for k, t in enumerate(op.src) if t.kind not in ("imm", "rel", "msg"))
    dst = tuple(operand(t, 5 + k, scalar, lanes) for k, t in enumerate(op.dst))
    if form is Encoding.VOPC:
        dst = (Operand(OperandKind.EXEC if name.startswith("v_cmpx") else OperandKind.VCC, 0, lanes // 32, bits=lanes),)
    other = Instruction(0, 8, form, name, dst, src) if form is Encoding.VOPD else None
    try:
        Program(lambda a, n: b"", 256, lanes)._compile(Instruction(0, 8, form, name, dst, src, {}, other))
    except Unsupported:
        return False
    return True


def executed() -> set[str]:
    """Names that the core takes: each opcode of the tables in a plain form, and whatever random encodings hit."""
    found = {name for name in OPCODES for lanes in WIDE if compiled(name, lanes)}
    formats = [name for name in FORMATS if name.startswith(("SO", "VO")) and name != "SOPP"]
    for lanes, seed in ((32, 11), (64, 12)):
        program = Program(lambda a, n: b"", 256, lanes)
        for form, _, code in encodings(seed, 1):
            if form not in formats:
                continue
            try:
                ins = decode(code, 0x1000, wave=lanes)
                program._compile(ins)
            except (UnknownInstruction, ShaderError):
                continue
            found |= {ins.name} | ({ins.second.name} if ins.second else set())
    return found


def without_definition(names: Iterable[str], defined: Iterable[str]) -> set[str]:
    return set(names) - set(defined)


def test_every_instruction_that_runs_has_a_definition() -> None:
    runs = executed()
    defined = {*DEFINED, *BY_TEST, *ELSEWHERE}
    assert not without_definition(runs, defined)
    assert len(runs) > 700
    assert set(OPCODES) - runs == REFUSED
    assert not without_definition(defined, runs), "definitions of what does not run"
    assert without_definition(runs, defined - {"v_add_f32", "v_permlane16_b32"}) == {"v_add_f32", "v_permlane16_b32"}


def test_definitions_do_not_use_the_core() -> None:
    """They import nothing of it."""
    from pathlib import Path

    folder = Path(__file__).parent / "defined"
    for module in folder.glob("*.py"):
        text = module.read_text()
        if module.name != "harness.py":
            assert "from amdgpu_emu.core" not in text, module.name

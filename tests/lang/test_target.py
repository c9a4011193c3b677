"""Instruction-set levels: what LLVM makes of them, and which of them a machine is said to run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.lang.modules import increment
from zinc_rt.lang import target as module
from zinc_rt.lang.compiler import Compiler, Module
from zinc_rt.lang.errors import UnsupportedTarget
from zinc_rt.lang.target import TARGETS, host_target, host_targets

X86 = [t for t in TARGETS.values() if t.arch == "x86_64"]

# What a kernel may do once it has asked: intrinsic, result, operands (a number is an immediate), instruction.
V16F32, V8F32, V8F16 = "<16 x float>", "<8 x float>", "<8 x half>"
WITNESSES = {
    "fma": ("llvm.fma.v8f32", V8F32, [V8F32] * 3, "vfmadd"),
    "f16c": ("llvm.x86.vcvtps2ph.256", "<8 x i16>", [V8F32, 0], "vcvtps2ph"),
    "avx2": ("llvm.x86.avx2.pmadd.ub.sw", "<16 x i16>", ["<32 x i8>"] * 2, "vpmaddubsw"),
    "avx512": ("llvm.fma.v16f32", V16F32, [V16F32] * 3, "zmm"),
    "vnni": ("llvm.x86.avx512.vpdpbusd.512", "<16 x i32>", ["<16 x i32>", "<64 x i8>", "<64 x i8>"], "vpdpbusd"),
    "vbmi": ("llvm.x86.avx512.permvar.qi.512", "<64 x i8>", ["<64 x i8>"] * 2, "vpermb"),
    "avxvnni": ("llvm.x86.avx512.vpdpbusd.256", "<8 x i32>", ["<8 x i32>", "<32 x i8>", "<32 x i8>"], "vpdpbusd"),
    "amx": ("llvm.x86.tilezero", "void", [3], "tilezero"),
    "neon": ("llvm.aarch64.neon.tbl1.v16i8", "<16 x i8>", ["<16 x i8>"] * 2, "tbl"),
    "dotprod": ("llvm.aarch64.neon.sdot.v4i32.v16i8", "<4 x i32>", ["<4 x i32>", "<16 x i8>", "<16 x i8>"], "sdot"),
    "i8mm": ("llvm.aarch64.neon.usdot.v4i32.v16i8", "<4 x i32>", ["<4 x i32>", "<16 x i8>", "<16 x i8>"], "usdot"),
    "wave32": ("llvm.amdgcn.ballot.i32", "i32", ["i1"], "v_cmp_"),
    "dot4": ("llvm.amdgcn.sudot4", "i32", ["i1 1", "i32", "i1 0", "i32", "i32", "i1 0"], "v_dot4_i32_iu8"),
    "wmma": ("llvm.amdgcn.wmma.f32.16x16x16.f16.v8f32.v8f16", V8F32, [V8F16, V8F16, V8F32], "v_wmma_f32_16x16x16_f16"),
}


def witness(isa: str, target_arch: str) -> str:
    """A function that applies the intrinsic to what it finds in memory."""
    name, result, operands, _ = WITNESSES[isa]
    pointer = "ptr addrspace(1)" if target_arch == "amdgcn" else "ptr"
    lines, values, kinds = [], [], []
    for i, operand in enumerate(operands):
        if isinstance(operand, int):
            kind, value = "i8" if result == "void" else "i32", str(operand)
        elif operand.startswith("i1 "):
            kind, value = operand.split()
        else:
            kind, value = operand, f"%v{i}"
            lines.append(f"  {value} = load volatile {kind}, {pointer} %p, align 1")
        kinds.append(kind)
        values.append(f"{kind} {value}")
    call = f"call {result} @{name}({', '.join(values)})"
    lines.append(f"  {call}" if result == "void" else f"  %r = {call}\n  store {result} %r, {pointer} %p, align 1")
    convention = "amdgpu_cs void" if target_arch == "amdgcn" else "void"
    return (
        f"declare {result} @{name}({', '.join(kinds)})\n"
        f"define {convention} @witness({pointer} %p) {{\n" + "\n".join(lines) + "\n  ret void\n}\n"
    )


def test_llvm_has_every_instruction_set_that_a_level_promises() -> None:
    """For what drivers compile further, tests/lang/test_machines.py has it."""
    cases = [(t, isa) for t in TARGETS.values() if not t.by_driver for isa in sorted(t.isa)]
    assert {isa for _, isa in cases} == WITNESSES.keys()
    modules = [Module(f"{t.name}/{isa}", witness(isa, t.arch), t, ("witness",)) for t, isa in cases]
    for (target, isa), image in zip(cases, Compiler().compile(modules, disassemble=True), strict=True):
        assert WITNESSES[isa][3] in image.meta["assembly"], f"{target.name}: {isa}"
        assert "warnings" not in image.meta


@pytest.mark.parametrize("target", X86, ids=lambda t: t.name)
def test_levels_contain_what_they_build_on(target: module.Target) -> None:
    assert TARGETS["avx2"].needs <= target.needs
    assert {"avx2", "fma", "f16c"} <= target.isa
    if "avx512" in target.isa:
        assert "-prefer-256-bit" in target.features
        assert TARGETS["avx512"].needs <= target.needs


def test_architecture_is_the_first_part_of_the_triple() -> None:
    assert {t.arch for t in TARGETS.values()} == {"x86_64", "aarch64", "amdgcn", "spirv64", "nvptx64"}
    assert TARGETS["gfx1201"].arch == "amdgcn"
    assert increment(target=TARGETS["aarch64"]).target.arch == "aarch64"


class Machine:
    """A machine with these flags."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, arch: str, flags: str, amx: bool = True) -> None:
        uname = type("Uname", (), {"machine": arch})
        monkeypatch.setattr(module.os, "uname", lambda: uname)
        monkeypatch.setattr(module, "host_flags", lambda: frozenset(flags.split()))
        monkeypatch.setattr(module, "_amx_permitted", lambda: amx)


HASWELL = "fpu avx2 fma f16c bmi1 bmi2 abm movbe popcnt"
SKYLAKE = f"{HASWELL} avx512f avx512bw avx512cd avx512dq avx512vl"
SAPPHIRE = (
    f"{SKYLAKE} avx512_vnni avx_vnni avx512ifma avx512vbmi avx512_vbmi2 avx512_bitalg avx512_vpopcntdq avx512_bf16"
    " avx512_fp16 gfni vaes vpclmulqdq amx_tile amx_int8 amx_bf16"
)


@pytest.mark.parametrize(
    ("arch", "flags", "levels"),
    [
        ("x86_64", "fpu sse2 avx", ""),
        ("x86_64", HASWELL, "avx2"),
        ("x86_64", HASWELL.replace("fma", ""), ""),
        ("x86_64", f"{HASWELL} avx_vnni", "avxvnni avx2"),
        ("x86_64", SKYLAKE, "avx512 avx2"),
        ("x86_64", f"{SKYLAKE} avx512_vnni", "avx512vnni avx512 avx2"),
        ("x86_64", SAPPHIRE, "amx avx512vnni avx512 avxvnni avx2"),
        ("aarch64", "fp asimd", "aarch64"),
        ("aarch64", "fp asimd asimddp", "aarch64-dotprod aarch64"),
        ("aarch64", "fp asimd asimddp i8mm", "aarch64-i8mm aarch64-dotprod aarch64"),
        ("aarch64", "fp asimd i8mm", "aarch64"),
        ("aarch64", HASWELL, ""),
        ("riscv64", "", ""),
    ],
)
def test_levels_of_a_machine_best_first(monkeypatch: pytest.MonkeyPatch, arch: str, flags: str, levels: str) -> None:
    Machine(monkeypatch, arch, flags)
    expected = levels.split()
    assert [t.name for t in host_targets()] == expected
    assert [host_target(name).name for name in expected] == expected
    assert not expected or host_target().name == expected[0]


def test_tiles_need_the_kernels_permission(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, "x86_64", SAPPHIRE, amx=False)
    assert host_target().name == "avx512vnni"
    with pytest.raises(UnsupportedTarget, match="permission for AMX"):
        host_target("amx")


def test_a_level_that_cannot_run_names_what_is_missing_and_what_can(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, "x86_64", HASWELL)
    with pytest.raises(UnsupportedTarget, match=r"'avxvnni' needs avx_vnni, which is missing; this machine runs avx2"):
        host_target("avxvnni")
    with pytest.raises(UnsupportedTarget, match=r"aarch64 \(this is x86_64\)"):
        host_target("aarch64")
    with pytest.raises(UnsupportedTarget, match="a gfx1201 device"):
        host_target("gfx1201")
    with pytest.raises(UnsupportedTarget, match=r"unknown instruction-set level 'sse9'; there are amx, .*avx2"):
        host_target("sse9")


def test_a_machine_for_which_there_is_no_level(monkeypatch: pytest.MonkeyPatch) -> None:
    Machine(monkeypatch, "x86_64", "sse2")
    with pytest.raises(UnsupportedTarget, match=r"needs x86-64 with .*avx2.* or aarch64 .*reference kernels"):
        host_target()
    with pytest.raises(UnsupportedTarget, match="no level runs on this machine"):
        host_target("avx2")


@pytest.mark.parametrize(
    ("text", "flags"),
    [
        ("processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: none\n", {"fpu", "avx2", "fma"}),
        ("processor\t: 0\nFeatures\t: fp asimd\n", {"fp", "asimd"}),
        ("vmx flags\t: ept\n", set()),
        ("", set()),
    ],
)
def test_flags_are_the_first_processors(tmp_path: Path, text: str, flags: set[str]) -> None:
    (tmp_path / "cpuinfo").write_text(text)
    assert module.host_flags(tmp_path / "cpuinfo") == flags


def test_without_proc_there_are_no_flags(tmp_path: Path) -> None:
    assert module.host_flags(tmp_path / "missing") == frozenset()


def test_the_page_about_levels_names_files_that_exist() -> None:
    """docs/how/extending.md, "An instruction-set level": the files, and that kernels ask for instruction sets alone."""
    root = Path(__file__).parents[2]
    page = (root / "docs/how/extending.md").read_text(encoding="utf-8")
    section = page.split("## An instruction-set level")[1].split("\n## ")[0]
    files = re.findall(r"`((?:zinc_rt|tests)/[\w/]+\.py)`", section)
    assert "zinc_rt/lang/target.py" in files
    assert [name for name in files if not (root / name).is_file()] == []
    listed = {root / name for name in files} | {root / "zinc_rt/lang/lower" / "tiles.py"}
    # Some levels share their name with an instruction set that kernels ask for, one with a processor architecture.
    asked = {name for level in module.TARGETS.values() for name in level.isa} | {"aarch64"}
    names = [name for name, level in module.TARGETS.items() if level.needs and name not in asked]
    assert "avx512vnni" in names
    for path in (root / "zinc_rt").rglob("*.py"):
        if path not in listed and "seed" not in path.parts:
            code = path.read_text(encoding="utf-8")
            assert not [n for n in names if f'"{n}"' in code], path

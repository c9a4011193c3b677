"""Kernels as drivers of other makers get them: every one compiles, and all of its float operations are exact."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.compiled import kernel_images
from tests.kernels.gpu.codes import DRIVERS, PARTS, entries, some_entries
from tests.kernels.gpu.driver_code import SpirvModule, problems_of, ptx_problems, shared_bytes
from zinc_rt.kernels.gpu.catalogue import KernelEntry, kernel_label
from zinc_rt.lang import TARGETS
from zinc_rt.lang.gpu import describe_kernel

CARDS = ("sm_75", "sm_80", "sm_90", "sm_120")
HOT = ("matvec", "grouped", "attention", "delta_net", "gated", "experts", "expert_rows", "float_", "route", "heads")
MOST_SPILLED = {"matvec": 48, "expert": 16, "attention": 8}
"""Bytes of stores and loads by ptxas, which spills a few registers where more workgroups then fit: in a few products,
most of them of Q3_K.
"""


def codes(chosen: Mapping[str, KernelEntry], target: str) -> dict[str, bytes]:
    """Code by label."""
    made = kernel_images([entry.spec for entry in chosen.values()], TARGETS[target])
    pairs = zip(chosen.values(), made, strict=True)
    return {kernel_label(entry): describe_kernel(entry.spec, image).code for entry, image in pairs}


def problems(made: Mapping[str, bytes], target: str) -> list[str]:
    return [f"{label}: {problem}" for label, code in made.items() for problem in problems_of(target, code)]


# A part for each target by default, the others are slow: what is exact is decided in the text that all are made from.
@pytest.mark.parametrize(
    ("part", "target"),
    [
        pytest.param(part, target, marks=() if i == part else pytest.mark.slow)
        for part in range(PARTS)
        for i, target in enumerate(DRIVERS)
    ],
)
def test_every_kind_of_kernel_compiles_to_exact_operations(part: int, target: str) -> None:
    assert problems(codes(some_entries(part, target), target), target) == []


def functions(chosen: Iterable[KernelEntry]) -> set[str]:
    """Their names, without those that differ by a bias alone."""
    names = {entry.spec.function.name for entry in chosen}
    return {name for name in names if name.removesuffix("_bias") not in names - {name}}


@cache
def all_codes(target: str) -> dict[str, bytes]:
    return codes(entries(target), target)


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("target", DRIVERS)
def test_all_kernels_compile_to_exact_operations(target: str) -> None:
    made = all_codes(target)
    assert len(made) > 1000
    assert functions(entries(target).values()) == functions(
        e for i in range(PARTS) for e in some_entries(i, target).values()
    )
    assert problems(made, target) == []


def test_what_is_not_exact_is_found() -> None:
    for line in (
        "add.f32 %r1, %r2, %r3;", "mul.rn.ftz.f32 %r1, %r2, %r3;", "fma.rz.f32 %r1, %r2, %r3, %r4;",
        "div.full.f32 %r1, %r2, %r3;", "div.approx.f32 %r1, %r2, %r3;", "sqrt.approx.f32 %r1, %r2;",
        "ex2.approx.f32 %r1, %r2;",
        "rcp.approx.ftz.f64 %rd1, %rd2;", "cvt.rz.f16.f32 %rs1, %r2;", "cvt.rn.ftz.f32.f64 %r1, %rd2;",
        "max.f32 %r1, %r2, %r3;", "min.f32 %r1, %r2, 0f00000000;", "add.rn.f16 %rs1, %rs2, %rs3;",
        "@%p1 fma.rn.bf16x2 %r1, %r2, %r3, %r4;", "setp.lt.ftz.f32 %p1, %r1, %r2;", "red.global.add.f32 [%rd1], %r2;",
    ):  # fmt: skip
        assert len(ptx_problems(f"\t{line}\n")) == 1, line
    fine = "\tsetp.nan.f32 %p1, %r2, %r3;\n\tmax.f32 %r1, %r2, %r3;\n\tmin.f32 %r4, %r1, 0f42FE0000;\n"
    assert ptx_problems(fine) == []
    assert ptx_problems("\tadd.rn.f32 %r1, %r2, %r3;\n\tld.global.f32 %r1, [%rd1];\n\tadd.s32 %r1, %r2, %r3;\n") == []


def test_what_is_not_exact_is_found_in_modules() -> None:
    def module(*words: tuple[int, ...]) -> list[str]:
        float32, float64, float16 = (22, 1, 32), (22, 2, 64), (22, 3, 16)
        known = [(15, 6, 50, 0), (16, 50, 31), float32, float64, float16, (55, 1, 10), (55, 2, 11), (55, 3, 12)]
        flat = [word for number, *rest in (*known, *words) for word in ((len(rest) + 1) << 16 | number, *rest)]
        return SpirvModule.of(b"".join(w.to_bytes(4, "little") for w in (0x07230203, 0, 0, 99, 0, *flat))).problems()

    assert module((129, 1, 20, 10, 10), (136, 2, 21, 11, 11), (12, 2, 22, 1, 61, 11), (115, 1, 23, 12)) == []
    for wrong, message in (
        ((136, 1, 20, 10, 10), "FDiv of float32"),
        ((12, 1, 20, 1, 61, 10), "sqrt of float32"),
        ((12, 1, 20, 1, 27, 10, 10), "OpenCL.std 27, which is not known here"),
        ((140, 1, 20, 10, 10), "instruction 140, which is not known here"),
        ((129, 3, 20, 12, 12), "FAdd of float16"),
        ((115, 3, 20, 11), "FConvert of float64 to float16"),
        ((110, 9, 20, 10), "ConvertFToS of what was not kept within limits"),
        ((71, 10, 40, 16), "decoration 40"),
        ((71, 10, 39, 1), "decoration 39"),
        ((71, 10, 41, 0, 1), "a function or variable that another module must bring"),
        ((15, 6, 51, 0), "an entry point without ContractionOff"),
        ((55, 1, 10), "number 10 is defined twice"),
        ((128, 1, 20, 10, 11), "IAdd of other widths than its result's"),
    ):
        assert module(wrong) == [message]


def ptxas() -> str:
    found = find_spec("nvidia.cuda_nvcc") if find_spec("nvidia") else None
    for folder in found.submodule_search_locations or () if found else ():
        if (path := Path(folder) / "bin" / "ptxas").is_file():
            return str(path)
    pytest.skip("ptxas is missing: install the extra gpu-test (nvidia-cuda-nvcc-cu12)")


@pytest.mark.slow
@pytest.mark.timeout(6000)
@pytest.mark.parametrize("card", CARDS)
def test_ptxas_assembles_all_kernels(card: str, tmp_path: Path) -> None:
    """No more than is known is spilled where time goes, and what a workgroup shares fits."""
    program, wrong = ptxas(), []
    for label, code in all_codes("ptx" if card == "sm_75" else "ptx80").items():
        (tmp_path / "k.ptx").write_bytes(code)
        command = [program, "-v", f"-arch={card}", "k.ptx", "-o", "k.cubin"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
        if done.returncode:
            wrong.append(f"{label}: {done.stderr.strip()}")
        spilled = sum(map(int, re.findall(r"(\d+) bytes spill", done.stderr)))
        known = max((most for name, most in MOST_SPILLED.items() if label.startswith(name)), default=0)
        if spilled > known and label.startswith(HOT):
            wrong.append(f"{label}: {spilled} bytes spilled")
        if shared_bytes(code.decode()) > 48 << 10:
            wrong.append(f"{label}: {shared_bytes(code.decode())} bytes of shared memory")
    assert wrong == []


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_spirv_val_accepts_all_kernels(tmp_path: Path) -> None:
    if shutil.which("spirv-val") is None:
        pytest.skip("spirv-val is missing: install Debian's package spirv-tools")
    wrong = []
    for label, code in all_codes("spirv").items():
        (tmp_path / "k.spv").write_bytes(code)
        done = subprocess.run(
            ["spirv-val", "--target-env", "spv1.4", "k.spv"], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        if done.returncode:
            wrong.append(f"{label}: {(done.stdout + done.stderr).strip()}")
    assert wrong == []

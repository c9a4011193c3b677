"""Generations of GPUs: one record each, and the page that says what else one takes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import zinc_rt
from amdgpu_emu.models import MODELS, R9700, RAPHAEL, RX7900XTX, STRIX_HALO, STRIX_POINT
from tests.amdgpu.queue.fake import DEVICE, FakeInterface
from tests.compiled import gpu_kernel
from tests.lang.gpu_kernels import rms_norm
from tests.source import matching
from zinc_rt.amdgpu.gfx import (
    GENERATIONS,
    GFX11,
    GFX11_5,
    GFX12,
    generations,
    gfx_name,
    gfx_of,
    runs_kernels,
    version_of,
)
from zinc_rt.amdgpu.pm4.registers import USER_DATA_COUNT
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.errors import BackendError
from zinc_rt.lang import Spec
from zinc_rt.lang.target import TARGETS

ROOT = Path(zinc_rt.__file__).parents[1]
SECTION = "## A GPU generation"
# A core's name stands besides in the compiler's own defaults and in what the command shows.
DEFAULTS = {"zinc_rt/lang/gpu.py"}


@pytest.mark.parametrize(
    ("discovery", "version", "name"),
    [
        (0x0C0001, 120001, "gfx1201"),
        (0x0B0501, 110501, "gfx1151"),
        (0x0B0002, 110002, "gfx1102"),
        (0x0B0003, 110001, "gfx1101"),
        (0x0B0001, 110003, "gfx1103"),
        (0x0A0306, 100306, "gfx1036"),
        (0, 0, "gfx?"),
    ],
)
def test_forms_of_a_version(discovery: int, version: int, name: str) -> None:
    assert version_of(discovery) == version
    assert gfx_name(version) == name


def test_a_version_has_the_record_of_its_major() -> None:
    found = [gfx_of(v) for v in (110000, 110500, 110501, 110700, 120000, 120001)]
    assert found == [GFX11, GFX11_5, GFX11_5, GFX11, GFX12, GFX12]
    assert [gfx_of(v) for v in (0, 90010, 100306, 130000)] == [None] * 4
    models = (R9700, RX7900XTX, STRIX_HALO, STRIX_POINT, RAPHAEL)
    assert [gfx_of(m.gfx_target_version) for m in models] == [GFX12, GFX11, GFX11_5, GFX11_5, None]


def test_records_agree_with_the_compiler_and_the_packets() -> None:
    for gfx in GENERATIONS:
        assert gfx.name.startswith(f"gfx{gfx.major}")
        assert TARGETS[gfx.kernel_target].arch == "amdgcn"
        assert gfx.kernel_target.startswith(gfx.name.replace(".", ""))
        assert gfx.user_dwords == USER_DATA_COUNT
        assert {version // 10000 for version in gfx.large_registers} == {gfx.major}
        assert {core // 100 for core in gfx.cores} == {gfx.major}
    cores = [core for gfx in GENERATIONS for core in gfx.cores]
    assert cores == sorted(set(cores))
    assert {version // 100 for gfx in GENERATIONS for version in gfx.large_registers} <= set(cores)


def test_kernels_run_where_they_were_executed() -> None:
    assert generations() == "gfx11, gfx11.5 and gfx12"
    assert generations(executed=True) == "gfx11, gfx11.5 and gfx12"
    run = (110000, 110001, 110002, 110500, 110501, 120000, 120001)
    assert [v for v in (100306, *run[:3], 110700, *run[3:], 120500) if runs_kernels(v)] == list(run)
    assert {gfx_of(m.gfx_target_version) for m in MODELS.values()} >= set(GENERATIONS), "the emulator has their cards"


@pytest.mark.parametrize("version", [110000, 110501, 110700, 120500])
def test_compiled_kernels_are_refused_elsewhere(version: int) -> None:
    kernel = gpu_kernel(Spec(rms_norm))
    with (
        GpuQueue(FakeInterface(device=replace(DEVICE, gfx_target_version=version))) as queue,
        pytest.raises(BackendError, match=f"is {gfx_name(version)}, and kernels run on gfx11, gfx11.5 and gfx12 alone"),
    ):
        queue.load_kernel(kernel)


def test_a_workgroup_that_a_core_does_not_hold() -> None:
    """gfx1102 has fewer registers. `tests/kernels/gpu/test_code.py` says that all kernels fit."""
    wide = replace(gpu_kernel(Spec(rms_norm), "gfx1100"), workgroup=1024)
    wide = replace(wide, rsrc1=wide.rsrc1 & ~0x3F | 16)  # 136 registers
    for version, fits in ((110000, True), (110001, True), (110002, False)):
        with GpuQueue(FakeInterface(device=replace(DEVICE, gfx_target_version=version))) as queue:
            if fits:
                queue.load_kernel(wide)
                continue
            with pytest.raises(BackendError, match=r"1024 work-items with 136 vector registers .* gfx1102 holds"):
                queue.load_kernel(wide)


def page() -> str:
    text = (ROOT / "docs/how/extending.md").read_text(encoding="utf-8")
    start = text.index(SECTION)
    return text[start : text.find("\n## ", start + 1) if "\n## " in text[start + 1 :] else None]


def named() -> set[str]:
    """The files of the section's table."""
    return set(re.findall(r"^\| `([^`]+)` \|", page(), re.M))


def test_the_pages_files_are_there() -> None:
    assert len(named()) == 6
    assert [name for name in named() if not (ROOT / name).is_file()] == []
    assert "gfx11 was executed by the emulator" in page()


def literals(tree: ast.Module) -> Iterator[object]:
    """Constants of a module that are no docstrings."""
    loose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    yield from (n.value for n in ast.walk(tree) if isinstance(n, ast.Constant) and id(n) not in loose)


def test_no_other_file_knows_a_generation() -> None:
    """Names of cores, and versions of the generations that there are records for."""
    versions = {v for gfx in GENERATIONS for v in gfx.large_registers} | {gfx.major * 10000 for gfx in GENERATIONS}
    found = {
        str(path.relative_to(ROOT))
        for path, tree in matching(r"gfx1\d|\b1[\d_]{4,}\b", "zinc_rt")
        for value in literals(tree)
        if (isinstance(value, str) and re.fullmatch(r"gfx1\d+", value)) or (type(value) is int and value in versions)
    }
    assert found <= named() | DEFAULTS
    assert {"zinc_rt/amdgpu/gfx.py", "zinc_rt/lang/target.py"} <= found

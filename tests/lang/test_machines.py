"""What no kernel of a driver's targets may hold, and what its module says to the driver."""

from __future__ import annotations

import re

import pytest

from tests.compiled import gpu_kernel
from tests.lang import gpu_kernels as g
from zinc_rt.kernels.amd.catalogue import BOUNDARY
from zinc_rt.kernels.amd.resident import resident
from zinc_rt.lang import TARGETS, LangError, Spec, emit_module
from zinc_rt.lang.amd import for_amd
from zinc_rt.lang.resident import emit_resident

DRIVERS = ("spirv", "ptx", "ptx80")


@pytest.mark.parametrize("target", DRIVERS)
def test_waves_of_64_lanes_are_amds(target: str) -> None:
    wide = [name for name, entry in BOUNDARY.items() if entry.spec.function.wave == 64]
    assert wide
    for name in wide:
        with pytest.raises(
            LangError, match=f"module {name} has kernels for waves of 64 lanes, which {target} does not"
        ):
            emit_module(name, [BOUNDARY[name].spec], TARGETS[target])


@pytest.mark.parametrize("target", DRIVERS)
def test_resident_programs_are_amds(target: str) -> None:
    with pytest.raises(LangError, match=f"resident programs are for gfx12, not for {target}"):
        emit_resident(Spec(resident), [], TARGETS[target])


@pytest.mark.parametrize("target", DRIVERS)
def test_registers_are_amds(target: str) -> None:
    with pytest.raises(LangError, match=f"rms_norm is compiled for {target}, which is no AMD GPU"):
        for_amd(gpu_kernel(Spec(g.rms_norm), target))


@pytest.mark.parametrize(("target", "shapes"), [("ptx80", ["m16n8k32", "m16n8k16"]), ("ptx", ["m8n8k16"] * 6)])
def test_matrix_instructions_of_ptx(target: str, shapes: list[str]) -> None:
    """Those of 16 rows where there are such, else four or two of 8."""
    text = gpu_kernel(Spec(g.both_mma), target).code.decode()
    assert re.findall(r"mma\.sync\.aligned\.(\w+)\.row\.col\.\w*\.?s32\.s8\.s8\.s32", text) == shapes


def test_ptx_loads_no_halves_of_words() -> None:
    for kind, lanes, align in g.ODD:
        spec = Spec(g.words_from_odd_places, {"T": kind, "LANES": lanes, "ALIGN": align})
        loads = re.findall(r"ld\.global\S*\.b(\d+)", gpu_kernel(spec, "ptx").code.decode())
        assert loads == ["32"] * (lanes * kind.size // 4 + 1), (kind, lanes, align)

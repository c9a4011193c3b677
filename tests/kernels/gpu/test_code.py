"""The kernels' machine code, read: registers, and that nothing is fused that is not written so."""

from __future__ import annotations

import re

import pytest

from tests.compiled import gpu_kernel
from tests.kernels.gpu.listing import ENTRIES, count, fused, instructions, kernel_of, kernels
from zinc_rt.kernels.amd.catalogue import BOUNDARY
from zinc_rt.kernels.gpu.catalogue import KernelEntry, attention_kernel, gated_experts, gated_rows, matvec_rows
from zinc_rt.lang import TARGETS
from zinc_rt.lang.frontend import interface

all_kernels = pytest.mark.parametrize("name", ENTRIES)
# The whole catalogue compiled with its listing: a minute of LLVM, for one compiler's choices.
SOME = ("argmax_keys", "embed_q4_0", "matvec_q4_k", "matvec_f16", "norm_quantized", "attention_packed", "heads")
some_kernels = pytest.mark.parametrize(
    "name", [*SOME, *(pytest.param(name, marks=pytest.mark.slow) for name in ENTRIES if name not in SOME)]
)


@all_kernels
def test_the_table_says_the_arguments(name: str) -> None:
    entry = ENTRIES[name]
    assert tuple(p for p, _ in interface(entry.spec, TARGETS["gfx1201"]).parameters) == entry.arguments


@some_kernels
def test_registers_and_memory(name: str) -> None:
    kernel = kernel_of(name)
    assert [a.name for a in kernel.arguments] == list(ENTRIES[name].arguments)
    assert kernel.scratch_bytes == 0
    assert count(kernel, "scratch_|flat_|buffer_") == 0
    assert kernel.occupancy == 16, "waves on a SIMD, as many as there can be"
    assert kernel.rsrc1 >> 12 & 0xFF == 0xF0, "round to nearest, subnormals kept"
    assert count(kernel, "s_setreg|s_round_mode|s_denorm_mode") == 0
    assert "s_endpgm" in instructions(kernel)


@pytest.mark.slow
def test_the_boundary_finds_its_arguments_where_the_seed_has_them() -> None:
    places = {name: {a.name: a.dword for a in kernels()[name].arguments} for name in BOUNDARY}
    for name, at in places.items():
        if name.startswith("dmmv"):
            assert (at["x"], at["y"], at["w"], at["cols"], at["rows"]) == (0, 2, 4, 6, 7)
    two = places["dmmv_two_ranges_q8_0"]
    assert (two["second"], two["second_rows"]) == (8, 10)
    assert places["argmax_top2"] == {"unused": 0, "y": 2, "key0": 4, "key1": 5, "token0": 6, "token1": 7}
    assert places["argmax_keys"] == {"x": 0, "y": 2, "rows": 4, "start": 5}
    assert places["rms_norm_element0"] == {"x": 0, "y": 2}
    waves = {name: (kernels()[name].wave, kernels()[name].workgroup) for name in BOUNDARY if name.startswith("dmmv")}
    for name, shape in waves.items():
        assert shape == ((32, 1) if "serial" in name else (32, 32) if "argmax" in name else (64, 64))


# Chains of the kernel's own text: as it is written, times what is unrolled. Attention: 64 elements for 4 heads; two
# elements for 16 positions of two pages and of one, and for four and for one of the rest of a page. Rows of floats: a
# group in the loop that all lanes have one in, one behind it, and the elements of a group that is not whole.
WRITTEN = {
    **dict.fromkeys(("attention", "attention_packed"), 64 * 4 + (32 + 16 + 4 + 1) * 2),
    "heads": 4,
    "heads_unrotated": 2,
    **dict.fromkeys(("rms_norm", "residual_rms_norm", "norm_quantized", "residual_norm_quantized", "norm_both"), 8),
    "matvec_f32": 65,
    "matvec_f16": 65,
    "matvec_bf16": 65,
    **{name: 32 for name in BOUNDARY if name.startswith("dmmv")},
}


@some_kernels
def test_float16_is_rounded_to_after_float32(name: str) -> None:
    """A product that is at once converted would be rounded once; the reference rounds twice."""
    assert count(kernel_of(name), r"v_fma_mix(lo|hi)|v_mad_mix(lo|hi)") == 0


@some_kernels
def test_products_and_sums_are_fused_where_it_is_written(name: str) -> None:
    assert fused(kernel_of(name)) == WRITTEN.get(name, 0)


@pytest.mark.slow
@pytest.mark.parametrize(
    "made",
    [matvec_rows(kind, 8) for kind in ("Q8_0", "Q4_K", "Q6_K", "MXFP4", "F16")]
    + [
        gated_experts("Q4_K", "Q4_K", packed=True, bias=False, activation="silu"),
        gated_rows("Q4_K", "Q6_K", 8, packed=True, bias=True, activation="silu"),
        attention_kernel(256, 2, quantized=True),
    ],
    ids=lambda entry: entry.kernel if hasattr(entry, "kernel") else None,
)
def test_registers_of_several_rows(made: KernelEntry) -> None:
    """Nothing is spilled, and enough waves wait for memory beside each other."""
    kernel = gpu_kernel(made.spec)
    assert kernel.scratch_bytes == 0
    assert kernel.occupancy >= 6


@pytest.mark.slow
@pytest.mark.parametrize("target", ["gfx1100", "gfx1200", "gfx1151"])
def test_other_gpus(target: str) -> None:
    for name, kernel in kernels(target).items():
        here = kernels()[name]
        assert kernel.scratch_bytes == 0, name
        assert (kernel.dwords, kernel.lds_bytes) == (here.dwords, here.lds_bytes), name
        assert kernel.rsrc2 >> 7 & 7 == 7, "ids of workgroups"
        least = 0 if target == "gfx1200" else 13  # and three ids: some gfx11 cores lose registers below sixteen
        assert kernel.rsrc2 >> 1 & 31 == max(kernel.dwords, least), "USER_SGPR"
        assert kernel.occupancy_of(1024), f"{name}: a workgroup does not fit the register file of gfx1102"
        if target == "gfx1200":
            assert kernel.code == here.code, name
        else:
            assert not any("ttmp" in line for line in instructions(kernel)), name
            assert fused(kernel) == fused(here), name


def test_workgroup_ids_follow_the_arguments_on_rdna3() -> None:
    """matvec takes twelve dwords, which become thirteen; embed uses y, too, behind seven."""
    first = [line for line in instructions(kernel_of("matvec_q4_0", "gfx1100")) if "s13" in line]
    assert any(re.match(r"s_lshl2_add_u32 \w+, s13,", line) for line in first)
    assert any(re.search(r"\bs14\b", line) for line in instructions(kernel_of("embed_q4_0", "gfx1100")))

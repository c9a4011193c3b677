"""The kernels' machine code, read: registers, loads, and that nothing is fused that is not written so."""

from __future__ import annotations

import re

import pytest

from tests.rdna.listing import ENTRIES, count, fused, instructions, kernels
from zinc_rt.formats.kinds import Kind
from zinc_rt.formats.table import FORMATS
from zinc_rt.kernels.rdna.catalogue import BOUNDARY, QUANTIZED
from zinc_rt.lang import TARGETS
from zinc_rt.lang.frontend import interface

all_kernels = pytest.mark.parametrize("name", ENTRIES)
quantised = pytest.mark.parametrize("kind", QUANTIZED)
WIDTH = {"b128": 16, "b96": 12, "b64": 8, "b32": 4, "u16": 2, "i16": 2, "u8": 1, "i8": 1}


@all_kernels
def test_the_table_says_the_arguments(name: str) -> None:
    entry = ENTRIES[name]
    assert tuple(p for p, _ in interface(entry.spec, TARGETS["gfx1201"]).parameters) == entry.arguments
    assert [a.name for a in kernels()[name].arguments] == list(entry.arguments)


@all_kernels
def test_registers_and_memory(name: str) -> None:
    kernel = kernels()[name]
    assert kernel.scratch_bytes == 0
    assert count(kernel, "scratch_|flat_|buffer_") == 0
    assert kernel.occupancy == 16, "waves on a SIMD, as many as there can be"
    assert kernel.rsrc1 >> 12 & 0xFF == 0xF0, "round to nearest, subnormals kept"
    assert count(kernel, "s_setreg|s_round_mode|s_denorm_mode") == 0
    assert "s_endpgm" in instructions(kernel)


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
    "matvec_f32": 65, "matvec_f16": 65, "matvec_bf16": 65,
    **{name: 32 for name in BOUNDARY if name.startswith("dmmv")},
}  # fmt: skip


@all_kernels
def test_float16_is_rounded_to_after_float32(name: str) -> None:
    """A product that is at once converted would be rounded once; the reference rounds twice."""
    assert count(kernels()[name], r"v_fma_mix(lo|hi)|v_mad_mix(lo|hi)") == 0


@all_kernels
def test_products_and_sums_are_fused_where_it_is_written(name: str) -> None:
    assert fused(kernels()[name]) == WRITTEN.get(name, 0)


def loaded(name: str) -> dict[str, int]:
    """Vector loads by their width, of the loop that takes a group at a time (the last one)."""
    lines = instructions(kernels()[name])
    found: dict[str, int] = {}
    widths = [m[1] for line in lines if (m := re.match(r"global_load_(?:d16_)?(\w+)", line))]
    assert len(widths) % 3 == 0, "the loop over two groups at a time, and the one over single ones"
    for width in widths:
        found[width] = found.get(width, 0) + 1
    return {width: n // 3 for width, n in found.items()}


@quantised
def test_every_byte_of_a_block_is_loaded_once(kind: str) -> None:
    found = loaded(f"matvec_{kind.lower()}")
    if FORMATS[kind].grid is not None:
        return  # the table's words are loaded as well: `test_memory_that_is_read` counts bytes
    total = sum(WIDTH[width] * n for width, n in found.items())
    activations = 32 + 4  # int8 and their scale
    f = FORMATS[kind]
    sums = 0 if f.offset == 0 and f.minimum is None else 4
    if f.groups == 1:
        assert total == f.block_bytes + activations + sums
    elif f.kind == Kind.HALVES:
        # 16 of ql, 16 of qh (which four lanes of a half block read in halves: 64 bytes for 128 requested), two scales
        # and d, and the sums of two halves.
        assert total == 16 + 16 + 2 + 2 + activations + sums
    elif f.kind == Kind.EIGHTS:
        assert total == 16 + 2 + activations + sums
    elif f.kind == Kind.NIBBLES:
        # d, the upper bits of scales beside it, and the byte with the lower ones.
        assert total == 16 + 4 + 1 + activations + sums
    elif f.kind == Kind.QUARTERS:
        # 32 bytes that four lanes share, 32 that all eight do, scales of both halves, d, and with it dmin.
        assert total == 32 + (32 + 4 + 2 if f.high_bits else 2 + 4) + activations + sums
    else:
        assert f.kind == Kind.PAIRS
        fifth = 16 * f.high_bits  # of 32 that all eight groups share
        assert total == 16 + 16 + fifth + activations + sums
    wide = {
        Kind.BYTES: 4,
        Kind.NIBBLES: 3,
        Kind.PAIRS: 4 + f.high_bits,
        Kind.HALVES: 4,
        Kind.QUARTERS: 4,
        Kind.EIGHTS: 3,
    }[Kind(f.kind)]
    assert found["b128"] == wide + (2 * f.high_bits if f.kind == Kind.QUARTERS else 0)


@quantised
def test_dot_products(kind: str) -> None:
    kernel = kernels()[f"matvec_{kind.lower()}"]
    signed = FORMATS[kind].kind in (Kind.BYTES, Kind.GRID) or FORMATS[kind].codebook
    signs = "1,1" if signed else "0,1"
    assert count(kernel, rf"v_dot4_i32_iu8 .*neg_lo:\[{signs},0\]") == 3 * 8


@quantised
def test_codebooks_are_looked_up_in_registers(kind: str) -> None:
    """Three byte permutations for each word of a group, in the loop over two groups and the one over single ones."""
    found = count(kernels()[f"matvec_{kind.lower()}"], "v_perm_b32")
    assert found >= 3 * 8 * 3 if FORMATS[kind].codebook else found < 8


def test_the_first_loads_are_under_way_before_the_first_is_needed() -> None:
    lines = instructions(kernels()["matvec_q4_0"])
    start = next(i for i, line in enumerate(lines) if line.startswith("global_load"))
    waits = next(i for i, line in enumerate(lines) if i > start and line.startswith("s_wait_loadcnt"))
    assert sum(line.startswith("global_load_b128") for line in lines[start:waits]) == 6


@pytest.mark.parametrize("target", ["gfx1200", "gfx1100", "gfx1151"])
def test_other_gpus(target: str) -> None:
    for name, kernel in kernels(target).items():
        here = kernels()[name]
        assert kernel.scratch_bytes == 0, name
        assert (kernel.dwords, kernel.lds_bytes) == (here.dwords, here.lds_bytes), name
        assert count(kernel, "v_dot4_i32_iu8") == count(here, "v_dot4_i32_iu8"), name
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
    first = [line for line in instructions(kernels("gfx1100")["matvec_q4_0"]) if "s13" in line]
    assert any(re.match(r"s_lshl2_add_u32 \w+, s13,", line) for line in first)
    assert any(re.search(r"\bs14\b", line) for line in instructions(kernels("gfx1100")["embed_q4_0"]))

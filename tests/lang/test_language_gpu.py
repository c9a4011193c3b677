"""gfx1201: where arguments and ids come from, the instructions that matter, and what a driver is told. Nothing runs."""

from __future__ import annotations

import re
import struct
from functools import cache

import numpy as np
import pytest

from tests.compiled import images, kernel_images
from tests.lang import gpu_kernels as g
from zinc_rt.lang import TARGETS, GpuKernel, LangError, Spec, emit_module
from zinc_rt.lang.errors import CompileError
from zinc_rt.lang.gpu import describe_kernel

ALL = [f.name for f in g.ALL]


@cache
def compiled() -> dict[str, GpuKernel]:
    """Each kernel in a module of its own, so that its listing is its own, too."""
    specs = [Spec(f) for f in g.ALL]
    made = kernel_images(specs, TARGETS["gfx1201"], disassemble=True)
    return {s.function.name: describe_kernel(s, image) for s, image in zip(specs, made, strict=True)}


def listing(name: str) -> list[str]:
    """Instructions without their bytes."""
    lines = (line.split(";")[0].strip() for line in compiled()[name].assembly.splitlines())
    return [line for line in lines if line and not line.endswith(":")]


def has(name: str, pattern: str) -> int:
    """How many instructions match."""
    return sum(bool(re.search(pattern, line)) for line in listing(name))


@pytest.mark.parametrize("name", ALL)
def test_the_listing_is_the_code(name: str) -> None:
    kernel = compiled()[name]
    words = "".join(re.findall(r"; ([0-9A-F ]+)$", kernel.assembly, re.M)).replace(" ", "")
    code = b"".join(struct.pack("<I", int(words[i : i + 8], 16)) for i in range(0, len(words), 8))
    # Branch distances are not filled in yet where the listing is made; nothing else differs.
    real = kernel.code[: kernel.size]
    assert len(code) == len(real)
    differ = [i for i in range(0, len(code), 4) if code[i : i + 4] != real[i : i + 4]]
    assert all(code[i + 2 : i + 4] == real[i + 2 : i + 4] for i in differ)
    assert listing(name)[-1] == "s_endpgm"


@pytest.mark.parametrize("name", ALL)
def test_registers_as_a_driver_writes_them(name: str) -> None:
    kernel = compiled()[name]
    rsrc1, rsrc2 = kernel.rsrc1, kernel.rsrc2
    assert rsrc1 >> 12 & 0xFF == 0xF0, "FLOAT_MODE: round to nearest, keep subnormals of every width"
    assert rsrc1 >> 21 & 0b111 == 0, "bits that mean something else than on gfx11"
    assert rsrc2 >> 1 & 0x1F == kernel.dwords, "USER_SGPR"
    assert rsrc2 >> 7 & 0b111 == 0b111, "workgroup ids"
    assert rsrc2 >> 11 & 0b11 == 0, "v0 holds x alone"
    assert kernel.rsrc3 == -(-kernel.size // 128) << 4, "INST_PREF_SIZE in lines of 128 bytes"
    used = {int(v) for line in listing(name) for v in re.findall(r"\bv(\d+)\b", line)}
    used |= {int(v) for line in listing(name) for v in re.findall(r"\bv\[\d+:(\d+)\]", line)}
    assert max(used, default=0) < kernel.vgprs
    assert (kernel.lds_bytes > 0) is (name == "workgroup_sum")
    assert (kernel.scratch_bytes > 0) is (name == "spills_to_scratch")
    assert (has(name, "scratch_") > 0) is (name == "spills_to_scratch")


@pytest.mark.parametrize("name", ALL)
def test_code_is_padded_for_prefetch(name: str) -> None:
    kernel = compiled()[name]
    assert len(kernel.code) % 128 == 0
    tail = kernel.code[kernel.size :]
    assert tail == struct.pack("<I", 0xBF9F0000) * (len(tail) // 4)
    assert 3 * 128 <= len(tail) < 4 * 128


@pytest.mark.parametrize("name", ALL)
def test_pointers_are_global_not_flat(name: str) -> None:
    assert has(name, r"^flat_") == 0
    assert has(name, r"^(global|scratch)_|^s_load") > 0


def test_arguments_start_at_s0_and_ids_come_from_ttmp_and_v0() -> None:
    # x at s[0:1], y at s[2:3], n at s4
    assert has("workgroup_sum", r"\bs\[0:1\]")
    assert has("workgroup_sum", r"s_add_nc_u64 s\[\d+:\d+\], s\[2:3\]")
    assert has("workgroup_sum", r"v_cmpx?_\w*gt_u32\w* s4, v")
    assert has("workgroup_sum", r"v_\w*and_b32 v\d+, 0x3ff, v0"), "the work-item id is unpacked from v0"
    assert has("workgroup_sum", r"ttmp9")
    assert has("many_arguments", r"s_and_b32 s\d+, ttmp7, 0xffff")
    assert has("many_arguments", r"s_lshr_b32 s\d+, ttmp7, 16")
    for kernel in compiled().values():
        assert not any("ttmp9" in line and line.split()[1].startswith("ttmp") for line in listing(kernel.name))


def test_arguments_are_packed_without_holes() -> None:
    kernel = compiled()["many_arguments"]
    assert [a.dword for a in kernel.arguments] == [0, 2, 3, 5, 6, 8, 9, 11, 12, 14]
    assert kernel.dwords == 15
    data = kernel.user_data(0x1_2345_6789_ABCD, 7, 2**40, 65535, 3, -1.5, 0xFFFF_FFFF_FFFF_FFF8, -128, 5, 2**32 - 1)
    (minus_one_and_a_half,) = struct.unpack("<I", struct.pack("<f", -1.5))
    assert data == (
        0x6789ABCD, 0x12345, 7, 0, 256, 65535, 3, 0, minus_one_and_a_half, 0xFFFFFFF8, 0xFFFFFFFF, 0xFFFFFF80, 5, 0,
        0xFFFFFFFF,
    )  # fmt: skip
    # The code finds them there: c begins at the odd register s5+1 = s6, d at s9, flag is s11, e s[12:13], last s14.
    assert has("many_arguments", r"s\[12:13\]")
    assert has("many_arguments", r"\bs11\b")
    for wrong in ((1,), (0, -1, 0, 0, 0, 0.0, 0, 0, 0, 0), (0, 0, 0, 65536, 0, 0.0, 0, 0, 0, 0)):
        with pytest.raises(LangError):
            kernel.user_data(*wrong)


def test_uniform_fields_of_constant_memory_come_by_scalar_loads() -> None:
    assert has("from_block", r"s_load_b\d+ s\S+, s\[0:1\]")


def test_dot_products() -> None:
    assert has("q8_0_matvec", r"v_dot4_i32_iu8 .*neg_lo:\[1,1,0\]")
    assert has("q4_0_matvec", r"v_dot4_i32_iu8 .*neg_lo:\[0,1,0\]")
    assert has("q8_0_matvec", r"global_load_b128"), "wide loads, whatever their alignment"
    assert has("q8_0_matvec", r"v_cvt_f32_f16")


def test_wave_reduction() -> None:
    """Distances 16, 8, 4, 2, 1 in this order: the tree of docs/how/numerics.md."""
    lines = listing("rms_norm")
    steps = [m[0] for line in lines if (m := re.search(r"v_permlanex16_b32|row_xmask:\d+", line))]
    assert steps == ["v_permlanex16_b32", *(f"row_xmask:{d}" for d in (8, 4, 2, 1))]
    for line in lines:
        if "row_xmask" in line:
            assert "row_mask:0xf bank_mask:0xf bound_ctrl:1" in line
        if "v_permlanex16" in line:
            assert line.endswith("0xfedcba98 op_sel:[1,1]")
            assert any("0x76543210" in other for other in lines)


def test_the_selection_of_permlanex16_is_the_other_rows_same_lane() -> None:
    """The instruction's definition (RDNA 4 ISA), carried out on numbered lanes."""
    selection = (0xFEDCBA98 << 32) | 0x76543210
    source = np.arange(32)
    result = np.empty(32, int)
    for row in (0, 1):
        for i in range(16):
            result[row * 16 + i] = source[(row ^ 1) * 16 + (selection >> (4 * i) & 15)]
    assert (result == (np.arange(32) ^ 16)).all()


def test_exchanges_between_lanes() -> None:
    assert all(has("lane_words", rf"row_xmask:{d} ") for d in (1, 2, 4, 8))
    assert has("lane_words", r"v_permlanex16_b32")
    assert has("lane_words", r"v_readfirstlane_b32")
    assert has("lane_words", r"v_mbcnt_lo_u32_b32 v\d+, -1, 0")


def test_lds_and_barrier() -> None:
    lines = listing("workgroup_sum")

    def first(pattern: str) -> int:
        return next(i for i, line in enumerate(lines) if re.search(pattern, line))

    order = [first(p) for p in (r"ds_store_b32", r"s_wait_dscnt 0x0", r"s_barrier_signal -1", r"s_barrier_wait -1")]
    assert order == sorted(order)
    assert first(r"ds_load_b") > order[-1]
    assert compiled()["workgroup_sum"].lds_bytes == 512
    assert compiled()["workgroup_sum"].workgroup == 256


def test_matrix_multiplication() -> None:
    assert has(
        "tile_matmul", r"v_wmma_i32_16x16x16_iu8 v\[\d+:\d+\], v\[\d+:\d+\], v\[\d+:\d+\], v\[.*neg_lo:\[0,1,0\]"
    )


def test_loads_stay_above_a_schedule_barrier() -> None:
    """Without one LLVM moves some to their use."""
    before = {}
    for first in (True, False):
        module = emit_module("loads", [Spec(g.sixteen_loads, {"FIRST": first})], TARGETS["gfx1201"])
        assert '"amdgpu-waves-per-eu"="12,16"' in module.ir
        lines = images([module], disassemble=True)[0].meta["assembly"].splitlines()
        wait = next(i for i, line in enumerate(lines) if "s_wait_loadcnt" in line)
        before[first] = sum("global_load_b32" in line for line in lines[:wait])
    assert before[True] == 16
    assert before[False] < 16


def test_atomics_order_memory_among_the_devices_waves() -> None:
    lines = listing("grid_barrier")
    at = next(i for i, line in enumerate(lines) if line.startswith("global_atomic_add_u32"))
    assert "scope:SCOPE_DEV" in lines[at]
    assert any("s_wait_storecnt 0x0" in line for line in lines[:at]), "release"
    polls = [i for i, line in enumerate(lines) if re.search(r"global_load_b32 .*scope:SCOPE_DEV", line)]
    assert polls
    assert all("global_inv scope:SCOPE_DEV" in lines[i + 2] for i in polls), "acquire"
    assert has("grid_barrier", r"s_sleep 1")


def test_a_kernel_is_found_in_an_image_of_several() -> None:
    specs = [Spec(g.rms_norm), Spec(g.tile_matmul)]
    (image,) = images([emit_module("two", specs, TARGETS["gfx1201"])])
    for spec in specs:
        alone = compiled()[spec.function.name]
        kernel = describe_kernel(spec, image)
        assert (kernel.code, kernel.rsrc1, kernel.rsrc2) == (alone.code, alone.rsrc1, alone.rsrc2)
    with pytest.raises(CompileError, match="holds no GPU kernel grid_barrier"):
        describe_kernel(Spec(g.grid_barrier), image)


def test_waves_of_64_lanes() -> None:
    spec, words = Spec(g.lanes_of_64), TARGETS["gfx1201"]
    kernel = describe_kernel(spec, images([emit_module("w", [spec], words)], disassemble=True)[0])
    assert (kernel.wave, kernel.workgroup, kernel.vgprs % 4) == (64, 64, 0)
    assert "v_mbcnt_hi_u32_b32" in kernel.assembly
    assert "global_store_b32" in kernel.assembly
    small = compiled()["workgroup_sum"]
    assert small.wave == 32
    with pytest.raises(LangError, match="compile them apart"):
        emit_module("both", [spec, Spec(g.workgroup_sum)], words)
    for word in (g.reduces_64, g.shuffles_64, g.multiplies_64):
        with pytest.raises(LangError, match="waves of 32 lanes"):
            emit_module("wrong", [Spec(word)], words)

"""gfx11 code on the shader core: waits, barriers, registers at the start, and names.

`test_kernels` runs compiled kernels of both generations against NumPy, `tests/backends/amdgpu/test_gfx11.py` whole
models.
"""

from __future__ import annotations

import struct
from dataclasses import replace

import numpy as np
import pytest

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.gfx11 import as_gfx12
from amdgpu_emu.core.program import Program
from amdgpu_emu.errors import GpuFault, GpuHang
from amdgpu_emu.isa.decoder import decode
from amdgpu_emu.isa.instruction import Encoding, OperandKind, UnknownInstruction
from amdgpu_emu.isa.opcodes import names
from tests.amdgpu_emu.core.stage import RSRC1, S_ENDPGM, Stage
from tests.amdgpu_emu.core.test_coverage import everything
from tests.amdgpu_emu.core.test_kernels import compiled
from tests.amdgpu_emu.isa.encodings import encodings

S_NOP = 0xBF800000
WAITCNT, NO_VM, NO_LGKM = 0xBF890000, 0xFC00, 0x3F0
S_BARRIER = 0xBFBD0000
CLAMPED = RSRC1 | 1 << 21  # DX10_CLAMP
S_LOAD_20, S_LOAD_21 = (0xF4000500, 0xF8000000), (0xF4000540, 0xF8000004)  # s20, s[0:1], 0; s21, s[0:1], 4
DS_LOAD, DS_LOAD_7 = (0xD8D80000, 0x06000003), (0xD8D80000, 0x07000003)  # v6, v3; v7, v3
V3_TIMES_4 = 0x30060082  # v_lshlrev_b32 v3, 2, v0
DS_STORE = (0xD8340000, 0x00000003)  # v3, v0
USE_S20, USE_S21, USE_V6, USE_V7 = 0xBE960014, 0xBE960015, 0x7E100306, 0x7E100307  # s_mov s22; v_mov v8
EXTREMES = (0.0, -0.0, 1.0, -2.5, np.inf, -np.inf, np.nan)


def waits(n: int) -> int:
    """s_waitcnt lgkmcnt(n)."""
    return WAITCNT | 0xFC07 | n << 4


def patched(name: str, *changes: tuple[int, int, int]) -> bytes:
    """A kernel's code with words changed: those that begin with the first number get bits on top, or become others."""
    kernel = compiled("gfx1100")[name]
    words = list(struct.unpack(f"<{kernel.size // 4}I", kernel.code[: kernel.size]))
    for value, also, becomes in changes:
        hits = [k for k, w in enumerate(words) if w & 0xFFFF0000 == value]
        assert hits, hex(value)
        for k in hits:
            words[k] = becomes or words[k] | also
    return struct.pack(f"<{len(words)}I", *words)


def run(*words: int, target: str = "gfx1100", **how: object) -> Stage:
    """Raw code behind 16 user registers, of which the first two are the address of a buffer."""
    stage = Stage(target)
    block = stage.buffer(np.arange(64, dtype=np.uint32))
    data = (block & 0xFFFFFFFF, block >> 32)
    given = {"user_data": data, "rsrc1": CLAMPED | 7, "rsrc2": 16 << 1, **how}
    stage.dispatch(stage.code([*words, S_ENDPGM]), **given)  # type: ignore[arg-type]
    return stage


# Waits.


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("add_vectors", NO_VM, r"v\d+ is used before global_load_b32 at 0x.*s_waitcnt vmcnt is missing"),
        ("from_block", NO_LGKM, r"s\d+ is used before s_load_\w+ at .*s_waitcnt lgkmcnt is missing"),
        ("workgroup_sum", NO_LGKM, r"is signalled before ds_store_b32 at .*s_waitcnt lgkmcnt is missing"),
    ],
)
def test_a_wait_is_missing(name: str, change: int, message: str) -> None:
    stage = Stage("gfx1100")
    x = stage.buffer(4096)
    arguments = {"add_vectors": (x, x, x, 32), "from_block": (x, 0), "workgroup_sum": (x, x, 256)}[name]
    stage.launch(compiled("gfx1100")[name], 1, *arguments)
    with pytest.raises(GpuHang, match=message):
        stage.launch(compiled("gfx1100")[name], 1, *arguments, code=patched(name, (WAITCNT, change, 0)))


def test_a_barrier_is_missing() -> None:
    stage = Stage("gfx1100")
    x = stage.buffer(4096)
    code = patched("workgroup_sum", (S_BARRIER, 0, S_NOP))
    with pytest.raises(GpuHang, match=r"LDS byte \d+ was written by wave \d+ and no barrier came between: a race"):
        stage.launch(compiled("gfx1100")["workgroup_sum"], 1, x, x, 256, code=code)


def test_a_barrier_that_one_wave_skips() -> None:
    # Waves of items below 32 jump over it: v_readfirstlane_b32 s20, v0; s_cmp_lt_u32 s20, 32; s_cbranch_scc1
    skip = (0x7E280500, 0xBF0AA014, 0xBFA20001)
    with pytest.raises(GpuHang, match=r"after a wave of its workgroup has ended|ends while others"):
        run(*skip, S_BARRIER, threads=(64, 1, 1))


def test_scalar_loads_arrive_in_any_order() -> None:
    run(*S_LOAD_20, *S_LOAD_21, waits(0), USE_S20, USE_S21)
    with pytest.raises(GpuHang, match="s20 is used before s_load_b32 at"):
        run(*S_LOAD_20, *S_LOAD_21, waits(1), USE_S20)


def test_lds_arrives_in_order_unless_scalar_loads_are_under_way() -> None:
    stored = (V3_TIMES_4, *DS_STORE, waits(0))
    run(*stored, *DS_LOAD, *DS_LOAD_7, waits(1), USE_V6, waits(0), USE_V7, lds=256)
    with pytest.raises(GpuHang, match="v7 is used before ds_load_b32 at"):
        run(*stored, *DS_LOAD, *DS_LOAD_7, waits(1), USE_V7, lds=256)
    with pytest.raises(GpuHang, match="v6 is used before ds_load_b32 at"):
        run(*stored, *DS_LOAD, *S_LOAD_20, waits(1), USE_V6, lds=256)


# The start of waves.


def test_waves_must_start_with_sixteen_scalar_registers() -> None:
    for target, wave32 in (("gfx1100", True), ("gfx1102", True)):
        with pytest.raises(GpuHang, match="start with 15 scalar registers; this core must start them with 16"):
            run(target=target, rsrc2=12 << 1 | 7 << 7, wave32=wave32)
    run(target="gfx1101", rsrc2=2 << 1 | 7 << 7)
    run(target="gfx1100", rsrc2=2 << 1 | 7 << 7, wave32=False)
    for name, kernel in compiled("gfx1100").items():
        given = (kernel.rsrc2 >> 1 & 31) + (kernel.rsrc2 >> 7 & 7).bit_count()
        assert given >= 16, name


def test_ids_stand_behind_the_user_registers_that_are_asked_for() -> None:
    """Of y and z alone: s14 is y, s15 z. Workgroup (1, 2, 3) of many stores them."""
    store = (0xDC6A0000, 0x00000200)  # global_store_b32 v0, v2, s[0:1]
    code = (
        0x7E000280,  # v_mov_b32 v0, 0
        0x7E04020E,  # v_mov_b32 v2, s14
        *store,
        0x7E04020F,
        0x7E000284,
        *store,  # v_mov_b32 v2, s15; v_mov_b32 v0, 4
    )
    stage = run(*code, rsrc2=14 << 1 | 0b110 << 7, groups=(1, 3, 4))
    assert stage.read(0x1_0000_0000, np.uint32, 2).tolist() == [2, 3]


def test_what_is_not_modelled_is_refused() -> None:
    with pytest.raises(GpuHang, match="IEEE_MODE"):
        run(rsrc1=CLAMPED | 7 | 1 << 23)
    with pytest.raises(GpuHang, match="DX10_CLAMP"):
        run(rsrc1=RSRC1 | 7)
    with pytest.raises(GpuHang, match="TG_SIZE_EN"):
        run(rsrc2=16 << 1 | 1 << 10)


def test_a_workgroup_that_no_compute_unit_holds() -> None:
    """1024 work-items of 136 registers: 32 waves, eight a SIMD, which has 1536 or 1024 registers. Without WGP mode they
    have half the SIMDs.
    """
    whole = CLAMPED | 16 | 1 << 29
    run(rsrc1=whole, threads=(1024, 1, 1))
    run(target="gfx1102", rsrc1=whole - 1, threads=(1024, 1, 1))
    for how in ({"target": "gfx1102", "rsrc1": whole}, {"rsrc1": whole & ~(1 << 29)}):
        with pytest.raises(GpuHang, match="a workgroup of 32 waves with 136 vector registers never starts"):
            run(threads=(1024, 1, 1), **how)  # type: ignore[arg-type]


# Names.


def test_every_instruction_of_gfx11_has_its_like_or_is_refused() -> None:
    """Those that gfx12 has, too, are executed; the rest is refused by name."""
    stage = Stage("gfx1100")
    known = {name for form in Encoding for name in names(form)}
    ran, refused, own = set(), set(), set()
    program, start = Program(lambda a, n: b"", 256, 32, 11), everything(32, stage)
    with np.errstate(all="ignore"):
        for _, _, code in encodings(3, 2):
            try:
                ins = decode(code, 0x1000, gfx=11)
            except UnknownInstruction:
                continue
            try:
                if as_gfx12(ins).name not in known:
                    own.add(ins.name)
                program._compile(ins).fn(start.part(np.array([True, True])))
            except Unsupported:
                refused.add(ins.name)
                continue
            except (ShaderError, GpuFault):
                pass
            ran.add(ins.name)
    assert len(ran) > 700
    assert {"v_cmp_t_f32", "ds_cmpstore_f32"} <= refused
    assert {"v_max_f32", "v_med3_f16", "s_addc_u32", "s_cmpk_lt_u32", "v_mad_u64_u32", "ds_min_f32"} <= ran
    waiting = {"s_waitcnt_vscnt", "s_waitcnt_vmcnt", "s_barrier", "s_set_inst_prefetch_distance", "s_waitcnt_depctr"}
    caches = {"buffer_gl0_inv", "buffer_gl1_inv", "s_gl1_inv"}
    assert own & ran <= waiting | caches | {"v_dot2acc_f32_f16", "v_dual_dot2acc_f32_f16", "v_fmac_dx9_zero_f32"}
    matrix = replace(decode(struct.pack("<I", S_NOP)), name="v_wmma_i32_16x16x16_iu8")
    with pytest.raises(Unsupported, match="its operands lie otherwise"):
        as_gfx12(matrix)


@pytest.mark.parametrize(
    ("word", "name", "value"),
    [
        (0xB194FFFD, "s_cmp_eq_i32", 0xFFFFFFFD),
        (0xB494FFFD, "s_cmp_eq_u32", 0xFFFD),
        (0xB2147FFF, "s_cmp_lg_i32", 0x7FFF),
    ],
)
def test_comparisons_with_sixteen_bits(word: int, name: str, value: int) -> None:
    ins = as_gfx12(decode(struct.pack("<I", word), gfx=11))
    assert (ins.name, ins.format, ins.src[0].index) == (name, Encoding.SOPC, 20)
    assert (ins.src[1].kind, ins.src[1].value) == (OperandKind.INTEGER, value)


def test_the_lesser_and_the_greater_number() -> None:
    """v_min_f32, v_max_f32: NaN loses, and -0 is below +0 (RDNA 3 ISA, with IEEE_MODE 0)."""
    pairs = [(a, b) for a in EXTREMES for b in EXTREMES][:32]
    a, b = (np.array(side, np.float32) for side in zip(*pairs, strict=True))
    for word, of in ((0x1E0A0501, min), (0x200A0501, max)):  # v_min_f32, v_max_f32 v5, v1, v2
        ins = as_gfx12(decode(struct.pack("<I", word), gfx=11))
        stage = Stage("gfx1100")
        group = everything(32, stage).part(np.array([True, False]))
        group.f[1, 0], group.f[2, 0] = a, b
        Program(lambda at, n: b"", 256, 32, 11)._compile(replace(ins)).fn(group)
        for got, x, y in zip(group.f[5, 0], a, b, strict=True):
            numbers = [v for v in (x, y) if not np.isnan(v)]
            want = of(numbers, key=lambda v: (v, not np.signbit(v))) if numbers else np.nan
            assert np.isnan(got) if not numbers else (got == want and np.signbit(got) == np.signbit(want)), (x, y)

"""What this core refuses though silicon may let it pass; each error says what, where, which wave and lane."""

from __future__ import annotations

import struct

import numpy as np
import pytest

from amdgpu_emu.errors import GpuFault, GpuHang
from tests.amdgpu_emu.core.stage import S_ENDPGM, Stage
from tests.amdgpu_emu.core.test_kernels import compiled

S_NOP = 0xBF800000
WAIT_LOAD, WAIT_STORE, WAIT_DS, WAIT_KM = 0xBFC00000, 0xBFC10000, 0xBFC60000, 0xBFC70000
SIGNAL, WAIT_BARRIER = 0xBE804EC1, 0xBF94FFFF
LOAD = (0xEE05007C, 0x00000005, 0x00000002)  # global_load_b32 v5, v[2:3], off
STORE = (0xEE068000, 0x00000000, 0x00000002)  # global_store_b32 v2, v0, s[0:1]
DS_STORE, DS_LOAD = (0xD8340000, 0x00000003), (0xD8D80000, 0x06000003)  # v3, v0; v6, v3


def v_mov(d: int, source: int) -> int:
    return 0x7E000200 | d << 17 | source


def s_mov(d: int, source: int) -> int:
    return 0xBE800000 | d << 16 | source


def inline(n: int) -> int:
    return 128 + n


VGPR = 256


def patched(name: str, *changes: tuple[int, int], after: int = 0) -> bytes:
    """A kernel's code with words replaced, all that match from a byte offset on; each must match."""
    kernel = compiled()[name]
    words = list(struct.unpack(f"<{kernel.size // 4}I", kernel.code[: kernel.size]))
    for old, new in changes:
        hits = [
            k for k, w in enumerate(words) if (w & 0xFFFF0000 if old & 0xFFFF == 0 else w) == old and 4 * k >= after
        ]
        assert hits, hex(old)
        for k in hits:
            words[k] = new
    return struct.pack(f"<{len(words)}I", *words)


def test_a_wait_for_loads_is_missing() -> None:
    stage = Stage()
    x = stage.buffer(4096)
    code = patched("add_vectors", (WAIT_LOAD, S_NOP))
    with pytest.raises(
        GpuHang, match=r"v\d+ is used before global_load_b32 at 0x.*s_wait_loadcnt is missing.*`v_.*kernel"
    ):
        stage.launch(compiled()["add_vectors"], 1, x, x, x, 32, code=code)


def test_a_wait_for_scalar_loads_is_missing() -> None:
    stage = Stage()
    block = stage.buffer(4096)
    with pytest.raises(GpuHang, match=r"s\d+ is used before s_load_\w+ at .*s_wait_kmcnt is missing"):
        stage.launch(compiled()["from_block"], 1, block, 0, code=patched("from_block", (WAIT_KM, S_NOP)))


def test_a_wait_for_lds_is_missing() -> None:
    stage = Stage()
    x = stage.buffer(4096)
    code = patched("workgroup_sum", (WAIT_DS, S_NOP))
    with pytest.raises(GpuHang, match=r"the barrier is signalled before ds_store_b32 at .*s_wait_dscnt is missing"):
        stage.launch(compiled()["workgroup_sum"], 1, x, x, 256, code=code)
    at = patched("workgroup_sum").index(struct.pack("<I", SIGNAL))
    code = patched("workgroup_sum", (WAIT_DS, S_NOP), after=at)
    with pytest.raises(GpuHang, match=r"v\d+ is used before ds_load_b128 at .*s_wait_dscnt is missing"):
        stage.launch(compiled()["workgroup_sum"], 1, x, x, 256, code=code)


def test_a_barrier_is_missing() -> None:
    stage = Stage()
    x = stage.buffer(np.zeros(1024, np.float32))
    code = patched("workgroup_sum", (SIGNAL, S_NOP), (WAIT_BARRIER, S_NOP))
    with pytest.raises(
        GpuHang, match=r"LDS byte \d+ was written by wave \d+ and no barrier came between: a race; `ds_load"
    ):
        stage.launch(compiled()["workgroup_sum"], 1, x, x, 256, code=code)


# Of 64 lanes each has a dword: v3 = 4 * lane, which is written; behind the barrier v3 is that of the other wave.
DS_ADD, FLIP = (0xD8000000, 0x00000003), (0x3A0606FF, 0x80)  # ds_add_u32 v3, v0; v_xor_b32 v3, 0x80, v3
SHARED = [0x30060082, *DS_STORE, WAIT_DS, SIGNAL, WAIT_BARRIER, *FLIP]
BARRIER = [WAIT_DS, SIGNAL, WAIT_BARRIER]


def shared(*words: int, wave32: bool = True) -> None:
    stage = Stage()
    stage.dispatch(stage.code([*SHARED, *words, WAIT_DS, S_ENDPGM]), threads=(64, 1, 1), lds=256, wave32=wave32)


def test_overwriting_lds_that_another_wave_still_reads() -> None:
    behind = r"LDS byte 0 was read by wave 1 and no barrier came between: a race; `ds_"
    with pytest.raises(GpuHang, match=behind + "store_b32 v3, v0"):
        shared(*DS_LOAD, WAIT_DS, *FLIP, *DS_STORE)
    with pytest.raises(GpuHang, match=behind + "add_u32 v3, v0"):
        shared(*DS_LOAD, WAIT_DS, *FLIP, *DS_ADD)
    shared(*DS_LOAD, *BARRIER, *FLIP, *DS_STORE)
    shared(*DS_LOAD, WAIT_DS, *DS_STORE)  # what it read itself
    shared(*DS_LOAD, WAIT_DS, *FLIP, *DS_STORE, wave32=False)  # one wave


def test_lds_that_several_waves_read_is_not_overwritten() -> None:
    several = [v_mov(3, inline(0)), *DS_LOAD, WAIT_DS]  # both waves read the first dword
    with pytest.raises(GpuHang, match="LDS byte 0 was read by several waves and no barrier came between: a race"):
        shared(*several, 0x30060082, *DS_STORE)
    shared(*several, *BARRIER, 0x30060082, *DS_STORE)


def test_two_waves_write_other_values_to_one_place() -> None:
    same = [v_mov(3, inline(0)), v_mov(4, inline(7))]
    store = (0xD8340000, 0x00000403)  # ds_store_b32 v3, v4
    shared(*same, *BARRIER, *store)  # equal values are no race
    with pytest.raises(GpuHang, match=r"LDS byte 0 was written by wave 1 and no barrier came between: a race"):
        shared(*same, *BARRIER, *DS_STORE)
    shared(*same, *BARRIER, *DS_ADD, WAIT_DS, *DS_ADD)  # atomics may meet


def test_misaligned_lds() -> None:
    stage = Stage()
    code = [v_mov(3, inline(2)), *DS_STORE, WAIT_DS, S_ENDPGM]
    with pytest.raises(GpuHang, match=r"an LDS access of 4 bytes at 2, which is misaligned; `ds_store_b32 v3, v0`"):
        stage.dispatch(stage.code(code), lds=512)


def test_flat_windows() -> None:
    """A generic pointer to LDS as compilers make it: src_shared_base's upper half above the offset."""
    stage = Stage()
    out = stage.buffer(256)
    code = [
        0xBE8801EB,  # s_mov_b64 s[8:9], src_shared_base
        0x30040082,  # v_lshlrev_b32 v2, 2, v0
        v_mov(3, 9),
        0xEC06807C, 0x00000000, 0x00000002,  # flat_store_b32 v[2:3], v0
        0xBFC60000,
        0xEC05007C, 0x00000005, 0x00000002,  # flat_load_b32 v5, v[2:3]
        WAIT_LOAD, WAIT_DS,
        0xEE068000, 0x02800000, 0x00000002,  # global_store_b32 v2, v5, s[0:1]
        S_ENDPGM,
    ]  # fmt: skip
    stage.dispatch(stage.code(code), user_data=(out & 0xFFFFFFFF, out >> 32), lds=128)
    assert (stage.read(out, np.uint32, 32) == np.arange(32)).all()
    code = [0xBE8801EB, v_mov(2, inline(0)), v_mov(3, 9), 0xEC06807C, 0, 2, SIGNAL, WAIT_BARRIER, S_ENDPGM]
    with pytest.raises(
        GpuHang, match=r"the barrier is signalled before a flat access of LDS at .* s_wait_dscnt is missing"
    ):
        stage.dispatch(stage.code(code), lds=128)


def test_overwriting_what_a_load_will_bring() -> None:
    stage = Stage()
    x = stage.buffer(4096)
    head = [v_mov(2, 0), v_mov(3, 1)]
    code = stage.code([*head, *LOAD, v_mov(5, inline(1)), WAIT_LOAD, S_ENDPGM])
    with pytest.raises(GpuHang, match="v5 is overwritten before global_load_b32"):
        stage.dispatch(code, user_data=(x & 0xFFFFFFFF, x >> 32))
    stage.dispatch(
        stage.code([*head, *LOAD, *LOAD, WAIT_LOAD, v_mov(5, inline(1)), S_ENDPGM]), user_data=(x & 0xFFFFFFFF, x >> 32)
    )
    stage.dispatch(stage.code([*head, *LOAD, S_ENDPGM]), user_data=(x & 0xFFFFFFFF, x >> 32))


def test_an_invalidation_counts_as_a_load() -> None:
    """It brings nothing and keeps its place: waiting until one is left has waited for the load before it."""
    stage = Stage()
    x = stage.buffer(4096)
    invalidate = (0xEE0AC07C, 0x00080000, 0x00000000)  # global_inv scope:SCOPE_DEV
    head, data = [v_mov(2, 0), v_mov(3, 1)], (x & 0xFFFFFFFF, x >> 32)
    end = [WAIT_LOAD | 1, v_mov(5, inline(1)), WAIT_LOAD, S_ENDPGM]
    stage.dispatch(stage.code([*head, *LOAD, *invalidate, *end]), user_data=data)
    with pytest.raises(GpuHang, match="v5 is overwritten before global_load_b32"):
        stage.dispatch(stage.code([*head, *invalidate, *LOAD, *end]), user_data=data)


def test_waiting_for_some_of_several_loads() -> None:
    stage = Stage()
    x = stage.buffer(4096)
    other = (LOAD[0], 0x00000006, LOAD[2])  # into v6
    head = [v_mov(2, 0), v_mov(3, 1), *LOAD, *other, WAIT_LOAD | 1]
    where = (x & 0xFFFFFFFF, x >> 32)
    stage.dispatch(stage.code([*head, v_mov(0, VGPR | 5), S_ENDPGM]), user_data=where)
    with pytest.raises(GpuHang, match="v6 is used before"):
        stage.dispatch(stage.code([*head, v_mov(0, VGPR | 6), S_ENDPGM]), user_data=where)


def test_half_an_addend() -> None:
    """v_mad_co_u64_u32 v[2:3], null, s0, s1, v[0:1], as compilers write a 32-bit product and sum: v1 holds nothing."""
    mad = (0xD6FE7C02, 0x04000200)
    stage = Stage()
    stage.dispatch(stage.code([*mad, v_mov(4, VGPR | 2), S_ENDPGM]), user_data=(1, 2))
    with pytest.raises(GpuHang, match="v3 is read and was never written"):
        stage.dispatch(stage.code([*mad, v_mov(4, VGPR | 3), S_ENDPGM]), user_data=(1, 2))
    with pytest.raises(GpuHang, match="v1 is read and was never written"):  # with the carry kept in s4
        stage.dispatch(stage.code([0xD6FE0402, 0x04000200, S_ENDPGM]), user_data=(1, 2))


def test_registers_that_nobody_wrote() -> None:
    stage = Stage()
    with pytest.raises(GpuHang, match=r"v4 is read and was never written; `v_mov_b32_e32 v1, v4` at 0x\w+ \(\+0x0\)"):
        stage.dispatch(stage.code([v_mov(1, VGPR | 4), S_ENDPGM]))
    with pytest.raises(GpuHang, match="s5 is read and was never written"):
        stage.dispatch(stage.code([s_mov(0, 5), S_ENDPGM]), user_data=(1, 2))
    with pytest.raises(GpuHang, match="vcc_lo is read and was never written"):
        stage.dispatch(stage.code([s_mov(0, 106), S_ENDPGM]))
    with pytest.raises(GpuHang, match="scc is read and was never written"):
        stage.dispatch(stage.code([0xBFA20000, S_ENDPGM]))
    # Written in lane 0 alone, read in lane 1: v4 = 0 where EXEC is 1, then EXEC is 2.
    code = [
        s_mov(126, inline(1)),
        v_mov(4, inline(0)),
        v_mov(1, VGPR | 4),
        s_mov(126, inline(2)),
        v_mov(1, VGPR | 4),
        S_ENDPGM,
    ]
    with pytest.raises(GpuHang, match=r"v4 is read and was never written.*\(\+0x10\).*wave 0 of workgroup 0, lane 1"):
        stage.dispatch(stage.code(code))


def test_registers_beyond_the_allocation() -> None:
    stage = Stage()
    with pytest.raises(GpuHang, match="v8 is beyond the 8 vector registers of RSRC1"):
        stage.dispatch(stage.code([v_mov(8, inline(0)), S_ENDPGM]), rsrc1=0xF0000)
    stage.dispatch(stage.code([v_mov(8, inline(0)), S_ENDPGM]), rsrc1=0xF0001)
    with pytest.raises(GpuHang, match="v8 is beyond the 8 vector registers of RSRC1"):  # though it is known by now
        stage.dispatch(stage.code([v_mov(8, inline(0)), S_ENDPGM]), rsrc1=0xF0000)


def test_lds_out_of_range_and_unwritten() -> None:
    stage = Stage()
    store = [v_mov(3, inline(64)), *DS_STORE, WAIT_DS, S_ENDPGM]
    stage.dispatch(stage.code(store), lds=512)
    with pytest.raises(GpuHang, match=r"LDS bytes 64 to 67; the workgroup has 64; `ds_store_b32 v3, v0`.*lane 0"):
        stage.dispatch(stage.code(store), lds=64)
    with pytest.raises(GpuHang, match=r"LDS byte 64 is read and was never written; `ds_load_b32 v6, v3`"):
        stage.dispatch(stage.code([v_mov(3, inline(64)), *DS_LOAD, S_ENDPGM]), lds=512)
    code = patched("workgroup_sum", (0xD8340000, 0xD834FFF0))  # an offset of 65520 bytes
    x = stage.buffer(np.zeros(1024, np.float32))
    with pytest.raises(GpuHang, match=r"LDS bytes 65520 to 65523; the workgroup has 512"):
        stage.launch(compiled()["workgroup_sum"], 1, x, x, 256, code=code)


def test_memory_that_is_not_there_or_read_only() -> None:
    stage = Stage()
    x, y = stage.buffer(4096, "weights"), stage.buffer(4096, "sealed", writable=False)
    with pytest.raises(GpuFault, match=r"not mapped; `global_load_b32 .*lane 24; 0x0 bytes behind the end of weights"):
        stage.launch(compiled()["add_vectors"], 32, x + 4000, x, x, 1024)
    with pytest.raises(GpuFault, match=r"not allowed in sealed.*`global_store_b32"):
        stage.launch(compiled()["add_vectors"], 1, x, x, y, 32)


def test_misaligned_atomics_and_scalar_loads() -> None:
    stage = Stage()
    x, block = stage.buffer(4096), stage.buffer(4096)
    with pytest.raises(GpuHang, match=r"an atomic of 4 bytes at 0x.*2, which is misaligned.*global_atomic_add_u32"):
        stage.launch(compiled()["count"], 1, x + 2, block, block)
    with pytest.raises(GpuHang, match=r"a scalar load of .* which is misaligned"):
        stage.launch(compiled()["from_block"], 1, block + 2, 0)


def test_the_end_is_missing() -> None:
    stage = Stage()
    with pytest.raises(GpuHang, match="the program runs off its end: s_endpgm is missing"):
        stage.dispatch(stage.code([v_mov(1, inline(0))]))


def test_endless_loops() -> None:
    stage = Stage(limit=3000)
    with pytest.raises(GpuHang, match="a wave has executed 3000 instructions: an endless loop; `s_branch"):
        stage.dispatch(stage.code([0xBFA0FFFF, S_ENDPGM]))
    counter, data = stage.buffer(4), stage.buffer(4096)
    with pytest.raises(GpuHang, match="an endless loop"):  # it waits for more workgroups than there are
        stage.launch(compiled()["grid_barrier"], 3, counter, data, 4, 1)


def test_barriers_that_never_complete() -> None:
    stage = Stage()
    # The first wave (v0 of its first lane is 0) ends early; the other waits.
    first = 0x7E000500  # v_readfirstlane_b32 s0, v0
    skip = [first, 0xBF068000, 0xBFA20002]  # s_cmp_eq_u32 s0, 0; s_cbranch_scc1 +2
    with pytest.raises(GpuHang, match="the wave ends while others of its workgroup wait at a barrier"):
        stage.dispatch(stage.code([*skip, SIGNAL, WAIT_BARRIER, S_ENDPGM]), threads=(64, 1, 1))
    sooner = [first, 0xBF068000, 0xBFA10001, S_ENDPGM]  # s_cbranch_scc0 +1; s_endpgm
    with pytest.raises(GpuHang, match="signals a barrier after a wave of its workgroup has ended"):
        stage.dispatch(stage.code([*sooner, SIGNAL, WAIT_BARRIER, S_ENDPGM]), threads=(64, 1, 1))
    with pytest.raises(GpuHang, match="waits at a barrier that the wave has not signalled"):
        stage.dispatch(stage.code([WAIT_BARRIER, S_ENDPGM]))
    with pytest.raises(GpuHang, match="the barrier is signalled twice"):
        stage.dispatch(stage.code([SIGNAL, SIGNAL, WAIT_BARRIER, S_ENDPGM]), threads=(64, 1, 1))


def test_an_unknown_instruction_has_an_address() -> None:
    stage = Stage()
    with pytest.raises(GpuHang, match="0x100004"):
        stage.dispatch(stage.code([v_mov(1, inline(0)), 0xFFFFFFFF, S_ENDPGM]))
    with pytest.raises(GpuHang, match=r"s_sendmsg.*MSG_DEALLOC_VGPRS"):
        stage.dispatch(stage.code([0xBFB60001, S_ENDPGM]))


def test_scratch_that_is_not_there() -> None:
    stage = Stage()
    x = stage.buffer(4096)
    kernel = compiled()["spills_to_scratch"]
    with pytest.raises(GpuHang, match="the dispatch has no scratch memory"):
        stage.dispatch(stage.code(kernel.code[: kernel.size]), user_data=kernel.user_data(x, x, 4), rsrc1=kernel.rsrc1)
    with pytest.raises(GpuHang, match=r"byte \d+ of a lane's scratch memory, which has 8"):
        stage.dispatch(
            stage.code(kernel.code[: kernel.size]), user_data=kernel.user_data(x, x, 4), rsrc1=kernel.rsrc1, scratch=256
        )

"""DS instructions against the model: widths, two addresses, atomics that meet, exchanges between lanes."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.state import M0
from tests.amdgpu_emu.core.memory_model import DEFINITIONS, swizzled
from tests.amdgpu_emu.core.memory_stage import (
    ADDRESS,
    DATA,
    LDS,
    WAVES,
    Scene,
    data_of,
    instruction,
    small_words,
    special_words,
)
from tests.amdgpu_emu.core.one import execute, vgpr
from tests.amdgpu_emu.core.test_memory_vector import places, put_numbers, refused, size_of

NAMES = [n for n in DEFINITIONS if n.startswith("ds_")]
EXCHANGES = ["ds_bpermute_b32", "ds_bpermute_fi_b32", "ds_permute_b32"]
SWIZZLE, NOP, COUNTS = ["ds_swizzle_b32"], ["ds_nop"], ["ds_append", "ds_consume"]
BY_LANE = [n for n in NAMES if "addtid" in n]
TWO = [n for n in NAMES if "_2addr_" in n]
SHORT = ("ds_load_u8", "ds_load_i8", "ds_load_u16", "ds_load_i16", "ds_store_b8", "ds_store_b16")
MOVES = [n for n in NAMES if n.startswith((*SHORT, "ds_load_b", "ds_store_b"))]
ATOMICS = [n for n in NAMES if n not in (*EXCHANGES, *SWIZZLE, *NOP, *COUNTS, *BY_LANE, *TWO, *MOVES)]
COVERED = {*EXCHANGES, *SWIZZLE, *NOP, *COUNTS, *BY_LANE, *TWO, *MOVES, *ATOMICS}


def bytes_of(name: str) -> int:
    return int(name.split("_")[2][1:]) // 8


@pytest.mark.parametrize("name", MOVES)
def test_loads_and_stores(name: str) -> None:
    n = bytes_of(name)
    for k, offset in enumerate((0, 200, 3 * min(n, 4))):
        scene = Scene(k, 64 if k % 2 else 32, holes=k != 0)
        at = places(scene, n, min(n, 4), among=None if k else 20, end=LDS, start=200)
        scene.lanes_of(ADDRESS, at - offset)
        scene.check(instruction(name, [vgpr(ADDRESS), *data_of(name)], offset=offset))
    scene = Scene(9)
    scene.lanes_of(ADDRESS, np.full(1, LDS - n + 1))
    refused(scene, name, [vgpr(ADDRESS), *data_of(name)], f"LDS bytes {LDS - n + 1} to {LDS}; the workgroup has {LDS}")
    if n > 1:
        scene.lanes_of(ADDRESS, np.full(1, 129))
        refused(scene, name, [vgpr(ADDRESS), *data_of(name)], f"an LDS access of {n} bytes at 129, which is misaligned")


@pytest.mark.parametrize("name", TWO)
def test_two_addresses(name: str) -> None:
    n, rows = size_of(name), 64 if "stride64" in name else 1
    for k, offsets in enumerate(((0, 1), (3, 0), (1, 4))):
        scene = Scene(k, 64 if k % 2 else 32, holes=k != 0)
        if "store" in name:  # which of two lanes comes last at an address is not defined
            at = np.array(
                [n * scene.rng.permutation(64)[: scene.lanes] * (8 if rows == 1 else 1) for _ in range(WAVES)]
            )
        else:
            at = places(scene, n, n, end=LDS - 4 * n * rows)
        scene.lanes_of(ADDRESS, at)
        ins = instruction(name, [vgpr(ADDRESS), *data_of(name)], offset0=offsets[0], offset1=offsets[1])
        scene.check(ins)
    scene = Scene(4)
    scene.lanes_of(ADDRESS, np.full(1, 2 * n - 2))
    refused(scene, name, [vgpr(ADDRESS), *data_of(name)], f"two times {n} bytes at {2 * n - 2}, which is misaligned")
    if "xchg" in name:
        scene.lanes_of(ADDRESS, np.full(1, 64))
        refused(scene, name, [vgpr(ADDRESS), *data_of(name)], "LDS byte 64 is exchanged twice at once")


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    n = 8 if name.endswith("64") else 4
    adds = "add" in name and ("f32" in name or "f16" in name)
    for k, offset in enumerate((0, 40, 8)):
        scene = Scene(k, 64 if k % 2 else 32)
        crowded = k == 1
        put_numbers(scene, special_words(name) if not (adds and crowded) else small_words(name, scene.rng, 40))
        if crowded:
            at = places(scene, n, n, among=9, end=LDS, start=40)
        else:
            at = 40 + n * scene.rng.permutation((LDS - 40) // n)[: WAVES * scene.lanes].reshape(WAVES, -1)
        if "condxchg" in name:
            at = at + scene.rng.integers(0, 8, at.shape)
        scene.lanes_of(ADDRESS, at - offset)
        scene.check(instruction(name, [vgpr(ADDRESS), *data_of(name)], offset=offset))
    if name != "ds_condxchg32_rtn_b64":  # which clears the low bits of its address
        scene.lanes_of(ADDRESS, np.full(1, n // 2))
        refused(scene, name, [vgpr(ADDRESS), *data_of(name)], f"an LDS atomic of {n} bytes at {n // 2}, which is mis")


@pytest.mark.parametrize("name", COUNTS)
@pytest.mark.parametrize("lanes", [32, 64])
def test_counting_lanes(name: str, lanes: int) -> None:
    for k, offset in enumerate((0, 64)):
        scene = Scene(k, lanes, holes=k == 0)
        scene.g.s[M0] = [16, 0x120020]  # its upper half does not count
        scene.check(instruction(name, [], offset=offset))
    scene.g.put_bits(126, np.zeros((WAVES, lanes), np.bool_))
    scene.check(instruction(name, [], offset=8))


@pytest.mark.parametrize("name", BY_LANE)
@pytest.mark.parametrize("lanes", [32, 64])
def test_a_dword_for_each_lane(name: str, lanes: int) -> None:
    for k, offset in enumerate((0, 100)):
        scene = Scene(k, lanes)
        scene.g.s[M0] = [8 + 4 * k, 0xFFFF0000]
        scene.check(instruction(name, data_of(name), offset=offset))


@pytest.mark.parametrize("name", EXCHANGES)
@pytest.mark.parametrize("lanes", [32, 64])
def test_exchanges_between_lanes(name: str, lanes: int) -> None:
    for k, offset in enumerate((0, 12, 0xFFFC)):
        scene = Scene(k, lanes, holes=k != 0)  # addresses are any 32 bits: they wrap
        scene.check(instruction(name, [vgpr(ADDRESS), vgpr(DATA)], offset=offset))
        scene.check(instruction(name, [vgpr(DATA), vgpr(DATA)], offset=offset))


OFFSETS = (
    0x001F, 0x041F, 0x7C1F, 0x03E0, 0x0010, 0x4210,  # masks of 32
    0x801B, 0x80E4, 0x8000, 0xBFB1,  # quads
    0xC020, 0xC3E0, 0xC7E3, 0xC455, 0xDFFF,  # rotations
    0xE000, 0xE001, 0xE010, 0xE01F, 0xF00C,  # butterflies
)  # fmt: skip


@pytest.mark.parametrize("lanes", [32, 64])
def test_swizzles(lanes: int) -> None:
    for k, offset in enumerate(OFFSETS):
        scene = Scene(k, lanes, holes=k % 3 != 0)
        scene.check(instruction("ds_swizzle_b32", [vgpr(DATA)], offset=offset))


def test_swizzles_that_have_a_name() -> None:
    assert [swizzled(0x041F, i) for i in range(4)] == [1, 0, 3, 2]  # SWAPX1
    assert [swizzled(0x7C1F, i) for i in range(32)] == [31 - i for i in range(32)]  # REVERSE 32
    assert [swizzled(0x801B, i) for i in range(4)] == [3, 2, 1, 0]  # QUAD_PERM 3 2 1 0
    assert [swizzled(0xC020, i) for i in range(32)] == [(i + 1) % 32 for i in range(32)]  # rotation by 1
    assert [swizzled(0xE000, i) for i in range(4)] == [0, 16, 8, 24]  # bits reversed


def test_nothing() -> None:
    Scene(1).check(instruction("ds_nop", []))


def test_a_store_from_lanes_at_one_address_keeps_the_last() -> None:
    scene = Scene(1, holes=False)
    scene.lanes_of(ADDRESS, np.full(1, 64))
    scene.lanes_of(DATA, np.arange(32))
    execute(scene.g, instruction("ds_store_b32", [vgpr(ADDRESS), vgpr(DATA)]))
    assert scene.g.shared.lds.data[64:68].view(np.uint32)[0] == 31

"""Global, flat and scratch instructions against the model: every width and form of address, EXEC with holes, waves of
32 and 64 lanes, lanes that meet at an address."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.state import M0
from tests.amdgpu_emu.core.memory_model import DEFINITIONS, NOTHING
from tests.amdgpu_emu.core.memory_numbers import dwords_of
from tests.amdgpu_emu.core.memory_places import PRIVATE, SHARED
from tests.amdgpu_emu.core.memory_stage import (
    ADDRESS,
    BYTES,
    DATA,
    LDS,
    NULL,
    PER_LANE,
    RESULT,
    WAVES,
    Scene,
    data_of,
    instruction,
    small_words,
    special_words,
)
from tests.amdgpu_emu.core.one import execute, sgpr, vgpr

BASE = 20
RESERVED = ("_block", "addtid_b32", "_tr_b128")
MOVES = [
    n
    for n in DEFINITIONS
    if n.startswith(("global_load", "global_store", "flat_load", "flat_store", "scratch_")) and not n.endswith(RESERVED)
]
ATOMICS = [n for n in DEFINITIONS if n.startswith(("global_atomic", "flat_atomic"))]
BLOCKS = [n for n in DEFINITIONS if n.endswith("_block")]
BY_LANE = ["global_load_addtid_b32", "global_store_addtid_b32"]
TRANSPOSED = ["global_load_tr_b128"]
QUIET = [n for n in NOTHING if n.startswith("global_")]
COVERED = {*MOVES, *ATOMICS, *BLOCKS, *BY_LANE, *TRANSPOSED, *QUIET}
LONG = (1 << 23) - 1
"""The greatest offset of an instruction."""


def size_of(name: str) -> int:
    """Bytes of a lane."""
    return int("".join(c for c in name.rpartition("_")[2] if c.isdigit())) // 8


def places(
    scene: Scene, n: int, step: int = 1, among: int | None = None, end: int = BYTES, start: int = 0
) -> np.ndarray:
    """Offsets [waves, lanes], multiples of `step`; among: how many different ones at most."""
    choices = np.arange(start, end - n + 1, step)
    if among is not None:
        choices = scene.rng.choice(choices, among, replace=False)
    return scene.rng.choice(choices, (WAVES, scene.lanes))


def put_address(scene: Scene, name: str, form: str, offset: int, at: np.ndarray) -> list:
    """Registers so that the lanes reach these offsets of the memory; the operands."""
    data = data_of(name)
    if name.startswith("scratch_"):
        scalar, vector = (48 if "s" in form else 0), "v" in form
        start = at - offset - scalar
        if not vector:  # all lanes at one place of their own memory
            scalar = int(start.flat[0]) + scalar
        scene.lanes_of(ADDRESS, start & 0xFFFFFFFF)
        scene.scalar(BASE, scalar & 0xFFFFFFFF)
        return [vgpr(ADDRESS) if vector else NULL, *data, sgpr(BASE) if "s" in form else NULL]
    if name.startswith("flat_"):
        scene.lanes_of(ADDRESS, at - offset, 2)
        return [vgpr(ADDRESS, 64), *data]
    if form == "base":
        scene.scalar(BASE, scene.base - 1000 - offset, 2)
        scene.lanes_of(ADDRESS, at + 1000)
        return [vgpr(ADDRESS), *data, sgpr(BASE, 2)]
    scene.lanes_of(ADDRESS, at + scene.base - offset, 2)
    return [vgpr(ADDRESS, 64), *data, NULL]


FORMS = {
    "global": [("pair", 0), ("base", 24), ("pair", -LONG - 1), ("base", -40), ("base", LONG)],
    "scratch": [("v", 0), ("s", 8), ("vs", -16), ("", 12), ("v", -LONG - 1)],
}


@pytest.mark.parametrize("name", [n for n in MOVES if not n.startswith("flat_")])
def test_loads_and_stores(name: str) -> None:
    n = size_of(name)
    for k, (form, offset) in enumerate(FORMS[name.partition("_")[0]]):
        scene = Scene(k, 64 if k % 2 else 32, holes=k != 0)
        if name.startswith("scratch_"):
            at = places(scene, n, 1 if k % 3 else min(n, 4), end=PER_LANE)
            if "v" not in form:
                at[:] = offset if not form else at.flat[0]
        else:
            at = places(scene, n, 1 if k % 3 else n, among=None if k % 2 else 40)
        src = put_address(scene, name, form, offset, at)
        scene.check(instruction(name, src, offset=offset))


def spread(scene: Scene, n: int, align: int, scratch: bool = True) -> np.ndarray:
    """Flat addresses in all three memories."""
    which = scene.rng.integers(0, 3 if scratch else 2, (WAVES, scene.lanes))
    low = 32
    return np.choose(
        which,
        [
            places(scene, n, align) + scene.base,
            places(scene, n, max(align, min(n, 4)), end=LDS, start=low, among=30) + SHARED,
            places(scene, n, align, end=PER_LANE, start=low) + PRIVATE,
        ],
    )


@pytest.mark.parametrize("name", [n for n in MOVES if n.startswith("flat_")])
def test_flat_loads_and_stores_reach_all_memories(name: str) -> None:
    n = size_of(name)
    for k, offset in enumerate((0, 16, -24)):
        scene = Scene(k, 64 if k % 2 else 32)
        at = spread(scene, n, 1 if k else n if n != 12 else 4)
        scene.check(instruction(name, put_address(scene, name, "", offset, at), offset=offset))
    scene = Scene(4, holes=False)
    at = places(scene, n) + scene.base
    scene.check(instruction(name, put_address(scene, name, "", LONG, at), offset=LONG))


def put_numbers(scene: Scene, words: list[int]) -> None:
    """Numbers in memory, in LDS, in scratch and in the registers of data."""
    numbers = np.array(words, np.uint64)
    for memory in (scene.memory, scene.private, scene.g.shared.lds.data):
        scene.fill(memory.view(np.uint32), numbers)
    for k in range(8):
        scene.lanes_of(DATA + k, scene.rng.choice(numbers, (WAVES, scene.lanes)))


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    operation = name.partition("_atomic_")[2]
    n = 4 * dwords_of(operation)
    adds = operation in ("add_f32", "pk_add_f16", "pk_add_bf16")
    for k, (form, offset) in enumerate((("pair", 0), ("base", -64), ("pair", 24))):
        scene = Scene(k, 64 if k % 2 else 32)
        crowded = k == 1
        words = special_words(name) if not (adds and crowded) else small_words(name, scene.rng, 40)
        put_numbers(scene, words)
        if name.startswith("flat_") and not crowded:
            # A sum may be a NaN, whose bits are not given: nobody shall read it again.
            one_each = np.arange(WAVES * scene.lanes).reshape(WAVES, -1)
            at = spread(scene, n, n, scratch=n == 4)
            at = np.where(
                at >= PRIVATE, at, np.where(at >= SHARED, SHARED + 32 + 8 * one_each, scene.base + 8 * one_each)
            )
        elif crowded:
            at = places(scene, n, n, among=9) + (scene.base if name.startswith("flat_") else 0)
        else:
            at = n * scene.rng.permutation(BYTES // n)[: WAVES * scene.lanes].reshape(WAVES, -1)
        src = put_address(scene, name, form, offset, at)
        scene.check(instruction(name, src, returns=k != 2, offset=offset, th=int(k != 2)))


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("lanes", [32, 64])
def test_blocks_move_the_registers_that_m0_names(name: str, lanes: int) -> None:
    for k, mask in enumerate((0xFFFFFFFF, 0x80000001, 0x0F0F00F0, 0)):
        scene = Scene(k, lanes)
        scene.g.s[M0] = [mask, mask ^ 0x10 if k else mask]
        at = 128 * scene.rng.permutation(BYTES // 128)[: WAVES * lanes].reshape(WAVES, -1)
        if name.startswith("scratch"):
            at[:] = 0
        src = put_address(scene, name, "v" if name.startswith("scratch") else "pair", 0, at)
        scene.check(instruction(name, src))


@pytest.mark.parametrize("name", BY_LANE)
@pytest.mark.parametrize("lanes", [32, 64])
def test_a_dword_for_each_lane(name: str, lanes: int) -> None:
    for k, offset in enumerate((0, 12, -400)):
        scene = Scene(k, lanes)
        scene.scalar(BASE, scene.base + 1024, 2)
        scene.check(instruction(name, [*data_of(name), sgpr(BASE, 2)], offset=offset))


def test_a_transposing_load() -> None:
    for k, form in enumerate(("pair", "base")):
        scene = Scene(k, holes=False)
        src = put_address(scene, "global_load_tr_b128", form, 16 * k, places(scene, 16, 16))
        scene.check(instruction("global_load_tr_b128", src, offset=16 * k))
    # A tile of 16 by 16 numbers, row by row: lane i gets column i % 16, from row 8 * (i / 16) on.
    scene = Scene(3, holes=False)
    scene.memory.view(np.uint16)[:256] = np.arange(256)
    lane = np.arange(32)
    at = ((8 * (lane // 16) + lane % 8) * 16 + lane // 8 % 2 * 8) * 2
    src = put_address(scene, "global_load_tr_b128", "pair", 0, np.broadcast_to(at, (WAVES, 32)))
    execute(scene.g, instruction("global_load_tr_b128", src))
    got = scene.g.v[RESULT : RESULT + 4].transpose(1, 2, 0).copy().view(np.uint16)  # [waves, 32, 8]
    assert (got == (8 * (lane // 16)[:, None] + np.arange(8)) * 16 + (lane % 16)[:, None]).all()
    scene = Scene(4)
    src = put_address(scene, "global_load_tr_b128", "pair", 0, places(scene, 16, 16))
    with pytest.raises(ShaderError, match="needs all lanes"):
        execute(scene.g, instruction("global_load_tr_b128", src))


@pytest.mark.parametrize("name", QUIET)
def test_caches_have_nothing_to_do(name: str) -> None:
    Scene(1).check(instruction(name, []))


def test_lanes_that_are_off_touch_nothing() -> None:
    for name in ("global_load_b32", "global_store_b128", "flat_atomic_add_u32", "scratch_load_u8", "scratch_store_b64"):
        scene = Scene(1)
        scene.g.put_bits(126, np.zeros((WAVES, 32), np.bool_))
        scene.lanes_of(ADDRESS, -1, 2)  # nowhere
        src = [vgpr(ADDRESS, 64), *data_of(name), *([] if name.startswith("flat") else [NULL])]
        scene.check(instruction(name, src))


def refused(scene: Scene, name: str, src: list, match: str, **modifiers: int) -> None:
    with pytest.raises(ShaderError, match=match):
        execute(scene.g, instruction(name, src, **modifiers))


def test_what_flat_addresses_must_not_do() -> None:
    scene = Scene(1)
    src = [vgpr(ADDRESS, 64), *data_of("flat_atomic_add_u64")]
    scene.lanes_of(ADDRESS, PRIVATE + 8, 2)
    refused(scene, "flat_atomic_add_u64", src, "a flat atomic of 8 bytes in scratch memory")
    scene.lanes_of(ADDRESS, SHARED + 4, 2)
    refused(scene, "flat_atomic_add_u64", src, "an LDS atomic of 8 bytes at 4, which is misaligned")
    refused(scene, "flat_load_b32", src[:1], "the offset takes 0x1000000000004 to 0xfffffffffffc, in other", offset=-8)
    refused(scene, "flat_load_b32", src[:1], "LDS bytes 5004 to 5007; the workgroup has 4096", offset=5000)
    scene.lanes_of(ADDRESS, SHARED + 2, 2)
    refused(scene, "flat_load_b32", src[:1], "an LDS access of 4 bytes at 2, which is misaligned")
    scene.lanes_of(ADDRESS, PRIVATE + PER_LANE - 2, 2)
    refused(scene, "flat_load_b32", src[:1], f"byte {PER_LANE + 1} of a lane's scratch memory, which has {PER_LANE}")


def test_stores_to_lds_by_flat_addresses_are_waited_for() -> None:
    scene = Scene(1)
    scene.lanes_of(ADDRESS, SHARED + 16, 2)
    execute(scene.g, instruction("flat_store_b32", [vgpr(ADDRESS, 64), *data_of("flat_store_b32")]))
    assert [p.kind for p in scene.g.queues["dscnt"]] == ["a flat access of LDS"]
    scene.lanes_of(ADDRESS, PRIVATE + 16, 2)
    scene.g.queues.clear()
    execute(scene.g, instruction("flat_store_b32", [vgpr(ADDRESS, 64), *data_of("flat_store_b32")]))
    assert not scene.g.queues.get("dscnt")


def test_blocks_store_written_registers_alone() -> None:
    scene = Scene(1)
    src = put_address(scene, "global_store_block", "pair", 0, places(scene, 128, 4))
    scene.g.undef_v |= 1 << DATA + 3
    scene.g.v_defined[DATA + 3] = False
    scene.g.s[M0] = 0b10111
    execute(scene.g, instruction("global_store_block", src))
    scene.g.s[M0] = 0b1000
    refused(scene, "global_store_block", src, f"v{DATA + 3} is read and was never written")

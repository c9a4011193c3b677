"""Buffer instructions and scalar loads against the model: all ways to address, all range checks, swizzled records."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from amdgpu_emu.core.errors import Unsupported
from amdgpu_emu.isa.instruction import Instruction
from tests.amdgpu_emu.core.memory_model import DEFINITIONS, NOTHING
from tests.amdgpu_emu.core.memory_numbers import dwords_of
from tests.amdgpu_emu.core.memory_stage import (
    ADDRESS,
    BYTES,
    DATA,
    NULL,
    RESULT,
    WAVES,
    Scene,
    data_of,
    instruction,
    small_words,
    special_words,
)
from tests.amdgpu_emu.core.one import execute, sgpr, vgpr
from tests.amdgpu_emu.core.test_memory_vector import put_numbers, refused, size_of

MOVES = [n for n in DEFINITIONS if n.startswith(("buffer_load", "buffer_store"))]
ATOMICS = [n for n in DEFINITIONS if n.startswith("buffer_atomic")]
SCALAR = [n for n in DEFINITIONS if n.startswith(("s_load", "s_buffer_load"))]
QUIET = [n for n in NOTHING if n.startswith("s_")]
COVERED = {*MOVES, *ATOMICS, *SCALAR, *QUIET}
RESOURCE, OFFSET = 24, 28
STRUCTURED_WITH_OFFSET, STRUCTURED, EMPTY, RAW = range(4)


def resource(
    base: int, records: int, stride: int = 0, check: int = RAW, swizzle: int = 0, neighbours: int = 0, tid: int = 0
) -> int:
    """128 bits, as the driver's headers lay them out. swizzle, neighbours: the fields' codes."""
    return (
        base
        | stride << 48
        | swizzle << 62
        | records << 64
        | neighbours << 117
        | tid << 119
        | check << 124
        | 0xFAC << 96
    )


def operands(name: str, indexed: int, offset: int, more: bool) -> list:
    registers = indexed + offset
    address = vgpr(ADDRESS, 32 * registers) if registers else NULL
    return [*data_of(name), address, sgpr(RESOURCE, 4), sgpr(OFFSET) if more else NULL]


def put_resource(scene: Scene, *args: int, **how: int) -> None:
    scene.scalar(RESOURCE, resource(*args, **how), 4)


# How a buffer is described, and how large indices and offsets are: within it, and some beyond.
SHAPES = [
    ({"records": 1000, "check": RAW}, 1, 1200),
    ({"records": 900, "check": RAW, "stride": 12, "tid": 1}, 1, 80),
    ({"records": 40, "stride": 48, "check": STRUCTURED_WITH_OFFSET}, 60, 52),
    ({"records": 40, "stride": 48, "check": STRUCTURED, "tid": 1}, 20, 52),
    ({"records": 7, "stride": 16, "check": EMPTY}, 100, 100),
    ({"records": 0, "stride": 16, "check": EMPTY}, 100, 100),
    ({"records": 70, "stride": 32, "check": RAW, "swizzle": 1, "neighbours": 0}, 90, 36),
    ({"records": 70, "stride": 64, "check": STRUCTURED_WITH_OFFSET, "swizzle": 3, "neighbours": 2}, 90, 70),
    ({"records": 70, "stride": 32, "check": RAW, "swizzle": 2, "neighbours": 1, "tid": 1}, 30, 36),
    ({"records": 64, "stride": 16, "check": STRUCTURED, "swizzle": 1, "neighbours": 3}, 80, 16),
]


def put_case(scene: Scene, name: str, k: int, step: int) -> Instruction:
    """Registers for case k: its shape, and with or without index, offset and scalar offset."""
    how, indices, offsets = SHAPES[k % len(SHAPES)]
    indexed, offset, more = [*itertools.product((0, 1), (0, 1), (False, True))][(3 * k + 7) % 8]
    raw = how["check"] == RAW and not how.get("swizzle")
    if raw:
        # Nothing but the offset is checked, and the core refuses what leads out of the buffer all the same.
        indexed, more = 0, False
    rng, shape = scene.rng, (WAVES, scene.lanes)
    put_resource(scene, scene.base + 64 * k, **how)
    scene.scalar(OFFSET, 128)
    constant = int(rng.integers(0, max(offsets // 8, 1))) // step * step
    if indexed:
        scene.lanes_of(ADDRESS, rng.integers(0, indices, shape))
    scene.lanes_of(ADDRESS + indexed, rng.integers(0, max(offsets // step, 1), shape) * step)
    return instruction(
        name,
        operands(name, indexed, offset, more),
        offset=constant,
        idxen=indexed,
        offen=offset,
        th=k % 2,
        returns=k % 2 == 1,
    )


@pytest.mark.parametrize("name", MOVES)
def test_loads_and_stores(name: str) -> None:
    shift = MOVES.index(name)
    for k in range(len(SHAPES)):
        if (k + shift) % 2 and "b32" not in name:
            continue
        n = size_of(name)
        scene = Scene(k + shift, 64 if k % 3 == 1 else 32, holes=k % 2 == 0)
        swizzled = SHAPES[k][0].get("swizzle")
        ins = put_case(scene, name, k, min(n, 4) if swizzled else 1)
        scene.check(ins)


@pytest.mark.parametrize("name", ATOMICS)
def test_atomics(name: str) -> None:
    operation = name.partition("_atomic_")[2]
    n = 4 * dwords_of(operation)
    adds = operation in ("add_f32", "pk_add_f16", "pk_add_bf16")
    for k in (0, 3, 6, 7):
        scene = Scene(k, 64 if k % 2 else 32)
        put_numbers(scene, small_words(name, scene.rng, 40) if adds else special_words(name))
        how, _, _ = SHAPES[k]
        if n == 8 and (how.get("swizzle") == 1 or how.get("tid")):
            how = {"records": 70, "stride": 64, "check": STRUCTURED_WITH_OFFSET, "swizzle": 2}
        scene.check(put_case(scene, name, k, n))


def test_range_checks_by_hand() -> None:
    """A raw buffer of 10 bytes, and 4 records of 8 bytes, seen through dwords."""
    ins = instruction("buffer_load_b32", operands("buffer_load_b32", 0, 1, False), offen=1)
    scene = Scene(1, holes=False)
    scene.memory.view(np.uint32)[:16] = np.arange(1, 17)
    scene.lanes_of(ADDRESS, np.arange(32) * 4)
    put_resource(scene, scene.base, 10, check=RAW)
    execute(scene.g, ins)
    assert scene.g.v[RESULT, 0, :4].tolist() == [1, 2, 0, 0]
    ins = instruction("buffer_load_b32", operands("buffer_load_b32", 1, 1, False), offen=1, idxen=1)
    scene.lanes_of(ADDRESS, np.arange(32) % 6)
    scene.lanes_of(ADDRESS + 1, np.where(np.arange(32) < 6, 4, 5))
    put_resource(scene, scene.base, 4, stride=8, check=STRUCTURED_WITH_OFFSET)
    execute(scene.g, ins)
    assert scene.g.v[RESULT, 0, :12].tolist() == [2, 4, 6, 8, 0, 0] + 6 * [0]
    # Eight neighbours have their first dwords side by side, then their second ones.
    put_resource(scene, scene.base, 100, stride=8, check=RAW, swizzle=1, neighbours=0)
    scene.lanes_of(ADDRESS, np.arange(32) // 2)
    scene.lanes_of(ADDRESS + 1, np.arange(32) % 2 * 4)
    execute(scene.g, ins)
    assert scene.g.v[RESULT, 0, :8].tolist() == [1, 9, 2, 10, 3, 11, 4, 12]


def test_stores_and_atomics_out_of_range_do_nothing() -> None:
    for name in ("buffer_store_b64", "buffer_atomic_add_u32", "buffer_atomic_cmpswap_b64"):
        scene = Scene(1)
        before = scene.memory.copy()
        put_resource(scene, scene.base, 16, check=RAW)
        scene.lanes_of(ADDRESS, np.full(1, 16))
        execute(scene.g, instruction(name, operands(name, 0, 1, False), offen=1, th=1))
        scene.shader_memory.retire()
        assert (scene.memory == before).all()
        if "atomic" in name:
            assert (scene.g.v[RESULT][scene.g.active()] == 0).all()


def test_what_buffers_must_not_do() -> None:
    scene = Scene(1)
    name, src = "buffer_load_b32", operands("buffer_load_b32", 0, 1, True)
    put_resource(scene, scene.base, 64, check=RAW)
    scene.lanes_of(ADDRESS, np.full(1, 60))
    scene.scalar(OFFSET, 8)
    refused(scene, name, src, "byte 68 of a raw buffer of 64: the scalar offset and the index lead out of it", offen=1)
    scene.scalar(RESOURCE + 3, 1 << 31)
    refused(scene, name, src, "s24 to s27 hold a resource of type 2: no buffer", offen=1)
    put_resource(scene, scene.base + 2, 64, check=RAW)
    src = operands("buffer_atomic_add_u32", 0, 1, False)
    refused(scene, "buffer_atomic_add_u32", src, "an atomic of 4 bytes at 0x.*, which is misaligned", offen=1)


def test_formats_are_not_converted() -> None:
    for name in ("buffer_load_format_x", "buffer_store_d16_format_xy", "buffer_load_d16_hi_format_x"):
        with pytest.raises(Unsupported, match=f"{name} is not executed"):
            execute(Scene(1).g, instruction(name, operands(name, 0, 0, False)))


@pytest.mark.parametrize("name", [n for n in SCALAR if n.startswith("s_load")])
def test_scalar_loads(name: str) -> None:
    n = size_of(name)
    for k, offset in enumerate((0, 36, -52, (1 << 23) - 4)):
        scene = Scene(k, 64 if k % 2 else 32)
        at = (
            scene.rng.integers(13, (BYTES - 64) // 4, WAVES) * 4
            if n >= 4
            else scene.rng.integers(52, BYTES // n - 64, WAVES) * n
        )
        more = k in (1, 2)
        scene.scalar(OFFSET, 400 if more else 0)
        start = scene.base + at - offset - (400 if more else 0)
        for w in range(2):
            scene.g.s[20 + w] = (start >> 32 * w & 0xFFFFFFFF).astype(np.uint32)
        scene.check(instruction(name, [sgpr(20, 2), sgpr(OFFSET) if more else NULL], offset=offset))


@pytest.mark.parametrize("name", [n for n in SCALAR if n.startswith("s_buffer")])
def test_scalar_loads_of_buffers(name: str) -> None:
    for k, (stride, records, offset) in enumerate(((0, 200, 128), (16, 10, 96), (0, 200, 196), (0, 4, 64), (12, 3, 0))):
        scene = Scene(k)
        put_resource(scene, scene.base + 256 * k, records, stride=stride)
        scene.g.s[OFFSET] = [0, 36]
        more = k % 2 == 0
        scene.check(instruction(name, [sgpr(RESOURCE, 4), sgpr(OFFSET) if more else NULL], offset=offset))


def test_a_scalar_load_of_a_buffer_is_not_misaligned() -> None:
    scene = Scene(1)
    put_resource(scene, scene.base, 64)
    src = [sgpr(RESOURCE, 4), NULL]
    refused(scene, "s_buffer_load_b64", src, "a scalar load of 8 bytes at 0x.*2, which is misaligned", offset=2)


@pytest.mark.parametrize("name", QUIET)
def test_caches_have_nothing_to_do(name: str) -> None:
    Scene(1).check(instruction(name, []))


def test_data_of_stores_lies_first() -> None:
    """buffer_store has its data before its address, as the decoder says."""
    assert data_of("buffer_store_b64")[0].index == DATA

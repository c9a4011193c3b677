"""Lanes and ranges as a shader core uses them, against a plain array."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from amdgpu_emu.caches import Caches
from amdgpu_emu.errors import GpuFault
from amdgpu_emu.memory import BufferObject, Placement
from amdgpu_emu.shader_memory import ShaderMemory
from amdgpu_emu.vm import GpuVm, Mapping

BASE, PAGE = 0x7_0000_0000, 4096


class Scene:
    """Three buffers side by side, the second uncached, then a hole, then one that is read-only."""

    def __init__(self) -> None:
        self.vm, self.caches = GpuVm("test"), Caches()
        self.buffers = [BufferObject(2 * PAGE, Placement.VRAM, f"b{i}", uncached=i == 1) for i in range(3)]
        for i, bo in enumerate(self.buffers):
            self.vm.insert(Mapping(BASE + 2 * PAGE * i, 2 * PAGE, bo, 0, True, True, i == 0))
        self.last = BufferObject(PAGE, Placement.VRAM, "last")
        self.vm.insert(Mapping(BASE + 8 * PAGE, PAGE, self.last, 0, True, False, False))
        self.plain = np.random.default_rng(5).integers(0, 256, 6 * PAGE, np.uint8)
        for i, bo in enumerate(self.buffers):
            bo.bytes[:] = self.plain[2 * PAGE * i :][: 2 * PAGE]
        self.memory = ShaderMemory(self.caches, self.vm)

    def seen(self) -> np.ndarray:
        """All that lies in memory after a write-back."""
        self.memory.retire()
        for bo, lines in self.caches._l2.items():
            lines.pour(bo.bytes)
        return np.concatenate([bo.bytes for bo in self.buffers])


SIZES = st.sampled_from([1, 2, 4, 8, 12, 16])
PLACES = st.lists(st.integers(0, 6 * PAGE - 16) | st.sampled_from([2 * PAGE - 3, 4 * PAGE - 8, PAGE - 1]), max_size=40)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.sampled_from("gsrw"), PLACES, SIZES, st.booleans()), max_size=6), st.integers(0, 99))
def test_lanes_against_a_plain_array(steps, seed):
    scene = Scene()
    rng = np.random.default_rng(seed)
    for kind, places, n, aligned in steps:
        at = np.array(places, np.int64) // (n if aligned else 1) * (n if aligned else 1)
        addresses = (at + BASE).astype(np.uint64)
        if kind == "g":
            expected = np.array([scene.plain[p : p + n] for p in at], np.uint8).reshape(-1, n)
            assert np.array_equal(scene.memory.gather(addresses, n), expected)
        elif kind == "s":
            data = rng.integers(0, 256, (len(at), n), np.uint8)
            scene.memory.scatter(addresses, data)
            for p, row in zip(at, data, strict=True):
                scene.plain[p : p + n] = row
        elif kind == "r":
            for p in at.tolist():
                assert np.array_equal(scene.memory.read(BASE + p, n), scene.plain[p : p + n])
        else:
            for p in at.tolist():
                data = rng.integers(0, 256, n, np.uint8)
                scene.memory.write(BASE + p, data)
                scene.plain[p : p + n] = data
    assert np.array_equal(scene.seen(), scene.plain)


def test_long_ranges_over_mappings():
    scene = Scene()
    assert np.array_equal(scene.memory.read(BASE + 5, 6 * PAGE - 10), scene.plain[5:-5])
    data = np.arange(5 * PAGE, dtype=np.uint8)
    scene.memory.write(BASE + 100, data)
    assert np.array_equal(scene.memory.read(BASE + 100, len(data)), data)
    scene.plain[100 : 100 + len(data)] = data
    assert np.array_equal(scene.seen(), scene.plain)


def test_writes_are_hidden_until_they_retire():
    scene = Scene()
    other = ShaderMemory(scene.caches, scene.vm)
    scene.memory.write(BASE, b"\xff\xfe\xfd\xfc")
    assert np.array_equal(other.read(BASE, 4), scene.plain[:4])
    scene.memory.retire()
    assert np.array_equal(other.read(BASE, 4), scene.plain[:4])  # its cache has the page
    assert bytes(scene.caches.read(scene.vm, BASE, 4)) == b"\xff\xfe\xfd\xfc"


def test_room_for_writes_is_used_again_and_clean():
    scene = Scene()
    for value in range(1, 5):
        memory = ShaderMemory(scene.caches, scene.vm)
        memory.write(BASE + 8 * value, bytes([value]) * 8)
        memory.retire()
    found = scene.caches.read(scene.vm, BASE, 48)
    expected = scene.plain[:48].copy()
    for value in range(1, 5):
        expected[8 * value : 8 * value + 8] = value
    assert np.array_equal(found, expected)
    assert len(scene.caches._spare[scene.buffers[0]]) == 1


HOLE = BASE + 6 * PAGE
LAST = BASE + 8 * PAGE


@pytest.mark.parametrize(
    ("lanes", "n", "access", "va"),
    [
        ([BASE, HOLE], 4, "read", HOLE),
        ([HOLE - 2], 4, "read", HOLE),
        ([BASE - 1, BASE], 1, "read", BASE - 1),
        ([0], 8, "read", 0),
        ([(1 << 64) - 4], 4, "read", (1 << 48) - 4),
        ([BASE, LAST], 4, "write", LAST),
        ([LAST + PAGE - 1], 2, "read", LAST + PAGE),
    ],
)
def test_lanes_that_fault(lanes, n, access, va):
    scene = Scene()
    addresses = np.array(lanes, np.uint64)
    data = np.ones((len(lanes), n), np.uint8)
    move = {"read": lambda: scene.memory.gather(addresses, n), "write": lambda: scene.memory.scatter(addresses, data)}
    with pytest.raises(GpuFault) as caught:
        move[access]()
    assert (caught.value.va, caught.value.access) == (va, access)
    assert np.array_equal(scene.seen(), scene.plain)  # nothing was written


def test_ranges_that_fault():
    scene = Scene()
    with pytest.raises(GpuFault) as caught:
        scene.memory.write(HOLE - 8, bytes(16))
    assert caught.value.va == HOLE
    with pytest.raises(GpuFault):
        scene.memory.code(BASE + 2 * PAGE, 4)
    assert np.array_equal(scene.memory.code(BASE + 8, 4), scene.plain[8:12])
    assert np.array_equal(scene.memory.scalar(BASE + 2 * PAGE, 4), scene.plain[2 * PAGE :][:4])
    assert np.array_equal(scene.seen(), scene.plain)


def test_the_upper_half_of_the_addresses():
    """All bits above the 48th are set there; the page tables do not look at them."""
    scene = Scene()
    high = 0xFFFF_9000_0000_0000
    scene.vm.insert(Mapping(high & (1 << 48) - 1, 2 * PAGE, scene.buffers[0], 0, True, True, False))
    lanes = np.array([high, high + 8, high + PAGE - 2], np.uint64)
    assert np.array_equal(scene.memory.gather(lanes, 4), [scene.plain[at : at + 4] for at in (0, 8, PAGE - 2)])
    scene.memory.scatter(lanes[:1], np.full((1, 4), 7, np.uint8))
    scene.plain[:4] = 7
    assert np.array_equal(scene.memory.read(high, 8), scene.plain[:8])
    assert scene.memory.atomic(lanes[1:2], 4, lambda lane, old: 9).tolist() == [scene.plain[8:12].view("<u4")[0]]
    scene.plain[8:12] = (9, 0, 0, 0)
    assert np.array_equal(scene.seen(), scene.plain)


def test_the_last_lane_wins():
    scene = Scene()
    scene.memory.scatter(np.full(3, BASE, np.uint64), np.array([[1] * 4, [2] * 4, [3] * 4], np.uint8))
    assert bytes(scene.memory.read(BASE, 4)) == b"\3\3\3\3"


@pytest.mark.parametrize("place", [BASE, BASE + 2 * PAGE])
def test_atomics_are_visible_at_once_and_lanes_take_turns(place):
    scene = Scene()
    scene.memory.write(place, (100).to_bytes(4, "little"))
    old = scene.memory.atomic(np.full(64, place, np.uint64), 4, lambda lane, value: value + 1)
    assert old.tolist() == list(range(100, 164))
    other = ShaderMemory(scene.caches, scene.vm)
    assert int.from_bytes(bytes(scene.caches.read(scene.vm, place, 4)), "little") == 164
    assert int.from_bytes(bytes(other.read(place, 4)), "little") == 164
    assert scene.memory.atomic(np.array([place], np.uint64), 4, lambda lane, value: -1).tolist() == [164]
    scene.memory.retire()
    assert bytes(scene.caches.read(scene.vm, place, 4)) == b"\xff" * 4


def test_no_lanes():
    scene = Scene()
    nobody = np.empty(0, np.uint64)
    assert scene.memory.gather(nobody, 4).shape == (0, 4)
    scene.memory.scatter(nobody, np.empty((0, 4), np.uint8))
    assert scene.memory.atomic(nobody, 4, lambda lane, old: old).shape == (0,)

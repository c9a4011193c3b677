"""Kernels of the kernel language on the shader core, against NumPy: equal, not close."""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.machine import Machine
from amdgpu_emu.profiles import LINUX_7_3_USERQ
from tests.amdgpu_emu.core.stage import Stage
from tests.compiled import kernel_images
from tests.lang import gpu_kernels as g
from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.cs.interface import CsInterface
from zinc_rt.amdgpu.kfd.interface import KfdInterface
from zinc_rt.amdgpu.queue import GpuQueue
from zinc_rt.amdgpu.umq.interface import UserQueueInterface
from zinc_rt.lang import *
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.gpu import GpuKernel, describe_kernel


@kernel
def add_vectors(x: ptr[f32], y: ptr[f32], out: ptr[f32], n: u32):
    at = workgroup_id(0) * 32 + lane_id()
    if at < n:
        out[at] = x[at] + y[at]


@kernel
def divide_and_root(x: ptr[f32], y: ptr[f32], q: ptr[f32], r: ptr[f32]):
    at = workgroup_id(0) * 32 + lane_id()
    q[at] = x[at] / y[at]
    r[at] = sqrt(x[at])


@kernel
def divide_doubles(x: ptr[f64], y: ptr[f64], q: ptr[f64], r: ptr[f64]):
    at = workgroup_id(0) * 32 + lane_id()
    q[at] = x[at] / y[at]
    r[at] = sqrt(x[at])


@kernel
def collatz(x: ptr[u32], steps: ptr[u32]):
    """Loops that every lane leaves at another time, and a branch inside."""
    at = workgroup_id(0) * 32 + lane_id()
    v = x[at]
    n: u32 = 0
    while v != 1:
        if (v & 1) == 0:
            v = v >> 1
            n = n + 1
        else:
            v = v * 3 + 1
            n = n + 1
    steps[at] = n


@kernel
def uneven(lengths: ptr[u32], out: ptr[u32]):
    """Scalar loops that every wave leaves at another time."""
    n = first_lane(lengths[workgroup_id(0)])
    v = lane_id()
    for i in range(n):
        v = v * 1664525 + i
    out[workgroup_id(0) * 32 + lane_id()] = v


@kernel(workgroup=128)
def reverse_in_lds(x: ptr[u32], out: ptr[u32]):
    part = shared(u32, 128)
    i = workitem_id()
    part[i] = x[workgroup_id(0) * 128 + i]
    barrier()
    out[workgroup_id(0) * 128 + i] = part[127 - i]


@kernel(workgroup=64)
def count(bins: ptr[u32], x: ptr[u32], old: ptr[u32]):
    at = workgroup_id(0) * 64 + workitem_id()
    old[at] = atomic_add(bins, 1, x[at])


@kernel
def casts(x: ptr[f32], i: ptr[i32], h: ptr[f32], b: ptr[f32]):
    at = workgroup_id(0) * 32 + lane_id()
    i[at] = i32(x[at])
    h[at] = f32(f16(x[at]))
    b[at] = f32(bf16(x[at]))


@kernel
def bytes_of(x: ptr[i8], y: ptr[u8], out: ptr[i32]):
    at = workgroup_id(0) * 32 + lane_id()
    a, b = load(y, i64(at) * 4, lanes=4), load(x, i64(at) * 4, lanes=4)
    acc: i32 = 7
    out[at] = dot4(acc, a, b)


OWN = (
    add_vectors, divide_and_root, divide_doubles, collatz, uneven, reverse_in_lds, count, casts, bytes_of,
)  # fmt: skip


@cache
def compiled(target: str = "gfx1201") -> dict[str, GpuKernel]:
    """By name. Those with matrix instructions are for gfx12 alone."""
    specs = [Spec(f) for f in (*OWN, *g.ALL) if target == "gfx1201" or f is not g.tile_matmul]
    made = kernel_images(specs, TARGETS[target])
    return {s.function.name: describe_kernel(s, image) for s, image in zip(specs, made, strict=True)}


@pytest.fixture(params=["gfx1201", "gfx1100"])
def stage(request: pytest.FixtureRequest) -> Stage:
    return Stage(request.param, measure=True)


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(1)


def tree(v: Any) -> Any:
    """Rows of per-block values summed over 32 lanes, then at distance 16, 8, 4, 2, 1."""
    lanes = np.zeros((len(v), 32), np.float32)
    for k in range(v.shape[1]):
        lanes[:, k % 32] += v[:, k]
    while lanes.shape[1] > 1:
        half = lanes.shape[1] // 2
        lanes = lanes[:, :half] + lanes[:, half:]
    return lanes[:, 0]


def test_vectors_with_a_ragged_end(stage: Stage, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 1000)).astype(np.float32)
    out = stage.buffer(np.full(1024, 9, np.float32))
    counters = stage.launch(compiled(stage.target)["add_vectors"], 32, stage.buffer(x), stage.buffer(y), out, 1000)
    assert (stage.read(out, np.float32, 1024) == [*(x + y), *[9] * 24]).all()
    assert (counters.bytes_read, counters.bytes_written, counters.unique_written) == (8000, 4000, 4000)
    assert (counters.waves, counters.workgroups, counters.instructions["global"]) == (32, 32, 96)


def test_division_and_root(stage: Stage, rng: np.random.Generator) -> None:
    special = np.array(
        [0, -0.0, 1, 3, 1e-45, 1e-38, 3e38, np.inf, -np.inf, np.nan, 2**-126, 7e-42, 1e20, 1e-20], np.float32
    )
    bits = rng.integers(0, 2**32, (2, 2048 - 196), np.uint32).view(np.float32)
    x = np.concatenate([np.repeat(special, 14), bits[0]])
    y = np.concatenate([np.tile(special, 14), bits[1]])
    q, r = stage.buffer(4 * 2048), stage.buffer(4 * 2048)
    stage.launch(compiled(stage.target)["divide_and_root"], 64, stage.buffer(x), stage.buffer(y), q, r)
    with np.errstate(all="ignore"):
        assert np.array_equal(stage.read(q, np.float32, 2048), x / y, equal_nan=True)
        assert np.array_equal(stage.read(r, np.float32, 2048), np.sqrt(x), equal_nan=True)


def test_division_and_root_of_doubles(stage: Stage, rng: np.random.Generator) -> None:
    bits = rng.integers(0, 2**63, (2, 96), np.uint64).view(np.float64)
    x, y = np.concatenate([bits[0], rng.normal(size=32)]), np.concatenate([bits[1], rng.normal(size=32)])
    q, r = stage.buffer(8 * 128), stage.buffer(8 * 128)
    stage.launch(compiled(stage.target)["divide_doubles"], 4, stage.buffer(x), stage.buffer(y), q, r)
    with np.errstate(all="ignore"):
        assert np.array_equal(stage.read(q, np.float64, 128), x / y, equal_nan=True)
        assert np.array_equal(stage.read(r, np.float64, 128), np.sqrt(x), equal_nan=True)


def test_lanes_leave_a_loop_one_by_one(stage: Stage) -> None:
    x = np.arange(1, 257, dtype=np.uint32)
    out = stage.buffer(1024)
    stage.launch(compiled(stage.target)["collatz"], 8, stage.buffer(x), out)

    def steps(v: int) -> int:
        n = 0
        while v != 1:
            v, n = (v // 2 if v % 2 == 0 else 3 * v + 1), n + 1
        return n

    assert stage.read(out, np.uint32, 256).tolist() == [steps(int(v)) for v in x]


def test_waves_leave_a_loop_one_by_one(stage: Stage, rng: np.random.Generator) -> None:
    lengths = rng.integers(0, 40, 37, np.uint32)
    out = stage.buffer(37 * 128)
    stage.launch(compiled(stage.target)["uneven"], 37, stage.buffer(lengths), out)
    want = np.tile(np.arange(32, dtype=np.uint32), (37, 1))
    for row, n in zip(want, lengths.tolist(), strict=True):
        for i in range(n):
            row[:] = row * np.uint32(1664525) + np.uint32(i)
    assert (stage.read(out, np.uint32, 37 * 32).reshape(37, 32) == want).all()


def test_lds_and_a_barrier(stage: Stage, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, (9, 128), np.uint32)
    out = stage.buffer(9 * 512)
    stage.launch(compiled(stage.target)["reverse_in_lds"], 9, stage.buffer(x), out)
    assert (stage.read(out, np.uint32, 9 * 128).reshape(9, 128) == x[:, ::-1]).all()


def test_atomics_return_what_was_there(stage: Stage, rng: np.random.Generator) -> None:
    x = rng.integers(0, 5, 640, np.uint32)
    bins, old = stage.buffer(20), stage.buffer(2560)
    stage.launch(compiled(stage.target)["count"], 10, bins, stage.buffer(x), old)
    assert (stage.read(bins, np.uint32, 5) == np.bincount(x, minlength=5)).all()
    found = stage.read(old, np.uint32, 640)
    for k in range(5):
        assert sorted(found[x == k]) == list(range((x == k).sum())), "every value before exactly once"


def test_conversions(stage: Stage, rng: np.random.Generator) -> None:
    x = rng.normal(size=256).astype(np.float32) * np.float32(10) ** rng.integers(-9, 12, 256).astype(np.float32)
    x[:6] = [0.5, -0.5, 65519, 65520, 6e-8, 3e9]
    i, h, b = (stage.buffer(1024) for _ in range(3))
    stage.launch(compiled(stage.target)["casts"], 8, stage.buffer(x), i, h, b)
    with np.errstate(all="ignore"):
        assert (stage.read(i, np.int32, 256) == np.clip(np.trunc(x.astype(np.float64)), -(2**31), 2**31 - 1)).all()
        assert (stage.read(h, np.float32, 256) == x.astype(np.float16).astype(np.float32)).all()
    bits = x.view(np.uint32).astype(np.int64)
    nearest = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16 << 16
    assert (stage.read(b, np.uint32, 256) == nearest).all()


def test_dot_products(stage: Stage, rng: np.random.Generator) -> None:
    x, y = rng.integers(-128, 128, (256, 4)).astype(np.int8), rng.integers(0, 256, (256, 4)).astype(np.uint8)
    out = stage.buffer(1024)
    stage.launch(compiled(stage.target)["bytes_of"], 8, stage.buffer(x), stage.buffer(y), out)
    assert (stage.read(out, np.int32, 256) == 7 + (x.astype(np.int32) * y.astype(np.int32)).sum(1)).all()


def test_quantised_rows(stage: Stage, rng: np.random.Generator) -> None:
    rows, blocks = 7, 40
    xq = rng.integers(-127, 128, (blocks, 32)).astype(np.int8)
    xd = rng.normal(size=blocks).astype(np.float32)
    scales = rng.normal(size=(rows, blocks)).astype(np.float16)
    a, b, y = stage.buffer(xq), stage.buffer(xd), stage.buffer(4 * rows)
    for name, size in (("q8_0_matvec", 34), ("q4_0_matvec", 18)):
        w = rng.integers(0, 256, (rows, blocks, size)).astype(np.uint8)
        w[:, :, :2] = scales.view(np.uint8).reshape(rows, blocks, 2)
        body = w[:, :, 2:]
        q = body.view(np.int8).astype(np.int32)
        if size == 18:
            q = np.concatenate([body & 15, body >> 4], axis=2).astype(np.int32) - 8
        counters = stage.launch(compiled(stage.target)[name], rows, stage.buffer(w), a, b, y, blocks)
        values = (scales.astype(np.float32) * xd) * (q * xq).sum(2).astype(np.float32)
        assert (stage.read(y, np.float32, rows) == tree(values)).all(), name
        assert counters.unique_read == w.size + xq.size + xd.nbytes


def test_norm_and_sum_over_a_workgroup(stage: Stage, rng: np.random.Generator) -> None:
    x = rng.integers(-8, 9, (5, 1000)).astype(np.float32)
    y = stage.buffer(20)
    stage.launch(compiled(stage.target)["workgroup_sum"], 5, stage.buffer(x), y, 1000)
    assert (stage.read(y, np.float32, 5) == x.sum(1)).all()
    w, out = rng.normal(size=100).astype(np.float32), stage.buffer(2000)
    rows = np.ascontiguousarray(x[:, :100])
    stage.launch(compiled(stage.target)["rms_norm"], 5, stage.buffer(rows), stage.buffer(w), out, 100, 0.5)
    total = (rows.astype(np.float64) ** 2).sum(1).astype(np.float32)  # small integers: exact in any order
    scale = np.float32(1) / np.sqrt(total / np.float32(100) + np.float32(0.5))
    assert (stage.read(out, np.float32, 500).reshape(5, 100) == (rows * scale[:, None]) * w).all()


@pytest.mark.parametrize("stage", ["gfx1201"], indirect=True)
def test_matrix_tiles(stage: Stage, rng: np.random.Generator) -> None:
    a, b = rng.integers(0, 256, (16, 64)).astype(np.uint8), rng.integers(-128, 128, (16, 64)).astype(np.int8)
    c = stage.buffer(1024)
    counters = stage.launch(compiled(stage.target)["tile_matmul"], 1, stage.buffer(a), stage.buffer(b), c, 64)
    assert (stage.read(c, np.int32, 256).reshape(16, 16) == a.astype(np.int32) @ b.astype(np.int32).T).all()
    assert counters.instructions["wmma"] == 4


def test_workgroups_wait_for_each_other(stage: Stage) -> None:
    counter, data = stage.buffer(4), stage.buffer(9 * 256)
    stage.launch(compiled(stage.target)["grid_barrier"], 9, counter, data, 9, 3)
    assert stage.read(counter, np.uint32, 1)[0] == 27
    assert (stage.read(data, np.uint32, 9 * 64) == 2).all()


def test_exchanges_scratch_and_arguments(stage: Stage, rng: np.random.Generator) -> None:
    x = rng.integers(0, 2**32, 32, np.uint32)
    y = stage.buffer(128)
    stage.launch(compiled(stage.target)["lane_words"], 1, stage.buffer(x), y)
    v = x.copy()
    for d in (1, 2, 4, 8, 16):
        v = v ^ (v[np.arange(32) ^ d] + np.uint32(d))
    assert (stage.read(y, np.uint32, 32) == v + v[0]).all()
    numbers = rng.normal(size=70).astype(np.float32)
    stage.launch(compiled(stage.target)["spills_to_scratch"], 1, stage.buffer(numbers), y, 70)
    assert (stage.read(y, np.float32, 32) == numbers[6]).all()
    a, b, c, d = (rng.normal(size=70).astype(np.float32) for _ in range(4))
    e = stage.buffer(256)
    pointers = [stage.buffer(p) for p in (a, b, c, d)]
    stage.launch(
        compiled(stage.target)["many_arguments"], (1, 3, 4), pointers[0], 4, pointers[1], 66, pointers[2], 0.7,
        pointers[3], 3, e, 5,
    )  # fmt: skip
    assert (stage.read(e, np.float32, 12) == a[:12] * np.float32(0.7) + b[66] + c[3] + d[5]).all()


@pytest.mark.parametrize("interface", [CsInterface, KfdInterface, UserQueueInterface])
def test_through_every_interface(interface: Any, rng: np.random.Generator) -> None:
    x, y = rng.normal(size=(2, 256)).astype(np.float32)
    total = rng.integers(-8, 9, (5, 1000)).astype(np.float32)
    core = ShaderCore()
    with (
        Machine(profile=LINUX_7_3_USERQ, shader=core, time_scale=0.01) as machine,
        GpuQueue(interface("/dev/dri/renderD128", linux=machine.process())) as ring,
    ):
        first, second, out = (ring.alloc(1024) for _ in range(3))
        rows, sums = ring.alloc(total.nbytes), ring.alloc(20)
        for memory, data in ((first, x), (second, y), (rows, total)):
            ring.write(memory, data)
        add, reduce = (ring.load_kernel(compiled()[name]) for name in ("add_vectors", "workgroup_sum"))
        batch = CommandList("sums").dispatch(add, 8, first, second, out, 256).dispatch(reduce, 5, rows, sums, 1000)
        batch = batch.barrier().dispatch(add, 8, out, second, first, 256)
        ring.wait(ring.submit(batch))
        assert (np.frombuffer(ring.read(out), np.float32) == x + y).all()
        assert (np.frombuffer(ring.read(first), np.float32) == (x + y) + y).all()
        assert (np.frombuffer(ring.read(sums), np.float32) == total.sum(1)).all()
    assert len(core.counters) == 3

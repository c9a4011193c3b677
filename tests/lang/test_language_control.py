"""Control flow, helpers, compile-time values, calls and atomics, at every level."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
import pytest

from tests.lang import control_kernels as k
from tests.lang.levels import LEVELS, Kernels, kernels
from zinc_rt.lang.types import Int, i8, i16, u8, u16


@pytest.fixture(params=LEVELS)
def level(request: pytest.FixtureRequest) -> Kernels:
    return kernels(k.__name__, request.param)


@pytest.mark.parametrize(("kind", "steps"), k.STEPS, ids=str)
def test_ranges_end_where_pythons_do(level: Kernels, kind: Int, steps: tuple[int, ...]) -> None:
    low, high = kind.limits
    edges = sorted({v for e in (low, 0, high) for v in range(e - 5, e + 6) if low <= v <= high} | {high // 2})
    out = np.zeros(300, f"{'i' if kind.signed else 'u'}{kind.size}")
    for start, stop, step in product(edges, edges, steps):
        length = max(0, -((start - stop) // step))
        if length > 1000:
            continue
        wanted = range(start, stop, step)
        count = level(k.ranges, T=kind, STEP=step)(start, stop, out, 300)
        assert count == length, (start, stop, step)
        assert out[: min(count, 300)].tolist() == list(wanted[:300])


def python_nested(n: int, m: int) -> tuple[int, list[int]]:
    out = []
    for i in range(n):
        if i == 7:
            break
        if i & 1:
            continue
        for j in range(1, m + 1):
            if j == 3:
                continue
            if i + j == 100:
                return -1, out
            out.append(i * 1000 + j)
    return len(out), out


def test_nested_loops(level: Kernels) -> None:
    for n, m in ((0, 5), (1, 0), (3, 2), (20, 9), (8, 99), (2, 100)):
        out = np.zeros(1000, np.int32)
        count, wanted = python_nested(n, m)
        assert level(k.nested)(n, m, out) == count
        assert out[: len(wanted)].tolist() == wanted


@pytest.mark.parametrize(("x", "y"), list(product([-3, 0, 1, 5, 11, 21], [-1.0, 0.5, 2.0])))
def test_branches(level: Kernels, x: int, y: float) -> None:
    out = np.full(3, 9.0, np.float32)
    result = level(k.branches)(x, y, out)
    if x <= 0:
        assert (result, out.tolist()) == (0, [-1, 9, 9])
    elif y < 0:
        assert (result, out.tolist()) == (-1, [9, 9, 9])
    else:
        z = y * 2 if x > 10 else y + 1
        assert out.tolist() == [z - 1, z if x > 20 else -z, 1.5 if x == 5 else y]
        assert result == (x + 1 if y > 1 else 2)


@pytest.mark.parametrize("abc", list(product([False, True], repeat=3)))
def test_right_sides_run_only_where_needed(level: Kernels, abc: tuple[bool, bool, bool]) -> None:
    a, b, c = abc
    out = np.zeros(3, np.int32)
    assert level(k.short_circuits)(a, b, c, out) is ((a and b) or c)
    assert out.tolist() == [1, a, not (a and b)]


@pytest.mark.parametrize(("x", "y"), [(-7, -1.0), (0, 3.0), (9, 8.0)])
def test_helpers(level: Kernels, x: int, y: float) -> None:
    ints, floats = np.zeros(3, np.int32), np.zeros(6, np.float32)
    level(k.helpers)(x, y, ints, floats)
    assert ints.tolist() == [(x > 0) - (x < 0), abs(x), (x + 5) * 2 + x]
    share = 1 if y > 4 else 0 if y < 0 else y / 4
    wanted = [np.float32(y) * np.float32(0.1), y * 2 + 1, y * y + y, share, 0, y * 4]
    assert (floats == np.array(wanted, np.float32)).all()


def test_compile_time_values(level: Kernels) -> None:
    from zinc_rt.lang import i16, u64

    avx2 = int("avx2" in level.target.isa)
    for n, name, kind, last in (
        (3, "q4", i16, 12 + 6 + 1),
        (5, "q8", u64, -9 + 5 + 6 - 4 + 1),
        (4, "f", i8, -6 + 4 + 6 - 4),
    ):
        out = np.zeros(20, np.int64)
        level(k.compile_time, N=n, NAME=name, T=kind)(out)
        odd = [x * x for x in range(n) if x % 2]
        wanted = [200, 2211, *odd, last, kind.bits + 3, avx2, 8, 4, 2]
        assert out[: len(wanted)].tolist() == wanted, name


@pytest.mark.parametrize("x", [-4, 1, 3, 100])
def test_unrolled_loops(level: Kernels, x: int) -> None:
    out = np.zeros(1, np.int32)
    level(k.unrolled)(x, out)
    assert out[0] == sum(x * i if x * i > 10 else -x * i for i in (1, 3, 5)) + 2 * x


def test_small_integers_cross_calls_of_c(level: Kernels) -> None:
    seen = []

    def answer(*values: int) -> int:
        seen.append(values)
        return values[0]

    kinds = (ctypes.c_int8, ctypes.c_uint8, ctypes.c_int16, ctypes.c_uint16, ctypes.c_int32)
    function = ctypes.CFUNCTYPE(ctypes.c_int8, *kinds)(answer)
    address = ctypes.cast(function, ctypes.c_void_p).value
    for values in ((-128, 255, -32768, 65535, -(2**31)), (127, 0, 32767, 1, 2**31 - 1), (-1, 128, -1, 32768, -1)):
        assert level(k.integers_of_c)(address, *values) == values[0] + 1
        assert seen[-1] == values


def test_floats_cross_calls_of_c(level: Kernels) -> None:
    @ctypes.CFUNCTYPE(None, ctypes.POINTER(ctypes.c_float), ctypes.c_float)
    def put(p: Any, x: float) -> None:
        p[0], p[1] = x, -x

    power = ctypes.CFUNCTYPE(ctypes.c_double, ctypes.c_double, ctypes.c_float)(lambda y, x: y**x)
    f, g = (ctypes.cast(function, ctypes.c_void_p).value for function in (put, power))
    p = np.zeros(2, np.float32)
    assert level(k.floats_of_c)(f, g, 3.0, 1.5, p) == 1.5**3 - 3


@pytest.mark.parametrize("kind", [i8, u8, i16, u16], ids=str)
def test_small_results_come_back_whole(level: Kernels, kind: Int) -> None:
    low, _ = kind.limits
    for x in (-1, 127, 128, 255, 256, 32767, 32768, 65535, 2**31 - 1):
        assert level(k.narrow, T=kind)(x) == (x - low) % (1 << kind.bits) + low


def run_together(*calls: Callable[[], Any]) -> list[Any]:
    results: list[Any] = [None] * len(calls)

    def run(i: int) -> None:
        results[i] = calls[i]()

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    return results


@pytest.mark.parametrize("order", ["relaxed", "acq_rel", "seq_cst"])
def test_atomic_additions_of_threads_all_count(level: Kernels, order: str) -> None:
    counter = np.zeros(1, np.uint64)
    add = level(k.count_up, ORDER=order)
    run_together(*[lambda: add(counter, 100_000)] * 3)
    assert counter[0] == 300_000


def test_a_lock_keeps_threads_apart(level: Kernels) -> None:
    lock, total = np.zeros(1, np.uint32), np.zeros(1, np.int64)
    run_together(*[lambda: level(k.locked)(lock, total, 20_000)] * 2)
    assert (total[0], lock[0]) == (40_000, 0)


def test_messages_arrive_after_what_they_announce(level: Kernels) -> None:
    data, turn = np.zeros(1, np.int64), np.zeros(1, np.int32)
    n = 20
    total, _ = run_together(lambda: level(k.receive)(data, turn, n), lambda: level(k.send)(data, turn, n))
    assert total == 3 * n * (n - 1) // 2


def test_what_atomics_give_back(level: Kernels) -> None:
    p, q, out = np.array([0, 15], np.int32), np.array([2**63, 0], np.uint64), np.zeros(5, np.int64)
    level(k.exchanges)(p, q, out)
    assert out.tolist() == [15, 10, 77, 77, -(2**63)]
    assert (p.tolist(), q.tolist()) == ([0, 77], [2**63 + 2**40, 9])


def test_the_clock_goes_on(level: Kernels) -> None:
    assert level(k.ticks)() >= 0

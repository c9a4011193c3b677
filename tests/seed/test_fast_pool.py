"""The thread pool: tasks of both kinds, errors, ends of all sorts, sleeping, more threads than cores."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace

import numpy as np
import pytest

import zinc_rt
from tests import pool_kernels
from zinc_rt.backends.cpu.thread_pool import system_words
from zinc_rt.backends.host_memory import aligned_zeros
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.seed.fast_pool import (
    MAX_WORKERS,
    FastPool,
    InvalidWorkerCount,
    PoolError,
    Task,
)


@pytest.fixture
def pool() -> Iterator[FastPool]:
    with FastPool.init(3) as made:
        yield made


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(host_target(), CompileCache(default_cache_dir()))


@pytest.fixture(scope="module")
def bump(library: Library) -> int:
    return library.address(pool_kernels.bump)


def workers() -> list[threading.Thread]:
    return [t for t in threading.enumerate() if t.name.startswith("zinc-worker")]


def test_it_is_a_module_of_the_package() -> None:
    assert zinc_rt.fast_pool.FastPool is FastPool
    assert zinc_rt.fast_pool.MAX_WORKERS == MAX_WORKERS == 16
    assert issubclass(InvalidWorkerCount, UsageError)
    assert issubclass(PoolError, ZincError)


@pytest.mark.parametrize("n", [-1, 0, 17, 1000])
def test_worker_counts_are_checked(n: int) -> None:
    with pytest.raises(InvalidWorkerCount, match=f"a pool has 1 to 16 workers, not {n}"):
        FastPool.init(n)


@pytest.mark.parametrize("n", [1, 2, 16])
def test_task_0_runs_on_the_caller_and_the_others_on_their_workers(n: int) -> None:
    with FastPool.init(n) as pool:
        assert pool.executor_count() == n + 1
        for count in (n + 1, 1, n):
            seen: list[str] = [""] * count
            pool.dispatch_and_run(
                [Task(lambda i, s=seen: s.__setitem__(i, threading.current_thread().name), i) for i in range(count)]
            )
            assert seen[0] == threading.current_thread().name
            assert seen[1:] == [f"zinc-worker-{i}" for i in range(1, count)]


def test_compiled_tasks(pool: FastPool, bump: int) -> None:
    counters = np.zeros((4, 8), np.uint64)
    for count in (4, 1, 3, 4):
        pool.dispatch_and_run([Task(bump, counters[i].ctypes.data) for i in range(count)])
    assert counters[:, 0].tolist() == [4, 3, 3, 2]
    assert not counters[:, 1:].any()


def test_both_kinds_in_one_call(pool: FastPool, bump: int) -> None:
    counter, seen = np.zeros(1, np.uint64), []
    address = counter.ctypes.data
    for tasks in (
        [Task(bump, address), Task(seen.append, 1), Task(bump, address)],
        [Task(seen.append, 2), Task(bump, address), Task(seen.append, 3), Task(bump, address)],
    ):
        pool.dispatch_and_run(tasks)
    assert int(counter[0]) == 4
    assert sorted(seen) == [1, 2, 3]


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="two threads cannot run at once on one processor")
def test_compiled_tasks_run_side_by_side(pool: FastPool, library: Library) -> None:
    meet, counter = library.address(pool_kernels.meet), np.zeros(1, np.uint64)
    pool.dispatch_and_run([Task(meet, counter.ctypes.data)] * 2)
    assert int(counter[0]) == 2


def test_nothing_to_do(pool: FastPool) -> None:
    pool.dispatch_and_run([])


def test_too_many_tasks_run_none(pool: FastPool) -> None:
    seen: list[int] = []
    with pytest.raises(PoolError, match="5 tasks at once, the pool runs at most 4"):
        pool.dispatch_and_run([Task(seen.append, i) for i in range(5)])
    assert seen == []


def test_a_compiled_task_takes_a_number(pool: FastPool, bump: int) -> None:
    seen: list[int] = []
    with pytest.raises(PoolError, match="takes a number, not str"):
        pool.dispatch_and_run([Task(seen.append, 1), Task(seen.append, 2), Task(bump, "address")])
    assert seen == []


def failing(error: BaseException) -> Callable[[object], None]:
    def fail(_: object) -> None:
        raise error

    return fail


@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("places", [(0,), (1,), (3,), (0, 2), (1, 3)])
def test_the_first_exception_comes_back_when_all_have_finished(
    places: tuple[int, ...], kind: type[BaseException], pool: FastPool
) -> None:
    errors = {i: kind(f"task {i}") for i in places}
    seen: list[int] = []

    def slow(i: int) -> None:
        time.sleep(0.01)
        seen.append(i)

    with pytest.raises(kind) as caught:
        pool.dispatch_and_run([Task(failing(errors[i]) if i in errors else slow, i) for i in range(4)])
    assert caught.value is errors[places[0]]
    assert sorted(seen) == [i for i in range(4) if i not in places]
    seen.clear()
    pool.dispatch_and_run([Task(seen.append, i) for i in range(4)])  # and the pool goes on
    assert sorted(seen) == [0, 1, 2, 3]


@pytest.mark.parametrize("times", [2_000, pytest.param(100_000, marks=pytest.mark.slow)])
def test_many_times(bump: int, times: int) -> None:
    counters = np.zeros((2, 8), np.uint64)
    tasks = [Task(bump, counters[i].ctypes.data) for i in range(2)]
    with FastPool(1) as pool:
        for _ in range(times):
            pool.dispatch_and_run(tasks)
    assert counters[:, 0].tolist() == [times, times]


def test_two_pools_at_once(bump: int) -> None:
    counters = np.zeros((2, 8), np.uint64)

    def run(which: int) -> None:
        with FastPool(2) as mine:
            for _ in range(200):
                mine.dispatch_and_run([Task(bump, counters[which].ctypes.data)] * 3)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert counters[:, 0].tolist() == [600, 600]


def test_a_task_neither_feeds_nor_ends_its_pool(pool: FastPool) -> None:
    for i in (0, 1):
        for action in (lambda _: pool.dispatch_and_run([Task(print)]), lambda _: pool.deinit()):
            tasks = [Task(lambda _: None)] * 2
            tasks[i] = Task(action)
            with pytest.raises(PoolError, match="a task cannot"):
                pool.dispatch_and_run(tasks)
    pool.dispatch_and_run([Task(lambda _: None)] * 4)


def test_after_the_end() -> None:
    before = len(workers())
    pool = FastPool(2)
    assert len(workers()) == before + 2
    pool.deinit()
    pool.deinit()
    assert len(workers()) == before
    for tasks in ([], [Task(print)]):
        with pytest.raises(PoolError, match="closed"):
            pool.dispatch_and_run(tasks)


def test_a_forgotten_pool_ends_its_workers() -> None:
    before, pool = len(workers()), FastPool(2)
    with contextlib.suppress(ValueError):
        pool.dispatch_and_run([Task(lambda _: None), Task(int, "no number")])
    gone = weakref.ref(pool)
    del pool
    assert gone() is None  # not even an exception kept it
    assert len(workers()) == before
    cycle = [FastPool(1)]
    cycle.append(cycle)  # type: ignore[arg-type]
    del cycle
    gc.collect()
    assert len(workers()) == before


def test_workers_sleep_and_wake(bump: int) -> None:
    counter = np.zeros(1, np.uint64)
    with FastPool(2, spins=100) as pool:
        for wait in (0.0, 0.05, 0.0, 0.001, 0.1):
            pool.dispatch_and_run([Task(bump, counter.ctypes.data)] * 3)
            time.sleep(wait)
        used = time.process_time()
        time.sleep(0.3)
        assert time.process_time() - used < 0.1  # asleep: nobody spins
        pool.dispatch_and_run([Task(bump, counter.ctypes.data)] * 3)
    assert int(counter[0]) == 18


def test_more_threads_than_cores(bump: int) -> None:
    counter = np.zeros(1, np.uint64)
    with FastPool(16) as pool:
        for _ in range(50):
            pool.dispatch_and_run([Task(bump, counter.ctypes.data)] * 17)
    assert int(counter[0]) == 50 * 17


def test_threads_that_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    before, start, count = len(workers()), threading.Thread.start, [0]

    def refusing(self: threading.Thread) -> None:
        count[0] += 1
        if count[0] == 3:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", refusing)
    with pytest.raises(PoolError, match="can't start new thread: 2 of 4 started; use fewer threads"):
        FastPool(4)
    assert len(workers()) == before


def test_an_interrupt_between_tasks_leaves_a_usable_pool(pool: FastPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C may come at any instruction: here while tasks are being handed out, and one has been."""
    seen: list[int] = []

    def slow(i: int) -> None:
        time.sleep(0.05)
        seen.append(i)

    give, given = pool._calls.give_task, [0]

    def interrupted(*arguments: int) -> None:
        given[0] += 1
        if given[0] == 2:
            raise KeyboardInterrupt
        give(*arguments)

    monkeypatch.setattr(pool._calls, "give_task", interrupted)
    with pytest.raises(KeyboardInterrupt):
        pool.dispatch_and_run([Task(slow, i) for i in range(4)])
    assert seen == [1]
    pool.dispatch_and_run([Task(seen.append, i) for i in range(10, 14)])
    assert sorted(seen) == [1, 10, 11, 12, 13]


def test_a_forked_process_needs_its_own(pool: FastPool) -> None:
    release = threading.Event()
    holder = threading.Thread(target=pool.dispatch_and_run, args=([Task(lambda _: release.wait(20))] * 4,))
    holder.start()  # the workers are busy when the process forks
    time.sleep(0.05)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            pool.dispatch_and_run([Task(print)])
        except PoolError as error:
            code = 0 if "forked" in str(error) else 2
        pool.wait_idle()
        pool._running = False
        pool.deinit()
        os._exit(code)
    release.set()
    holder.join()
    assert os.waitpid(child, 0)[1] == 0
    pool.dispatch_and_run([Task(lambda _: None)] * 4)


EXIT = """
import sys
from zinc_rt.seed.fast_pool import FastPool, Task
pool = FastPool(3)
pool.dispatch_and_run([Task(lambda _: None)] * 4)
keep = [pool]; keep.append(keep)
print("done", flush=True)
if sys.argv[1] == "raise":
    raise ValueError("at the end")
if sys.argv[1] == "fork":
    import os
    if os.fork() == 0:
        sys.exit(0)
    sys.exit(os.waitstatus_to_exitcode(os.wait()[1]))
"""


@pytest.mark.parametrize(("how", "code"), [("plain", 0), ("raise", 1), ("fork", 0)])
def test_a_program_may_end_without_deinit(how: str, code: int) -> None:
    done = subprocess.run([sys.executable, "-c", EXIT, how], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.startswith("done")
    assert done.returncode == code
    assert done.stderr.count("Error") == (1 if how == "raise" else 0), done.stderr


@pytest.mark.usefixtures("ctrl_c")
def test_ctrl_c_reaches_a_task_on_the_caller() -> None:
    with FastPool(1) as pool:
        timer = threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT))
        seen: list[str] = []
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            pool.dispatch_and_run([Task(lambda _: time.sleep(20)), Task(seen.append, "other")])
        assert seen == ["other"]
        pool.dispatch_and_run([Task(seen.append, "after")] * 2)
        assert seen == ["other", "after", "after"]


def test_memory_and_words() -> None:
    for n in (0, 1, 63, 64, 1000):
        memory = aligned_zeros(n)
        assert memory.shape == (n,)
        assert n == 0 or memory.ctypes.data % 64 == 0
    assert system_words(7)[3] == 7


def test_other_systems_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(sysname="Linux", machine="riscv64"))
    with pytest.raises(PoolError, match="native threads need Linux on x86_64 or aarch64, this is Linux riscv64"):
        system_words(1)

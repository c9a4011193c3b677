"""A pool of threads for many short fan-outs: no allocation per task, no lock; workers spin for a while, then sleep.

    pool = FastPool.init(3)                      # three workers beside the caller
    pool.dispatch_and_run([Task(work, part) for part in parts])
    pool.deinit()

A task is a Python function or the address of a compiled kernel `fn(context: u64)`; only the latter run side by side.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.host_memory import aligned_zeros
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.kernels.cpu import pool as native
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.lang.types import layout_of

MAX_WORKERS: Final = 16
SPINS: Final = 16384
"""Rounds that a worker waits for work before it sleeps: about a millisecond where a pause takes 140 cycles."""

_SLOT_BYTES: Final = layout_of(native.WorkerSlot).size
# Numbers of futex and sched_yield: arch/x86/entry/syscalls/syscall_64.tbl, include/uapi/asm-generic/unistd.h.
_NUMBERS: Final = {"x86_64": (202, 24), "aarch64": (98, 124)}
_VOID_P: Final = ctypes.c_void_p


class InvalidWorkerCount(UsageError):
    """A pool was asked for with no worker, or with more than its limit."""


class PoolError(ZincError):
    """The pool was used against its rules."""


@dataclass(frozen=True)
class Task:
    """fn_(ctx). fn_: a Python function, or the address of a compiled one; ctx: its argument (an int for the latter)."""

    fn_: Callable[[Any], object] | int
    ctx: Any = None


class ThreadPool:
    """`n` workers and the caller. Belongs to the thread that made it; `deinit` ends the workers."""

    def __init__(self, n: int, *, library: Library | None = None, limit: int = MAX_WORKERS, spins: int = SPINS) -> None:
        """Start the workers. Raises `InvalidWorkerCount`, `PoolError`, and what compiling the pool's kernels raises."""
        if not 1 <= n <= limit:
            raise InvalidWorkerCount(f"a pool has 1 to {limit} workers, not {n}")
        self._library = library or Library(host_target(), CompileCache(default_cache_dir()))
        self._calls = PoolCalls(self._library)
        self.n = n
        self._memory = aligned_zeros((n + 1) * _SLOT_BYTES)
        self.slots = self._memory.ctypes.data  # address of the workers' slots
        self._system = system_words(spins)
        self.system = self._system.ctypes.data
        self._jobs: list[Callable[[], object] | None] = [None] * n
        self._errors: list[BaseException | None] = [None] * n
        self._pid = os.getpid()
        self._running = False
        shared = (self._calls, self._memory, self._system, self._jobs, self._errors)
        self._threads = [
            threading.Thread(target=_work, args=(i, *shared), name=f"zinc-worker-{i + 1}", daemon=True)
            for i in range(n)
        ]
        started: list[threading.Thread] = []
        self._close = weakref.finalize(
            self, _stop, self._pid, self._calls, self._memory, self._system, self._jobs, started
        )
        for thread in self._threads:
            try:
                thread.start()
            except RuntimeError as error:
                self._close()
                raise PoolError(f"{error}: {len(started)} of {n} started; use fewer threads") from None
            started.append(thread)

    @classmethod
    def init(cls, n: int) -> ThreadPool:
        """The same as the constructor."""
        return cls(n)

    def deinit(self) -> None:
        """End the workers and wait for them. Calling it again does nothing. Raises `PoolError` in one of its tasks."""
        if self._close.alive and self._in_task():
            raise PoolError("a task cannot end the pool that runs it")
        self._close()

    def __enter__(self) -> ThreadPool:
        return self

    def __exit__(self, *_: object) -> None:
        self.deinit()

    def executor_count(self) -> int:
        """Workers and the caller."""
        return self.n + 1

    def dispatch_and_run(self, tasks: Sequence[Task]) -> None:
        """Task 0 on the caller, task i on worker i - 1; returns when all have finished.

        Raises `PoolError`, before any runs, for more than `executor_count()` tasks and for one that cannot run; then
        the first exception that a task raised.
        """
        self._check_usable(tasks)
        if not tasks:
            return
        errors: list[BaseException | None] = []
        try:
            self._running = True
            self.wait_idle()  # an interrupt may have ended the last call before its tasks had ended
            for i, task in enumerate(tasks[1:]):
                slot = self.slots + i * _SLOT_BYTES
                if isinstance(task.fn_, int):
                    self._calls.give_task(slot, self.system, task.fn_, task.ctx or 0)
                else:
                    self._jobs[i] = _bound(task)
                    self._calls.give_task(slot, self.system, native.STOP, 0)
            if isinstance(tasks[0].fn_, int):
                ctypes.CFUNCTYPE(None, ctypes.c_uint64)(tasks[0].fn_)(tasks[0].ctx or 0)
            else:
                tasks[0].fn_(tasks[0].ctx)
        except BaseException as error:  # raised again below, when the workers are through with what they share
            errors.append(error)
        finally:
            self._running = False
            self.wait_idle()
        errors += self._errors
        self._errors[:] = [None] * self.n
        try:
            for raised in errors:
                if raised is not None:
                    raise raised
        finally:
            errors.clear()  # else an exception and this frame keep each other, and the pool
            raised = None

    def wait_idle(self) -> None:
        """Return when every worker has finished what it was given; at once in a forked process, which has none."""
        if os.getpid() == self._pid:
            self._calls.wait_idle(self.slots, self.n, self.system)

    def _in_task(self) -> bool:
        """Whether this is called by a task of the pool."""
        return self._running or threading.current_thread() in self._threads

    def _check_usable(self, tasks: Sequence[Task]) -> None:
        if not self._close.alive:
            raise PoolError("the pool is closed")
        if os.getpid() != self._pid:
            raise PoolError("the pool belongs to the process that made it; a forked process needs its own")
        if self._in_task():
            raise PoolError("the pool is running tasks; a task cannot give it more")
        if len(tasks) > self.executor_count():
            raise PoolError(f"{len(tasks)} tasks at once, the pool runs at most {self.executor_count()}")
        for task in tasks:
            if isinstance(task.fn_, int) and not isinstance(task.ctx, int | None):
                raise PoolError(f"a compiled task takes a number, not {type(task.ctx).__name__}")


class PoolCalls:
    """The pool's kernels as functions."""

    def __init__(self, library: Library) -> None:
        library.load((f, {}) for f in (native.worker, native.give_task, native.finish_task, native.wait_idle))
        u64 = ctypes.c_uint64
        self.library = library  # keeps the code alive
        self.worker = ctypes.CFUNCTYPE(None, _VOID_P, _VOID_P)(library.address(native.worker))
        self.give_task = ctypes.CFUNCTYPE(None, _VOID_P, _VOID_P, u64, u64)(library.address(native.give_task))
        self.finish_task = ctypes.CFUNCTYPE(None, _VOID_P)(library.address(native.finish_task))
        self.wait_idle = ctypes.CFUNCTYPE(None, _VOID_P, ctypes.c_int32, _VOID_P)(library.address(native.wait_idle))


def system_words(spins: int) -> npt.NDArray[np.uint64]:
    """What a `System` struct holds on this machine, u64[4]. Raises `PoolError` where that is unknown."""
    numbers = _NUMBERS.get(os.uname().machine)
    if numbers is None or not hasattr(_libc(), "syscall"):
        raise PoolError(
            f"native threads need Linux on x86_64 or aarch64, this is {os.uname().sysname} {os.uname().machine}"
        )
    address = ctypes.cast(_libc().syscall, _VOID_P).value or 0
    return np.array([address, *numbers, spins], np.uint64)


@lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)


def _bound(task: Task) -> Callable[[], object]:
    fn, ctx = task.fn_, task.ctx
    assert not isinstance(fn, int)
    return lambda: fn(ctx)


def _work(
    index: int,
    calls: PoolCalls,
    memory: npt.NDArray[np.uint8],
    system: npt.NDArray[np.uint64],
    jobs: list[Callable[[], object] | None],
    errors: list[BaseException | None],
) -> None:
    """A worker thread: native tasks run inside `worker`; it returns for Python ones, and for the end."""
    slot, words = memory.ctypes.data + index * _SLOT_BYTES, system.ctypes.data
    while True:
        calls.worker(slot, words)
        job, jobs[index] = jobs[index], None
        if job is None:
            calls.finish_task(slot)
            return
        try:
            job()
        except BaseException as error:  # handed to the caller of dispatch_and_run
            errors[index] = error
        calls.finish_task(slot)


def _stop(
    pid: int,
    calls: PoolCalls,
    memory: npt.NDArray[np.uint8],
    system: npt.NDArray[np.uint64],
    jobs: list[Callable[[], object] | None],
    threads: list[threading.Thread],
) -> None:
    if os.getpid() != pid:
        return  # forked: the workers stayed behind, and one may have been at work
    base, words = memory.ctypes.data, system.ctypes.data
    calls.wait_idle(base, len(threads), words)
    jobs[:] = [None] * len(threads)
    for i in range(len(threads)):
        calls.give_task(base + i * _SLOT_BYTES, words, native.STOP, 0)
    for thread in threads:
        if thread is not threading.current_thread():  # a worker may be who collects the garbage
            thread.join()

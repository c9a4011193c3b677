"""A pool of threads for many short fan-outs: no allocation per task, no lock; workers spin for a while, then sleep.

Compiled code hands the workers their tasks (`kernels.cpu.pool`): the address of a compiled function and a number.
"""

from __future__ import annotations

import ctypes
import os
import threading
import weakref
from collections.abc import Callable
from functools import lru_cache
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.host_memory import aligned_zeros
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.kernels.cpu import pool as native
from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.lang.types import layout_of
from zinc_rt.utils.closing import Closing

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


class ThreadPool(Closing):
    """`n` workers and the caller. Belongs to the thread that made it; `close` ends the workers."""

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
        self._pid = os.getpid()
        shared = (self._calls, self._memory, self._system, self._jobs)
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

    def close(self) -> None:
        """End the workers and wait for them. Calling it again does nothing."""
        self._close()

    @property
    def open(self) -> bool:
        """Whether the workers still run."""
        return self._close.alive

    def give(self, worker: int, address: int, number: int) -> None:
        """Let a worker call a compiled function `fn(number: u64)`."""
        self._calls.give_task(self.slots + worker * _SLOT_BYTES, self.system, address, number)

    def give_job(self, worker: int, job: Callable[[], object]) -> None:
        """Let a worker call a Python function, which must raise nothing."""
        self._jobs[worker] = job
        self.give(worker, native.STOP, 0)

    def wait_idle(self) -> None:
        """Return when every worker has finished what it was given; at once in a forked process, which has none."""
        if os.getpid() == self._pid:
            self._calls.wait_idle(self.slots, self.n, self.system)


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


def _work(
    index: int,
    calls: PoolCalls,
    memory: npt.NDArray[np.uint8],
    system: npt.NDArray[np.uint64],
    jobs: list[Callable[[], object] | None],
) -> None:
    """A worker thread: compiled tasks run inside `worker`; it returns for a job in Python, and for the end."""
    slot, words = memory.ctypes.data + index * _SLOT_BYTES, system.ctypes.data
    while True:
        calls.worker(slot, words)
        job, jobs[index] = jobs[index], None
        if job is not None:
            job()  # raises nothing
        calls.finish_task(slot)
        if job is None:
            return


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

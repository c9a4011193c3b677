"""The page `fast_pool`: a pool of a fixed number of workers that run Python functions and compiled ones.

    pool = FastPool.init(3)                      # three workers beside the caller
    pool.dispatch_and_run([Task(work, part) for part in parts])
    pool.deinit()

A task is a Python function or the address of a compiled kernel `fn(context: u64)`; only the latter run side by side.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Self

from zinc_rt.backends.cpu.thread_pool import MAX_WORKERS, SPINS, InvalidWorkerCount, PoolError, ThreadPool
from zinc_rt.lang.library import Library

__all__ = ["MAX_WORKERS", "FastPool", "InvalidWorkerCount", "PoolError", "Task"]


@dataclass(frozen=True)
class Task:
    """fn_(ctx). fn_: a Python function, or the address of a compiled one; ctx: its argument (an int for the latter)."""

    fn_: Callable[[Any], object] | int
    ctx: Any = None


class FastPool(ThreadPool):
    """`n` workers and the caller. Belongs to the thread that made it; `deinit` ends the workers."""

    def __init__(self, n: int, *, library: Library | None = None, limit: int = MAX_WORKERS, spins: int = SPINS) -> None:
        """Start the workers. Raises `InvalidWorkerCount`, `PoolError`, and what compiling the pool's kernels raises."""
        self._errors: list[BaseException | None] = [None] * n
        self._running = False
        super().__init__(n, library=library, limit=limit, spins=spins)

    @classmethod
    def init(cls, n: int) -> Self:
        """The same as the constructor."""
        return cls(n)

    def deinit(self) -> None:
        """End the workers and wait for them. Calling it again does nothing. Raises `PoolError` in one of its tasks."""
        if self.open and self._in_task():
            raise PoolError("a task cannot end the pool that runs it")
        super().close()

    close = deinit

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
                if isinstance(task.fn_, int):
                    self.give(i, task.fn_, task.ctx or 0)
                else:
                    self.give_job(i, self._job(i, task.fn_, task.ctx))
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

    def _job(self, worker: int, function: Callable[[Any], object], context: Any) -> Callable[[], object]:
        errors = self._errors  # not the pool: a pool that nobody holds ends its workers

        def run() -> None:
            try:
                function(context)
            except BaseException as error:  # handed to the caller of dispatch_and_run
                errors[worker] = error

        return run

    def _in_task(self) -> bool:
        """Whether this is called by a task of the pool."""
        return self._running or threading.current_thread() in self._threads

    def _check_usable(self, tasks: Sequence[Task]) -> None:
        if not self.open:
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

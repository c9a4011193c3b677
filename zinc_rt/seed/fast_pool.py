"""The page `fast_pool`: a small pool of threads with a fixed number of workers."""

from zinc_rt.backends.cpu.thread_pool import MAX_WORKERS, InvalidWorkerCount, PoolError, Task
from zinc_rt.backends.cpu.thread_pool import ThreadPool as FastPool

__all__ = ["MAX_WORKERS", "FastPool", "InvalidWorkerCount", "PoolError", "Task"]

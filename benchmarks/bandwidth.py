"""The read bandwidth of this machine's memory, which bounds decoding: a token reads every weight once.

The reader is the C library's `memcmp` of two equal halves: two streams a thread, vector loads, no lock held. Of the
readers at hand (it, `memchr`, NumPy's sums and maxima, BLAS dot products) it was the fastest by a few percent. A
reader can only be slower than the memory, so a faster one may take its place, never a slower one.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import statistics
import threading
import time

_PASSES = 7
_PASS_SECONDS = 0.05
_GUESS = 10e9  # bytes a second and thread, to size a pass over a small buffer
_PAGE = 4096


def read_bandwidth(n_bytes: int, threads: int) -> float:
    """Measure GB/s (1e9 bytes) that `threads` threads read together from `n_bytes` of memory; median of passes.

    Huge pages where the system gives them. Memory that was never written would be one shared page of zeros in the
    cache, so it is filled first.
    """
    half = max(_PAGE, n_bytes // (2 * threads) // _PAGE * _PAGE)  # a thread reads two of these
    size = 2 * threads * half
    with mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as memory:
        with contextlib.suppress(OSError, AttributeError):
            memory.madvise(mmap.MADV_HUGEPAGE)
        view = (ctypes.c_char * size).from_buffer(memory)
        try:
            return _measure(ctypes.addressof(view), half, threads)
        finally:
            del view  # the mapping cannot be closed while it is exported


def _measure(address: int, half: int, threads: int) -> float:
    libc = ctypes.CDLL(None)
    libc.memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
    libc.memset.argtypes = (ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t)
    repeats = max(1, round(_PASS_SECONDS * _GUESS / (2 * half)))
    together = threading.Barrier(threads)
    # Begin and end of each thread's passes, read in the threads, since a waiting thread is woken late.
    times: list[list[tuple[float, float]]] = [[] for _ in range(threads)]

    def work(number: int) -> None:
        first = address + 2 * number * half
        libc.memset(first, 1, 2 * half)
        for _ in range(_PASSES + 1):
            together.wait()
            begin = time.perf_counter()
            for _ in range(repeats):
                libc.memcmp(first, first + half, half)
            times[number].append((begin, time.perf_counter()))

    workers = [threading.Thread(target=work, args=(i,)) for i in range(threads)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    passes = [max(end for _, end in ends) - min(begin for begin, _ in ends) for ends in zip(*times, strict=True)]
    return float(2 * half * threads * repeats / statistics.median(passes[1:]) / 1e9)

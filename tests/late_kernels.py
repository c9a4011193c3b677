"""Operations in the kernel language of which one stops a thread in the middle, to see what a late one does.

`gate`, u64[8]: [0] somebody was stopped; [1] a later phase ran; [2] the rewriting began; [3] it is over; [4] what [2]
was when the late thread wrote; [5] the late thread is through; [6] it gave up waiting for [1].
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import atomic_cas, atomic_load, atomic_store, cycle_counter, pause
from zinc_rt.lang.types import i32, i64, ptr, struct, u64

LONG = 300_000_000_000
"""Ticks after which a test has failed: minutes, as a busy machine may keep the other thread for long."""
SHORT = 30_000_000
"""Ticks in which a program would open some phases: some milliseconds."""


@struct
class LateArgs:
    x: ptr[i64]
    y: ptr[i64]
    gate: ptr[u64]
    chosen: i32  # the unit at which a thread is stopped; -1: none
    factor: i32
    patience: i64  # ticks for the rewriting to begin: long where it is sure to, short where it must not


@kernel
def stopping(a: ptr[LateArgs], step: ptr[StepRecord], first: i32, last: i32):
    """y = x * factor; the first thread at the chosen unit waits for a later phase, and then for the rewriting."""
    for u in range(first, last):
        zero: u64 = 0
        one: u64 = 1
        if u == a.chosen:  # noqa: SIM102 - the exchange must not happen for other units
            if atomic_cas(a.gate, zero, one) == zero:
                begin = cycle_counter()
                while atomic_load(a.gate + 1) == 0 and cycle_counter() - begin < LONG:
                    pause()
                if atomic_load(a.gate + 1) == 0:
                    atomic_store(a.gate + 6, one)
                begin = cycle_counter()
                while atomic_load(a.gate + 2) == 0 and cycle_counter() - begin < a.patience:
                    pause()
                if atomic_load(a.gate + 2) != 0:
                    while atomic_load(a.gate + 3) == 0:
                        pause()
                atomic_store(a.gate + 4, atomic_load(a.gate + 2))
                a.y[u] = a.x[u] * i64(a.factor)
                atomic_store(a.gate + 5, one)
        a.y[u] = a.x[u] * i64(a.factor)


@kernel
def passing(a: ptr[LateArgs], step: ptr[StepRecord], first: i32, last: i32):
    """y = x * factor, and the late thread may go on."""
    one: u64 = 1
    for u in range(first, last):
        a.y[u] = a.x[u] * i64(a.factor)
    atomic_store(a.gate + 1, one)


@kernel
def rewriting(a: ptr[LateArgs], step: ptr[StepRecord], first: i32, last: i32):
    """y = x * factor, and the late thread sees it begin and end. One unit."""
    one: u64 = 1
    atomic_store(a.gate + 2, one)
    for u in range(64):
        a.y[u] = a.x[u] * i64(a.factor)
    atomic_store(a.gate + 3, one)

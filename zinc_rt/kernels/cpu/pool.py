"""The native side of `fast_pool`: a worker's wait, handing out tasks, and waiting for them.

A slot belongs to one worker. `sequence` counts tasks given to it, `done` those it finished; they differ while it works.
A worker spins for a while, then sleeps in the kernel (futex) on the low word of `sequence`.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.program import ProgramRecord, begin_step, walk
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import atomic_load, atomic_store, call, cast, fence, pause
from zinc_rt.lang.types import i32, i64, ptr, struct, u64

FUTEX_WAIT_PRIVATE = 128
FUTEX_WAKE_PRIVATE = 129

STOP = 1
"""Instead of a function's address: return to the caller."""


@struct
class WorkerSlot:
    sequence: u64
    fn: u64  # fn(context)
    context: u64
    pad0: u64
    pad1: u64
    pad2: u64
    pad3: u64
    pad4: u64
    done: u64
    asleep: u64
    pad5: u64
    pad6: u64
    pad7: u64
    pad8: u64
    pad9: u64
    pad10: u64


@struct
class System:
    """What the kernel needs to be asked by."""

    system_call: u64
    futex: i64
    yield_number: i64
    spins: i64  # rounds before a worker sleeps


@inline
def word(slot: ptr[WorkerSlot], index: int):
    """A field of a slot as an atomic cell."""
    return cast(slot, ptr[u64]) + index


@kernel
def worker(slot: ptr[WorkerSlot], system: ptr[System]):
    """Run tasks until one says STOP; that one stays unfinished, for the caller to finish."""
    seen: u64 = atomic_load(word(slot, 8))
    spins: i64 = 0
    limit = system.spins
    null: u64 = 0
    while True:
        now = atomic_load(word(slot, 0))
        if now != seen:
            fn = slot.fn
            if fn == STOP:
                return
            call(fn, None, slot.context)
            seen = seen + 1
            atomic_store(word(slot, 8), seen)
            spins = 0
        elif spins < limit:
            pause()
            spins += 1
        else:
            atomic_store(word(slot, 9), 1, order="seq_cst")
            fence()
            if atomic_load(word(slot, 0), order="seq_cst") == now:
                operation: i64 = FUTEX_WAIT_PRIVATE
                low = i64(now & 0xFFFFFFFF)
                call(system.system_call, i64, system.futex, cast(slot, u64), operation, low, null)
            atomic_store(word(slot, 9), 0, order="seq_cst")
            spins = 0


@inline
def give(slot: ptr[WorkerSlot], system: ptr[System], fn: u64, context: u64):
    """Hand an idle worker a task."""
    slot.fn = fn
    slot.context = context
    atomic_store(word(slot, 0), atomic_load(word(slot, 0), order="relaxed") + 1, order="seq_cst")
    fence()
    if atomic_load(word(slot, 9), order="seq_cst") != 0:
        operation: i64 = FUTEX_WAKE_PRIVATE
        one: i64 = 1
        call(system.system_call, i64, system.futex, cast(slot, u64), operation, one)


@kernel
def give_task(slot: ptr[WorkerSlot], system: ptr[System], fn: u64, context: u64):
    """Hand an idle worker a task: fn(context)."""
    give(slot, system, fn, context)


@kernel
def finish_task(slot: ptr[WorkerSlot]):
    """Mark the task that said STOP as finished."""
    atomic_store(word(slot, 8), atomic_load(word(slot, 8)) + 1)


@kernel
def wait_idle(slots: ptr[WorkerSlot], n: i32, system: ptr[System]):
    """Return when the first n workers have finished what they were given."""
    for i in range(n):
        slot = slots[i]
        spins: i64 = 0
        while atomic_load(word(slot, 8)) != atomic_load(word(slot, 0)):
            pause()
            spins += 1
            if spins > 2000:
                call(system.system_call, i64, system.yield_number)


@kernel
def run_program(p: ptr[ProgramRecord], slots: ptr[WorkerSlot], n: i32, system: ptr[System], helper: u64, PROFILE: bool):
    """One step: workers that are idle are asked to help, this thread takes part, and returns when all is done."""
    begin_step(p)
    for i in range(n):
        slot = slots[i]
        if atomic_load(word(slot, 8)) == atomic_load(word(slot, 0)):
            give(slot, system, helper, cast(p, u64))
    walk(p, 0, PROFILE)

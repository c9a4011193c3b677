"""Running a program: phases of independent operations, whose units threads claim until none is left.

The state is one word, `claim`: the step's number (16 bits), the phase (16 bits) and the next unit (32 bits). A thread
takes units by compare-and-swap on it, so a claim is valid for exactly that step and phase. The thread that finishes the
last unit of a phase moves the word to the next one. Nobody waits for a thread, only for claimed units: a thread whose
core was taken away delays the others by its claim at most, and joins again wherever the program is.

A run may be a part of the program: phases first_phase ... n_phases - 1, and of the first one units begin ... end - 1.

In steps of few rows, units of products that are late are done again by a thread that has nothing to do (`do_again`), so
that not even they are waited for. `kernels/cpu/flights.py` has the rules that keep a late thread from doing harm.
"""

from __future__ import annotations

from zinc_rt.kernels.cpu.flights import (
    COUNTED,
    ONE_LESS,
    OPEN,
    UNITS,
    flight_at,
    in_the_way,
    land,
    late_ones,
    take_off,
)
from zinc_rt.kernels.cpu.structs import StepRecord
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import atomic_add, atomic_cas, atomic_load, atomic_store, call, cast, cycle_counter, pause
from zinc_rt.lang.types import i32, i64, ptr, struct, u32, u64

FEW_ROWS = 8
"""Up to so many rows a unit is the reading of its weights."""

PATIENCE = 1 << 20
"""Ticks after which a thread that has not yet seen how long claims take does late units again."""

ALL_PHASES = 0xFFFF
"""The phase number of a program that is not running."""


@struct
class OperationRecord:
    fn: u64  # kernel(arguments, step, first, last)
    arguments: u64
    units: i32  # units for each of what `scale` counts
    scale: i32  # index into the step's multipliers; see Program


@struct
class Phase:
    first: i32  # of its operations
    count: i32
    least: i32  # units that a claim of a step of few rows has at least
    most: i32  # and at most, unless it is the least
    again: i32  # whether its units may be done twice
    safe: i32  # how many phases back a late thread may still be at such units when this one opens
    renewed: i32  # the first phase that writes what its units touch


@struct
class ProgramRecord:
    claim: u64
    pad0: u64
    pad1: u64
    pad2: u64
    pad3: u64
    pad4: u64
    pad5: u64
    pad6: u64
    done: u32  # units of the phase that are finished
    n_phases: i32
    n_threads: i32
    max_events: i32
    operations: ptr[OperationRecord]
    phases: ptr[Phase]
    step: ptr[StepRecord]
    multipliers: ptr[i32]  # 1, rows, logits, whole heads of attention, split heads, merges
    system_call: u64  # address of the C library's syscall()
    yield_number: i64
    thread_number: i64  # of gettid
    events: ptr[i64]  # what a profile records: [0] how many, then from [8] Event after Event
    flights: ptr[u64]  # see `flights`: a line for all threads, then one for each
    again: i32  # whether units may be done twice in this step
    first_phase: i32  # of this run; n_phases is behind its last one
    begin: i32  # the first unit of its first phase
    end: i32  # units that a phase of this run has at most


@struct
class EventRecord:
    """Some units of an operation on a thread; times in ticks of the cycle counter."""

    operation: i32
    thread: i32
    units: i64
    begin: i64
    end: i64


@inline
def units_of(p, operation: i32):
    """Units of an operation in this step."""
    o = p.operations[operation]
    return o.units * p.multipliers[o.scale]


@inline
def phase_units(p, phase: i32):
    """Units of a phase in this step."""
    total: i32 = 0
    first = p.phases[phase].first
    for i in range(p.phases[phase].count):
        total += units_of(p, first + i)
    if total > p.end:
        total = p.end
    return total


@inline
def record(p, operation: i32, units: i32, before: i64):
    """Add an event; when the space is full, only their number goes on."""
    index = atomic_add(p.events, 1, order="relaxed")
    if index < i64(p.max_events):
        event = cast(p.events + 8, ptr[EventRecord])[index]
        event.operation = operation
        event.thread = i32(call(p.system_call, i64, p.thread_number))
        event.units = i64(units)
        event.begin = before
        event.end = cycle_counter()


@inline
def run_units(p, phase: i32, begin: i32, end: i32, PROFILE: bool, AGAIN: bool):
    """Units begin … end-1 of a phase, which count on through its operations. AGAIN: a profile counts them elsewhere."""
    at: i32 = begin
    base: i32 = 0
    operation: i32 = p.phases[phase].first
    while at < end:
        n = units_of(p, operation)
        if at < base + n:
            stop: i32 = end - base
            if stop > n:
                stop = n
            o = p.operations[operation]
            if PROFILE:
                before = cycle_counter()
                call(o.fn, None, o.arguments, cast(p.step, u64), at - base, stop)
                record(p, operation, 0 if AGAIN else stop - (at - base), before)
            else:
                call(o.fn, None, o.arguments, cast(p.step, u64), at - base, stop)
            at = base + stop
        base += n
        operation += 1


@inline
def next_phase(p, phase: i32):
    """The first phase after this one that has units in this step; n_phases when none has."""
    found: i32 = phase + 1
    while found < p.n_phases and phase_units(p, found) == 0:
        found += 1
    return found


@kernel
def run_alone(p: ptr[ProgramRecord], PROFILE: bool):
    """The whole program on this thread."""
    begin: i32 = p.begin
    for phase in range(p.first_phase, p.n_phases):
        total = phase_units(p, phase)
        if total > 0:
            run_units(p, phase, begin, total, PROFILE, False)
            begin = 0


@inline
def claim_size(p, phase: i32, left: i32):
    """How many of the units that are left a thread takes at once.

    Less and less, so that all end together. Units of few rows are short and alike: there fewer claims are better, as
    each begins where nothing was asked for ahead. The same units give the same size all through a step: who does them
    again finds their number so.
    """
    share: i32 = i32(u32(left) // u32(p.n_threads * 4))
    least: i32 = 1
    if p.step.n_rows <= FEW_ROWS:
        share = i32(u32(left) // u32(p.n_threads * 2))
        if share > p.phases[phase].most:
            share = p.phases[phase].most
        least = p.phases[phase].least
    if share < least:
        share = least
    if share > left:
        share = left
    return share


@inline
def count_units(p, word: u64, size: i32, total: i32, slot: i32):
    """Units of the word's phase are finished; who finishes the last ones opens the next phase."""
    done = cast(p, ptr[u32]) + 16
    if atomic_add(done, u32(size), order="seq_cst") + u32(size) == u32(total):
        atomic_store(done, 0, order="relaxed")
        after: i32 = next_phase(p, i32((word >> 32) & 0xFFFF))
        safe: i32 = ALL_PHASES
        if after == p.n_phases:
            after = ALL_PHASES
        else:
            safe = p.phases[after].safe
        open_phase(p, word >> 48, after, 0, safe, slot)


@inline
def open_phase(p, epoch: u64, after: i32, begin: i32, safe: i32, slot: i32):
    """Let units of a phase be claimed from `begin` on, once no other thread is late at what would be in its way."""
    if late_ones(p) != 0:
        for i in range(p.n_threads):
            if i != slot:
                spins: i32 = 0
                while in_the_way(p, flight_at(p, i), epoch, after, safe) != 0:
                    pause()
                    spins += 1
                    if spins > 2000:
                        call(p.system_call, i64, p.yield_number)
    atomic_store(cast(p, ptr[u64]), (epoch << 48) | (u64(u32(after)) << 32) | u64(u32(begin)))


@inline
def do_again(p, word: u64, total: i32, slot: i32, PROFILE: bool):
    """Do the claimed units of the word's phase that are not finished."""
    phase = i32((word >> 32) & 0xFFFF)
    for i in range(p.n_threads):
        other = flight_at(p, i)
        seen = atomic_load(other, order="seq_cst")
        if i != slot and (seen & (OPEN | COUNTED)) == OPEN and (seen >> 32) == (word >> 32):
            begin = i32(seen & UNITS)
            size = claim_size(p, phase, total - begin)
            mine: i32 = 0
            # This thread may come late too, so it says where it is before it makes sure that nobody has finished them.
            atomic_add(p.flights, 1, order="seq_cst")
            take_off(flight_at(p, slot), seen | COUNTED)
            if atomic_load(other, order="seq_cst") == seen:
                run_units(p, phase, begin, begin + size, PROFILE, True)
                atomic_add(p.flights, 1, order="seq_cst")
                if atomic_cas(other, seen, seen | COUNTED, order="seq_cst") == seen:
                    mine = 1
                else:
                    atomic_add(p.flights, ONE_LESS, order="seq_cst")
            atomic_store(flight_at(p, slot), 0, order="seq_cst")
            atomic_add(p.flights, ONE_LESS, order="seq_cst")
            if mine != 0:
                count_units(p, word, size, total, slot)


@inline
def walk(p, slot: i32, PROFILE: bool):
    """Take part in the step that is running until it is over. slot: this thread's among the flights."""
    spins: i32 = 0
    running: i32 = 1
    longest: i64 = 0  # ticks that claims take, lately; 0: not known
    idle_at: u64 = 0
    since: i64 = 0
    while running != 0:
        word = atomic_load(cast(p, ptr[u64]), order="acquire")
        phase = i32((word >> 32) & 0xFFFF)
        if phase == ALL_PHASES:
            running = 0
        else:
            total = phase_units(p, phase)
            begin = i32(word & 0xFFFFFFFF)
            if begin < total:
                size = claim_size(p, phase, total - begin)
                if atomic_cas(cast(p, ptr[u64]), word, word + u64(u32(size))) == word:
                    spins = 0
                    if (p.again & p.phases[phase].again) != 0:
                        before = cycle_counter()
                        take_off(flight_at(p, slot), word | OPEN)
                        run_units(p, phase, begin, begin + size, PROFILE, False)
                        mine = land(p, flight_at(p, slot), word | OPEN)
                        longest = longer(longest, cycle_counter() - before)
                        if mine != 0:
                            count_units(p, word, size, total, slot)
                    else:
                        run_units(p, phase, begin, begin + size, PROFILE, False)
                        count_units(p, word, size, total, slot)
            else:
                pause()
                spins += 1
                if (p.again & p.phases[phase].again) != 0:
                    now = cycle_counter()
                    patience: i64 = longest
                    if longest == 0:
                        patience = PATIENCE
                    if word != idle_at:
                        idle_at = word
                        since = now
                    if now - since > patience:
                        do_again(p, word, total, slot, PROFILE)
                        idle_at = 0
                if spins > 2000:
                    call(p.system_call, i64, p.yield_number)


@inline
def longer(longest: i64, took: i64):
    """How long claims take after one more: as the longest, which is forgotten slowly; one while the thread was stopped
    counts as twice that.
    """
    now: i64 = took
    if longest > 0 and now > 2 * longest:
        now = 2 * longest
    kept = longest - (longest >> 3)
    if now < kept:
        now = kept
    return now


@kernel
def help_program(p: ptr[ProgramRecord], PROFILE: bool):
    """A worker's part: help with the step that is running, if one is."""
    slot: i32 = 1  # the first is the submitting thread's
    while slot < p.n_threads:
        taken = flight_at(p, slot) + 1
        one: u64 = 1
        zero: u64 = 0
        if atomic_cas(taken, zero, one) == zero:
            walk(p, slot, PROFILE)
            atomic_store(taken, zero)
            return
        slot += 1


@inline
def begin_step(p):
    """Open the first phase that has units. Only the thread that submits calls this."""
    old = atomic_load(cast(p, ptr[u64]), order="relaxed")
    first = next_phase(p, p.first_phase - 1)
    if first < p.n_phases:
        atomic_store(cast(p, ptr[u32]) + 16, u32(p.begin), order="relaxed")
        open_phase(p, ((old >> 48) + 1) & 0xFFFF, first, p.begin, p.phases[first].safe, 0)

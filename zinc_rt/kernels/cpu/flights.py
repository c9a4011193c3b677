"""Flights: the units that each thread is at, so that other threads may do late units again, and wait where they must.

A thread has a word in a line of its own, its flight. It is 0, or the claim word of the thread's units with `OPEN`. Two
threads may finish these units: their own thread, and one that did them again. Both write the same bits. The own thread
changes the flight back to 0, the other one adds `COUNTED`; the first to change it counts the units as finished. So
units are counted once.

A late thread may go on with units that were counted long ago: it reads their inputs and writes their outputs. Both must
stay as they were until it has finished. So a thread that opens a phase first waits for every thread that is late at
units whose memory the phase writes (`Phase.safe`; for units of the step before, `Phase.renewed`). To make such waits
rare, the memory of such units is used for nothing else in a step (`backends/cpu/few_rows.py`). The host may change
inputs, outputs and states between steps, since such units touch none of them. Before it changes the sizes of a step, or
the arguments of operations, it waits for all late threads (`CpuProgram.prepare`). When a step ends, no thread is late
from the step before.

The opener sees every late thread. A thread that does units again first writes its flight, then checks that the units
are not counted yet. The opener first sees all units of a phase counted, then reads the flights. All of these accesses
are seq_cst, so one of the two sees the other.
"""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import atomic_add, atomic_cas, atomic_load, atomic_store, fence
from zinc_rt.lang.types import i32, u64

OPEN = 1 << 31
"""In a flight: a thread is at these units."""
COUNTED = 1 << 30
"""In a flight: another thread counts, or has counted, these units."""
UNITS = COUNTED - 1
"""In a flight: the first of its units."""
ONE_LESS = (1 << 64) - 1
"""Added to a count of 64 bits."""
LINE = 8
"""Words from one flight to the next: a cache line. The word after a flight says whether a thread has taken the slot."""


@inline
def flight_at(p, slot: i32):
    """A thread's flight."""
    return p.flights + (slot + 1) * LINE


@inline
def late_ones(p):
    """An upper bound of the threads that are at units which were counted already."""
    return atomic_load(p.flights, order="seq_cst")


@inline
def take_off(flight, units: u64):
    """Write this thread's flight: it is at these units."""
    atomic_store(flight, units, order="seq_cst")
    fence()


@inline
def land(p, flight, units: u64):
    """This thread has finished its units. 1 if it is the one to count them, 0 if another thread has."""
    mine: i32 = 1
    zero: u64 = 0
    if atomic_cas(flight, units, zero, order="seq_cst") != units:
        atomic_store(flight, 0, order="seq_cst")
        atomic_add(p.flights, ONE_LESS, order="seq_cst")
        mine = 0
    return mine


@inline
def in_the_way(p, flight, epoch: u64, after: i32, safe: i32):
    """Whether a thread is late at units that must end before a phase of this step opens. epoch: the step's number."""
    seen = atomic_load(flight, order="seq_cst")
    found: i32 = 0
    if seen != 0:
        phase = i32((seen >> 32) & 0xFFFF)
        if (seen >> 48) == epoch:
            if after - phase > safe:
                found = 1
        else:
            # Of the step before: this one will write the same memory anew.
            if after >= p.phases[phase].renewed:
                found = 1
    return found

"""Flights: which claimed units each thread is at, so that others may do late ones again, and wait where they must.

A thread's flight is a word in a line of its own: 0, or the claim word of its units with `OPEN`. Whoever changes an open
flight has the right to count its units as finished: its own thread takes it back to 0, another one that has done the
same units adds `COUNTED`. So units are counted once. Both write the same bits, from the same inputs.

A thread that comes late goes on with units that were counted long ago: it reads what they read and writes what they
write. Both must stay as they were until it is through. So a thread that opens a phase first waits for all that are late
at units whose memory that phase writes (`Phase.safe`; in the next step `Phase.renewed`). For that to be rare, what such
units touch has memory of its own for the whole step (`backends/cpu/few_rows.py`). Between steps the host may do what it
likes, for such units touch no input, output or state; before it changes the sizes of a step, or which arguments
operations have, it waits for all late ones (`CpuProgram.prepare`). A step ends with nobody late from the one before.

The opener sees every late thread: one that does units again says where it is, and then makes sure that they are not
counted yet; the opener looks after all of a phase's units were counted. Both in one order (seq_cst).
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
    """How many threads may be at units that were counted; at least as many as are."""
    return atomic_load(p.flights, order="seq_cst")


@inline
def take_off(flight, units: u64):
    """Say where this thread is."""
    atomic_store(flight, units, order="seq_cst")
    fence()


@inline
def land(p, flight, units: u64):
    """Say that this thread is through. 1 when its units are its own to count."""
    mine: i32 = 1
    zero: u64 = 0
    if atomic_cas(flight, units, zero, order="seq_cst") != units:
        atomic_store(flight, 0, order="seq_cst")
        atomic_add(p.flights, ONE_LESS, order="seq_cst")
        mine = 0
    return mine


@inline
def in_the_way(p, flight, epoch: u64, after: i32, safe: i32):
    """Whether a thread is late at units that must be over before a phase of this step (`epoch`: its number) opens."""
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

"""A whole step as one dispatch: workgroups that stay, and go through a table of tasks phase by phase.

A task is a kernel with its arguments and the number of its workgroups; each workgroup of the program does every n-th
of them. Behind a phase all workgroups meet: stores are released, each counts itself in memory, and waits until all
have. So all must run at once: the host starts no more than fit on the card.
"""

from __future__ import annotations

from typing import Final

from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    atomic_add,
    atomic_cas,
    atomic_load,
    atomic_store,
    barrier,
    fence,
    first_lane,
    part_traits,
    pause,
    run_part,
    select,
    shared,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, ptr, u32

LANES: Final = 256
"""Work-items of a workgroup."""
TASK_WORDS: Final = 24
"""Of a task: its kernel, its workgroups, in x and in x times y, the workgroup of the program that does the first, and
whether all meet behind it; from `ARGUMENTS` on the kernel's arguments.
"""
KERNEL, GROUPS, WIDE, PLANE, FIRST, MEET, ARGUMENTS = 0, 1, 2, 3, 4, 5, 8
COUNTER_WORDS: Final = 64
"""Of counters, which are 0 before and behind every dispatch: arrivals, and in another cache line departures."""
LEFT = 32
NOBODY: Final = 0xFFFFFFFF
"""No number of barriers."""


@inline
def meet(counters: ptr[u32], arrivals: u32):
    """Wait until all workgroups are here, which makes so many arrivals; what they stored is then to be seen."""
    fence("release")
    barrier()
    if workitem_id() == 0:
        atomic_add(counters, 1, order="relaxed")
        while atomic_load(counters, order="relaxed") < arrivals:
            pause()
    barrier()
    fence("acquire")


@inline
def leave(counters: ptr[u32], n: u32):
    """Set the counters back to 0, by the last workgroup to end: no other looks at them any more."""
    barrier()
    if workitem_id() == 0:
        if atomic_add(counters, 1, LEFT, order="relaxed") == n - 1:
            atomic_store(counters, 0, 0, order="relaxed")
            atomic_store(counters, 0, LEFT, order="relaxed")


@inline
def run_number(k: int, task: ptr[u32, Space.CONSTANT], number: u32, lane: u32, slot: u32):
    """A workgroup of a task, by its number, x fastest; see `run_part`."""
    wide, plane = task[WIDE], task[PLANE]
    z: u32 = 0
    y: u32 = 0
    x: u32 = number
    if plane != task[GROUPS]:
        z = x // plane
        x = x - z * plane
    if wide != plane:
        y = x // wide
        x = x - y * wide
    return run_part(k, task + ARGUMENTS, (x, y, z), lane, slot)


@inline
def run_alone(k: int, task: ptr[u32, Space.CONSTANT], place: u32, n_workgroups: u32, ticket: ptr[u32, Space.SHARED]):
    """A task whose workgroups are smaller than these and not side by side. Where they have barriers, the waves that
    have nothing to do come to each one, too. How many there are is known at the end, so the last thing before one more
    is to leave word of it.
    """
    lanes, _, meets = part_traits(k)
    works = first_lane(workitem_id() // lanes) == 0
    number: u32 = place
    while number < task[GROUPS]:
        if meets:
            barrier()  # the last turn is over for all waves
        if works:
            if workitem_id() == 0:
                atomic_store(ticket, 0, order="relaxed")
            met = run_number(k, task, number, workitem_id(), u32(0))
            if meets:
                if workitem_id() == 0:
                    atomic_add(ticket, met + 1, order="relaxed")
                barrier()
        elif meets:
            passed: u32 = 0
            last: u32 = 0
            while passed == 0 or passed != last:
                barrier()
                passed += 1
                last = first_lane(atomic_cas(ticket, NOBODY, NOBODY, order="relaxed"))  # a plain read would race
        number += n_workgroups


@inline
def run_share(k: int, task: ptr[u32, Space.CONSTANT], place: u32, n_workgroups: u32, ticket: ptr[u32, Space.SHARED]):
    """This workgroup's share of a task. place: its own, 0 for the one that does the task's first."""
    lanes, beside, meets = part_traits(k)
    if lanes == LANES:
        number: u32 = place
        while number < task[GROUPS]:
            if meets:
                barrier()  # the last turn's LDS is read to the end
            run_number(k, task, number, workitem_id(), u32(0))
            number += n_workgroups
    elif beside == 1:
        run_alone(k, task, place, n_workgroups, ticket)
    else:
        slot = first_lane(workitem_id() // lanes)
        number: u32 = place * beside + slot
        while number < task[GROUPS]:
            run_number(k, task, number, workitem_id() & (lanes - 1), slot)
            number += n_workgroups * beside


@kernel(workgroup=256)
def resident(
    table: ptr[u32, Space.CONSTANT], n_tasks: u32, counters: ptr[u32], n_workgroups: u32, PARTS: int
):  # fmt: skip
    """Go through the tasks; see the module's text. PARTS: how many kernels there are."""
    me = workgroup_id(0)
    ticket = shared(u32, 1)
    arrivals: u32 = 0
    for t in range(u32(0), n_tasks):
        task = table + t * TASK_WORDS
        first = task[FIRST]
        place = select(me < first, me + n_workgroups, me) - first
        for k in unroll(PARTS):
            if task[KERNEL] == k:
                run_share(k, task, place, n_workgroups, ticket)
        if task[MEET] != 0:
            arrivals += n_workgroups
            meet(counters, arrivals)
        else:
            barrier()  # the next task may use the same LDS
    leave(counters, n_workgroups)

"""A whole step as one dispatch: its workgroups stay, and go through a table of tasks phase by phase.

A task is a kernel with its arguments and a number of workgroups. Each of the program's n workgroups does every n-th
workgroup of the task. After a phase all workgroups meet: each releases its stores, counts itself in memory and waits
until all have. So all must run at once: the host starts no more than fit on the card. A workgroup that has waited too
long ends the program for all of them, at the same meeting.

Weights do not depend on earlier phases. So before a workgroup waits, it loads a dword of each line of its part of the
next phase's first weights. The results are not used, but the lines are in the L2 then. These are loads of device scope:
gfx12 has no prefetch of vector memory, and S_PREFETCH_DATA fills the small scalar cache.
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
    cast,
    fence,
    first_lane,
    lane_id,
    part_traits,
    pause,
    run_part,
    select,
    shared,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import Space, ptr, u32, u64

LANES: Final = 256
"""Work-items of a workgroup."""
WAVE: Final = 32
TASK_WORDS: Final = 32
"""Of a task: its kernel, its workgroups, in x and in x times y, the workgroup of the program that does the first, and
whether all meet behind it; from `ARGUMENTS` on the kernel's arguments; from `ASKED` on `RANGES` of what is loaded
before the meeting, each an address and a number of lines.
"""
KERNEL, GROUPS, WIDE, PLANE, FIRST, MEET, ARGUMENTS = 0, 1, 2, 3, 4, 5, 8
ASKED, RANGES, RANGE_WORDS = 24, 2, 4
ROWS_AHEAD: Final = 8
"""Rows of tasks, which take a line each, that are brought near at a meeting. Behind the last task there is room for so
many."""
LINE: Final = 128
"""Bytes of a line of the L2."""
COUNTER_WORDS: Final = 64
"""Of counters, which are 0 before and behind every dispatch: arrivals, and in another cache line departures."""
LEFT = 32
NOBODY: Final = 0xFFFFFFFF
"""No number of barriers."""
ENDED: Final = 0x80000000
"""Arrivals have this bit, too, when a workgroup has waited for too long."""
PATIENCE: Final = 1 << 21
"""Times that a workgroup looks for the others at a meeting. Each takes 0.2 us at least: one way to the L2 and a sleep
of 64 cycles. So the program ends after half a second or more, and before the kernel takes it for a hang."""


@inline
def ask(task: ptr[u32, Space.CONSTANT], n_workgroups: u32):
    """Load the lines that the task has for this wave, of those that do not wait; each lane one of a range. One wave of
    all brings the rows of the next tasks near.
    """
    wave = first_lane(workitem_id() // WAVE) - 1
    line = (wave * n_workgroups + workgroup_id(0)) * WAVE + lane_id()
    if line < ROWS_AHEAD:
        atomic_load(cast(task, ptr[u32]), (line + 1) * TASK_WORDS, order="relaxed")
    for r in unroll(ASKED, ASKED + RANGES * RANGE_WORDS, RANGE_WORDS):
        if line < task[r + 2]:
            start = cast(u64(task[r]) | u64(task[r + 1]) << 32, ptr[u32])
            atomic_load(start, u64(line) * (LINE // 4), order="relaxed")


@inline
def arrive(counters: ptr[u32], arrivals: u32, patience: u32):
    """Count this workgroup, and wait for so many arrivals; whether the program ends here, which all agree on.

    Nobody is at a later meeting than the one whose count is not full. So where one there has set `ENDED`, who waits for
    an earlier one sees more arrivals than it needs and goes on, and who waits for the same one never does.
    """
    atomic_add(counters, 1, order="relaxed")
    left: u32 = patience
    seen: u32 = atomic_load(counters, order="relaxed")
    while seen < arrivals:
        pause()
        if left == 0:
            atomic_cas(counters, seen, seen | ENDED, order="relaxed")
        else:
            left -= 1
        seen = atomic_load(counters, order="relaxed")
    return select((seen >= ENDED) & (seen - ENDED <= arrivals), u32(1), u32(0))


@inline
def meet(
    counters: ptr[u32],
    arrivals: u32,
    task: ptr[u32, Space.CONSTANT],
    n_workgroups: u32,
    patience: u32,
    word: ptr[u32, Space.SHARED],
):
    """Wait until all workgroups are here, which makes so many arrivals; what they stored is then to be seen. Gives
    whether the program ends.
    """
    fence("release")
    barrier()
    if first_lane(workitem_id() // WAVE) == 0:
        if workitem_id() == 0:
            # Both halves of the next task's row are on their way, too. They add 0 here.
            ahead = task + TASK_WORDS
            word[0] = arrive(counters, arrivals + ((ahead[KERNEL] | ahead[ASKED + 2]) >> 31), patience)
    else:
        ask(task, n_workgroups)
    barrier()
    fence("acquire")
    return first_lane(word[0]) != 0


@inline
def leave(counters: ptr[u32], n: u32, ended: u32, notice: ptr[u32]):
    """Set the counters back to 0, by the last workgroup to end: no other looks at them any more. Where the program ends
    early, the host gets to know at which meeting, by a number from 1 on.
    """
    barrier()
    if workitem_id() == 0:
        if atomic_add(counters, 1, LEFT, order="relaxed") == n - 1:
            if ended != 0:
                notice[0] = ended // n
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
    table: ptr[u32, Space.CONSTANT],
    n_tasks: u32,
    counters: ptr[u32],
    n_workgroups: u32,
    notice: ptr[u32],
    patience: u32,
    PARTS: int,
):
    """Go through the tasks; see the module's text. PARTS: how many kernels there are; patience: how often a workgroup
    looks for the others; notice: of the host, 0 before.
    """
    me = workgroup_id(0)
    ticket = shared(u32, 1)
    word = shared(u32, 1)
    arrivals: u32 = 0
    ended: u32 = 0
    t: u32 = 0
    while t < n_tasks:
        task = table + t * TASK_WORDS
        first = task[FIRST]
        place = select(me < first, me + n_workgroups, me) - first
        for k in unroll(PARTS):
            if task[KERNEL] == k:
                run_share(k, task, place, n_workgroups, ticket)
        t += 1
        if task[MEET] != 0:
            arrivals += n_workgroups
            if meet(counters, arrivals, task, n_workgroups, patience, word):
                ended = arrivals
                t = n_tasks
        else:
            barrier()  # the next task may use the same LDS
    leave(counters, n_workgroups, ended, notice)

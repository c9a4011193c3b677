"""Finds the last workgroup of a dispatch to arrive; it sees the stores of all others."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import atomic_add, atomic_store, barrier, fence, first_lane, shared, workitem_id
from zinc_rt.lang.types import ptr, u32


@inline
def is_last(counters: ptr[u32], place, n: u32):
    """Whether this workgroup is the last of n to come here; what the others stored before is then to be seen."""
    last = shared(u32, 1)
    fence("release")
    barrier()
    if workitem_id() == 0:
        arrived = atomic_add(counters, 1, place, order="relaxed")
        last[0] = u32(arrived == n - 1)
        if arrived == n - 1:
            atomic_store(counters, 0, place, order="relaxed")
    barrier()
    found = first_lane(last[0]) != 0
    if found:
        fence("acquire")
    return found

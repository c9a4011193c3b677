"""Weights that a later phase reads first, brought into the L2 while memory has nothing else to do."""

from __future__ import annotations

from typing import Final

from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import load, schedule_barrier, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import ptr, u32

AT_ONCE: Final = 4
"""Loads of 16 bytes that a lane has under way: no more, so that the work is spread over the card."""
BYTES: Final = 256 * 16 * AT_ONCE
"""Of a workgroup."""
_RARE: Final = 0x9E3779B9


@kernel(workgroup=256)
def ahead(x: ptr[u32], unused: ptr[u32]):
    """Load `BYTES` bytes a workgroup. The results are of no use but to wait for them: a barrier shall not come before
    they are there. So that the loads are not left out, `unused` gets a word in a case that nearly never happens.
    """
    at = (workgroup_id(0) * AT_ONCE * 256 + workitem_id()) * 4
    found = tuple(load(x, at + i * 1024, lanes=4) for i in range(AT_ONCE))
    # All of these are asked for before the first of them is needed.
    schedule_barrier()
    bits: u32 = 0
    for i in unroll(AT_ONCE):
        for k in unroll(4):
            bits = bits | found[i][k]
    if bits == _RARE:
        unused[0] = bits

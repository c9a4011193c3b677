"""Tasks in the kernel language."""

from __future__ import annotations

from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import atomic_add, atomic_load, cast, pause
from zinc_rt.lang.types import ptr, u64


@kernel
def bump(counter: u64):
    """Count a call."""
    atomic_add(cast(counter, ptr[u64]), 1)


@kernel
def meet(counter: u64):
    """Count a call and wait until the other of two has done so: ends only if both run at the same time."""
    p = cast(counter, ptr[u64])
    atomic_add(p, 1)
    while atomic_load(p) < 2:
        pause()

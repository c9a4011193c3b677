"""Loads that a wave makes once for all its lanes."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import cast
from zinc_rt.lang.types import Space, ptr, u32


@inline
def unchanged(p, KIND=u32):
    """What no kernel writes meanwhile, as elements of a kind: where all lanes read the same one, its load is scalar."""
    return cast(p, ptr[KIND, Space.CONSTANT])

"""act(gate) * up of a gated feed-forward, for all kernels that make it."""

from __future__ import annotations

from zinc_rt.kernels.maths import silu
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import static_assert


@inline
def gated(gate, up, alpha, limit, ACT: str):
    """Of f32 lanes; alpha, limit: of activations that have them."""
    static_assert(ACT == "silu", f"the GPU kernels know no activation {ACT}")
    return silu(gate) * up

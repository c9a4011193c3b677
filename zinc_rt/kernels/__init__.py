"""Kernels by name: the NumPy reference implementations behind their checked single-row entry points.

Each is imported when it is first used: the native tier runs without them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zinc_rt.kernels.reference import dequant as dequant
    from zinc_rt.kernels.reference.argmax import argmax as argmax
    from zinc_rt.kernels.reference.elementwise import sigmoid_mul as sigmoid_mul
    from zinc_rt.kernels.reference.elementwise import swiglu as swiglu
    from zinc_rt.kernels.reference.elementwise import vadd as vadd
    from zinc_rt.kernels.reference.flash_attn import flash_attn as flash_attn
    from zinc_rt.kernels.reference.moe_gate_topk import RoutingRule as RoutingRule
    from zinc_rt.kernels.reference.moe_gate_topk import moe_gate_topk as moe_gate_topk
    from zinc_rt.kernels.reference.projection import embed as embed
    from zinc_rt.kernels.reference.projection import lm_head as lm_head
    from zinc_rt.kernels.reference.projection import matvec as matvec
    from zinc_rt.kernels.reference.rms_norm import residual_rms_norm as residual_rms_norm
    from zinc_rt.kernels.reference.rms_norm import rms_norm as rms_norm
    from zinc_rt.kernels.reference.rope import rope as rope

_HOMES = {
    "argmax": "argmax",
    "sigmoid_mul": "elementwise",
    "swiglu": "elementwise",
    "vadd": "elementwise",
    "flash_attn": "flash_attn",
    "RoutingRule": "moe_gate_topk",
    "moe_gate_topk": "moe_gate_topk",
    "embed": "projection",
    "lm_head": "projection",
    "matvec": "projection",
    "residual_rms_norm": "rms_norm",
    "rms_norm": "rms_norm",
    "rope": "rope",
}

__all__ = [
    "RoutingRule",
    "argmax",
    "dequant",
    "embed",
    "flash_attn",
    "lm_head",
    "matvec",
    "moe_gate_topk",
    "residual_rms_norm",
    "rms_norm",
    "rope",
    "sigmoid_mul",
    "swiglu",
    "vadd",
]


def __getattr__(name: str) -> Any:
    if name == "dequant":
        return importlib.import_module("zinc_rt.kernels.reference.dequant")
    if name not in _HOMES:
        raise AttributeError(f"module 'zinc_rt.kernels' has no attribute {name!r}")
    # Some kernels bear the name of their module, which the import has just put here in their place.
    value = getattr(importlib.import_module(f"zinc_rt.kernels.reference.{_HOMES[name]}"), name)
    globals()[name] = value
    return value

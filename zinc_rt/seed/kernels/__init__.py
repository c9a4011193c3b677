"""The page `kernels`: scalar kernels by name, over the NumPy reference, with checked operands."""

from __future__ import annotations

from zinc_rt.seed.kernels import dequant
from zinc_rt.seed.kernels.flash_attn import flash_attn
from zinc_rt.seed.kernels.moe_gate_topk import RoutingRule, moe_gate_topk
from zinc_rt.seed.kernels.projection import embed, lm_head, matvec
from zinc_rt.seed.kernels.single_row import argmax, residual_rms_norm, rms_norm, rope, sigmoid_mul, swiglu, vadd

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

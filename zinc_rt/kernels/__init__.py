"""Kernels by name: the NumPy reference implementations behind their checked single-row entry points."""

from zinc_rt.kernels.reference import dequant
from zinc_rt.kernels.reference.argmax import argmax
from zinc_rt.kernels.reference.elementwise import sigmoid_mul, swiglu, vadd
from zinc_rt.kernels.reference.flash_attn import flash_attn
from zinc_rt.kernels.reference.moe_gate_topk import RoutingRule, moe_gate_topk
from zinc_rt.kernels.reference.projection import embed, lm_head, matvec
from zinc_rt.kernels.reference.rms_norm import residual_rms_norm, rms_norm
from zinc_rt.kernels.reference.rope import rope

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

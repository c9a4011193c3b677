"""The constants of docs/how/numerics.md. All backends (reference, CPU, GPU) and their callers take them from here.

Kernels take them at compile time. Changing one changes the bits of every backend alike.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = 1
"""Of the bits: two releases with the same number give the same bits for the same file, prompt and seed."""

GROUP: Final = 32
"""Elements that share one exact integer dot product, or one chain of fused multiply-adds."""
GROUP_SHIFT: Final = GROUP.bit_length() - 1
TREE_LANES: Final = 32
"""Lanes of the tree that adds groups, and exponentials."""
NORM_LANES: Final = 256
"""Lanes of the tree that adds squares."""
SCAN_BLOCK: Final = 32
"""Elements of a state that a selective scan reads as one chain."""
SPLIT: Final = 256
"""Positions that attention works on before it merges."""
LEAST_TOP: Final = -(2.0**127)
"""What the maximum of a split's chosen scores is at the least: finite, so that a split without any has weights of 0."""
PAGE_TOKENS: Final = 16
"""Positions of a page of the KV cache."""
PAGES_OF_SPLIT: Final = SPLIT // PAGE_TOKENS
SPLIT_SHIFT: Final = SPLIT.bit_length() - 1
PAGE_SHIFT: Final = PAGE_TOKENS.bit_length() - 1
SUM_BLOCK: Final = 1024
"""Scores whose sum sampling forms from left to right before it adds such sums."""

MIXER_REACH: Final = 10737418 * 2.0**-29
"""How far below the best a logit takes part in a sparse mixer's weight, as a share of the greater of the two:
0.02 in float32."""
MIXER_OUT: Final = -1e30
"""Stands for a logit that does not: its exponential is 0."""

LEAST_EXPERT_WEIGHTS: Final = 2.0**-14
"""What the weights of a row's experts are divided by at the least, where they are normalised."""

QUANT_MAX: Final = 127.0
"""What the largest activation of a group becomes."""
MIN_NORMAL: Final = 2.0**-126
"""The smallest scale of activations that is not taken for 0: the least normal float32."""

# exp of float64, for sampling: in steps of ln 2 / 128, given in two parts. k * STEP_HIGH is exact for |k| < 2^20.
STEPS: Final = 128
STEPS_PER_E: Final = float.fromhex("0x1.71547652b82fep+7")
STEP_HIGH: Final = float.fromhex("0x1.62e42feep-8")
STEP_LOW: Final = float.fromhex("0x1.a39ef35793c76p-40")
EXP_LOWEST: Final = -708.0
"""Below this the result is 0; e to it is still a normal number."""

# exp of float32. ln 2 is in two parts: the high one has 9 significant bits, so n * LN2_HIGH is exact for |n| < 2^15
# (Cody, Waite 1980).
LOG2_E: Final = 1.4426950408889634
LN2_HIGH: Final = 0.693359375
LN2_LOW: Final = -2.12194440e-4
EXP_POLY: Final = (
    float.fromhex("0x1.9f085cp-13"),
    float.fromhex("0x1.6d8d52p-10"),
    float.fromhex("0x1.111272p-7"),
    float.fromhex("0x1.55548ep-5"),
    float.fromhex("0x1.555554p-3"),
    float.fromhex("0x1.0p-1"),
)
"""Minimax fit of (e^r - 1 - r) / r^2 on |r| <= ln(2)/2, relative to e^r; its error is 0.001 ulp before rounding."""
SOFTPLUS_POLY: Final = (
    float.fromhex("0x1.dc3cbep-4"),
    float.fromhex("0x1.bc6abap-4"),
    float.fromhex("0x1.24ca56p-3"),
    float.fromhex("0x1.9998cep-3"),
    float.fromhex("0x1.555556p-2"),
)
"""Minimax fit of (artanh(s) / s - 1) / z with z = s^2 on 0 <= z <= 1/9; its error is 0.02 ulp of the logarithm."""
EXP_MIN: Final = -104.5
"""Below this the result rounds to zero; clamping keeps 2^n representable."""
EXP_MAX: Final = 89.0
"""Above this the result rounds to infinity."""

TANH_SMALL: Final = 0.625
"""Below this tanh is its own polynomial, from here on it is made of exp."""
TANH_POLY: Final = (
    float.fromhex("-0x1.75e1cep-8"),
    float.fromhex("0x1.52269cp-6"),
    float.fromhex("-0x1.b83c5ap-5"),
    float.fromhex("0x1.110726p-3"),
    float.fromhex("-0x1.555532p-2"),
)
"""Minimax fit of (tanh(a) / a - 1) / a^2 by powers of a^2 on a <= 0.625, relative to tanh; its error is 0.04 ulp."""

# GELU in its tanh form, 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), is x sigmoid(w) with
# w = x (GELU_LINEAR + GELU_CUBIC x^2).
GELU_LINEAR: Final = 1.5957691216057308
GELU_CUBIC: Final = 0.07135481627159995

GELU_QUICK: Final = 1.702
"""The quick form of GELU is x sigmoid(GELU_QUICK x)."""

# The exact GELU is x times the normal distribution's share below x. Above |x| there is e^(-x^2 / 2) P(t) of it, with
# t = 1 / (1 + TAIL_STEP |x|).
TAIL_STEP: Final = 0.25
TAIL_POLY: Final = (
    float.fromhex("0x1.1617acp-5"),
    float.fromhex("-0x1.91c59cp-3"),
    float.fromhex("0x1.947b5ap-2"),
    float.fromhex("-0x1.5578ecp-2"),
    float.fromhex("0x1.37cb4p-2"),
    float.fromhex("-0x1.4df688p-6"),
    float.fromhex("0x1.f1f0eep-4"),
    float.fromhex("0x1.846252p-4"),
    float.fromhex("0x1.9a89b6p-4"),
    float.fromhex("-0x1.6a60e2p-16"),
)
"""Minimax fit of e^(a^2 / 2) erfc(a / sqrt(2)) / 2 on 0 <= a <= 14; its relative error is 2^-26."""

ACTIVATIONS: Final = (
    *("silu", "gelu", "gelu_quick", "gelu_erf", "gelu_alone"),
    *("relu", "clamped", "silu_clamped", "clamped_silu"),
)
"""What a gated feed-forward may do to its gate."""
UNGATED: Final = ("gelu", "gelu_quick", "relu2", "xielu")
"""What a feed-forward without a gate may do to its elements."""
CLAMP_ALPHA: Final = 1.702
CLAMP_LIMIT: Final = 7.0
"""Of "clamped", where a graph does not say others; "silu_clamped" and "clamped_silu" have the limit, too."""


def pages_for(n_tokens: int) -> int:
    """Pages of the KV cache that hold `n_tokens` positions."""
    return -(-n_tokens // PAGE_TOKENS)

"""Attention of one query token over contiguous keys and values."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.arith import F32
from zinc_rt.kernels.reference.attention import Scores, attend_rows
from zinc_rt.seed.kernels.checks import as_f32, exact_length
from zinc_rt.seed.kernels.errors import ShapeMismatch


def flash_attn(
    q: npt.ArrayLike,
    kv_k: npt.ArrayLike,
    kv_v: npt.ArrayLike,
    output: F32,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    seq_len: int,
    attn_sinks: npt.ArrayLike | None = None,
    scratch_scores: F32 | None = None,
    scratch_probs: F32 | None = None,
) -> None:
    """One query token against `seq_len` cached positions, scale 1 / sqrt(head_dim).

    q, output: n_heads * head_dim; kv_k, kv_v: seq_len * n_kv_heads * head_dim, float16 or float32.
    The scratch buffers, where given, must hold seq_len elements; this implementation leaves them alone.
    Raises `EmptyInput`, `ShapeMismatch`.
    """
    (queries,) = as_f32("flash_attn", q=q)
    k, v = np.asarray(kv_k), np.asarray(kv_v)
    if seq_len < 1 or n_kv_heads < 1 or head_dim < 1 or n_heads % n_kv_heads:
        raise ShapeMismatch(
            f"flash_attn: seq_len {seq_len}, head_dim {head_dim} and n_kv_heads {n_kv_heads} must be positive"
            f" and n_heads {n_heads} a multiple of n_kv_heads"
        )
    exact_length("flash_attn", "q", queries, n_heads * head_dim)
    exact_length("flash_attn", "output", output, n_heads * head_dim)
    for name, cached in (("kv_k", k), ("kv_v", v)):
        exact_length("flash_attn", name, cached, seq_len * n_kv_heads * head_dim)
    for name, scratch in (("scratch_scores", scratch_scores), ("scratch_probs", scratch_probs)):
        if scratch is not None and scratch.size < seq_len:
            raise ShapeMismatch(f"flash_attn: {name} holds {scratch.size} scores, seq_len is {seq_len}")
    sinks = None
    if attn_sinks is not None:
        (sinks,) = as_f32("flash_attn", attn_sinks=attn_sinks)
        exact_length("flash_attn", "attn_sinks", sinks, n_heads)
    shape = (seq_len, n_kv_heads, head_dim)
    result = attend_rows(
        queries.reshape(1, n_heads, head_dim),
        k.reshape(shape),
        v.reshape(shape),
        np.array([seq_len - 1]),
        Scores(1.0 / math.sqrt(head_dim), sinks=sinks),
    )
    output.reshape(-1)[...] = result.reshape(-1)

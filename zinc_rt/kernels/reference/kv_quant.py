"""Keys and values of a cache as Q8_0 blocks: for each 32 elements of a head a float16 scale and 32 int8.

A block is 34 bytes, the scale first, as in a file's tensors.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from zinc_rt.kernels.reference.activations import quantize_activations
from zinc_rt.kernels.reference.arith import F32
from zinc_rt.numerics import GROUP

U8 = npt.NDArray[np.uint8]

BLOCK_BYTES = 2 + GROUP


class Q8Rows(NamedTuple):
    """Heads of some positions. d: f32[n, n_kv, groups], exact float16 values; q: f32[n, n_kv, groups, 32], integers."""

    d: F32
    q: F32


def pack_heads(x: F32) -> U8:
    """Blocks u8[n, n_kv, groups * 34] of heads f32[n, n_kv, elements], a multiple of 32.

    The integers are those of activations; d is rounded to float16 (nearest even). Where the rounded d is 0, infinite or
    NaN, they are 0.
    """
    n, n_kv, elements = x.shape
    made = quantize_activations(x.reshape(n * n_kv, elements))
    with np.errstate(over="ignore", under="ignore"):
        d = made.d.astype(np.float16)
    q = np.where(((d > 0) & np.isfinite(d))[..., None], made.q, np.float32(0.0)).astype(np.int8)
    blocks = np.concatenate([d[..., None].view(np.uint8), q.view(np.uint8)], axis=2)
    return blocks.reshape(n, n_kv, -1)


def unpack_heads(raw: U8) -> Q8Rows:
    """The heads u8[n, n_kv, groups * 34] that `pack_heads` made."""
    blocks = np.ascontiguousarray(raw).reshape(*raw.shape[:2], -1, BLOCK_BYTES)
    d = np.ascontiguousarray(blocks[..., :2]).view(np.float16)[..., 0]
    return Q8Rows(d.astype(np.float32), blocks[..., 2:].view(np.int8).astype(np.float32))


def elements_of(rows: Q8Rows) -> F32:
    """The heads f32[n, n_kv, elements] that the blocks stand for: d * q, which is exact."""
    with np.errstate(invalid="ignore"):
        made: F32 = rows.d[..., None] * rows.q
    return made.reshape(*rows.d.shape[:2], -1)


def quantized_products(q: F32, keys: Q8Rows) -> F32:
    """Products f32[n, n_kv, rep, positions] of queries f32[n, n_kv, rep, dim] and keys, unscaled.

    Queries are quantised like activations. Each group of 32 gives (d * d_x) * isum; they are added in the order of the
    groups, from +0.0.
    """
    n, n_kv, rep, dim = q.shape
    made = quantize_activations(q.reshape(-1, dim))
    integers = made.q.reshape(n, n_kv, rep, -1, GROUP)
    scales = made.d.reshape(n, n_kv, rep, -1)
    acc = np.zeros((n, n_kv, rep, keys.d.shape[0]), np.float32)
    for g in range(dim // GROUP):
        isum = integers[:, :, :, g] @ keys.q[:, :, g].transpose(1, 2, 0)  # exact: below 2^24
        acc += (keys.d[:, :, g].T[None, :, None, :] * scales[:, :, :, g, None]) * isum
    return acc

"""Rows of a table by hashes of the last tokens (n-gram embedding): exact integers.

A sequence keeps its last tokens, as float32, which holds every token id below 2^24.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    ACTIVATION,
    CACHE,
    COUNT,
    FLOAT32,
    INT32,
    READ_ONLY,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    index,
)
from zinc_rt.ir.op import Op

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView

I32 = npt.NDArray[np.int32]
U64 = npt.NDArray[np.uint64]


def as_constant(numbers: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """64-bit numbers as a constant holds them: the bits of two float32 each, the lower half first."""
    return np.ascontiguousarray(numbers, "<u8").view("<f4")


def ngram_rows(context: U64, multipliers: U64, offsets: U64, sizes: U64) -> I32:
    """Rows of a table: i32[heads].

    context: a token and those before it, the nearest first. For every m from 2 on, the first m tokens times their
    multipliers, modulo 2^64, are combined by xor; each of m's heads takes that modulo its size, plus its offset.
    """
    with np.errstate(over="ignore"):
        products = context * multipliers
    mixed = np.bitwise_xor.accumulate(products)[1:]
    hashes = np.repeat(mixed, len(sizes) // len(mixed))
    return (hashes % sizes + offsets).astype(np.int32)


def _ngram_ids(at: Operands) -> None:
    ids, table, _, positions, slots = at.inputs
    out, state = at.outputs
    n, eos = int(at.attrs["ngram"]), int(at.attrs["eos"])
    numbers = np.ascontiguousarray(table).view(np.uint64).reshape(-1)
    multipliers, (offsets, sizes) = numbers[:n], np.split(numbers[n:], 2)
    for row, (token, position, slot) in enumerate(zip(ids.tolist(), positions.tolist(), slots.tolist(), strict=True)):
        if position == 0:
            state[slot] = eos
        context = np.concatenate([[token], state[slot].astype(np.int64)])
        state[slot] = context[:-1]
        context[1:][np.logical_or.accumulate(context[1:] == eos)] = eos
        out[row] = ngram_rows(context.astype(np.uint64), multipliers, offsets, sizes)


def _operations(cost: CostView) -> int:
    """A product for each token, and for each head a xor, a remainder and a sum."""
    return cost.sizes.n_rows * (cost.attr("ngram") + 3 * cost.attr("n_heads"))


_STATE = Port("token_state", FLOAT32, ("S", "kept"), CACHE, role="token_state")
NGRAM_IDS = Port("ids", INT32, ("R", "n_heads"), ACTIVATION)

OPS = (
    OpDefinition(
        Op.NGRAM_IDS,
        OpSignature(
            (
                index("token_ids", "R"),
                Port("numbers", FLOAT32, ("words",), READ_ONLY),
                _STATE,
                index("positions", "R"),
                index("slots", "R"),
            ),
            (NGRAM_IDS, _STATE),
            {"ngram": AttrSpec(int, at_least=2), "n_heads": COUNT, "eos": AttrSpec(int, at_least=0)},
        ),
        reference=_ngram_ids,
        operations=_operations,
    ),
)

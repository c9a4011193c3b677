"""Products of low rank that adapters add to a model's products, a choice of adapters for each row.

Matrices lie in tiles of 16 columns, f[n / 16][rows][16]: what kernels read at once lies together.

In patterns N is the number of adapters that there is room for, K how many a row may have, r the rank that there is room
for, P the pairs of matrices of an adapter, m the elements that `LORA_A` gives for an adapter: r for each pair that
reads the same rows. `adapters` lists a row's adapters, in rising order, then -1; `pairs` has the rank and the factor of
each pair in each adapter, and rank 0 for an adapter without the pair. c and d are the tiles of a and of b.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.definition import (
    ACTIVATION,
    COUNT,
    FLOAT32,
    INT32,
    READ_ONLY,
    AttrSpec,
    OpDefinition,
    Operands,
    OpSignature,
    Port,
    activation,
    index,
)
from zinc_rt.ir.graph import Dim, DType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.arith import F32, fma_chain

if TYPE_CHECKING:
    from zinc_rt.ir.sizes import CostView
    from zinc_rt.ir.unify import Bindings

Ints = npt.NDArray[np.integer]
TILE = 16
"""Columns of a tile. Ranks have room in multiples of it; the last tile of other columns is filled with zeros."""
KEPT = frozenset({DType.F32, DType.F16})
"""How the matrices of adapters may be kept."""


def _product(x: F32, rows: npt.NDArray[np.floating]) -> F32:
    """Rows of x times float rows [n_out, n_in]: the product of "Float weights"."""
    from zinc_rt.kernels.reference.matmul import float_matmul  # compiled kernels run without it

    return float_matmul(np.ascontiguousarray(x), np.ascontiguousarray(rows, np.float32))


def _uses(adapters: Ints, ids: Ints) -> Iterator[tuple[int, int, Ints, Ints, Ints]]:
    """The uses of each matrix: adapter, expert, then row, place among the row's experts, and place among its adapters
    of each use.
    """
    for adapter in np.unique(adapters[adapters >= 0]):
        row, k = np.nonzero(adapters == adapter)
        for expert in np.unique(ids[row]):
            use, j = np.nonzero(ids[row] == expert)
            yield int(adapter), int(expert), row[use], j, k[use]


def in_tiles(matrix: npt.NDArray[np.floating]) -> npt.NDArray[np.floating]:
    """f[..., rows, columns] in tiles, f[..., tiles, rows, 16]."""
    *outer, n_rows, n = matrix.shape
    whole = np.zeros((*outer, n_rows, -(-n // TILE) * TILE), matrix.dtype)
    whole[..., :n] = matrix
    return np.ascontiguousarray(whole.reshape(*outer, n_rows, -1, TILE).swapaxes(-2, -3))


def _matrix(at: Operands, stored: Any, adapter: int, expert: int) -> npt.NDArray[np.floating]:
    """f[rows, columns], with those that fill the last tile."""
    tiles: npt.NDArray[np.floating] = stored[adapter, expert] if "n_used" in at.attrs else stored[adapter]
    return tiles.swapaxes(0, 1).reshape(tiles.shape[1], -1)


def _rows(at: Operands, adapters: Ints, more: Sequence[Any]) -> tuple[Ints, Ints]:
    """The adapters of each row that is worked on, and its experts: one, 0, where there are none; of parts, each."""
    if "n_used" in at.attrs:
        n_used = int(at.attrs["n_used"])
        return adapters, more[0] if more else np.broadcast_to(np.arange(n_used), (len(adapters), n_used))
    if "wanted" in at.attrs:
        adapters = adapters[more[0]]
    return adapters, np.zeros((len(adapters), 1), np.int32)


def _down(at: Operands) -> None:
    x, a, pairs, adapters, *more = at.inputs
    first, n_pairs = int(at.attrs["pair"]), int(at.attrs["n_pairs"])
    r = a.shape[-3] * TILE // n_pairs
    adapters, ids = _rows(at, adapters, more)
    x = x[more[0]] if "wanted" in at.attrs else x
    at.outputs[0][...] = 0
    t = at.outputs[0].reshape(*ids.shape, adapters.shape[1], -1)
    for adapter, expert, row, j, k in _uses(adapters, ids):
        matrix = _matrix(at, a, adapter, expert)
        for p in range(n_pairs):
            columns = slice(p * r, p * r + int(pairs[first + p, adapter, 0]))
            if columns.start == columns.stop:
                continue
            if "lookup" in at.attrs:
                t[row, j, k, columns] = matrix[x[row], columns]
            else:
                each = x.reshape(len(x), -1, len(matrix))
                t[row, j, k, columns] = _product(each[row, j if each.shape[1] > 1 else 0], matrix[:, columns].T)


def _up(at: Operands) -> None:
    y, t, b, pairs, adapters, scales, *more = at.inputs
    pair, start = int(at.attrs["pair"]), int(at.attrs["start"])
    adapters, ids = _rows(at, adapters, more)
    scales = scales[more[0]] if "wanted" in at.attrs else scales
    summed = len(more) > 1 and "n_used" in at.attrs
    depth, weights = adapters.shape[1], more[1] if summed else None
    n = y.reshape(len(y), -1).shape[1] // (1 if summed else ids.shape[1])
    t = t.reshape(*ids.shape, depth, -1)
    v = np.zeros((*ids.shape, depth, n), np.float32)
    for adapter, expert, row, j, k in _uses(adapters, ids):
        rank = int(pairs[pair, adapter, 0])
        if rank:
            parts = t[row, j, k, start : start + rank]
            v[row, j, k] = _product(parts, _matrix(at, b, adapter, expert)[:rank, :n].T)
    at.outputs[0][...] = y
    out = at.outputs[0].reshape(len(ids), -1, n)
    with np.errstate(all="ignore"):
        if weights is not None:
            v = fma_chain(weights.T[:, :, None, None], v.transpose(1, 0, 2, 3))[:, None]
        for place in range(depth):
            own = adapters[:, place]
            some = np.flatnonzero((own >= 0) & (pairs[pair, own, 0] > 0))
            scale = scales[some, place] * pairs[pair, own[some], 1]
            out[some] += scale[:, None, None] * v[some, :, place]


def _pairs_fit(sizes: Bindings) -> str | None:
    """Every pair has the same room, in whole tiles, and they are all there."""
    m, n_pairs, first, count = (sizes.value(name) for name in ("m", "n_pairs", "pair", "P"))
    tiles = sizes.value("c")
    if m and n_pairs and tiles and (m != tiles * TILE or tiles % n_pairs):
        return f"expected rows of {n_pairs} equal parts of whole tiles, {tiles} in all, got {m}"
    if n_pairs and first is not None and count and first + n_pairs > count:
        return f"expected pairs {first} to {first + n_pairs - 1} among {count}"
    return None


def _start_fits(sizes: Bindings) -> str | None:
    m, r, start = (sizes.value(name) for name in ("m", "r", "start"))
    if m and r and start is not None and start + r > m:
        return f"expected {r} elements from {start} on in rows of {m}"
    n, tiles = sizes.value("n_out"), sizes.value("d")
    if n and tiles and -(-n // TILE) != tiles:
        return f"expected {-(-n // TILE)} tiles of {TILE} of {n} columns, got {tiles}"
    return None


def _kept(name: str, *shape: Dim) -> Port:
    return Port(name, KEPT, shape, READ_ONLY)


_PAIRS = Port("pairs", FLOAT32, ("P", "N", 2), READ_ONLY)
_ADAPTERS = Port("adapters", INT32, ("R", "K"), ACTIVATION)
_SCALES = Port("scales", FLOAT32, ("R", "K"), ACTIVATION)
_IDS = Port("ids", INT32, ("R", "n_used"), ACTIVATION, optional=True)
"""Without them the rows are parts, and the j-th part has the j-th matrix."""
_WEIGHTS = Port("weights", FLOAT32, ("R", "n_used"), ACTIVATION, optional=True)
_X = activation("x", "R", "n_row")
_NUMBER = AttrSpec(int, at_least=0)
_A_ATTRS = {"pair": _NUMBER, "n_pairs": COUNT}
_B_ATTRS = {"pair": _NUMBER, "start": _NUMBER}
_YES = AttrSpec(bool)


def _a(x: Port, a: Port, t: Port, attrs: dict[str, AttrSpec], *more: Port) -> OpSignature:
    return OpSignature((x, a, _PAIRS, _ADAPTERS, *more), (t,), {**_A_ATTRS, **attrs}, (_pairs_fit,))


def _b(rows: str, y: Port, t: Port, b: Port, attrs: dict[str, AttrSpec], *more: Port) -> OpSignature:
    out = activation("out", rows, y.shape[1])
    return OpSignature((y, t, b, _PAIRS, _ADAPTERS, _SCALES, *more), (out,), {**_B_ATTRS, **attrs}, (_start_fits,))


def _multiplied(cost: CostView) -> int:
    """For each row and adapter a multiplication and an addition for each element of its matrix."""
    n_adapters, experts = cost.dim(1, 0), cost.dim(1, 1) if len(cost.inputs[1].shape) > 4 else 1
    return 2 * cost.dim(0, 0) * cost.dim(3, 1) * cost.elements(1) // (n_adapters * experts)


def _added(cost: CostView) -> int:
    n_adapters, experts = cost.dim(2, 0), cost.dim(2, 1) if len(cost.inputs[2].shape) > 4 else 1
    return 2 * cost.dim(4, 0) * cost.dim(4, 1) * cost.elements(2) // (n_adapters * experts)


def _touched_a(cost: CostView) -> tuple[int, int]:
    """A step of one row reads the matrices of one adapter."""
    return cost.bytes_in(0) + cost.bytes_in(1) // cost.dim(1, 0), cost.bytes_out()


def _touched_b(cost: CostView) -> tuple[int, int]:
    return cost.bytes_in(0, 1) + cost.bytes_in(2) // cost.dim(2, 0), cost.bytes_out()


OPS = (
    OpDefinition(
        Op.LORA_A,
        _a(activation("x", "R", "n"), _kept("a", "N", "c", "n", TILE), activation("t", "R", "K", "m"), {}),
        reference=_down,
        operations=_multiplied,
        touched=_touched_a,
        variants=(
            _a(
                activation("x", "R", "n"), _kept("a", "N", "c", "n", TILE), activation("t", "L", "K", "m"),
                {"wanted": _YES}, index("logit_rows", "L"),
            ),
            _a(
                index("token_ids", "R"), _kept("a", "N", "c", "n_vocab", TILE), activation("t", "R", "K", "m"),
                {"lookup": _YES},
            ),
            _a(
                _X, _kept("a", "N", "E", "c", "n", TILE), activation("t", "R", "n_used", "K", "m"),
                {"n_used": COUNT}, _IDS,
            ),
        ),
    ),
    OpDefinition(
        Op.LORA_B,
        _b("R", activation("y", "R", "n_out"), activation("t", "R", "K", "m"), _kept("b", "N", "d", "r", TILE), {}),
        reference=_up,
        operations=_added,
        touched=_touched_b,
        variants=(
            _b(
                "L", activation("y", "L", "n_out"), activation("t", "L", "K", "m"), _kept("b", "N", "d", "r", TILE),
                {"wanted": _YES}, index("logit_rows", "L"),
            ),
            _b(
                "R", activation("y", "R", "n"), activation("t", "R", "n_used", "K", "m"),
                _kept("b", "N", "E", "d", "r", TILE), {"n_used": COUNT}, _IDS, _WEIGHTS,
            ),
        ),
    ),
)  # fmt: skip

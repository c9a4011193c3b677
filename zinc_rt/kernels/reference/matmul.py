"""The matrix product x W^T of docs/how/numerics.md for every tensor format.

Quantised formats: exact integer dot products per group of 32 against int8 activations, one float32 value per
group, the 32-lane tree over the groups. The integer sums stay below 2^24, so a float32 BLAS computes them
exactly whatever order it adds in. Float formats: fma chains over each group of 32, then the same tree.

A `Weight` is the matrix as the file holds it. Its integer view costs 4 bytes an element as BLAS operands, so it is
kept only when asked for (`keep=True`); otherwise slabs of rows are unpacked, used and dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.kernels.errors import ShapeMismatch
from zinc_rt.kernels.reference.activations import QuantActivations, quantize_activations
from zinc_rt.kernels.reference.arith import F32, fma_chain, lane_tree_sum
from zinc_rt.numerics import GROUP, TREE_LANES

_Slab = TypeVar("_Slab")

# Elements of the largest temporary: 2^18 float32 stay in a 1 MiB second-level cache.
_TILE = 1 << 18
_SLAB = 1 << 22  # weight elements unpacked at a time when they are not kept


@dataclass(frozen=True)
class Panel:
    """Rows of a quantised weight, transposed for BLAS.

    ints: f32[n_groups, 32, n_rows], or f32[2 * n_groups, 16, n_rows] where a scale covers 16 elements
    d: f32[n_groups, 1, n_rows]; m: the same or None
    sc: f32[n_groups, 1, n_rows] or f32[2 * n_groups, 1, n_rows] or None; mn: as sc, or None
    last: as d, that of the last 16 elements of a group where d is that of the first 16, or None
    """

    type: GGMLType
    ints: F32
    d: F32
    m: F32 | None
    sc: F32 | None
    mn: F32 | None
    last: F32 | None

    @property
    def n_rows(self) -> int:
        return int(self.ints.shape[2])


def _panel(kind: GGMLType, raw: npt.NDArray[np.uint8]) -> Panel:
    rows = blocks.unpack(kind, raw)
    n_rows, n_groups, _ = rows.ints.shape
    split = 2 if FORMATS[kind.name].scaled_halves else 1
    ints = rows.ints.reshape(n_rows, n_groups * split, GROUP // split).transpose(1, 2, 0)

    def across(a: npt.NDArray[np.generic] | None) -> F32 | None:
        if a is None:
            return None
        return np.ascontiguousarray(a.reshape(n_rows, -1).T[:, None, :], dtype=np.float32)

    d = across(rows.d)
    if d is None:
        raise ShapeMismatch(f"{kind.name} rows have no scale")
    parts = (across(part) for part in (rows.m, rows.sc, rows.mn, rows.last))
    return Panel(kind, np.ascontiguousarray(ints, np.float32), d, *parts)


def unpacked_bytes(kind: GGMLType, n_rows: int, n_in: int) -> int:
    """What keeping a matrix unpacked costs: float32 elements and, for quantised formats, the scales of each group."""
    return 4 * n_rows * (n_in + FORMATS[kind.name].factors * (n_in // GROUP))


@dataclass
class Weight:
    """A weight matrix [n_rows, n_in] in a GGML format.

    raw: u8[n_rows, row_bytes], usually a view of the mapped file.
    keep: hold the unpacked panels (quantised) or the float32 rows (float formats) after the first use.
    """

    type: GGMLType
    raw: npt.NDArray[np.uint8]
    n_in: int
    keep: bool = False
    _kept: list[Any] = field(default_factory=list, repr=False)  # Panel or F32, whichever the format has

    @classmethod
    def from_raw(cls, kind: GGMLType, raw: npt.NDArray[np.uint8], *, keep: bool = False) -> Weight:
        """Wrap packed rows; raises `ShapeMismatch` when the row length in bytes is no whole number of blocks."""
        blocks_per_row, rest = divmod(raw.shape[1], kind.block_bytes)
        if rest:
            raise ShapeMismatch(
                f"a {kind.name} row of {raw.shape[1]} bytes is not a multiple of its {kind.block_bytes}-byte blocks"
            )
        return cls(kind, raw, blocks_per_row * kind.block_size, keep)

    @property
    def n_rows(self) -> int:
        """Rows of the matrix, elements of a product."""
        return int(self.raw.shape[0])

    @property
    def quantized(self) -> bool:
        """Whether the product takes int8 activations."""
        return self.type.quantized

    def rows(self, ids: npt.NDArray[np.integer]) -> F32:
        """The given rows dequantised: f32[len(ids), n_in]."""
        return blocks.dequantize(self.type, np.ascontiguousarray(self.raw[ids]))

    def _slabs(self, unpack: Callable[[GGMLType, npt.NDArray[np.uint8]], _Slab]) -> Iterator[_Slab]:
        """The rows in order, unpacked some at a time; what was kept of an earlier pass is not unpacked again."""
        if self._kept:
            yield from self._kept
            return
        step = max(1, _SLAB // self.n_in)
        made = []
        for start in range(0, self.n_rows, step):
            slab = unpack(self.type, self.raw[start : start + step])
            if self.keep:
                made.append(slab)
            yield slab
        self._kept = made

    def panels(self) -> Iterator[Panel]:
        """The rows of a quantised matrix in order, slab by slab."""
        return self._slabs(_panel)

    def float_rows(self) -> Iterator[F32]:
        """The rows of a float matrix in order, f32[some, n_in], slab by slab."""
        return self._slabs(blocks.dequantize)


def weights_of(kind: GGMLType, raw: npt.NDArray[np.uint8], count: int, *, keep: bool = False) -> list[Weight]:
    """The matrices of a tensor that holds `count` of one shape, one after another.

    raw: u8[n_rows, row_bytes], or u8[stretches, rows of each, row_bytes] where they lie apart. keep: see `Weight`.
    """
    apart = raw.reshape(count, -1, *raw.shape[1:])
    return [Weight.from_raw(kind, rows.reshape(-1, raw.shape[-1]), keep=keep) for rows in apart]


def matmul(x: F32, weight: Weight, acts: QuantActivations | None = None) -> F32:
    """f32[n, n_in] times the transposed weight [n_rows, n_in]: f32[n, n_rows].

    acts: x quantised already, where several matrices share it. Raises `ShapeMismatch` when the row lengths differ.
    """
    if x.ndim != 2 or x.shape[1] != weight.n_in:
        raise ShapeMismatch(f"matmul: activations of shape {x.shape} do not fit weight rows of {weight.n_in} elements")
    out = np.empty((x.shape[0], weight.n_rows), np.float32)
    column = 0
    with np.errstate(all="ignore"):
        if not weight.quantized:
            for rows in weight.float_rows():
                _float_product(x, rows, out[:, column : column + rows.shape[0]])
                column += rows.shape[0]
        else:
            acts = acts or quantize_activations(x)
            for panel in weight.panels():
                _quant_product(acts, panel, out[:, column : column + panel.n_rows])
                column += panel.n_rows
    return out


def float_matmul(x: F32, rows: F32) -> F32:
    """f32[n, n_in] times float rows f32[n_out, n_in]: f32[n, n_out]."""
    out = np.empty((x.shape[0], rows.shape[0]), np.float32)
    with np.errstate(all="ignore"):
        _float_product(x, rows, out)
    return out


def _quant_product(acts: QuantActivations, panel: Panel, out: F32) -> None:
    n, n_groups, _ = acts.q.shape
    step = max(1, _TILE // (n_groups * panel.n_rows))
    for r in range(0, n, step):
        rows = slice(r, r + step)
        q = acts.q[rows].transpose(1, 0, 2)  # f32[n_groups, rows, 32]
        d_x = acts.d[rows].T[:, :, None]
        values = _group_values(panel, q, d_x, acts.s[rows].T[:, :, None])
        out[rows] = lane_tree_sum(values, TREE_LANES)


def _group_values(panel: Panel, q: F32, d_x: F32, s: F32) -> F32:
    """v_g of docs/how/numerics.md, f32[n_groups, rows, n_rows]; every operation rounds once, in the order written."""
    scale = panel.d * d_x
    if panel.ints.shape[0] != panel.d.shape[0]:  # two scales to a group of 32
        n_groups, rows, _ = q.shape
        halves = q.reshape(n_groups, rows, 2, GROUP // 2).transpose(0, 2, 1, 3).reshape(2 * n_groups, rows, -1)
        scaled = np.matmul(halves, panel.ints)
        if panel.last is not None:
            return np.asarray(scale * scaled[0::2] + (panel.last * d_x) * scaled[1::2])
        scaled *= panel.sc  # |sc * isum| < 2^23 and the sum of two < 2^24: exact
        isum = scaled[0::2] + scaled[1::2]
        values = np.asarray(np.multiply(scale, isum, out=isum))
        if panel.mn is not None and panel.m is not None:
            least = halves.sum(axis=2, keepdims=True) * panel.mn  # sums of 16 integers, exact in any order
            values -= (panel.m * d_x) * (least[0::2] + least[1::2])
        return values
    isum = np.matmul(q, panel.ints)
    if panel.sc is not None:
        isum *= panel.sc  # exact: below 2^24
    values = np.multiply(scale, isum, out=isum)
    if panel.m is not None:
        if panel.mn is not None:  # a minimum is subtracted
            values -= (panel.m * d_x) * (panel.mn * s)
        else:
            values += (panel.m * d_x) * s
    return np.asarray(values)


def _float_product(x: F32, rows: F32, out: F32) -> None:
    """The chains of many rows of the matrix lie side by side: NumPy is slow at broadcasting short axes."""
    x_groups = _chain_major(x)[..., None]
    step = max(1, _TILE // (GROUP * x_groups.shape[1]))
    together = max(1, step // rows.shape[0])  # rows of x, where the matrix is small
    for j in range(0, rows.shape[0], step):
        w_groups = _chain_major(rows[j : j + step])[:, :, None]  # f32[32, n_groups, 1, some rows]
        for i in range(0, x.shape[0], together):
            values = fma_chain(w_groups, x_groups[:, :, i : i + together])
            out[i : i + together, j : j + step] = lane_tree_sum(values, TREE_LANES)


def _chain_major(x: F32) -> F32:
    """f32[n, n_in] as f32[32, n_groups, n]; a short last group is filled with zeros, which change no sum."""
    n, n_in = x.shape
    pad = -n_in % GROUP
    if pad:
        x = np.concatenate([x, np.zeros((n, pad), np.float32)], axis=1)
    return np.ascontiguousarray(x.reshape(n, x.shape[1] // GROUP, GROUP).transpose(2, 1, 0))

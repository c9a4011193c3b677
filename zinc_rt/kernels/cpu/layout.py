"""How matrices lie in memory: tiles of 16 rows, groups of 32 columns in the visiting order of docs/how/numerics.md.

The tree over 32 lanes adds the groups l, l + 32, … of a lane in order, then lanes pairwise at distance 16, 8, 4, 2, 1.
A kernel that holds 16 rows in a vector goes through the lanes in bit-reversed order and merges sums like a binary
counter, so a tile stores its groups in that order and is read straight through.

A tile is, in this order: scales of blocks of several groups, up to a whole line, then group by group its weights and
its scales, so that all but the first is read straight through. Within a group of weights line i (of 8) holds columns
4i … 4i+3 of the 16 rows, 64 bytes: an operand of a dot product of bytes. Weights of 4 bits keep line i in low nibbles
and line i + 4 in high ones, in 4 lines; those of 2 bits keep lines 0 to 3 and lines 4 to 7 in one line each; those of 1
bit keep all in one (bit i belongs to line i), where AVX2 alone has the first byte of all rows before their second one.
A fifth bit, or a third, lies in one more line (bit i belongs to line i); fifth and sixth bits lie in two. Where a line
holds two bits of four others, bits 2i and 2i+1 belong to line i, or i + 4 in the second.

Vectors of a grid are looked up when tiles are made, since a table in memory takes longer than bytes: an element is the
place of its size among the sizes of the grid and its sign above, 4 bits or 3 (then the signs have the line of the third
bits). Those of a shifted grid fit two bits. Their lines 0 to 3 are even
pairs of bits of the two lines, 4 to 7 the odd ones. A row's scale, or that of half a row, is an odd number in the upper
four bits of a byte. Below them are 1, the half (both 0 where a row has one byte), and two bits that say whether eighths
are added in the last 8 columns of the half, and in the first 8.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import CODED_KINDS, HALF_SCALES, ODD_SCALES, PAIR_KINDS, CodeLayout, Scale
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu.structs import BIASES, CROSSED, EIGHTHS, HALF_SUMS, N_SUMS, PLAIN_SUM
from zinc_rt.numerics import GROUP, TREE_LANES

TILE_ROWS = 16
_HERE = "the layout of tiles (zinc_rt/kernels/cpu/layout.py)"
_HIGH_BITS: dict[str, int] = {
    **dict.fromkeys(CODED_KINDS, 2),
    **dict.fromkeys((*PAIR_KINDS, CodeLayout.SIGN_BITS), 0),
    CodeLayout.QUARTERS: 1,
}
"""The most high bits that tiles have lines for."""
LINE_BYTES = 64
"""Four columns of a tile's rows."""
BLOCK_ROWS = 16
"""Rows of activations that lie together in a `Pack`."""
LEAST_ROWS = 12
"""Fewer rows are faster without `panels`: unpacked weights are stored and loaded."""
PANEL_ROWS = 64
"""Rows that a tile is multiplied by before the next one is; a multiple of BLOCK_ROWS."""


@dataclass(frozen=True)
class TileFormat:
    """Bytes of a tile's parts. super_scales: for each block of several groups; scales, weights: for each group.

    sums: which of a pack's sums a product with it reads, by number (see `structs.Pack`).
    """

    super_scales: int
    scales: int
    weights: int
    sums: tuple[int, ...] = ()

    @property
    def group(self) -> int:
        """From one group to the next."""
        return self.weights + self.scales


def _tile_format(f: Format) -> TileFormat:
    """Raises `UnknownFormat`."""
    halves = 2 * TILE_ROWS * f.n_halves  # a float16 for each row
    if not f.quantized:
        return TileFormat(0, 0, TILE_ROWS * f.group_bytes)
    if f.kind == CodeLayout.BYTES:
        lines = 8
    elif f.kind == CodeLayout.GRID and f.grid is not None:
        lines = f.grid.size_bits + 1
    elif f.high_bits <= _HIGH_BITS.get(f.kind, -1):
        lines = f.low_bits + f.high_bits
    else:
        raise UnknownFormat(f.name, f"{f.high_bits} high bits of integers of kind", f.kind, _HERE)
    if f.scale == Scale.BLOCK:
        return TileFormat(*((0, halves) if f.groups == 1 else (halves, 0)), lines * LINE_BYTES)
    if f.scale == Scale.POWER_OF_TWO:
        return TileFormat(0, TILE_ROWS, lines * LINE_BYTES)
    if f.scale == Scale.E4M3_HALVES:
        return TileFormat(0, 2 * TILE_ROWS, lines * LINE_BYTES)
    if f.scale == Scale.SIX_BIT_SIGNED or (f.scale in ODD_SCALES and f.scale != Scale.ODD_THREES):
        return TileFormat(halves, TILE_ROWS, lines * LINE_BYTES)
    if f.scale in (Scale.SIX_BIT, *HALF_SCALES):
        return TileFormat(halves, 2 * TILE_ROWS, lines * LINE_BYTES)
    raise UnknownFormat(f.name, "scales of kind", f.scale, _HERE)


def _sums(f: Format) -> tuple[int, ...]:
    """Which of a pack's sums products read; of whole bytes, those of signed, of unsigned and of crossed ones."""
    offsets = {f.bias, f.offset} if f.wide else {f.bias}
    crossed = (CROSSED,) if f.wide else ()
    if f.eighths:
        return tuple(range(EIGHTHS, N_SUMS))
    if f.scaled_halves:
        return (HALF_SUMS if f.minimum is not None or any(offsets) else ()) + crossed
    plain = (PLAIN_SUM,) if f.minimum is not None else ()
    return *plain, *sorted(1 + BIASES.index(offset) for offset in offsets if offset in BIASES), *crossed


def _known() -> dict[str, TileFormat]:
    """Of every format that tiles can hold."""
    out = {}
    for f in FORMATS.values():
        try:
            out[f.name] = replace(_tile_format(f), sums=_sums(f) if f.quantized else ())
        except UnknownFormat:  # `tile_format` and the kernels say so when it is asked for
            continue
    return out


TILES: dict[str, TileFormat] = _known()
"""Formats by name, for kernels."""


def tile_format(kind: GGMLType) -> TileFormat:
    """A tile's parts. Raises `UnknownFormat` for a format that tiles cannot hold."""
    return TILES.get(kind.name) or _tile_format(FORMATS[kind.name])


def n_groups(n_in: int) -> int:
    """Groups of a row; the last may be short."""
    return -(-n_in // GROUP)


def n_tiles(n_out: int) -> int:
    """Tiles of a matrix; the last may be short."""
    return -(-n_out // TILE_ROWS)


def tile_bytes(kind: GGMLType, n_in: int) -> int:
    """Bytes of a tile, a multiple of 64."""
    part, groups = tile_format(kind), n_groups(n_in)
    supers = groups // FORMATS[kind.name].groups * part.super_scales if part.super_scales else 0
    return _lines(supers) + _lines(groups * part.group)


def _lines(n_bytes: int) -> int:
    """So many bytes in whole lines."""
    return -(-n_bytes // LINE_BYTES) * LINE_BYTES


def matrix_bytes(kind: GGMLType, n_out: int, n_in: int) -> int:
    """Bytes of a whole matrix in tiles."""
    return n_tiles(n_out) * tile_bytes(kind, n_in)


def visiting_order(groups: int) -> npt.NDArray[np.int32]:
    """The place of each group in a tile, i32[groups]."""
    order = [g for lane in range(TREE_LANES) for g in range(int(f"{lane:05b}"[::-1], 2), groups, TREE_LANES)]
    place = np.empty(groups, np.int32)
    place[order] = np.arange(groups, dtype=np.int32)
    return place

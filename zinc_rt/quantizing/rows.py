"""Float rows in a format's bytes: what a file stores."""

from __future__ import annotations

from typing import Final

import numpy as np

from zinc_rt.formats.kinds import GRID_KINDS
from zinc_rt.formats.table import quantized
from zinc_rt.gguf.pack import pack
from zinc_rt.gguf.quantize import check_range, quantize
from zinc_rt.gguf.types import GGMLType
from zinc_rt.gguf.unpack import F32, U8
from zinc_rt.quantizing.fit import fit

NEED_IMPORTANCE: Final = tuple(GGMLType[f.name] for f in quantized() if f.kind in GRID_KINDS)
"""Formats that are read, but not written: so few bits for a weight are of use only where is known which weights matter,
by a text that the model has read."""
PLAIN: Final = (GGMLType.F32, GGMLType.F16, GGMLType.BF16, GGMLType.Q8_0)
"""Formats that lose next to nothing, in which nothing is searched for: the value is rounded."""
SEARCHED: Final = tuple(GGMLType[f.name] for f in quantized() if GGMLType[f.name] not in (*NEED_IMPORTANCE, *PLAIN))
WRITTEN: Final = (*PLAIN, *SEARCHED)
CHUNK: Final = 1 << 18
"""Elements that are worked on at once. Fewer stay in a core's cache, but then threads wait for the interpreter, which
only one of them has at a time between NumPy's loops: measured on two cores, 2^16 made two threads as slow as one.
"""


def quantize_rows(type: GGMLType, x: F32, first: int = 0) -> U8:
    """`x`, f32[n_rows, n], in the bytes of `type`, uint8[n_rows, row_bytes], by a search for the least squared error.

    first: the number of the first row, for messages. Raises InvalidBlocks for a value that the format cannot hold, and
    for a format that is only read; GGUFError where `n` is no whole number of blocks.
    """
    if type in WRITTEN:
        check_range(type, x, first)
    if type not in SEARCHED:
        return quantize(type, x)
    out = np.empty((len(x), type.row_bytes(x.shape[1])), np.uint8)
    step = max(1, CHUNK // max(x.shape[1], 1))
    for start in range(0, len(x), step):
        out[start : start + step] = pack(fit(type, np.ascontiguousarray(x[start : start + step], np.float32)))
    return out

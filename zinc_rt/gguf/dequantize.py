"""Stored rows as float32: the operations of ggml's reference in its order, so its bits."""

from __future__ import annotations

from typing import Final

import numpy as np

from zinc_rt.formats.errors import UnknownFormat
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.formats.record import Format
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.types import GGMLType
from zinc_rt.gguf.unpack import F32, U8, check_raw, unpack

_CHUNK: Final = 1 << 20  # elements converted at once, which bounds the memory beside the result


def dequantize(type: GGMLType, raw: U8) -> F32:
    """Values of stored rows: f32[n_rows, n], new memory, from uint8[n_rows, row_bytes].

    Infinite and NaN scales give what IEEE arithmetic gives. Raises InvalidBlocks for another dtype or row
    length, UnsupportedTensorType for a type that `SUPPORTED` does not list, UnknownFormat for a
    record of unknown kinds.
    """
    n = check_raw(type, raw) * type.block_size
    f = FORMATS[type.name]
    out = np.empty((len(raw), n), np.float32)
    step = max(1, _CHUNK // max(n, 1))
    for start in range(0, len(raw), step):
        part = raw[start : start + step]
        # An infinite scale times a zero is a NaN by design, not a mistake to warn about.
        with np.errstate(invalid="ignore", over="ignore"):
            out[start : start + step] = _scaled(type, part) if f.quantized else _floats(f, part)
    return out


def _floats(f: Format, raw: U8) -> F32:
    raw = np.ascontiguousarray(raw)
    if f.kind == CodeLayout.F32:
        return raw.view("<f4")
    if f.kind == CodeLayout.F16:
        return raw.view("<f2").astype(np.float32)
    if f.kind == CodeLayout.BF16:
        bits = raw.view("<u2").astype(np.uint32)  # the upper half of a float32
        return (bits << 16).view(np.float32)
    raise UnknownFormat(f.name, "numbers of kind", f.kind, "the reference (zinc_rt/gguf/dequantize.py)")


def _scaled(type: GGMLType, raw: U8) -> F32:
    rows = unpack(type, raw)
    scale = rows.d[..., None]  # f32[n_rows, n_groups, 1]
    values = rows.ints.astype(np.float32)
    if rows.last is not None:
        both = np.stack([rows.d, rows.last], axis=-1)
        values = both[..., None] * values.reshape(*both.shape, 16)
    elif rows.sc is not None and rows.sc.ndim == 3:  # a scale for each half group
        half = scale * rows.sc.astype(np.float32)
        values = half[..., None] * values.reshape(*half.shape, 16)
        if rows.mn is not None and rows.m is not None:
            values -= (rows.m[..., None] * rows.mn.astype(np.float32))[..., None]
    elif rows.sc is not None and rows.mn is None:
        values *= scale * rows.sc[..., None].astype(np.float32)
    elif rows.sc is not None and rows.mn is not None and rows.m is not None:  # a minimum is subtracted
        values *= scale * rows.sc[..., None].astype(np.float32)
        values -= (rows.m * rows.mn.astype(np.float32))[..., None]
    else:
        values *= scale
        if rows.m is not None:  # one is added
            values += rows.m[..., None]
    return values.reshape(len(raw), rows.ints.shape[1] * rows.ints.shape[2])

"""Float rows as stored rows: F32, F16, BF16, Q4_0 and Q8_0, with the bytes of ggml's reference."""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.types import GGMLType, unsupported
from zinc_rt.gguf.unpack import F32, U8
from zinc_rt.numerics import GROUP

_CHUNK: Final = 1 << 20  # elements converted at once


def quantize(type: GGMLType, x: F32) -> U8:
    """`x`, f32[n_rows, n], stored as `type`: uint8[n_rows, row_bytes], new memory.

    Finite values beyond the range of F16 and scales beyond it become infinite, as in ggml: `check_range` refuses them.
    Raises
    InvalidBlocks for another dtype or number of dimensions, and for a value that is not finite where a block
    scale would carry it to its neighbours; GGUFError when `n` is not a whole number of blocks;
    UnsupportedTensorType for a type that is not written here.
    """
    if type not in QUANTIZABLE:
        if not type.supported:
            raise unsupported(type)
        raise InvalidBlocks(
            f"{type.name} cannot be written, only read",
            hint=f"written are {' '.join(t.name for t in QUANTIZABLE)}",
        )
    if x.dtype != np.float32 or x.ndim != 2:
        raise InvalidBlocks(f"rows to quantise must be float32[n_rows, n], got {x.dtype}{list(x.shape)}")
    out = np.empty((len(x), type.row_bytes(x.shape[1])), np.uint8)
    step = max(1, _CHUNK // max(x.shape[1], 1))
    for start in range(0, len(x), step):
        part = np.ascontiguousarray(x[start : start + step])
        if type.quantized:
            _refuse(type, part, ~np.isfinite(part), start)
        with np.errstate(over="ignore", under="ignore", invalid="ignore", divide="ignore"):
            out[start : start + step] = _WRITERS[type](part)
    return out


def check_range(type: GGMLType, x: F32, first: int = 0) -> None:
    """Raise InvalidBlocks for a value of `x`, f32[n_rows, n], that `type` cannot hold: one beyond its largest and,
    where values share scales, one that is not finite. first: the number of the first row, for the message.
    """
    beyond = ~(np.abs(x) <= np.float32(FORMATS[type.name].largest))
    _refuse(type, x, beyond if type.quantized else beyond & np.isfinite(x), first)


def _refuse(type: GGMLType, x: F32, wrong: NDArray[np.bool_], first: int) -> None:
    """Raise InvalidBlocks for the first value that is wrong, if there is one."""
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise InvalidBlocks(
            f"row {first + row}, element {column} is {x[row, column]}, which {type.name} cannot hold"
            f" (the largest is {FORMATS[type.name].largest:g})",
            hint="keep the tensor in a format that holds it, as F32 or BF16, or find out where the value went wrong",
        )


def _f32(x: F32) -> U8:
    return x.astype("<f4", copy=False).view(np.uint8)


def _f16(x: F32) -> U8:
    return x.astype("<f2").view(np.uint8)


def _bf16(x: F32) -> U8:
    bits = x.view(np.uint32)
    # Round to nearest even by carrying into the upper half; a NaN keeps its sign and upper payload, quieted.
    rounded = (bits.astype(np.uint64) + 0x7FFF + (bits >> 16 & 1)) >> 16
    is_nan = (bits & 0x7FFF_FFFF) > 0x7F80_0000
    return np.where(is_nan, bits >> 16 | 0x40, rounded).astype("<u2").view(np.uint8)


def _inverse(d: F32) -> F32:
    """1 / d, and 0 for d = 0."""
    return np.divide(np.float32(1), d, out=np.zeros_like(d), where=d != 0)


def _with_scale(d: F32, ints: NDArray[np.uint8]) -> U8:
    """d as f16 in front of each block's integers; rows flattened."""
    blocks = np.concatenate([d.astype("<f2").view(np.uint8), ints], axis=-1)
    return blocks.reshape(len(blocks), blocks.shape[1] * blocks.shape[2])


def _q4_0(x: F32) -> U8:
    """d = (value of largest magnitude) / -8, so that it maps to 0; q = trunc(x / d + 8.5), at most 15."""
    groups = x.reshape(len(x), x.shape[1] // GROUP, GROUP)
    largest = np.abs(groups).argmax(axis=-1, keepdims=True)
    d = np.take_along_axis(groups, largest, axis=-1) / np.float32(-8)
    scaled = np.trunc(groups * _inverse(d) + np.float32(8.5))
    ints = np.minimum(_finite(scaled), 15).astype(np.uint8)
    return _with_scale(d, ints[..., :16] | ints[..., 16:] * np.uint8(16))


def _q8_0(x: F32) -> U8:
    """d = (largest magnitude) / 127; q = x / d rounded to nearest, halves away from zero."""
    groups = x.reshape(len(x), x.shape[1] // GROUP, GROUP)
    d = np.abs(groups).max(axis=-1, keepdims=True) / np.float32(127)
    scaled = _finite(groups * _inverse(d))
    size = np.abs(scaled)
    whole = np.floor(size)
    whole += size - whole >= 0.5  # adding 0.5 first would round 0.49999997 up
    return _with_scale(d, np.copysign(whole, scaled).astype(np.int8).view(np.uint8))


def _finite(scaled: F32) -> F32:
    """0 where 1 / d overflowed: the scale of such a block is 0 in f16, so any integer means 0."""
    return np.where(np.isfinite(scaled), scaled, np.float32(0))


_WRITERS: Final = {
    GGMLType.F32: _f32,
    GGMLType.F16: _f16,
    GGMLType.BF16: _bf16,
    GGMLType.Q4_0: _q4_0,
    GGMLType.Q8_0: _q8_0,
}

QUANTIZABLE: Final = tuple(_WRITERS)

"""Weights that a folder holds in 8 or 4 bits beside their scales, as tensors of types that files have.

A scale is for a block of rows and columns, for a row, or for a matrix. Weights of 8 bits become BF16: the product
is exact where scales are powers of two (DeepSeek-V4), else rounded once. Weights of 4 bits stay as they are, in MXFP4.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from zinc_rt.converting.config import Config
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.made import F32, U8, Index, RowBytes
from zinc_rt.converting.safetensors import FLOATS, Stored
from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.gguf.quantize import quantize
from zinc_rt.gguf.types import GGMLType
from zinc_rt.utils.checks import show

_SCALES: Final = {"_scale_inv": "", ".scale": ".weight", "_scales": "_blocks"}
"""How names of scales end, and names of what they are for."""
_OF_ACTIVATIONS: Final = ("activation_scale",)
_PACKED: Final = ("F8_E4M3", "I8", "U8")
SOURCES: Final = FLOATS | {"MXFP4": GGMLType.MXFP4}
"""The types that weights are read in, those of pairs included."""


class Weights(RowBytes, Protocol):
    """A tensor of a folder."""

    @property
    def name(self) -> str:
        """Its name there."""

    @property
    def dtype(self) -> str:
        """Its type by the names of safetensors, or MXFP4."""

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""


@dataclass(frozen=True)
class _Pair:
    """Weights and their scales."""

    weights: Stored
    scales: Stored

    @property
    def name(self) -> str:
        """The weights' name."""
        return self.weights.name

    def release(self) -> None:
        """Free the memory behind both."""
        self.weights.release()
        self.scales.release()


class Blocks(_Pair):
    """A tensor in MXFP4 as Hugging Face folders have it, in the blocks of GGUF.

    Two elements of a byte are neighbours there, and 16 elements apart here; the scale stands before its block.
    weights: uint8[.., n_rows, 16 * groups]. scales: uint8[.., n_rows, groups], the exponents.
    """

    @property
    def dtype(self) -> str:
        """What its rows are in."""
        return "MXFP4"

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""
        return (*self.scales.shape[:-1], 32 * self.scales.shape[-1])

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""
        return self.scales.count(size // 17)

    def rows(self, which: slice | Index, size: int) -> U8:
        """The blocks of some rows of so many bytes: uint8[rows, size]."""
        groups = size // 17
        pairs = self.weights.rows(which, 16 * groups).reshape(-1, groups, 16)
        scales = self.scales.rows(which, groups)[..., None]
        codes = np.stack([pairs & 15, pairs >> 4], axis=-1).reshape(*pairs.shape[:-1], 32)
        halves = codes[..., :16] | codes[..., 16:] << 4
        return np.asarray(np.concatenate([scales, halves], axis=-1).reshape(len(pairs), -1), np.uint8)


@dataclass(frozen=True)
class Scaled(_Pair):
    """Floats of 8 bits times their scales, as BF16. high, wide: rows and columns of a block; matrix: rows of each of
    the matrices, whose blocks begin anew.
    """

    high: int
    wide: int
    matrix: int

    @property
    def dtype(self) -> str:
        """What its rows are in."""
        return "BF16"

    @property
    def shape(self) -> tuple[int, ...]:
        """Elements of each dimension."""
        return self.weights.shape

    def count(self, size: int) -> int:
        """How many rows of so many bytes there are."""
        return self.weights.count(size // 2)

    def rows(self, which: slice | Index, size: int) -> U8:
        """Some rows of so many bytes: uint8[rows, size]."""
        codes = self.weights.rows(which, size // 2)
        row = np.arange(self.count(size))[which]
        scales = _as_floats(self.scales).reshape(-1, -(-codes.shape[1] // self.wide))
        row = row // self.matrix * -(-self.matrix // self.high) + row % self.matrix // self.high
        return quantize(GGMLType.BF16, _E4M3[codes] * np.repeat(scales[row], self.wide, axis=1)[:, : codes.shape[1]])


def _floats_of_8_bits() -> F32:
    """The value of each code of 4 bits of exponent and 3 of mantissa, which has no infinity: f32[256]."""
    codes = np.arange(256)
    exponent, mantissa = codes >> 3 & 15, codes & 7
    values = np.where(exponent == 0, mantissa * 2.0**-9, (8 + mantissa) * 2.0 ** (exponent - 10))
    values[codes & 127 == 127] = np.nan
    return np.asarray(np.where(codes < 128, values, -values), np.float32)


_E4M3: Final = _floats_of_8_bits()


def _as_floats(scales: Stored) -> F32:
    """All scales, f32[n]."""
    raw: NDArray[np.uint8] = scales.flat()
    if scales.dtype == "F8_E8M0":
        return np.asarray(np.ldexp(np.float32(1), raw.astype(np.int32) - 127), np.float32)
    return dequantize(FLOATS[scales.dtype], raw.reshape(1, -1)).reshape(-1)


def block_of(c: Config) -> tuple[int, int] | None:
    """Rows and columns of the block of a scale, None where config.json says none. Raises `ConvertError`."""
    value = c.part("quantization_config").get("weight_block_size")
    if value is None:
        return None
    if not isinstance(value, list) or len(value) != 2 or not all(type(n) is int and 0 < n < 1 << 31 for n in value):
        raise ConvertError(f"config.json has weight_block_size = {show(str(value))}, two numbers are needed")
    return value[0], value[1]


def packed(tensors: Mapping[str, Stored], block: tuple[int, int] | None) -> Mapping[str, Weights]:
    """The tensors of a folder, where weights of few bits have their scales with them, which stand no longer alone.

    block: rows and columns of a scale's block, None where a scale is for rows or for all. Raises `ConvertError`.
    """
    scales: dict[str, Stored] = {}
    for name, tensor in tensors.items():
        end = next((end for end in _SCALES if name.endswith(end)), "")
        mate = name.removesuffix(end) + _SCALES.get(end, "")
        if end and mate in tensors and tensors[mate].dtype in _PACKED:
            scales[mate] = tensor
    alone = {tensor.name for tensor in scales.values()}
    return {
        name: _pair(tensor, scales.get(name), block)
        for name, tensor in tensors.items()
        if name not in alone and not name.endswith(_OF_ACTIVATIONS)
    }


def _pair(weights: Stored, scales: Stored | None, block: tuple[int, int] | None) -> Weights:
    if scales is None and not weights.name.endswith("_blocks"):
        return weights
    made = None
    if scales is not None and scales.shape and 0 not in weights.shape:
        made = _scaled(weights, scales, block) if weights.dtype == "F8_E4M3" else _blocks(weights, scales)
    if made is None:
        raise ConvertError(f"tensor {show(weights.name)} has no scales that fit it")
    return made


def _blocks(weights: Stored, scales: Stored) -> Blocks | None:
    lead, n = scales.shape[:-1], math.prod(scales.shape)
    fits = weights.shape[: len(lead)] == lead and math.prod(weights.shape) == 16 * n
    return Blocks(weights, scales) if fits and scales.dtype in ("U8", "F8_E8M0") else None


def _scaled(weights: Stored, scales: Stored, block: tuple[int, int] | None) -> Scaled | None:
    if scales.dtype not in (*FLOATS, "F8_E8M0") or len(weights.shape) < 2:
        return None
    *lead, high, wide = weights.shape
    if block is not None and scales.shape == (*lead, -(-high // block[0]), -(-wide // block[1])):
        return Scaled(weights, scales, block[0], block[1], high)
    rows, n = math.prod(weights.shape[:-1]), math.prod(scales.shape)
    return Scaled(weights, scales, rows // n, wide, rows) if n in (1, math.prod(lead), rows) else None

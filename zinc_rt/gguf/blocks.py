"""Conversions between tensor bytes and numbers: the functions of the block formats.

Callers pass rows in slices of any size; no function holds more than the slice and its result.
"""

from __future__ import annotations

from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.gguf.quantize import QUANTIZABLE, quantize
from zinc_rt.gguf.unpack import QuantRows, unpack

__all__ = ["QUANTIZABLE", "QuantRows", "dequantize", "quantize", "unpack"]

"""Tensor bytes as numbers: the entry to the block formats.

Rows come and go in slices that the caller chooses: nothing here holds more than the slice and its result.
"""

from __future__ import annotations

from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.gguf.quantize import QUANTIZABLE, quantize
from zinc_rt.gguf.unpack import QuantRows, unpack

__all__ = ["QUANTIZABLE", "QuantRows", "dequantize", "quantize", "unpack"]

"""Numbers of eight bits: v_cvt_pk_fp8_f32, v_cvt_pk_bf8_f32 and the forms with stochastic rounding.

fp8 is OCP E4M3 (no infinity, one NaN of each sign), bf8 OCP E5M2. What is too large becomes NaN or infinity; MODE's
FP16_OVFL, which would change that, is not followed. A NaN becomes the one with all bits set, or 0xFE. Stochastic
rounding adds the seed's upper bits to those that will be cut off; of numbers below the least normal one the
significand is shifted, and what falls off is lost before the seed comes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from amdgpu_emu.core.operands import Reader
from amdgpu_emu.core.state import Group
from amdgpu_emu.isa.instruction import Instruction

I64 = np.int64


def narrow(x: Any, kind: str, seed: Any = None) -> Any:
    """Round float32 x to eight bits, as u32. seed: u32, of stochastic rounding; without it to nearest even."""
    fraction, bias, top = (3, 7, 0x7F) if kind == "fp8" else (2, 15, 0x7C)
    bits = np.asarray(x, np.float32).view(np.uint32).astype(I64)
    size, sign = bits & 0x7FFFFFFF, (bits >> 24) & 0x80
    exponent = (size >> 23) - 127 + bias
    below = np.clip(1 - exponent, 0, 40)  # places that a number under the least normal one is shifted
    significand = (size & 0x7FFFFF) | 0x800000
    cut = 23 - fraction
    if seed is None:
        shift = cut + below
        half = I64(1) << (shift - 1)
        code = (significand + half - 1 + ((significand >> shift) & 1)) >> shift
    else:
        code = ((significand >> below) + (np.asarray(seed).astype(I64) >> (32 - cut))) >> cut
    code = code + (np.clip(exponent - 1, 0, 255) << fraction)
    code = np.where(size >= 0x7F800000, top, np.minimum(code, top)) | sign
    return np.where(size > 0x7F800000, 0xFF if kind == "fp8" else 0xFE, code).astype(np.uint32)


def compile_narrow(ins: Instruction, source: Callable[..., Reader]) -> tuple[Reader, Callable[[Group, Any], None]]:
    """Compile a conversion to eight bits: one function computes, one stores; the other bits of the register stay."""
    kind = "bf8" if "bf8" in ins.name else "fp8"
    place = ins.modifiers.get("op_sel", 0)
    d, half = ins.dst[0].index, place >> 3 & 1
    a = source(ins.src[0], "f")
    if "_pk_" in ins.name:
        b = source(ins.src[1], "f")

        def store(g: Group, bits: Any) -> None:
            g.put_half(d, half, bits.astype(np.uint16))

        return (lambda g: narrow(a(g), kind) | narrow(b(g), kind) << np.uint32(8)), store
    seed = source(ins.src[1], "u")
    at = np.uint32(8 * (place >> 2 & 3))

    def insert(g: Group, bits: Any) -> None:
        g.put(d, (g.v[d] & ~(np.uint32(0xFF) << at)) | bits << at)

    return (lambda g: narrow(a(g), kind, seed(g))), insert


NARROW_NAMES = frozenset(f"v_cvt_{how}_{kind}_f32" for how in ("pk", "sr") for kind in ("fp8", "bf8"))

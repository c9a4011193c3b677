"""How long instructions occupy the units of a card, by their names."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

QUARTER_RATE: Final = 4
"""Cycles of a SIMD for 32 lanes: transcendentals and 32-bit integer products (WriteTrans32, WriteQuarterRate32 of
LLVM's SISchedule.td). All else takes 1, both halves of a VOPD pair together too."""
DOUBLE_RATE: Final = 32
"""64-bit floats (AMD's profiler manual for RDNA 3.5: one lane a cycle; WriteDouble of 38 agrees)."""
WMMA_CYCLES: Final = {"f16": 16, "bf16": 16, "iu8": 8, "iu4": 4, "fp8": 8, "bf8": 8}
"""16x16x16 products, by the type of their factors: the advertised 191 TFLOPS of FP16, 383 TOPS of INT8 at 2.92 GHz are
1024 and 2048 operations a cycle of a compute unit, and a product has 8192."""
PORTS: Final = ("valu", "cache", "lds", "scalar", "waits", "branches", "scalar loads")
"""Where instructions go; cache and lds count bytes, the others cycles of a SIMD."""

_SCALAR: Final = {
    "s_load": "scalar loads", "s_buffer": "scalar loads", "s_wait": "waits", "s_waitcnt": "waits",
    "s_delay": "waits", "s_nop": "waits",
    "s_clause": "waits", "s_branch": "branches", "s_cbranch": "branches", "s_endpgm": "branches",
    "s_barrier": "branches", "s_sendmsg": "branches",
}  # fmt: skip
_NO_DATA: Final = ("_inv", "_wb", "_wbinv", "_prefetch_b8")
_QUARTER: Final = re.compile(r"v_(rcp|rsq|sqrt|exp|log|sin|cos|s)_|v_mul_(lo|hi)_[iu]32|v_mad_(co_)?[iu]64_[iu]32")
_MATRIX: Final = re.compile(r"v_(s?)wmma.*_16x16x(\d+)_(f16|bf16|iu8|iu4|fp8|bf8)")
_WIDTH: Final = re.compile(r"_(?:b|u|i|f)(8|16|32|64|96|128)(?!\d)")
_LDS_CYCLE: Final = 128
"""Bytes that an LDS instruction takes the time of, at the least: a cycle."""


@cache
def vector_cycles(name: str, lanes: int = 32) -> int:
    """Cycles that a vector instruction occupies its SIMD; waves of 64 lanes take two turns."""
    matrix = _MATRIX.match(name)
    if matrix:  # a sparse one has half of its factors
        return WMMA_CYCLES[matrix[3]] * int(matrix[2]) // (32 if matrix[1] else 16)
    cycles = QUARTER_RATE if _QUARTER.match(name) else 1
    if "_f64" in name:
        cycles = DOUBLE_RATE * cycles
    return cycles * lanes // 32


@cache
def moved_bytes(name: str, lanes: int = 32) -> int:
    """Bytes between registers and memory or LDS when all lanes take part."""
    if name.endswith(_NO_DATA):
        return 0
    widths = _WIDTH.findall(name)
    pair = 2 if "_2addr_" in name else 1
    return lanes * pair * max(int(widths[-1]) // 8 if widths else 4, 1)


@cache
def port(name: str, lanes: int = 32) -> tuple[str, int]:
    """The port of `PORTS` that an instruction goes through, and how much of it."""
    if name.startswith("v_"):
        return "valu", vector_cycles(name, lanes)
    if name.startswith("ds_"):
        return "lds", max(moved_bytes(name, lanes), _LDS_CYCLE)
    if name.startswith("s_"):
        return _SCALAR.get("_".join(name.split("_")[:2]), "scalar"), 1
    return "cache", moved_bytes(name, lanes)

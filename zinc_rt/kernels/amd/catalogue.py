"""What AMD's cores have beside the kernels of `kernels.gpu`: matrix products, and the kernels of a token's boundary."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from zinc_rt.kernels.amd import boundary, wmma, wmma_experts
from zinc_rt.kernels.amd.float_dot import BOUNDARY_FORMATS
from zinc_rt.kernels.gpu.catalogue import DECODE, KernelEntry, MatrixTiles, entry


def _boundary() -> dict[str, KernelEntry]:
    out = {
        "copy": entry(boundary.copy, "x y n", "ceil(n / 32)"),
        "argmax_top2": entry(boundary.argmax_top2, "unused y key0 key1 token0 token1", "1"),
        "argmax_keys": entry(boundary.argmax_keys, "x y rows start", "1"),
        "rms_norm_element0": entry(boundary.rms_norm_element0, "x y", "1"),
    }
    for kind in BOUNDARY_FORMATS:
        name, rest = f"_{kind.lower()}", "x y w cols rows"
        out["dmmv_serial" + name] = entry(boundary.dmmv_serial, rest, "1", FMT=kind)
        out["dmmv_rows" + name] = entry(boundary.dmmv_rows, rest, "ceil(rows / 64)", FMT=kind)
        out["dmmv_two_ranges" + name] = entry(
            boundary.dmmv_two_ranges, f"{rest} second second_rows", "ceil((rows + second_rows) / 64)", FMT=kind
        )
        out["dmmv_argmax" + name] = entry(boundary.dmmv_argmax, rest, "1", FMT=kind)
    return out


BOUNDARY: Final[Mapping[str, KernelEntry]] = MappingProxyType(_boundary())
"""The kernels of `TokenBoundary`."""


KERNELS: Final[Mapping[str, KernelEntry]] = MappingProxyType({**BOUNDARY, **DECODE})
"""All kernels that need no shape."""


def wmma_product(kind: str, bias: bool) -> KernelEntry:
    """A matrix times many rows of activations as `tile_layout.arrange` lays them out; y: f32[n_x, n_rows]."""
    function, between = (wmma.wmma_bias, "bias y") if bias else (wmma.wmma, "y")
    return entry(function, f"w x {between} n_groups n_rows n_x", "ceil(n_x / 128), ceil(n_rows / 64)", FMT=kind)


def wmma_expert_product(kind: str, bias: bool) -> KernelEntry:
    """Experts' matrices times tiles of slots as `arrange_experts` lays them out; y: f32[slots, n_rows]."""
    function, between = (wmma_experts.wmma_experts_bias, "bias y") if bias else (wmma_experts.wmma_experts, "y")
    return entry(function, f"w x tiles {between} n_groups n_rows", "tiles, ceil(n_rows / 128)", FMT=kind)


WMMA: Final = MatrixTiles(wmma_product, wmma.TILE_X, wmma.TILE_W, wmma_expert_product, wmma_experts.TILE_W)
"""For targets whose `isa` has "wmma"."""

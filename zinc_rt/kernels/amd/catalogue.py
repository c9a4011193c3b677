"""What AMD's cores have beside the kernels of `kernels.gpu`: the kernels of a token's boundary."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from zinc_rt.kernels.amd import boundary
from zinc_rt.kernels.amd.float_dot import BOUNDARY_FORMATS
from zinc_rt.kernels.gpu.catalogue import DECODE, KernelEntry, entry


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

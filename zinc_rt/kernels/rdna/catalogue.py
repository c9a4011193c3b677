"""Every kernel by name, with its arguments in order. A kernel's own text says what it does with them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from zinc_rt.kernels.rdna import argmax, boundary
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.kernel import Function


@dataclass(frozen=True)
class Entry:
    """spec: what `gpu_kernel` compiles; arguments: names in the order of `GpuKernel.user_data` and `Batch.dispatch`;
    groups: how many workgroups do the whole work, in words of the arguments.
    """

    spec: Spec
    arguments: tuple[str, ...]
    groups: str


def _entry(function: Function, arguments: str, groups: str, **constants: str | int | bool) -> Entry:
    return Entry(Spec(function, constants), tuple(arguments.split()), groups)


def _boundary() -> dict[str, Entry]:
    table = {
        "copy": _entry(boundary.copy, "x y n", "ceil(n / 32)"),
        "argmax_top2": _entry(boundary.argmax_top2, "unused y key0 key1 token0 token1", "1"),
        "argmax_keys": _entry(boundary.argmax_keys, "x y rows start", "1"),
        "rms_norm_element0": _entry(boundary.rms_norm_element0, "x y", "1"),
    }
    for kind in ("F32", "Q4_0", "Q8_0"):
        name, rest = f"_{kind.lower()}", "x y w cols rows"
        table["dmmv_serial" + name] = _entry(boundary.dmmv_serial, rest, "1", FMT=kind)
        table["dmmv_rows" + name] = _entry(boundary.dmmv_rows, rest, "ceil(rows / 64)", FMT=kind)
        table["dmmv_two_ranges" + name] = _entry(
            boundary.dmmv_two_ranges, f"{rest} second second_rows", "ceil((rows + second_rows) / 64)", FMT=kind
        )
        table["dmmv_argmax" + name] = _entry(boundary.dmmv_argmax, rest, "1", FMT=kind)
    return table


BOUNDARY: Final[Mapping[str, Entry]] = MappingProxyType(_boundary())
"""The kernels of `TokenBoundary`."""

DECODE: Final[Mapping[str, Entry]] = MappingProxyType(
    {
        "argmax": _entry(argmax.argmax, "x y n", "rows"),
    }
)
"""The kernels of a decode step."""

KERNELS: Final[Mapping[str, Entry]] = MappingProxyType({**BOUNDARY, **DECODE})
"""All of them."""

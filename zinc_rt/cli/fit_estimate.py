"""Estimates before a download: whether a model fits this machine, and how fast it can be."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from zinc_rt.errors import ZincError

if TYPE_CHECKING:
    from zinc_rt.cli.summary import Summary

_POSITIONS: Final = 4096
_BESIDE: Final = 100 << 20
"""Bytes beside weights and cache: the process, its tables and temporaries."""
_MEASURED: Final = 256 << 20
"""Bytes that are read to measure the memory's bandwidth."""


def estimate_fit(size: int, summary: Summary | None) -> Iterator[str]:
    """Lines about a model of `size` bytes that can run, as far as its summary is known."""
    yield from _memory(size, summary)
    yield from _speed(size, summary)


def _memory(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.mem.plan import available_memory, format_bytes

    needs = summary.needs if summary else None
    cache = needs.position * _POSITIONS + needs.sequence if needs else 0
    there = available_memory()
    takes = f"takes about {format_bytes(size + cache + _BESIDE)} of memory with {_POSITIONS} positions"
    if there is None:
        yield takes
    elif size + cache + _BESIDE > there:
        yield f"{takes}, and {format_bytes(there)} are free: it will be refused here unless more is"
    else:
        yield f"{takes}, of {format_bytes(there)} that are free"


def _speed(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.backends.cpu.backend import CpuBackend

    step = summary.needs.step if summary and summary.needs else size
    try:
        with CpuBackend() as backend:
            bandwidth = backend.read_bandwidth(_MEASURED)
    except ZincError:
        return
    yield (
        f"memory reads at {bandwidth:.0f} GB/s and a token reads {step / 1e9:.2f} GB: at most"
        f" {bandwidth * 1e9 / step:.0f} tokens/s on this CPU"
    )

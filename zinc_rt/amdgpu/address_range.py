"""Describes an address of the GPU for messages: the buffer there, or the nearest one."""

from __future__ import annotations

from collections.abc import Iterable

AddressRange = tuple[int, int, str]
"""Address, bytes, label."""


def place(va: int, ranges: Iterable[AddressRange]) -> str:
    """Which buffer an address is in, or the nearest one."""
    nearest = min(ranges, key=lambda r: max(r[0] - va, va - (r[0] + r[1] - 1), 0), default=None)
    if nearest is None:
        return "this interface has no buffers"
    start, size, label = nearest
    if start <= va < start + size:
        return f"in {label} at +{va - start:#x}"
    if va < start:
        return f"{start - va:#x} bytes before {label}"
    return f"{va - start - size:#x} bytes behind the end of {label}"

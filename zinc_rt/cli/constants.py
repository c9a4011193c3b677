"""The constants of a GPU that `zinc bench` measures, beside what the cost model takes them to be."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_OF: Final = {"dispatch": "packet"}
"""Measured names that the model calls otherwise."""


def card_intervals(isa: str) -> dict[str, dict[str, float]]:
    """The cost model's constants for a card of this generation: low, likely and high, by name."""
    from amdgpu_emu.constants import INTERVALS
    from amdgpu_emu.cost import bandwidth_name
    from amdgpu_emu.models import MODELS, R9700

    named = {f"gfx{major}{minor}{step}": m for m in MODELS.values() for major, minor, step in [m.gfx]}
    model = named.get(isa, R9700)
    known_as = {**_OF, "bandwidth": bandwidth_name(model.gfx)}
    names = ("bandwidth", "first_level", "l2", "infinity", "memory_idle", "dispatch", "barrier", "full_barrier",
             "submission")  # fmt: skip
    found = {}
    for name in names:
        known, unit = INTERVALS[known_as.get(name, name)], model.pins if name == "bandwidth" else 1.0
        found[name] = {"low": known.low * unit, "likely": known.likely * unit, "high": known.high * unit}
    return found


def constants_table(
    constants: Mapping[str, float], intervals: Mapping[str, Mapping[str, float]], *, emulated: bool
) -> str:
    """A Markdown table; empty without constants."""
    if not constants:
        return ""
    whose = "; by the clock of the emulator, which is none of the card's" if emulated else ""
    lines = [
        "",
        f"constants of the card, beside those of the cost model{whose}",
        "",
        "| constant     | unit |   measured |       low |    likely |      high |",
        "|--------------|------|-----------:|----------:|----------:|----------:|",
    ]
    for name, value in constants.items():
        unit, factor = ("GB/s", 1e-9) if name == "bandwidth" else ("us", 1e6)
        low, likely, high = (intervals[name][key] * factor for key in ("low", "likely", "high"))
        lines.append(f"| {name:12} | {unit:4} | {value * factor:10.3f} | {low:9.3f} | {likely:9.3f} | {high:9.3f} |")
    return "\n".join(lines) + "\n"

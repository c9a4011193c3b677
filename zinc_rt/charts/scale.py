"""Axes: round steps between nothing and the largest value."""

from __future__ import annotations

import math


def ticks(largest: float, about: int = 5) -> list[float]:
    """Round values from 0 to at least `largest`, about so many steps apart: 0, 20, 40, ...; [0, 1] for nothing."""
    if not largest > 0:
        return [0.0, 1.0]
    rough = largest / about
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(power * f for f in (1, 2, 2.5, 5, 10) if power * f >= rough * 0.999)
    return [step * i for i in range(math.ceil(largest / step - 1e-9) + 1)]


def label(value: float) -> str:
    """A value of an axis."""
    return f"{value:.4g}" if value < 1000 else f"{value:,.0f}"

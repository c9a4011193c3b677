"""Factors of queries by their position: what long contexts need for scores that stay apart."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from zinc_rt.ir.graph import BufferId
from zinc_rt.kernels.reference import nearest
from zinc_rt.models.definition import F32
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class Temperature:
    """1 + slope * ln(floor((position + offset) / length) + 1); a slope of 0 is none."""

    slope: float
    length: int
    offset: int = 0

    @classmethod
    def from_keys(cls, keys: Keys, original: int) -> Temperature:
        """Read `attention.temperature_*`. original: the context before extension, where no length is given.

        Raises `ModelError`.
        """
        length = keys.integer("attention.temperature_length", 0, minimum=0, maximum=1 << 31)
        return cls(keys.number("attention.temperature_scale", 0.0), length or original)

    def factors(self, n_ctx: int) -> F32:
        """Of every position, in float64 and rounded once: f32[n_ctx]."""
        steps = (np.arange(n_ctx) + self.offset) // self.length
        logs = np.array([nearest.log(step + 1) for step in range(int(steps[-1]) + 1)])
        return np.asarray(1.0 + self.slope * logs[steps], np.float32)

    def declare(self, parts: GraphParts) -> BufferId | None:
        """The constant of the factors, `q_factors`; None where there are none."""
        return parts.constant("q_factors", ("n_ctx",), self.factors) if self.slope > 0 else None

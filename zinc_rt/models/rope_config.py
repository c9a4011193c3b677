"""RoPE frequencies from metadata: plain, linear, YaRN and per-pair frequency factors (llama-3).

Everything is float64 on the host, powers and logarithms the nearest ones; only the finished cos/sin table is rounded to
float32, once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.ir.ops.rope import rope_table
from zinc_rt.kernels.reference import nearest
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.utils.checks import show

F64 = npt.NDArray[np.float64]

SCALING_TYPES = ("none", "linear", "yarn")
MAX_RATIO: Final = float(1 << 20)
"""The greatest factor, and 1 over the least: beyond, frequencies and the ends of YaRN's blend overflow."""


@dataclass(frozen=True)
class RopeConfig:
    """How positions become angles.

    dim: elements of a head that rotate. factor: context extension factor, 1 for none. original_context: the context
    before extension, beta_fast and beta_slow: rotations over it that bound YaRN's blend, log_multiplier: what takes
    YaRN's own magnitude back (1: wholly), all YaRN only. attn_factor: a factor on cos and sin. interleaved: pairs are
    neighbours (`llama`) rather than halves. Of "longrope" the factors by pair are all there is.
    """

    dim: int
    base: float
    interleaved: bool
    scaling: str = "none"
    factor: float = 1.0
    original_context: int = 0
    attn_factor: float = 1.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    log_multiplier: float = 0.0

    @classmethod
    def from_keys(
        cls, keys: Keys, head_dim: int, train_context: int, *, interleaved: bool, longrope: bool = False
    ) -> RopeConfig:
        """Read `rope.*`. longrope: whether the architecture knows that scaling type, too.

        Raises `ModelError` for a scaling type that is not built.
        """
        dim = keys.integer("rope.dimension_count", head_dim, maximum=head_dim)
        if dim % 2:
            raise ModelError(f"{keys.name('rope.dimension_count')} is {dim}, it must be even")
        scaling = keys.text("rope.scaling.type", "linear")  # a factor without a type is a linear one
        known = (*SCALING_TYPES, "longrope") if longrope else SCALING_TYPES
        if scaling not in known:
            raise ModelError(f"{keys.name('rope.scaling.type')} is {show(scaling)}; supported are {', '.join(known)}")
        factor = 1.0
        if scaling in ("linear", "yarn"):
            old = _ratio(keys, "rope.scale_linear", 1.0)  # the key of old files
            factor = _ratio(keys, "rope.scaling.factor", old)
        if scaling == "linear" and factor == 1.0:
            scaling = "none"
        multiplier = keys.number("rope.scaling.yarn_log_multiplier", 0.0)
        if multiplier > MAX_RATIO:
            name = keys.name("rope.scaling.yarn_log_multiplier")
            raise ModelError(f"{name} is {multiplier}, it must be at most {MAX_RATIO:.7g}")
        base = keys.number("rope.freq_base", 10000.0, minimum=1.0, above=True)
        if keys.number("rope.scaling.alpha", 0.0) > 0:  # of Hunyuan; older files have it in the base
            alpha = _ratio(keys, "rope.scaling.alpha", 1.0)
            base *= float(nearest.power(alpha, head_dim / max(1, head_dim - 2)))
        return cls(
            dim=dim,
            base=base,
            interleaved=interleaved,
            scaling=scaling,
            factor=factor,
            original_context=keys.integer("rope.scaling.original_context_length", train_context, maximum=1 << 31),
            attn_factor=_ratio(keys, "rope.scaling.attn_factor", 1.0),
            beta_fast=_ratio(keys, "rope.scaling.yarn_beta_fast", 32.0),
            beta_slow=_ratio(keys, "rope.scaling.yarn_beta_slow", 1.0),
            log_multiplier=multiplier,
        )

    def frequencies(self, factors: npt.ArrayLike | None = None) -> tuple[F64, float]:
        """Radians per position f64[dim / 2], and the factor on cos and sin.

        factors: f32[dim / 2] from the file's `rope_freqs.weight`; each frequency is divided by its factor.
        """
        pairs = np.arange(0, self.dim, 2, dtype=np.float64)
        freq = nearest.power(self.base, -pairs / self.dim)
        if factors is not None:
            freq = freq / np.asarray(factors, np.float64)
        if self.scaling == "yarn":
            keep = self._yarn_keep()
            freq = freq / self.factor * (1.0 - keep) + freq * keep
            log = 0.1 * nearest.log(self.factor)
            return freq, self.attn_factor * (1.0 + log) / (1.0 + self.log_multiplier * log)
        return freq / self.factor, self.attn_factor

    def unscaled(self, base: float | None = None) -> RopeConfig:
        """The same rotation without any context extension, by another base where one is given."""
        return replace(self, base=self.base if base is None else base, scaling="none", factor=1.0, attn_factor=1.0)

    def _yarn_keep(self) -> F64:
        """The share of each pair's own frequency that YaRN keeps: 1 for fast pairs, 0 for slow (Peng 2023, 3.2)."""

        def pair_of(rotations: float) -> float:
            turned = nearest.log(self.original_context / (rotations * 2 * math.pi))
            return self.dim * turned / (2 * nearest.log(self.base))

        low = max(0.0, math.floor(pair_of(self.beta_fast)))
        high = min(self.dim - 1.0, math.ceil(pair_of(self.beta_slow)))
        ramp = (np.arange(self.dim // 2) - low) / max(0.001, high - low)
        return np.asarray(1.0 - np.clip(ramp, 0.0, 1.0))

    def table(self, n_ctx: int, factors: npt.ArrayLike | None = None, *, block: int = 1) -> npt.NDArray[np.float32]:
        """cos and sin of every position, or of the first one of its block of so many: f32[n_ctx, dim / 2, 2]."""
        freq, magnitude = self.frequencies(factors)
        return rope_table(np.arange(n_ctx) // block * block, freq, magnitude)


def _ratio(keys: Keys, key: str, default: float) -> float:
    """A factor on frequencies or amplitudes, or a count of rotations. Raises `ModelError`."""
    value = keys.number(key, default, above=True)
    if not 1 / MAX_RATIO <= value <= MAX_RATIO:
        raise ModelError(f"{keys.name(key)} is {value}, it must be between {1 / MAX_RATIO:.3g} and {MAX_RATIO:.7g}")
    return value

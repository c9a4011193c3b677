"""Which layers of a model see a window of the last positions alone."""

from __future__ import annotations

from typing import Final

from zinc_rt.models.keys import Keys

ALL: Final = -1
"""In place of a period: windows on all layers."""


def windowed_layers(keys: Keys, n_layers: int, period: int | None = None, *, first: bool = False) -> tuple[bool, ...]:
    """Whether each layer is windowed, by `attention.sliding_window_pattern`: a flag for each layer, or a period.

    Args:
        keys: of the model.
        n_layers: layers.
        period: what holds where the file does not say; None where it must. All but one layer of every period are
            windowed.
        first: whether that one is the first of its period, instead of the last.

    Raises:
        ModelError
    """
    key = "attention.sliding_window_pattern"
    if keys.is_list(key):
        return keys.flags(key, n_layers)
    every = keys.integer(key, period, maximum=4096)
    return tuple(layer % every != (0 if first else every - 1) for layer in range(n_layers))

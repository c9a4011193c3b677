"""Typed access to a model's metadata: `<architecture>.<key>` with errors that name key, value and limit."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from zinc_rt.models.errors import ModelError
from zinc_rt.utils.checks import show


class Keys:
    """The metadata under one architecture's prefix."""

    def __init__(self, metadata: Mapping[str, Any], architecture: str) -> None:
        self._metadata = metadata
        self._prefix = architecture

    @property
    def architecture(self) -> str:
        """The prefix of the keys."""
        return self._prefix

    def name(self, key: str) -> str:
        """The full key in the file."""
        return f"{self._prefix}.{key}"

    def has(self, key: str) -> bool:
        """Whether the file has the key."""
        return self.name(key) in self._metadata

    def _value(self, key: str, default: Any) -> Any:
        full = self.name(key)
        if full in self._metadata:
            return self._metadata[full]
        if default is None:
            named = self._metadata.get("general.architecture", self._prefix)  # some keys have another prefix
            raise ModelError(f"the file has no {full}, which architecture {show(named)} needs; it may be incomplete")
        return default

    def integer(self, key: str, default: int | None = None, *, minimum: int = 1, maximum: int = 1 << 24) -> int:
        """An integer in minimum .. maximum. Raises `ModelError`, also without key and default."""
        value = self._value(key, default)
        if isinstance(value, np.ndarray):  # some files give one value a layer
            if value.size == 0 or not np.issubdtype(value.dtype, np.integer) or (value != value.flat[0]).any():
                raise ModelError(f"{self.name(key)} is {value.tolist()[:8]}, the same integer in every layer is needed")
            value = int(value.flat[0])
        if isinstance(value, bool) or not isinstance(value, int):
            raise ModelError(f"{self.name(key)} is {show(value)}, an integer is needed")
        if not minimum <= value <= maximum:
            raise ModelError(f"{self.name(key)} is {value}, it must be between {minimum} and {maximum}")
        return value

    def integers(self, key: str, n_layers: int, *, minimum: int = 1, maximum: int = 1 << 24) -> tuple[int, ...]:
        """An integer in minimum .. maximum for each layer, of a key that holds one for all or an array.

        Raises `ModelError`.
        """
        value = self._value(key, None)
        if not isinstance(value, np.ndarray):
            return (self.integer(key, minimum=minimum, maximum=maximum),) * n_layers
        if value.shape != (n_layers,) or not np.issubdtype(value.dtype, np.integer):
            raise ModelError(f"{self.name(key)} is {value.tolist()[:8]}, {n_layers} integers are needed, one a layer")
        for layer, one in enumerate(value.tolist()):
            if not minimum <= one <= maximum:
                raise ModelError(
                    f"{self.name(key)} is {one} in layer {layer}, it must be between {minimum} and {maximum}"
                )
        return tuple(value.tolist())

    def whole_numbers(self, key: str, n: int) -> tuple[int, ...]:
        """n integers from 0 up to 2^64 - 1, of a key that holds an array. Raises `ModelError`."""
        values = np.atleast_1d(self._value(key, None)).tolist()
        if len(values) != n or not all(isinstance(v, int) and 0 <= v < 1 << 64 for v in values):
            raise ModelError(f"{self.name(key)} is {values[:8]}, {n} integers from 0 to 2^64 - 1 are needed")
        return tuple(values)

    def number(self, key: str, default: float | None = None, *, minimum: float = 0.0, above: bool = False) -> float:
        """A finite float, at least `minimum` (or above it). Raises `ModelError`, also without key and default."""
        value = self._value(key, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise ModelError(f"{self.name(key)} is {show(value)}, a finite number is needed")
        if value < minimum or (above and value == minimum):
            raise ModelError(f"{self.name(key)} is {value}, it must be {'above' if above else 'at least'} {minimum}")
        return float(value)

    def flag(self, key: str, default: bool | None = None) -> bool:
        """True or false. Raises `ModelError`, also without key and default."""
        value = self._value(key, default)
        if not isinstance(value, bool):
            raise ModelError(f"{self.name(key)} is {show(value)}, true or false is needed")
        return value

    def is_list(self, key: str) -> bool:
        """Whether the file has the key with several values."""
        return isinstance(self._metadata.get(self.name(key)), np.ndarray | list | tuple)

    def length(self, key: str) -> int:
        """How many values the key has; 0 without it."""
        return int(np.atleast_1d(self._metadata[self.name(key)]).size) if self.has(key) else 0

    def flags(self, key: str, n_layers: int) -> tuple[bool, ...]:
        """True or false for each layer, of a key that holds an array. Raises `ModelError`."""
        values = np.atleast_1d(self._value(key, None)).tolist()
        if len(values) != n_layers or not all(v in (0, 1) for v in values):
            raise ModelError(f"{self.name(key)} is {values[:8]}, {n_layers} of true or false are needed, one a layer")
        return tuple(bool(v) for v in values)

    def text(self, key: str, default: str | None = None) -> str:
        """A string. Raises `ModelError`, also without key and default."""
        value = self._value(key, default)
        if not isinstance(value, str):
            raise ModelError(f"{self.name(key)} is {show(value)}, a string is needed")
        return value

    def numbers(self, key: str, n: int, *, above: float | None = None) -> tuple[float, ...]:
        """n finite numbers, greater than `above` where that is given. Raises `ModelError`."""
        values = np.atleast_1d(self._value(key, None)).tolist()
        fit = len(values) == n and all(isinstance(v, int | float) and math.isfinite(v) for v in values)
        if not fit or (above is not None and min(values) <= above):
            limit = "" if above is None else f" above {above:g}"
            raise ModelError(f"{self.name(key)} is {values[:8]}, {n} finite numbers{limit} are needed")
        return tuple(float(v) for v in values)

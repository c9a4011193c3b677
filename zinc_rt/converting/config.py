"""Typed reads of config.json. Every complaint names the key and the value that was seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.converting.errors import ConvertError
from zinc_rt.utils.checks import show

_LARGEST: Final = 3.4028234663852886e38
"""Of a float32, which files store: it bounds whole numbers of many digits, too, which no float holds."""


class Config:
    """The configuration of a text model; a null counts as absent."""

    def __init__(self, values: Mapping[str, Any], where: str = "config.json") -> None:
        self._values, self._where = values, where

    def get(self, name: str, default: Any = None) -> Any:
        """The value as it is."""
        value = self._values.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Whether there is a value."""
        return self._values.get(name) is not None

    def _value(self, name: str, default: Any) -> Any:
        value = self.get(name, default)
        if value is None:
            raise ConvertError(f"{self._where} has no {name}, which this model needs")
        return value

    def integer(self, name: str, default: int | None = None) -> int:
        """An integer from 0 on. Raises `ConvertError`."""
        value = self._value(name, default)
        if type(value) is not int or not 0 <= value < 1 << 32:
            raise ConvertError(f"{self._where}: {name} is {show(str(value))}, an integer is needed")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A number that a float32 holds. Raises `ConvertError`."""
        value = self._value(name, default)
        if not _is_number(value):
            raise ConvertError(f"{self._where}: {name} is {show(str(value))}, a number is needed")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """True or false. Raises `ConvertError`."""
        value = self._value(name, default)
        if not isinstance(value, bool):
            raise ConvertError(f"{self._where}: {name} is {show(str(value))}, true or false is needed")
        return value

    def values(self, name: str) -> dict[str, Any]:
        """The values of an object within; none where there is none. Raises `ConvertError`."""
        value = self.get(name, {})
        if not isinstance(value, dict):
            raise ConvertError(f"{self._where}: {name} is {show(str(value))}, an object is needed")
        return value

    def part(self, name: str) -> Config:
        """An object within; an empty one where there is none. Raises `ConvertError`."""
        return Config(self.values(name), f"{self._where}: {name}")

    def numbers(self, name: str, count: int) -> list[float]:
        """A list of so many numbers that a float32 holds. Raises `ConvertError`."""
        value = self._value(name, None)
        if not isinstance(value, list) or len(value) != count or not all(map(_is_number, value)):
            raise ConvertError(f"{self._where}: {name} is {show(str(value))}, {count} numbers are needed")
        return [float(x) for x in value]

    def layer_types(self, n_layers: int) -> list[str] | None:
        """The kind of each layer, None where they are not listed. Raises `ConvertError`."""
        value = self.get("layer_types")
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != n_layers or not all(type(x) is str for x in value):
            raise ConvertError(f"{self._where}: layer_types is no list of {n_layers} names")
        return value

    def require(self, name: str, *allowed: Any, absent: Any = None) -> None:
        """Raise `ConvertError` for another value than these. absent: what a missing key means; the first one."""
        value = self.get(name, allowed[0] if absent is None else absent)
        if value not in allowed or isinstance(value, bool) is not isinstance(allowed[0], bool):
            words = " or ".join(show(str(x)) for x in allowed)
            raise ConvertError(
                f"{self._where} has {name} = {show(str(value))}, a variant that is not converted; {words} would be"
            )


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= _LARGEST

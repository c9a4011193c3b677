"""Structs in memory, as kernels read them."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.host_memory import aligned_zeros
from zinc_rt.lang.types import layout_of


def address_of(array: npt.NDArray[Any]) -> int:
    """Where an array's first element lies."""
    return int(array.__array_interface__["data"][0])


_CODES = {"i1": "b", "u1": "B", "i2": "h", "u2": "H", "i4": "i", "u4": "I", "i8": "q", "u8": "Q", "f4": "f", "f8": "d"}


@dataclass(frozen=True)
class _Kind:
    """How a struct is written: the bytes of its fields in order, and its NumPy type."""

    code: struct.Struct
    names: tuple[str, ...]
    dtype: np.dtype[np.void]

    @property
    def size(self) -> int:
        """Bytes."""
        return self.code.size


@lru_cache(maxsize=64)
def _kind(of: object) -> _Kind:
    described = dict(layout_of(of).numpy)
    text, at = "<", 0
    for code, offset in zip(described["formats"], described["offsets"], strict=True):
        text += f"{offset - at}x{_CODES[code]}"
        at = offset + int(code[1:])
    names = tuple(described["names"])
    return _Kind(struct.Struct(f"{text}{described['itemsize'] - at}x"), names, np.dtype(described))  # type: ignore[call-overload]


def table(of: object, n: int) -> npt.NDArray[np.void]:
    """`n` structs in memory, zero, at a multiple of 64."""
    kind = _kind(of)
    return aligned_zeros(n * kind.size).view(kind.dtype)


class Records:
    """Structs of several kinds in one stretch of memory, each at a multiple of 64, zero until written.

    memory: the stretch; offsets: of each struct in it.
    """

    def __init__(self, structs: Iterable[object]) -> None:
        self._kinds = [_kind(of) for of in structs]
        self.offsets: list[int] = []
        size = 0
        for kind in self._kinds:
            self.offsets.append(size)
            size += -(-kind.size // 64) * 64
        self.memory = aligned_zeros(size)
        self._base = address_of(self.memory)

    def write(self, index: int, values: Mapping[str, Any]) -> int:
        """Give a struct its fields' values, 0 where there is none; arrays stand for their address. Where it lies.

        Raises KeyError for a value without a field.
        """
        kind, at = self._kinds[index], self.offsets[index]
        if unknown := values.keys() - set(kind.names):
            raise KeyError(", ".join(sorted(unknown)))
        fields = (values.get(name, 0) for name in kind.names)
        kind.code.pack_into(self.memory.data, at, *(address_of(v) if isinstance(v, np.ndarray) else v for v in fields))
        return self._base + at


def record(of: object, values: Mapping[str, Any]) -> npt.NDArray[np.void]:
    """One struct in memory; arrays stand for their address. Raises KeyError for a value without a field."""
    one = Records([of])
    one.write(0, values)
    kind = _kind(of)
    return one.memory[: kind.size].view(kind.dtype)

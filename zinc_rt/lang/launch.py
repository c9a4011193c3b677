"""Compiled kernels of GPUs as drivers launch them: code, arguments, work-items of a workgroup."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from zinc_rt.lang.errors import LangError
from zinc_rt.lang.frontend import Spec, argument_dwords, interface
from zinc_rt.lang.native import checked_argument
from zinc_rt.lang.target import Target
from zinc_rt.lang.types import Bool, Float, Int, Type


@dataclass(frozen=True)
class Argument:
    """A run-time parameter; dword: its first one among the arguments' (`argument_dwords`)."""

    name: str
    type: Type
    dword: int


@dataclass(frozen=True, kw_only=True)
class GpuKernel:
    """One kernel as a driver launches it: one-dimensional workgroups.

    symbol: its name in the code; code: for the device, or for the driver to compile; wave: lanes; target: of `lang`;
    assembly: its text, where that was asked for.
    """

    name: str
    symbol: str
    code: bytes
    arguments: tuple[Argument, ...]
    workgroup: int
    wave: int = 32
    target: str
    assembly: str = ""

    @property
    def dwords(self) -> int:
        """Of all arguments."""
        return dwords_of(self.arguments)

    def user_data(self, *values: Any) -> tuple[int, ...]:
        """The dwords for USER_DATA_0 onwards; pointers are GPU addresses. Raises `LangError` for wrong values."""
        if len(values) != len(self.arguments):
            raise LangError(f"{self.name} takes {len(self.arguments)} arguments, got {len(values)}")
        out: list[int] = []
        for argument, value in zip(self.arguments, values, strict=True):
            x = checked_argument(self.name, argument.name, argument.type, value)
            out += struct.unpack(f"<{argument_dwords(argument.type)}I", _packed(argument.type, x or 0))
        return tuple(out)


class LaunchTime(NamedTuple):
    """What a launch took by the device's clock. name: the kernel's; groups: workgroups; step: the number of its list;
    start, seconds: since the list began, and its own.
    """

    name: str
    groups: tuple[int, int, int]
    step: int
    start: float
    seconds: float


def arguments_of(spec: Spec, target: Target) -> tuple[Argument, ...]:
    """The parameters of a kernel, one behind the other without holes."""
    found, at = [], 0
    for name, kind in interface(spec, target).parameters:
        found.append(Argument(name, kind, at))
        at += argument_dwords(kind)
    return tuple(found)


def dwords_of(arguments: Sequence[Argument]) -> int:
    """Dwords of all arguments."""
    return arguments[-1].dword + argument_dwords(arguments[-1].type) if arguments else 0


def _packed(kind: Type, value: Any) -> bytes:
    if isinstance(kind, Float):
        return struct.pack("<f" if kind.bits == 32 else "<d", value)
    if isinstance(kind, Int | Bool) and kind.size < 8:
        return struct.pack("<I", int(value) & 0xFFFFFFFF)
    return struct.pack("<Q", int(value) & 0xFFFFFFFFFFFFFFFF)

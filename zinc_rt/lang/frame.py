"""The names of one function during compilation, with the run-time control flow in which they are valid.

A name that is assigned in one place is the value itself; one that is assigned in several is a stack cell. What is first
assigned within a branch or a loop is unknown after it, unless every branch that reaches the end assigns it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.values import Constant, StackSlot, Val, describe, is_static

Binding = Val | StackSlot | Constant


class Frame:
    """One function's names: the kernel's, or those of a helper being inlined."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[str, Binding] = {}
        self.counters: set[str] = set()  # variables of the run-time loops around here
        self.twins: dict[
            str, StackSlot
        ] = {}  # variables of the `if` whose `else` this is: the same name gets the same cell
        self.lost: dict[str, str] = {}  # names that were known and why they no longer are

    def unknown(self, name: str) -> Reject:
        """Why a local name has no value here."""
        return Reject(f"{name} {self.lost.get(name, 'is used before it is assigned')}")


@dataclass
class Arm:
    """One side of an `if` after it was compiled: the names at its end, and whether the end is reached."""

    names: dict[str, Binding]
    reached: bool


def merge(frame: Frame, arms: tuple[Arm, Arm], line: int, region: int) -> None:
    """Bind the names on which both arms of an `if` agree; if only one arm reaches the end, all of its names."""
    before = frame.names
    ends = [arm.names for arm in arms if arm.reached]
    for name in dict.fromkeys(n for arm in arms for n in arm.names):
        if name in before:
            continue
        found = [names.get(name) for names in ends]
        if found and all(b is not None for b in found) and (joined := _same(found, region)) is not None:
            before[name] = joined
        elif any(b is None for b in found):
            frame.lost[name] = (
                f"is assigned on one side only of the `if` in line {line}; assign it before, or on both sides"
            )
        elif found:
            kinds = " and ".join(_kind(b) for b in found)
            frame.lost[name] = (
                f"is {kinds} on the sides of the `if` in line {line}; declare it before: `{name}: type = …`"
            )


def _same(found: list[Any], region: int) -> Binding | None:
    """The binding that all of these are."""
    first = found[0]
    if isinstance(first, Constant):
        same = all(isinstance(b, Constant) and _equal(b.value, first.value) for b in found)
        return Constant(first.value, region) if same else None
    same = all(
        b is first or (isinstance(b, StackSlot) and isinstance(first, StackSlot) and b.ref == first.ref) for b in found
    )
    return first if same else None


def _equal(a: Any, b: Any) -> bool:
    """Whether two compile-time values are one, types included."""
    if a is b:
        return True
    if type(a) is not type(b) or not is_static(a) or not is_static(b):
        return False
    if isinstance(a, tuple):
        return len(a) == len(b) and all(_equal(x, y) for x, y in zip(a, b, strict=True))
    return isinstance(a, bool | int | float | str) and repr(a) == repr(b)


def _kind(binding: Any) -> str:
    return describe(binding.value) if isinstance(binding, Constant) else describe(binding)

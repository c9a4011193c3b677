"""Built-in functions that act at compile time."""

from __future__ import annotations

from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.comptime import truth
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.lower.registry import lowers, want_static, want_val
from zinc_rt.lang.target import RESIDENT, TARGETS
from zinc_rt.lang.types import lanes_of
from zinc_rt.lang.values import describe, is_static


@lowers(ops.unroll)
def _unroll(c: Any, start: Any, stop: Any, step: Any) -> Any:
    raise Reject("unroll belongs in `for name in unroll(…)`")


@lowers(ops.static_assert)
def _static_assert(c: Any, condition: Any, message: Any) -> None:
    if not is_static(condition):
        raise Reject(f"the condition must be known at compile time, got {describe(condition)}")
    if not truth(condition):
        raise Reject(str(message))


@lowers(ops.target_has)
def _target_has(c: Any, feature: Any) -> bool:
    known = sorted({RESIDENT, *(name for target in (*TARGETS.values(), c.target) for name in target.isa)})
    if want_static(feature, str, "the feature") not in known:
        raise Reject(f"no target has an instruction set {feature!r}; there are {', '.join(known)}")
    return feature in c.target.isa


@lowers(ops.lanes)
def _lanes(c: Any, x: Any) -> int:
    return lanes_of(want_val(x, "the argument of lanes").type)

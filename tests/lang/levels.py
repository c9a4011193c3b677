"""Kernels compiled together, once for each instruction-set level that this machine can run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from tests.compiled import images
from zinc_rt.lang import TARGETS, NativeKernel, Spec, Target, emit_module, host_targets
from zinc_rt.lang.target import EMULATED

LEVELS = [target.name for target in host_targets()]
EMULATED_VNNI = replace(TARGETS["avx2"], isa=TARGETS["avxvnni"].isa | {EMULATED})
"""Kernels as the level `avxvnni` has them, for any machine with AVX2."""
_GROUP = 24  # kernels in a module: few, so that a child has some work; not too few, since each module costs a pass


class Kernels:
    """Kernels of one level, found by function and constants."""

    def __init__(self, specs: Sequence[Spec], target: Target) -> None:
        self.target = target
        groups = [specs[i : i + _GROUP] for i in range(0, len(specs), _GROUP)]
        modules = [emit_module(f"group {i}", group, target) for i, group in enumerate(groups)]
        self._built: dict[str, NativeKernel] = {}
        for group, image in zip(groups, images(modules), strict=True):
            code = image.load()
            self._built |= {s.symbol: NativeKernel(s, target, code.address(s.symbol), code) for s in group}

    def __call__(self, function: Any, **constants: Any) -> NativeKernel:
        return self._built[Spec(function, constants).symbol]


@cache
def kernels(module: str, level: str) -> Kernels:
    """The kernels that a test module names in SPECS, compiled for a level."""
    from importlib import import_module

    (target,) = (t for t in host_targets() if t.name == level)
    return Kernels(import_module(module).SPECS, target)

"""How much of the GPU's time an operation takes, in products of int8 weights: what submissions are cut by."""

from __future__ import annotations

from math import prod

from zinc_rt.backends.amdgpu.operations import GpuOperation, StepShape
from zinc_rt.kernels.rdna.catalogue import FLOATS, KernelEntry

_FLOAT_PRODUCT = 4
"""Of a product of floats: four products of int8 are one instruction, and float weights are two to four bytes."""
_DISPATCH, _GROUP = 1 << 20, 1 << 12
"""Of a dispatch and of each of its workgroups, whatever they do: norms and recurrences count no products."""


def work_of(op: GpuOperation, shape: StepShape) -> int:
    """The work of a dispatch for a step of this shape."""
    entry = op.kernel(shape)
    return op.work(shape) * _weight(entry) + _GROUP * prod(op.groups(shape)) + _DISPATCH


def _weight(entry: KernelEntry) -> int:
    floats = any(value in FLOATS for value in entry.spec.constants.values() if isinstance(value, str))
    attends = entry.spec.function.name.startswith("attention")
    return _FLOAT_PRODUCT if floats or attends else 1

"""Where a step's inputs and outputs lie: what the processor writes is write-combined, what it reads is cached by it."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from amdgpu_emu.memory import BufferObject
from tests.backends.amdgpu.stage import amd_backend
from tests.backends.cpu.test_graphs import random_case


def buffer_of(made: Any, array: npt.NDArray[Any]) -> BufferObject:
    """The emulated buffer behind an array."""
    (process,) = made.processes
    found = process.map_at(array.__array_interface__["data"][0])
    assert found is not None
    return found[2]


@pytest.mark.parametrize(("interface", "combined"), [("cs", True), ("kfd", False), ("umq", False)])
def test_inputs_and_outputs(interface: str, combined: bool) -> None:
    case, _ = random_case(101)
    with amd_backend(interface) as (backend, made):
        lowered = backend.lower(backend.plan(case.graph, case.sizes), case.weights, case.constants)
        for given, is_combined in ((lowered.inputs, combined), (lowered.outputs, False)):
            buffers = [buffer_of(made, array) for array in given.values() if isinstance(array, np.ndarray)]
            assert buffers
            for bo in buffers:
                assert bo.placement == "GTT"
                assert bo.write_combined is is_combined
                assert not bo.uncached
        del lowered, given, buffers, bo  # arrays keep their memory mapped

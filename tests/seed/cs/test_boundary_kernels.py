"""The operations of `TokenBoundary` with its real kernels: machine code on the emulated shader core."""

from __future__ import annotations

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from tests.amdgpu.cs.machines import NODE, process
from tests.helpers import soon
from tests.seed.cs.boundary_cases import CHECKS
from tests.seed.cs.rows import pack_q8_0, same
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.kernels.reference.matmul import Weight, matmul
from zinc_rt.seed.cs import TokenBoundary


# `tests/kernels/gpu/test_boundary_kernels.py` has the products of Q8_0, the next test those of F32.
@pytest.mark.parametrize("name", soon(CHECKS.keys() - {"dmmv_q8_0", "dmmv_f32"}, CHECKS))
def test_answers(name: str) -> None:
    with process(shader=ShaderCore()) as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        CHECKS[name](boundary)


def test_every_form_gives_the_reference_kernels_answer() -> None:
    rng = np.random.default_rng(11)
    cols, x = 64, rng.standard_normal(64).astype(np.float32)
    raw = np.frombuffer(pack_q8_0(rng, 64, cols), np.uint8).reshape(64, -1)
    floats = np.ascontiguousarray(blocks.dequantize(GGMLType.Q8_0, raw))
    expected = matmul(x[None], Weight(GGMLType.F32, floats.view(np.uint8), cols))[0]
    with process(shader=ShaderCore()) as linux, TokenBoundary.init_path(NODE, linux=linux) as boundary:
        wave, few = np.zeros(64, np.float32), 3
        serial, two, dense = (np.zeros(few, np.float32) for _ in range(3))
        boundary.dmmv_q8_0_two_row_ranges_parallel64(x, raw[:32], 32, raw[32:], 32, cols, wave)
        boundary.dmmv_q8_0_row_range(x, raw[:few], few, cols, serial)
        boundary.dmmv_q8_0_two_row_ranges(x, raw[:1], 1, raw[1:few], 2, cols, two)
        boundary.dmmv_f32_row_range(x, floats[:few], few, cols, dense)
    assert same(wave, expected)
    for found in (serial, two, dense):
        assert same(found, expected[:few])

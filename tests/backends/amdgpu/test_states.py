"""Copies of what sequences keep of recurrent layers, on an emulated GPU."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend
from tests.backends.cpu.both import Net
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu.backend import GpuLoweredGraph
from zinc_rt.errors import BackendError
from zinc_rt.ir.op import Op

WORDS = (3, 1024, 5000)
"""Of a slot, in three buffers of three slots."""


def test_copies_go_out_and_into_any_slot() -> None:
    with amd_backend() as (backend, _):
        _copies(backend)  # whose arrays look at memory that the backend gives back


def _copies(backend: AmdBackend) -> None:
    rng = np.random.default_rng(1)
    net = Net(2)
    x = net.rows("x", 8)
    net.node(Op.RESIDUAL_ADD, [x, x], [net.out("y", 8)])
    case = net.case([])
    lowered = backend.lower(backend.plan(case.graph, case.sizes), {}, {})
    assert isinstance(lowered, GpuLoweredGraph)
    held = [backend.gpu.alloc(3 * 4 * n, label="state") for n in WORDS]
    values = [rng.integers(0, 1 << 32, (3, n), np.uint32) for n in WORDS]
    for memory, value in zip(held, values, strict=True):
        backend.gpu.write(memory, value)
    batch = replace(lowered, slots=tuple((m.va, 4 * n) for m, n in zip(held, WORDS, strict=True)))
    copy = backend.save_state(batch, 1)
    assert copy.n_bytes >= 4 * sum(WORDS)
    for memory, value in zip(held, values, strict=True):
        backend.gpu.write(memory, np.zeros_like(value))
    for slot in (2, 1):
        backend.load_state(batch, slot, copy)
    for memory, value in zip(held, values, strict=True):
        got = np.frombuffer(backend.gpu.read(memory, value.nbytes), np.uint32).reshape(value.shape)
        np.testing.assert_array_equal(got, value[[1, 1, 1]] * np.array([[0], [1], [1]], np.uint32))
    with pytest.raises(BackendError, match="another graph"):
        backend.load_state(lowered, 0, copy)
    copy.close()
    copy.close()
    with pytest.raises(BackendError, match="or was closed"):
        backend.load_state(batch, 0, copy)
    for memory in held:
        backend.gpu.free(memory)

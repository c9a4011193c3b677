"""RX 7000 cards and processors' GPUs of gfx11.5: the same graphs and models on gfx11 code, and what its barriers need
more than those of gfx12.

`pytest --gpu --gpu-card rx7900xtx` runs all tests of kernels and backend there.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from amdgpu_emu.core.core import ShaderCore
from amdgpu_emu.models import RX7600, RX7800XT, RX7900XTX, STRIX_HALO, STRIX_POINT, GpuModel
from tests.amdgpu.queue.stage import machine
from tests.backends.amdgpu.stage import amd_backend, check
from tests.backends.amdgpu.test_models import LENGTH, logits
from tests.backends.cpu.both import assert_same
from tests.backends.cpu.test_graphs import random_case
from tests.backends.cpu.test_whole_models import SPECS
from tests.helpers import random_tokens, write_model
from zinc_rt.amdgpu import gfx
from zinc_rt.amdgpu.pm4.builder import ACQUIRE_KERNEL
from zinc_rt.backends.gpu.selftest import WrongResults, check_results
from zinc_rt.engine.engine import Device, Options


@pytest.mark.slow  # by default the self-test, a small model's step, runs code of gfx11
@pytest.mark.parametrize("spec", ["llama-q4_k_m", "qwen3-q8_0"])
@pytest.mark.parametrize(
    ("model", "device", "chunk"),
    [(RX7900XTX, Device.gpu_kfd, 7), (RX7600, Device.gpu_cs, LENGTH), (STRIX_HALO, Device.gpu_cs, LENGTH)],
)
def test_the_references_logits(spec: str, model: GpuModel, device: Device, chunk: int, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", replace(SPECS[spec], n_layers=1)).path
    tokens = random_tokens(1, LENGTH if chunk == LENGTH else chunk + 2, 61)
    options = Options(n_ctx=32, n_batch=LENGTH)
    want = logits(path, tokens, len(tokens), replace(options, kernels="reference"))
    with machine(models=[model], shader=ShaderCore(), time_scale=100.0) as made:
        got = logits(path, tokens, chunk, replace(options, device=device), made)
    assert_same(got.view(np.uint32), want.view(np.uint32), f"{model.name}, {device}")


@pytest.mark.parametrize(
    ("model", "interface"),
    [
        (RX7900XTX, "umq"),
        pytest.param(RX7800XT, "kfd", marks=pytest.mark.slow),
        pytest.param(RX7600, "cs", marks=pytest.mark.slow),
        pytest.param(STRIX_HALO, "kfd", marks=pytest.mark.slow),
        pytest.param(STRIX_HALO, "umq", marks=pytest.mark.slow),
        pytest.param(STRIX_POINT, "cs", marks=pytest.mark.slow),
    ],
)
def test_the_self_test(model: GpuModel, interface: str) -> None:
    with amd_backend(interface, models=[model]) as (backend, _):
        assert backend.features.isa == "gfx{}{}{}".format(*model.gfx)
        check_results(backend)


@pytest.mark.slow  # by default the self-test's graph
def test_a_random_graph() -> None:
    with amd_backend("kfd", models=[RX7900XTX]) as (backend, _):
        check(backend, *random_case(101))


def test_barriers_that_leave_the_shader_arrays_cache_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """The light barrier of gfx12 is not enough: a kernel then reads what the cache in front of the L2 held before."""
    older = replace(gfx.GFX11, acquire_kernel=ACQUIRE_KERNEL)
    monkeypatch.setattr(gfx, "GENERATIONS", (older, gfx.GFX12))
    with amd_backend("kfd", models=[RX7900XTX]) as (backend, _), pytest.raises(WrongResults):
        check_results(backend)

"""The self-test through CUDA's driver: every call of it, kernels on OpenCL's CPU driver, the bits of the reference."""

from __future__ import annotations

import json

import pytest

from tests.cuda.fake import FakeCuda
from tests.cuda.opencl_cpu import device
from tests.cuda.stage import cuda_backend, kept
from zinc_rt.backends.gpu.selftest import SelfTest, check_arithmetic

pytestmark = pytest.mark.usefixtures("processor")


@pytest.fixture(scope="module")
def processor() -> None:
    """Skips where kernels cannot run."""
    device()


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
def test_the_self_test(seed: int) -> None:
    """A graph is launched from the second step on, with its nodes in any order that its edges allow."""
    with cuda_backend(FakeCuda(seed=seed)) as (backend, fake):
        test = SelfTest(backend)
        for _ in range(4):
            test.run()
        assert fake.graphs_launched == 3
        check_arithmetic(backend.gpu, kept())
        backend.start_profile(test._lowered)
        test.run()
        profile = backend.finish_profile()
        assert (fake.graphs_launched, profile.n_events) == (3, len(json.loads(profile.chrome_trace())["traceEvents"]))
        head, _, *rows = profile.lines()
        assert head.startswith("measured on Fake 4090: ")
        assert len(rows) == len({row.split("  ")[1] for row in rows}) > 9

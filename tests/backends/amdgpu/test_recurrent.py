"""Recurrent layers on the emulated GPU: the reference's bits, over steps and sequences."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend, check
from tests.backends.cpu.both import Case, expected, finite_share
from tests.backends.cpu.hostile import ordinary
from tests.backends.cpu.test_recurrent import CASES, delta, net, state, steps, where
from tests.kernels.material import T, packed_rows
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.backends.gpu.operations import StepShape
from zinc_rt.errors import BackendError
from zinc_rt.ir.op import Op


def normed(n_k: int, n_v: int, dim: int, kind: T = T.Q8_0, activation: str = "silu", **decay: Any) -> Case:
    """The delta rule, the norm of its heads, and a product that reads nothing else."""
    rng = np.random.default_rng(n_v * dim)
    made = net()
    kept, width, rates = state(made, n_v, dim, dim), (2 * n_k + n_v) * dim, n_v * dim if decay else n_v
    a, dt = made.vector(-np.exp(ordinary(rng, 1, n_v)[0])), made.vector(ordinary(rng, 1, rates)[0])
    o, y = made.temp(n_v * dim), made.temp(n_v * dim)
    made.node(
        Op.SSM_DELTA_NET,
        [made.rows("u", width), made.rows("alpha", rates), made.rows("beta", n_v), a, dt, kept, *where(made)],
        [o, kept],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=dim,
        eps=1e-6,
        pairing="modulo",
        **decay,
    )
    norm = made.vector(ordinary(rng, 1, dim)[0])
    attrs: dict[str, Any] = {"eps": 1e-5, "n_heads": n_v, "head_dim": dim, "activation": activation}
    made.node(Op.SSM_GATED_NORM, [o, made.rows("z", n_v * dim), norm], [y], **attrs)
    raw = packed_rows(kind, rng, 7, n_v * dim)
    made.node(Op.MATMUL, [y, made.matrix(kind, raw)], [made.out("p", 7)])
    return made.case(steps(rng, {"u": width, "alpha": rates, "beta": n_v, "z": n_v * dim}))


def convolved(n: int, taps: int, kind: T, bias: bool) -> Case:
    """A product and the convolution of its channels, in steps of few rows and of more than one block has."""
    rng = np.random.default_rng(n * taps)
    made = net()
    y, kept = made.temp(n), state(made, taps - 1, n)
    raw = packed_rows(kind, rng, n, 96) if kind.quantized else ordinary(rng, n, 96).view(np.uint8)
    made.node(Op.MATMUL, [made.rows("x", 96), made.matrix(kind, raw)], [y])
    inputs = [y, made.matrix(T.F32, ordinary(rng, n, taps).view(np.uint8)), kept, *where(made)]
    if bias:
        inputs.append(made.vector(ordinary(rng, 1, n)[0]))
    made.node(Op.SSM_CONV1D, inputs, [made.out("y", n), kept], activation="none" if bias else "silu")
    return made.case(steps(rng, {"x": 96}))


ALL: dict[str, Callable[[], Case]] = {
    **CASES,
    "delta 256": lambda: delta(1, 1, 256, "block"),
    "norm 64": lambda: normed(1, 2, 64),
    "norm 128": lambda: normed(1, 2, 128, T.Q4_K),
    "norm 256": lambda: normed(1, 1, 256, T.Q6_K),
    "channels, norm 32": lambda: normed(1, 1, 32, activation="sigmoid", decay="channel"),
    "channels 160": lambda: delta(1, 1, 160, "block", decay="channel"),
    "product, conv 4": lambda: convolved(52, 4, T.Q8_0, False),
    "float product, conv 3 with bias": lambda: convolved(13, 3, T.F32, True),
}


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


SOON = (
    *("wild conv", "delta 32 in blocks", "delta of odd size", "wild delta"),
    *("conv of thirds", "channels of odd size", "sigmoid norm", "channels, norm 32"),
    *("float product, conv 3 with bias", "wild scan"),
)
"""Each kernel once. The others are slow tests, as are the widest heads, which take longest, and the whole layer and the
convolution behind a product of int8, which `test_fusion.py` has in a model.
"""


@pytest.mark.parametrize("name", [n if n in SOON else pytest.param(n, marks=pytest.mark.slow) for n in ALL])
def test_recurrent(backend: AmdBackend, name: str) -> None:
    case = ALL[name]()
    want = expected(case)
    assert finite_share(want, case) > (0.05 if "wild" in name else 0.99)
    check(backend, case, want)


def test_the_norm_rides_with_the_rule() -> None:
    case = normed(1, 2, 128)
    found = [op.name for op in GpuLowering(case.graph, case.sizes).run().operations]
    assert len(found) == 2


def test_a_convolution_rides_with_its_product() -> None:
    """In steps of few rows alone."""
    case = convolved(52, 4, T.Q8_0, False)
    found = GpuLowering(case.graph, case.sizes).run().operations
    for n, names in ((8, ["quantize", "matvec_conv"]), (9, ["quantize", "matvec_block", "conv1d"])):
        shape = StepShape(n, 1, 1)
        assert [op.kernel(shape).spec.function.name for op in found if op.when(shape)] == names


def test_what_the_kernels_cannot_do() -> None:
    rng = np.random.default_rng(1)
    made = net()
    kept, at = state(made, 16, 8), where(made)
    taps = made.matrix(T.F32, ordinary(rng, 8, 17).view(np.uint8))
    made.node(Op.SSM_CONV1D, [made.rows("x", 8), taps, kept, *at], [made.out("y", 8), kept])
    with pytest.raises(BackendError, match="17 taps; the GPU kernels do 2 to 16"):
        GpuLowering(made.b.build(), made.sizes).run()
    case = delta(1, 1, 260, "block")
    with pytest.raises(BackendError, match=r"heads of 260 elements.*up to 256"):
        GpuLowering(case.graph, case.sizes).run()

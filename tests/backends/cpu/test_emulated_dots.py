"""The kernels of AVX-VNNI on any machine with AVX2, whose instructions stand in for the dot product of bytes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tests.backends.cpu import test_attention, test_experts, test_products
from tests.backends.cpu.both import LEVELS, Case, Outputs, compare, expected, outputs
from tests.compiled import listing
from tests.helpers import soon
from tests.kernels.material import QUANTISED, T
from tests.lang.levels import EMULATED_VNNI
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.gguf import GGMLType
from zinc_rt.lang.frontend import Spec
from zinc_rt.lang.target import TARGETS

HERE = pytest.mark.skipif("avx2" not in LEVELS, reason="the instructions are AVX2's")
SOON = ("Q8_0", "IQ2_XS")
"""Flipped bytes, and vectors that are looked up, in halves."""


@pytest.fixture(scope="module")
def emulated() -> Iterator[CpuBackend]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("zinc_rt.backends.cpu.backend.host_target", lambda _: EMULATED_VNNI)
        backend = CpuBackend(threads=2)
    with backend:
        yield backend


def check(backend: CpuBackend, case: Case, want: Outputs) -> None:
    compare(case, outputs(backend, case), want, "emulated")


@HERE
@pytest.mark.parametrize(
    "kind", [pytest.param(k, id=k.name, marks=() if k.name in SOON else pytest.mark.slow) for k in QUANTISED]
)
def test_products_of_formats(kind: GGMLType, emulated: CpuBackend) -> None:
    for case, want in test_products.cases(kind):
        check(emulated, case, want)
    check(emulated, *test_products.many_rows(kind))


@HERE
@pytest.mark.slow  # an expert's product is that of a format
@pytest.mark.parametrize("down", [T.Q4_0, T.Q6_K], ids=lambda kind: kind.name)
def test_experts_of_formats(down: GGMLType, emulated: CpuBackend) -> None:
    """Raw lines and flipped bytes; minima and halves."""
    both = T.Q8_0 if down is T.Q4_0 else T.Q4_K
    case = test_experts.experts_case((both, both, down), 6, 2, 256, 256, biases=True, n_rows=(1, 3, 40))
    check(emulated, case, expected(case))


@HERE
@pytest.mark.parametrize("name", soon(("many share, sinks",), ("one head", "many share, sinks", "latent")))
def test_caches_of_blocks(name: str, emulated: CpuBackend) -> None:
    shape = test_attention.Q8[name]
    check(emulated, test_attention.case(shape, "ordinary"), test_attention.wanted(shape, "ordinary"))


@HERE
def test_the_level_takes_unsigned_weights(emulated: CpuBackend) -> None:
    assert emulated.choice == TargetTuning.of(TARGETS["avxvnni"])
    assert emulated.choice.flip == 0x80808080


def test_the_levels_own_code_has_its_instruction() -> None:
    """In the encoding of AVX, which processors without AVX-512 have."""
    target = TARGETS["avxvnni"]
    function, constants = TargetTuning.of(target).matmul(GGMLType.Q4_0)
    code = listing(Spec(function, constants), target)
    products = re.findall(r".*\bvpdpbusd\b.*", code)
    assert products
    assert all(re.search(r"\{vex\}\s+vpdpbusd\b.*%[xy]mm", text) for text in products)
    assert not re.search(r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k[0-7]", code)

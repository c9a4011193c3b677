"""The oracle's own arithmetic against the processor's float32, on any bits."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from tests.kernels import exact

OPERATIONS: dict[str, tuple[Callable[[float, float], float], Callable[[np.ndarray, np.ndarray], np.ndarray]]] = {
    "add": (exact.add, np.add),
    "sub": (exact.sub, np.subtract),
    "mul": (exact.mul, np.multiply),
    "div": (exact.div, np.divide),
    "sqrt": (lambda a, _: exact.sqrt(a), lambda a, _: np.sqrt(a)),
}
SPECIAL = [0x0, 0x1, 0x7FFFFF, 0x800000, 0x3F800000, 0x3F800001, 0x3F7FFFFF, 0x7F7FFFFF, 0x7F800000, 0x7FC00000]


def operands(seed: int, n: int) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of any bits, pairs of like size, and all pairs of special values."""
    rng = np.random.default_rng(seed)
    bits = rng.integers(0, 1 << 32, (2, n), np.uint32)
    near = bits.copy()
    near[1] = near[0] + rng.integers(-(1 << 26), 1 << 26, n).astype(np.uint32)
    near[1] ^= rng.integers(0, 2, n, np.uint32) << 31
    signed = np.array([b | sign for b in SPECIAL for sign in (0, 1 << 31)], np.uint32)
    grid = np.array(np.meshgrid(signed, signed), np.uint32).reshape(2, -1)
    a, b = np.concatenate([bits, near, grid], axis=1).view(np.float32)
    return a, b


def identical(a: float, b: float) -> bool:
    return (math.isnan(a) and math.isnan(b)) or (a == b and math.copysign(1, a) == math.copysign(1, b))


@pytest.mark.parametrize("name", OPERATIONS)
def test_exact_arithmetic_is_what_the_processor_computes(name: str) -> None:
    ours, numpys = OPERATIONS[name]
    a, b = operands(1, 4000)
    with np.errstate(all="ignore"):
        want = numpys(a, b).tolist()
    wrong = [(x, y) for x, y, w in zip(a.tolist(), b.tolist(), want, strict=True) if not identical(ours(x, y), w)]
    assert not wrong


def test_fma_rounds_once() -> None:
    tie = 1.0 + 2.0**-12  # its square is 1 + 2^-11 + 2^-24: halfway between two float32
    for c, end in ((2.0**-100, 2.0**-11 + 2.0**-23), (-(2.0**-100), 2.0**-11), (0.0, 2.0**-11)):
        assert exact.fma(tie, tie, c) == 1.0 + end
    assert exact.fma(2.0**127, 2.0, -(2.0**127)) == 2.0**127
    assert exact.fma(2.0**-149, 0.5, 2.0**-149) == 2.0**-148  # 1.5 units, half to even
    assert identical(exact.fma(-(2.0**-100), 2.0**-100, 0.0), -0.0)

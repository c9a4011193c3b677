"""The exponentials of attention: the bits of the reference's, whichever of two ways computes them."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.cpu.both import BEST_AND_LEAST
from tests.kernels.oracle import same_bits
from zinc_rt.kernels.cpu.attention_weights import NORMAL, exp_of_difference
from zinc_rt.kernels.reference import mathfn
from zinc_rt.lang import compile as compile_kernel
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import load, store
from zinc_rt.lang.types import f32, i32, ptr

LANES = 64


@kernel
def exponentials(x: ptr[f32], y: ptr[f32], n: i32, LANES: int):
    """y = e^x, LANES at a time."""
    for i in range(0, n, LANES):
        store(y, exp_of_difference(load(x, i, lanes=LANES), LANES), i)


def differences() -> np.ndarray:
    """f32[n, 64]: rows of numbers from -86 on, rows with one number that is not, rows below."""
    rng = np.random.default_rng(5)
    bound = np.float32(NORMAL)
    lowest = int(bound.view(np.uint32))
    near = rng.integers(0x80000000, lowest, 1 << 18, dtype=np.uint32, endpoint=True).view(np.float32)
    # Halves of ln 2, where the integer changes, and their neighbours.
    seams = np.float32(-np.arange(0, 248) * (np.log(2) / 2))
    seams = np.concatenate([seams, np.nextafter(seams, np.float32(0)), np.nextafter(seams, np.float32(-200))])
    seams = np.maximum(seams, bound)
    inside = np.concatenate([near, np.linspace(NORMAL, 0, 1 << 16, dtype=np.float32), seams])
    inside = np.float32(inside[: len(inside) // LANES * LANES]).reshape(-1, LANES)
    odd = np.float32([-np.inf, np.nan, -86.5, -87.4, -103.9, -104.5, -3e38, 0.0, -0.0, NORMAL])
    odd = np.concatenate([odd, np.array([0xFFFFFFFF, 0x7F800001, 0x80000001], np.uint32).view(np.float32)])
    mixed = inside[: 4 * len(odd)].copy()
    mixed[np.arange(len(mixed)), np.arange(len(mixed)) * 5 % LANES] = np.tile(odd, 4)
    return np.concatenate([inside, mixed, np.linspace(-106, -85, 64 * LANES, dtype=np.float32).reshape(-1, LANES)])


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
def test_exponentials_have_the_bits_of_the_reference(isa: str) -> None:
    x = np.ascontiguousarray(differences())
    y = np.full_like(x, 7.0)
    compile_kernel(exponentials, target=isa, LANES=LANES)(x, y, x.size)
    same_bits(y, mathfn.exp(x))

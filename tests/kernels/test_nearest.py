"""Tables that no machine's libm decides: what is doubtful is computed exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest

from zinc_rt.kernels.reference import nearest


def test_all_exact_is_what_the_fast_way_gives(monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything in doubt, a library's values are only where the search begins."""
    rng = np.random.default_rng(5)
    angles = np.concatenate([rng.uniform(-3e6, 3e6, 150), rng.uniform(0, 7, 100), [0.0, 1e-30, 1e-42, math.pi]])
    for factor in (1.0, 1.2079441541679836):
        fast = nearest.turns(angles, factor)
        with monkeypatch.context() as patch:
            patch.setattr(nearest, "_DOUBT", np.uint64(1 << 28))
            np.testing.assert_array_equal(nearest.turns(angles, factor), fast)
        wide = np.stack([np.cos(angles), np.sin(angles)], axis=-1) * factor
        np.testing.assert_allclose(fast, wide, rtol=2**-23, atol=1e-45)


def test_a_library_that_is_off_does_not_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    """Off by far more than any is, and with a doubt to match, so that few angles show it."""
    angles = np.random.default_rng(5).uniform(0, 1e4, 100_000)
    right, cos = nearest.turns(angles), np.cos
    with monkeypatch.context() as patch:
        patch.setattr(np, "cos", lambda x: cos(x) * (1 + 2.0**-38))
        patch.setattr(nearest, "_DOUBT", np.uint64(1 << 16))
        np.testing.assert_array_equal(nearest.turns(angles), right)
        assert (np.cos(angles).astype(np.float32) != right[:, 0]).any()


def test_powers_and_logarithms() -> None:
    """Against identities that hold for the nearest numbers, and a library within two units in the last place."""
    assert nearest.power(2.0, [-3, 0.5, 10]).tolist() == [0.125, math.sqrt(2), 1024.0]
    exponents = -np.arange(0, 128, 2) / 128
    np.testing.assert_allclose(nearest.power(1e4, exponents), 1e4**exponents, rtol=2**-51)
    assert nearest.power(1e4, 0.25) == 10.0
    assert [nearest.log(x) for x in (1, 2, math.e)] == [0.0, math.log(2), 1.0]
    assert nearest.log1p_exp(0.0) == math.log(2)
    assert nearest.log1p_exp(-40.0) == pytest.approx(math.exp(-40), rel=1e-15)

"""A machine with a shader core for each test."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.kernels.gpu.stage import Stage, stage


@pytest.fixture
def gpu() -> Iterator[Stage]:
    with stage() as made:
        yield made


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(20)

"""Random numbers that are the same each time, and patience with the emulator."""

from __future__ import annotations

import numpy as np
import pytest


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(30)


@pytest.fixture(scope="session", autouse=True)
def _patient(patience: None) -> None:
    """Engines open their backends themselves."""

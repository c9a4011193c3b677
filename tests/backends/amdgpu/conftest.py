"""Random numbers that are the same each time, and patience with the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.serving.clients.caller import write_shallow


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(30)


@pytest.fixture(scope="session")
def shallow(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model in the package with one of its layers."""
    return write_shallow(tmp_path_factory.mktemp("models") / "shallow.gguf")


@pytest.fixture(scope="session", autouse=True)
def _patient(patience: None) -> None:
    """Engines open their backends themselves."""

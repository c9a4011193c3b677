"""Random numbers that are the same each time, and patience with the emulator."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.serving.clients.caller import write_shallow
from zinc_rt.backends.gpu import selftest

PROOFS = ("test_barriers_without_flush", "test_faults", "test_gfx11", "test_resident_proof", "test_slow_cards")
"""Modules that are about what is proven of a GPU before it gets a model."""


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


@pytest.fixture(autouse=True)
def _trusted(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """An emulated GPU needs a second for the self-test of each engine: it is for the tests about it."""
    if request.path.stem not in PROOFS:
        for name in ("prepare", "check_results"):
            monkeypatch.setattr(selftest, name, lambda *_: None)

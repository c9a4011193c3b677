"""Fixtures shared by all tests: the model in the package, loaded once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import zinc_rt


@pytest.fixture(scope="session")
def model() -> Iterator[zinc_rt.Model]:
    """The model in the package with a context of 256 tokens, on the CPU tier."""
    with zinc_rt.load(tier="t_cpu", n_ctx=256) as loaded:
        yield loaded

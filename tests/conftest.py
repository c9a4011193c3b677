"""What all tests share: a folder for compiled kernels, and the model in the package, loaded once."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator

import pytest

import zinc_rt
from zinc_rt.lang.cache import CACHE_ENV

_folder = ""


def pytest_configure() -> None:
    """Kernels are compiled once a run, into a folder that ends with it; one named by the environment is kept.

    Set before the tests are collected: some note the environment of their child processes when they are imported.
    """
    global _folder  # noqa: PLW0603  one process is one run
    if not os.environ.get(CACHE_ENV):
        os.environ[CACHE_ENV] = _folder = tempfile.mkdtemp(prefix="zinc_rt-tests-")


def pytest_unconfigure() -> None:
    if _folder:
        os.environ.pop(CACHE_ENV, None)
        shutil.rmtree(_folder, ignore_errors=True)


@pytest.fixture(scope="session")
def model() -> Iterator[zinc_rt.Model]:
    """The model in the package with a context of 256 tokens, on the CPU."""
    with zinc_rt.load(device="cpu", n_ctx=256) as loaded:
        yield loaded

"""Servers that are started once for all tests."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving.clients.caller import write_caller
from tests.serving.command import Command, started


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where logs and models are."""
    return tmp_path_factory.mktemp("servers")


@pytest.fixture(scope="session")
def story(folder: Path) -> Iterator[Command]:
    """The model in the package, by the names `story` and `alias`, with records."""
    options = ("-np", "4", "--alias", "story,alias", "--records", folder / "records.sqlite")
    with started(folder, *options) as server:
        yield server


@pytest.fixture(scope="session")
def caller(folder: Path) -> Iterator[Command]:
    """A model that calls tools, by the name `caller`."""
    with started(folder, "--one-process", "-m", write_caller(folder / "caller.gguf"), "--alias", "caller") as server:
        yield server


@pytest.fixture(scope="session")
def embedder(folder: Path) -> Iterator[Command]:
    """A model that embeds, by the name `embedder`."""
    with started(folder, "--pooling", "mean", "--alias", "embedder") as server:
        yield server

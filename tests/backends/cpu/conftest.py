"""Rings live as long as these tests do."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.backends.cpu import both


@pytest.fixture(scope="package", autouse=True)
def _backends_end() -> Iterator[None]:
    yield
    for isa in both.LEVELS:
        for threads in both.THREADS:
            both.native(isa, threads).close()
    both.native.cache_clear()

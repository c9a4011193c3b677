"""Rings live as long as these tests do; what takes longest to compile is begun first."""

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


def pytest_collection_finish(session: pytest.Session) -> None:
    if any(item.path.name == "test_products.py" for item in session.items):
        from tests.backends.cpu.test_products import compiled_ahead

        compiled_ahead()

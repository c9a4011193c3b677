"""Measuring memory: what is read is what was written, and the figure is a plausible one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from zinc_rt.lang.cache import CompileCache, default_cache_dir
from zinc_rt.lang.library import Library
from zinc_rt.lang.target import host_target
from zinc_rt.ring.native.bandwidth import Reader, read_bandwidth

MIB = 1 << 20


@pytest.fixture(scope="module")
def library() -> Library:
    return Library(host_target(), CompileCache(default_cache_dir()))


@pytest.fixture
def reader(library: Library, request: pytest.FixtureRequest) -> Iterator[Reader]:
    made = Reader(5 * MIB - 100, request.param, library)
    yield made
    made.close()


@pytest.mark.parametrize("reader", [1, 3], indirect=True)
def test_every_word_is_read(reader: Reader) -> None:
    assert reader.n_bytes == 5 * MIB
    assert not reader.right()  # nothing has been read yet
    for _ in range(3):
        assert reader.once() > 0
        assert reader.right()
    reader._sums[4] += 1
    assert not reader.right()


def test_bandwidth_is_that_of_memory(library: Library) -> None:
    slow, fast = 50e6, 20e12  # a disk, and more than any processor's caches
    assert slow < read_bandwidth(8 * MIB, 2, library, seconds=0.05) < fast

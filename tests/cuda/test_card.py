"""An NVIDIA GPU of this machine, where there is one: the driver's real functions, and the reference's bits."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.cuda.stage import kept
from zinc_rt.backends.cuda import CudaBackend
from zinc_rt.backends.gpu.selftest import SelfTest, check_arithmetic
from zinc_rt.cuda.devices import find_cards
from zinc_rt.errors import BackendError
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang.gpu_library import gpu_kernels

CARDS = [card for card in find_cards()[0] if not card.lacks]
pytestmark = pytest.mark.skipif(not CARDS, reason="no NVIDIA GPU")
WORDS = 1 << 20


@pytest.fixture
def backend() -> Iterator[CudaBackend]:
    with CudaBackend(CARDS[0], cache=kept()) as made:
        yield made


def test_bits(backend: CudaBackend) -> None:
    """Single launches, then a graph, again and again."""
    check_arithmetic(backend.gpu, kept())
    test = SelfTest(backend)
    for _ in range(20):
        test.run()


def test_copies_in_a_graph_and_their_times(backend: CudaBackend) -> None:
    device = backend.gpu
    spec = DECODE["move"].spec
    program = device.load_kernel(gpu_kernels({"move": spec}, "ptx", cache=kept())["move"])
    values = np.random.default_rng(1).integers(0, 1 << 32, WORDS, np.uint32)
    source, out = (device.alloc(4 * WORDS, heap="gtt") for _ in range(2))
    pieces = [device.alloc(4 * WORDS) for _ in range(8)]
    commands = device.commands("copies")
    for a, b in zip((source, *pieces), (*pieces, out), strict=True):
        commands.dispatch(program, WORDS // 1024, a, b, WORDS).barrier()
    for run in range(3):
        device.write(source, values + np.uint32(run))
        device.wait(device.submit(commands))
        assert device.read(out) == (values + np.uint32(run)).tobytes()
    device.start_times()
    device.wait(device.submit(commands))
    times = device.stop_times()
    assert len(times) == 9
    assert all(0 < t.seconds < 1 for t in times)
    assert device.read(pieces[3]) == (values + np.uint32(2)).tobytes()


def test_more_than_there_is(backend: CudaBackend) -> None:
    with pytest.raises(BackendError, match="smaller context"):
        backend.gpu.alloc(CARDS[0].memory * 2)
    backend.gpu.drain()

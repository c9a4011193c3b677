"""A device behind a driver: the driver's real functions, and the reference's bits.

`pytest --gpu` runs this on the card of this machine, and without it OpenCL's CPU driver stands in, with fewer runs.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from tests.backends.drivers import machines
from tests.cuda.stage import kept
from zinc_rt.backends.devices import BY_DRIVER, parse_device
from zinc_rt.backends.diagnostics.driver_trials import DRIVERS
from zinc_rt.backends.gpu.driver_backend import DriverBackend
from zinc_rt.backends.gpu.selftest import SelfTest, check_arithmetic
from zinc_rt.errors import BackendError
from zinc_rt.kernels.gpu.catalogue import DECODE
from zinc_rt.lang.gpu_library import gpu_kernels

WORDS = 1 << 20


@pytest.fixture
def backend() -> Iterator[DriverBackend]:
    name = "card" if "card" in machines.MACHINES else "opencl"
    with machines.MACHINES[name]() as device:
        choice = parse_device(device)
        if choice.device not in BY_DRIVER:
            pytest.skip(f"{device} has a driver of ours")
        kind = DRIVERS[choice.device]
        (card,) = [card for card in kind.find()[0] if card.number == int(choice.card or 0)]
        with kind.open(card, kept(), None) as made:
            assert isinstance(made, DriverBackend)
            yield made


@pytest.mark.parametrize("runs", [20 if "card" in machines.MACHINES else pytest.param(20, marks=pytest.mark.slow)])
def test_bits(runs: int, backend: DriverBackend) -> None:
    """Single launches, then as one graph or command buffer, again and again."""
    check_arithmetic(backend.gpu, kept())
    test = SelfTest(backend)
    for _ in range(runs):
        test.run()


def test_copies_in_a_list_and_their_times(backend: DriverBackend) -> None:
    device = backend.gpu
    spec = DECODE["move"].spec
    program = device.load_kernel(gpu_kernels({"move": spec}, device.kernel_target, cache=kept())["move"])
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


def test_more_than_there_is(backend: DriverBackend) -> None:
    with pytest.raises(BackendError, match="context"):
        backend.gpu.alloc(1 << 50)
    backend.gpu.drain()

"""What all tests share: a folder for compiled kernels, and the model in the package, loaded once."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import zinc_rt
from tests import hardware
from tests.quick import QUICK
from zinc_rt.utils.environment import CACHE_DIR

_folder = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--gpu", action="store_true", help="run the tests of interfaces, kernels and backend on the AMD GPU"
    )
    parser.addoption("--gpu-card", metavar="NAME", help="with --gpu: an emulated card in place of the real one")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    return True if config.getoption("--gpu") and hardware.ignored(collection_path) else None


def pytest_configure() -> None:
    """Kernels are compiled once a run, into a folder that ends with it; one named by the environment is kept.

    Set before the tests are collected: some note the environment of their child processes when they are imported.
    """
    global _folder  # noqa: PLW0603  one process is one run
    if not os.environ.get(CACHE_DIR.name):
        os.environ[CACHE_DIR.name] = _folder = tempfile.mkdtemp(prefix="zinc_rt-tests-")


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """`-n auto`: one worker more than there are cores, as some tests wait for processes and servers."""
    return len(os.sched_getaffinity(0)) + 1


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """A worker without work takes some of the others': tests take from a millisecond to ten seconds."""
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


def pytest_unconfigure() -> None:
    if _folder:
        os.environ.pop(CACHE_DIR.name, None)
        shutil.rmtree(_folder, ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--gpu"):
        if card := session.config.getoption("--gpu-card"):
            hardware.stand_in(card)
        hardware.begin()


def pytest_sessionfinish(session: pytest.Session) -> None:
    if trouble := hardware.trouble():
        print("\nthe emulated card has seen:", *trouble, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.fixture(scope="session", autouse=True)
def _card(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --gpu, the machine of every test is this one."""
    if not request.config.getoption("--gpu"):
        yield
        return
    yield from hardware.on_card()


def pytest_runtest_setup(item: pytest.Item) -> None:
    if item.config.getoption("--gpu") and (why := hardware.skip_reason(item)):
        pytest.skip(why)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the inner loop by one table, so that it is seen whole and each area has its share."""
    quick = {Path(__file__).parent / name for name in QUICK}
    for item in items:
        if item.path in quick and item.get_closest_marker("slow") is None:
            item.add_marker(pytest.mark.quick)


@pytest.fixture
def ctrl_c() -> Iterator[None]:
    """SIGINT raises KeyboardInterrupt here and in the processes that the test starts.

    A shell starts its background jobs with SIGINT ignored, and every process below inherits that.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture(scope="session")
def patience() -> Iterator[None]:
    """A step on an emulated GPU may take as long as a busy machine needs; tests of timeouts name theirs."""
    from zinc_rt.backends.amdgpu.backend import AmdBackend

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(AmdBackend.__init__.__kwdefaults__, "timeout", 300.0)
        yield


@pytest.fixture(scope="session")
def model() -> Iterator[zinc_rt.Model]:
    """The model in the package with a context of 256 tokens, on the CPU."""
    with zinc_rt.load(device="cpu", n_ctx=256) as loaded:
        yield loaded

"""What all tests share: a kept folder of compiled kernels, collection, and the model in the package, loaded once."""

from __future__ import annotations

import importlib
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

import zinc_rt
from tests import hardware, kept_processes, opencl_driver
from tests.quick import QUICK
from zinc_rt.backends.gpu import selftest
from zinc_rt.cuda import devices as cuda_devices
from zinc_rt.opencl import devices as opencl_devices
from zinc_rt.utils.environment import CACHE_DIR

TESTS = Path(__file__).parent
KERNELS = TESTS.parent / ".pytest_cache" / "kernels"
"""Compiled kernels by the hash of all that they are made from: one run fills it for the next, and CI may keep it."""

DRIVERS = ("cuda/", "opencl/", "backends/drivers/")
"""Where the paths begin of tests that are about the drivers of this machine."""
PROOFS = (
    *DRIVERS,
    *("backends/test_", "cli/test_check_gpu.py", "cli/test_card_report.py"),
    *(
        f"backends/amdgpu/test_{name}.py"
        for name in ("barriers_without_flush", "faults", "gfx11", "resident_proof", "slow_cards")
    ),
)
"""The same of tests about what is proven of a GPU before it gets a model."""
_LEFT_OUT: dict[str, Callable[..., Any]] = {
    "find_cards": lambda: ([], "left out of this test"),
    "prepare": lambda *_: None,
    "check_results": lambda *_: None,
}
_OWN: dict[tuple[ModuleType, str], Callable[..., Any]] = {
    (module, name): getattr(module, name)
    for module, name in (
        *((cuda_devices, "find_cards"), (opencl_devices, "find_cards")),
        *((selftest, "prepare"), (selftest, "check_results")),
    )
}

_folder = ""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--gpu", action="store_true", help="run the tests of interfaces, kernels and backends on the GPU")
    parser.addoption(
        "--gpu-card",
        metavar="NAME",
        default="",
        help="with --gpu: which one, as cuda, cuda:1 or opencl, or an emulated AMD card in the GPU's place",
    )


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    if config.getoption("--gpu") and hardware.ignored(collection_path):
        return True
    if config.option.markexpr == "quick" and collection_path.name.startswith("test_"):
        return True if collection_path.relative_to(TESTS).as_posix() not in QUICK else None
    return None


def pytest_configure(config: pytest.Config) -> None:
    """Choose the folder of compiled kernels, and keep compiled Python for the workers and child processes.

    Set before the tests are collected: some note the environment of their child processes when they are imported.
    A folder of kernels that the environment names is taken; one that cannot be written to becomes a temporary one.
    """
    global _folder  # noqa: PLW0603  one process is one run
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    opencl_driver.announce(beside=config.getoption("--gpu"))
    if not os.environ.get(CACHE_DIR.name):
        try:
            KERNELS.mkdir(0o700, parents=True, exist_ok=True)
            KERNELS.chmod(0o700)
            os.environ[CACHE_DIR.name] = str(KERNELS)
        except OSError:
            os.environ[CACHE_DIR.name] = _folder = tempfile.mkdtemp(prefix="zinc_rt-tests-")


def pytest_unconfigure() -> None:
    if _folder:
        os.environ.pop(CACHE_DIR.name, None)
        shutil.rmtree(_folder, ignore_errors=True)


def pytest_sessionstart(session: pytest.Session) -> None:
    if session.config.getoption("--gpu"):
        hardware.begin(session.config.getoption("--gpu-card"))


def pytest_sessionfinish(session: pytest.Session) -> None:
    kept_processes.end()
    if trouble := hardware.trouble():
        print("\nthe emulated card has seen:", *trouble, sep="\n  ")
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_collection_finish() -> None:
    """Clients of both HTTP libraries share the system's certificates, which each would load for 50 ms."""
    for library in ("httpx", "httpx2"):
        if library in sys.modules:
            transport = importlib.import_module(f"{library}._transports.default")
            transport.create_ssl_context = cache(transport.create_ssl_context)


@pytest.fixture(scope="session", autouse=True)
def _card(request: pytest.FixtureRequest) -> Iterator[None]:
    """With --gpu, the machine of every test is this one."""
    if hardware.state["linux"] is None:
        yield
        return
    yield from hardware.on_card()


def pytest_runtest_setup(item: pytest.Item) -> None:
    where = item.path.relative_to(TESTS).as_posix()
    kept_processes.keep(where not in kept_processes.FRESH)
    _leave_out(where)
    if item.config.getoption("--gpu") and (why := hardware.skip_reason(item)):
        pytest.skip(why)


def _leave_out(where: str) -> None:
    """Put away what only some tests need: this machine's CUDA and OpenCL devices, and the self-test of emulated GPUs,
    which takes a second for each engine, and kernels of its own. Engines of fixtures are opened later than this.
    """
    for (module, name), own in _OWN.items():
        about = DRIVERS if name == "find_cards" else PROOFS
        setattr(module, name, own if where.startswith(about) else _LEFT_OUT[name])


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the tests of the inner loop by one table, so that it is seen whole and each area has its share."""
    quick = {TESTS / name for name in QUICK}
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
def _renderer() -> Iterator[Any]:
    """A process that renders chat templates, kept where its owner closes it."""
    from zinc_rt.text.template_limits import TemplateLimits
    from zinc_rt.text.template_process import TemplateProcess

    class Kept(TemplateProcess):
        def close(self) -> None:
            """It is for the next test, too."""

    process = Kept(TemplateLimits())
    yield process
    TemplateProcess.close(process)


@pytest.fixture
def one_renderer(_renderer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All chat templates with the usual limits are rendered by one process, which starts once."""
    from zinc_rt.text import template_process

    take = template_process.take
    monkeypatch.setattr(template_process, "prepare", lambda: None)
    monkeypatch.setattr(
        template_process, "take", lambda limits: _renderer if limits == _renderer.limits else take(limits)
    )


@pytest.fixture(scope="session")
def model() -> Iterator[zinc_rt.Model]:
    """The model in the package with a context of 256 tokens, on the CPU."""
    with zinc_rt.load(device="cpu", n_ctx=256) as loaded:
        yield loaded

"""`--jobs N`: the collected tests run in forked processes, which share what was imported and collected once.

Collecting takes 30 seconds of processor time; processes that start anew would each collect again.
"""

from __future__ import annotations

import gc
import importlib
import os
import pickle
import selectors
import signal
import struct
import sys
import traceback
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO, Final, NoReturn

import pytest
from _pytest.config import create_terminal_writer

from tests import kept_processes

_TESTS: Final = Path(__file__).parent
_SIZE: Final = struct.Struct("<I")
_AHEAD: Final = 2
"""Tests that a process knows of: a fixture stays when the next test needs it, too."""
_CHUNK: Final = 1 << 16
_GARBAGE: Final = 10_000, 10, 25
"""When a process looks for garbage, see `gc.set_threshold`: by default the emulator's compiled instructions, which
stay, are passed over so often that an eighth of the tests' time goes into it.
"""


def pytest_addoption(parser: pytest.Parser) -> None:
    about = "run the tests in N processes; auto: one more than there are cores, as some tests wait for others"
    parser.addoption("--jobs", metavar="N", default="0", help=about)


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Iterator[None]:
    """A second process compiles the modules of all tests from the last one on, until collection has come to them.

    Nothing of what is collected is garbage.
    """
    gc.disable()
    try:
        return (yield from _collected(session))
    finally:
        gc.enable()


def _collected(session: pytest.Session) -> Generator[None, Any, Any]:
    paths = [Path(argument).resolve() for argument in session.config.args]
    if _count(session) < 2 or paths != [_TESTS] or session.config.option.markexpr == "quick":
        return (yield)
    if (child := os.fork()) == 0:
        try:
            for path in filter(_to_compile, sorted(_TESTS.rglob("test_*.py"), reverse=True)):
                with suppress(Exception, pytest.skip.Exception):  # collection reports what is wrong
                    importlib.import_module(".".join(path.relative_to(_TESTS.parent).with_suffix("").parts))
        finally:
            os._exit(0)
    try:
        return (yield)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def _to_compile(path: Path) -> bool:
    """Whether no compiled form of a module of tests is as new as the module."""
    found = (path.parent / "__pycache__").glob(f"{path.stem}.{sys.implementation.cache_tag}-pytest-*.pyc")
    return all(compiled.stat().st_mtime < path.stat().st_mtime for compiled in found)


def _count(session: pytest.Session) -> int:
    option = session.config.getoption("jobs")
    return len(os.sched_getaffinity(0)) + 1 if option == "auto" else int(option)


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    count = _count(session)
    if count < 1 or session.testsfailed or session.config.option.collectonly:
        return None
    run(session, count)
    return True


def run(session: pytest.Session, count: int) -> None:
    """Run the session's tests in `count` processes: each has a stretch of them, and then half of the longest rest.

    Stretches end between modules where they can, so a module's fixtures are made once. A process that dies is the
    failure of its test, and another one goes on. Raises what ends the session early.
    """
    gc.collect()
    gc.freeze()  # searches for garbage pass over what was collected
    whole = range(len(session.items))
    ends = [0, *(_cut(session, whole, len(whole) * k // count) for k in range(1, count)), len(whole)]
    stretches = [deque(whole[begin:end]) for begin, end in pairwise(ends)]
    with selectors.DefaultSelector() as selector:
        workers = [_Worker(session, stretches, own, selector) for own in stretches if own]
        try:
            for worker in workers:
                worker.begin(workers)
            while selector.get_map():
                for key, _ in selector.select():
                    key.data.listen(workers)
                    if session.shouldfail:
                        raise session.Failed(session.shouldfail)
        finally:
            for worker in workers:
                worker.kill()


def _cut(session: pytest.Session, numbers: Sequence[int], middle: int) -> int:
    """The place nearest to the middle of some tests where another module begins; the middle where they are of one."""
    modules = [session.items[number].path for number in numbers]
    places = (at for at in range(1, len(modules)) if modules[at] != modules[at - 1])
    return min(places, key=lambda at: abs(at - middle), default=middle)


class _Worker:
    """A process, the tests that it knows of (`known`), and those that it will be told of (`own`)."""

    def __init__(
        self, session: pytest.Session, stretches: list[deque[int]], own: deque[int], selector: selectors.BaseSelector
    ) -> None:
        self._session, self._stretches, self._own, self._selector = session, stretches, own, selector
        self.known: deque[int] = deque()
        self._pid = 0
        self._orders = self._reports = -1
        self._incoming = bytearray()

    def begin(self, workers: list[_Worker]) -> None:
        """Fork the process."""
        orders, self._orders = os.pipe()
        self._reports, reports = os.pipe()
        sys.stdout.flush()
        sys.stderr.flush()
        self._pid = os.fork()
        if self._pid == 0:
            for worker in workers:  # a pipe ends when the one process that writes to it has closed it
                worker.close()
            _work(self._session, os.fdopen(orders, "rb"), os.fdopen(reports, "wb"))
        os.close(orders)
        os.close(reports)
        self._selector.register(self._reports, selectors.EVENT_READ, self)
        self._incoming.clear()
        waiting, self.known = self.known, deque()
        for number in waiting:
            self._tell(number)
        self._fill()

    def close(self) -> None:
        """Close this side of the pipes."""
        for end in (self._orders, self._reports):
            if end >= 0:
                os.close(end)
        self._orders = self._reports = -1

    def _fill(self) -> None:
        """Tell the process of tests until it knows enough, or that there are no more."""
        while len(self.known) < _AHEAD:
            if not self._own:
                longest = max(self._stretches, key=len)
                kept = _cut(self._session, longest, len(longest) // 2)
                taken = [longest.pop() for _ in range(len(longest) - kept)]
                self._own.extend(reversed(taken))
            if not self._own:
                if self._orders >= 0:
                    os.close(self._orders)
                    self._orders = -1
                return
            self._tell(self._own.popleft())

    def _tell(self, number: int) -> None:
        self.known.append(number)
        with suppress(BrokenPipeError):  # it is gone, as the end of its reports will say
            os.write(self._orders, _SIZE.pack(number))

    def listen(self, workers: list[_Worker]) -> None:
        """Take what the process says: reports, and None at the end of each test."""
        received = os.read(self._reports, _CHUNK)
        if not received:
            self._ended(workers)
            return
        self._incoming += received
        hook = self._session.config.hook
        for message in _messages(self._incoming):
            if message is None:
                self.known.popleft()
                self._fill()
            else:
                report = hook.pytest_report_from_serializable(config=self._session.config, data=message)
                hook.pytest_runtest_logreport(report=report)

    def _ended(self, workers: list[_Worker]) -> None:
        self._selector.unregister(self._reports)
        status = os.waitstatus_to_exitcode(os.waitpid(self._pid, 0)[1])
        self._pid = 0
        again = self._orders >= 0 or bool(self.known)
        self.close()
        if self.known:
            item = self._session.items[self.known.popleft()]
            how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
            said = f"the process of this test ended with {how}"
            report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
            self._session.config.hook.pytest_runtest_logreport(report=report)
        if again:
            self.begin(workers)

    def kill(self) -> None:
        """End the process where it has not ended."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            self._pid = 0


def _messages(incoming: bytearray) -> Iterator[Any]:
    """Those that are complete, taken from the bytes."""
    while len(incoming) >= _SIZE.size and len(incoming) >= (end := _SIZE.size + _SIZE.unpack_from(incoming)[0]):
        message = pickle.loads(incoming[_SIZE.size : end])
        del incoming[:end]
        yield message


def _work(session: pytest.Session, orders: BinaryIO, reports: BinaryIO) -> NoReturn:
    """Run the tests that are told of, in the forked process, and end it."""
    status = 1
    gc.set_threshold(*_GARBAGE)
    try:
        config = session.config
        config.pluginmanager.unregister(name="terminalreporter")
        # Where pytest-timeout writes what threads do, before it fails a test; it asks for the plugin's own.
        vars(config)["get_terminal_writer"] = lambda: create_terminal_writer(config, sys.stderr)
        capture: Any = config.pluginmanager.getplugin("capturemanager")
        capture.stop_global_capturing()  # its files are those of the other processes, too
        capture.start_global_capturing()
        config.pluginmanager.register(_Reporter(config, reports))
        number = _number(orders)
        while number is not None:
            item, number = session.items[number], _number(orders)
            following = None if number is None else session.items[number]
            config.hook.pytest_runtest_protocol(item=item, nextitem=following)
            _write(reports, None)
        kept_processes.end()
        status = 0
    except BaseException:
        traceback.print_exc(file=sys.__stderr__)
    finally:
        os._exit(status)
    raise AssertionError


class _Reporter:
    """Passes the reports of tests on to the process that shows them: of a test that passes the middle one of three,
    unless all durations are asked for.
    """

    def __init__(self, config: pytest.Config, stream: BinaryIO) -> None:
        self._config, self._stream = config, stream
        self._all = config.getoption("durations", None) is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Send it."""
        if self._all or report.when == "call" or not report.passed:
            data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
            _write(self._stream, data)


def _number(orders: BinaryIO) -> int | None:
    packed = orders.read(_SIZE.size)
    return int(_SIZE.unpack(packed)[0]) if len(packed) == _SIZE.size else None


def _write(reports: BinaryIO, message: Any) -> None:
    packed = pickle.dumps(message)
    reports.write(_SIZE.pack(len(packed)) + packed)
    reports.flush()

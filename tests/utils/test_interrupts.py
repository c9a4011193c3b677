"""Ctrl-C at any instruction leaves a model whole; a forked process is told to load its own."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import zinc_rt
from zinc_rt.engine.batch import EngineError
from zinc_rt.llm.model import Model
from zinc_rt.sampling.generation import Generation
from zinc_rt.utils.interrupts import Breakable, DeferredInterrupts

pytestmark = pytest.mark.usefixtures("ctrl_c")

ROOT = Path(zinc_rt.__file__).parent
BOOKS = [str(ROOT / name) for name in ("scheduler", "mem", "engine", "llm/model.py")]
TRACED = (*BOOKS, str(ROOT / "utils/interrupts.py"), threading.__file__, __file__)
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 2}


class Interrupt:
    """Sends SIGINT at instruction number `at` of the runtime's own code, as Ctrl-C may come between any two."""

    def __init__(self, at: int) -> None:
        self.at, self.n = at, 0

    def __call__(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any] | None:
        if not frame.f_code.co_filename.startswith(TRACED):
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        return self._instruction

    def _instruction(self, frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        if event == "opcode":
            self.n += 1
            if self.n == self.at:
                sys.settrace(None)
                signal.raise_signal(signal.SIGINT)
        return self._instruction

    def run(self, work: Callable[[], object]) -> bool:
        """Whether the work was interrupted; that it raised so."""
        before = sys.gettrace()
        sys.settrace(self)
        try:
            work()
        except KeyboardInterrupt:
            assert self.n == self.at
            return True
        finally:
            sys.settrace(before)
        return False


def instructions(work: Callable[[], object]) -> int:
    """How many there are to interrupt."""
    counted = Interrupt(-1)
    assert not counted.run(work)
    return counted.n


class Pair:
    """Two numbers that shall stay the same."""

    def __init__(self) -> None:
        self.one = self.other = 0

    def whole(self) -> None:
        with DeferredInterrupts():
            self.one += 1
            with DeferredInterrupts():
                self.other += 1

    def broken(self) -> None:
        with DeferredInterrupts():
            self.one += 1
            with Breakable():
                pass
            self.other += 1


def test_a_held_block_is_done_or_not_begun() -> None:
    n = instructions(Pair().whole)
    ends = []
    for at in range(1, n + 1):
        pair = Pair()
        assert Interrupt(at).run(pair.whole)
        assert pair.one == pair.other
        ends.append(pair.one)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert ends == sorted(ends)
    assert {*ends} == {0, 1}


def test_a_part_of_it_may_be_broken_off() -> None:
    n = instructions(Pair().broken)
    ends = []
    for at in range(1, n + 1):
        pair = Pair()
        assert Interrupt(at).run(pair.broken)
        ends.append((pair.one, pair.other))
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    assert {*ends} == {(0, 0), (1, 0), (1, 1)}


def test_other_threads_and_handlers_stay_as_they_are() -> None:
    seen: list[object] = []

    def other() -> None:
        with DeferredInterrupts(), Breakable():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with DeferredInterrupts(), Breakable():
        signal.raise_signal(signal.SIGINT)
        seen.append(signal.getsignal(signal.SIGINT))
    assert seen == [signal.default_int_handler, signal.SIG_IGN]


@pytest.fixture
def model() -> Iterator[Model]:
    with zinc_rt.load(device="cpu", n_ctx=64, n_slots=1, threads=1) as opened:
        yield opened


def several(model: Model) -> list[Generation]:
    return model.generate([[5, 6, 7], [5, 8]], **GREEDY)


@pytest.mark.parametrize("work", [several, lambda model: model.logits([5, 6, 7, 8])], ids=["generate", "logits"])
def test_a_model_goes_on_after_an_interrupt_anywhere(model: Model, work: Callable[[Model], object]) -> None:
    """More texts than sequences, so that some wait. At most the interrupted texts are not there."""
    wanted = [text.token_ids for text in several(model)]
    n = instructions(lambda: work(model))
    for at in range(1, n, n // 24):
        assert Interrupt(at).run(lambda: work(model)) or at > n // 2  # how many there are depends on the time
        assert [text.token_ids for text in several(model)] == wanted, at
        model.engine.cache.check_integrity()


def test_a_model_can_be_closed_after_an_interrupt_of_its_close() -> None:
    for at in (30, 300, 1000):
        model = zinc_rt.load(device="cpu", n_ctx=64, threads=1)
        Interrupt(at).run(model.close)
        model.close()
        with pytest.raises(zinc_rt.ZincError, match="the model is closed"):
            model.generate([1])


def endless(token_ids: list[int], logits: Any) -> Any:
    while True:
        signal.raise_signal(signal.SIGINT)


def test_a_function_of_the_callers_can_be_interrupted(model: Model) -> None:
    wanted = several(model)[0].token_ids
    with pytest.raises(KeyboardInterrupt):
        model.generate([5, 6, 7], logits_processors=[endless])
    assert several(model)[0].token_ids == wanted


def test_a_forked_process_is_told_to_load_its_own_model(model: Model) -> None:
    """Also where a thread that stayed behind has the model's locks."""
    child = 0
    reached, go_on = threading.Event(), threading.Event()

    def wait(token_ids: list[int], logits: Any) -> Any:
        reached.set()
        assert go_on.wait(60)
        return logits

    thread = threading.Thread(target=lambda: model.generate([5], logits_processors=[wait], **GREEDY))
    thread.start()
    assert reached.wait(60)
    child = os.fork()
    if child == 0:
        code = 0
        try:
            signal.alarm(30)  # one that hangs is ended
            for call in (lambda: model.generate([1]), model.close, lambda: model.logits([1])):
                with pytest.raises(EngineError, match="load it here again"):
                    call()
        except BaseException:
            code = 1
        finally:
            os._exit(code)
    go_on.set()
    thread.join()
    assert os.waitpid(child, 0)[1] == 0
    assert len(several(model)) == 2

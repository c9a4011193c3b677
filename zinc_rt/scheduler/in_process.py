"""`InProcessClient`: the callers of one process share one core: threads that wait, and tasks of event loops.

A thread that waits for its events turns the loop of steps. If several threads wait, one of them turns, and gives the
others their events. Tasks cannot wait like that. So while tasks have requests, the client runs a thread that turns the
loop for them; it ends with the last of these requests. Without requests, no thread runs and nothing is computed.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Final, Generic

from zinc_rt.engine.engine import EngineError
from zinc_rt.errors import ZincError
from zinc_rt.sampling.processors import ProcessorFailed, Processors
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Event, Failed, Finished
from zinc_rt.scheduler.output import RequestOutput, T
from zinc_rt.utils.interrupts import DeferredInterrupts

Give = Callable[[Sequence[Any], bool], None]
"""Takes pieces of a request's text, or the exception that ended it, and whether they are the last. It is called on any
thread with the core's lock held, so it returns at once and raises nothing.
"""
_YIELD_SECONDS: Final = 1e-4
"""What a thread that turns leaves to one that wants the core between two steps."""


class Inbox(Generic[T]):
    """Events for a thread that waits for a request, until it takes them."""

    def __init__(self) -> None:
        self.pieces: deque[T | BaseException] = deque()
        self.over = False

    def put(self, pieces: Sequence[T | BaseException], over: bool) -> None:
        """A `Give`."""
        self.pieces += pieces
        self.over = over

    def ready(self) -> bool:
        """Whether nothing is to be waited for."""
        return bool(self.pieces) or self.over

    def take(self) -> Iterator[T]:
        """The pieces that are there. Raises the exception that ended the request."""
        while self.pieces:
            piece = self.pieces.popleft()
            if isinstance(piece, BaseException):
                raise piece
            yield piece


class CoreLock:
    """A lock that a thread may take again while it has it. Ctrl-C does not break off what is done with it.

    Taking it in a forked process raises `EngineError`: a thread that stayed behind may have it, for ever.

    Attributes:
        plain: the same lock, for code that is in a `DeferredInterrupts` block already and has checked the process.
    """

    def __init__(self) -> None:
        self.inner, self._pid = threading.RLock(), os.getpid()
        """For blocks that are `DeferredInterrupts` anyway, in the process that `check_process` has seen."""
        self.waiting: set[int] = set()
        """Threads that want it. A count would be wrong where two threads change it at once."""
        self._held: list[DeferredInterrupts] = []

    def check_process(self) -> None:
        """Raises `EngineError`."""
        if (pid := os.getpid()) != self._pid:
            raise EngineError(f"process {self._pid} loaded the model and forked process {pid}; load it here again")

    def __enter__(self) -> None:
        self.check_process()
        held = DeferredInterrupts()
        held.__enter__()
        self.waiting.add(threading.get_ident())
        self.inner.acquire()
        self.waiting.discard(threading.get_ident())
        self._held.append(held)

    def __exit__(self, *_: object) -> None:
        held = self._held.pop()
        self.inner.release()
        held.__exit__()


class InProcessClient:
    """One core for callers on any threads. `serve` gives it the core.

    Args:
        lock: held while the core is touched.
        check: called with the lock held before each turn; raises where the caller must not go on.
    """

    def __init__(self, lock: CoreLock, check: Callable[[], None]) -> None:
        self._lock, self._check = lock, check
        self._core: EngineCore | None = None
        self._outputs: dict[str, tuple[RequestOutput[Any], Give]] = {}  # of requests that the core has
        self._errors: dict[str, ZincError] = {}
        self._submitted: deque[tuple[RequestOutput[Any], Processors, Give]] = deque()  # for the next turn
        self._left: deque[str] = deque()  # requests that nobody waits for any more
        self._turn_lock = threading.Lock()  # held by the thread that turns
        self._turner = 0  # the thread that turns
        self._turned = threading.Condition()  # notified after a turn where a thread waits for its end
        self._n_waiting = 0
        self._tasks = threading.Lock()  # held while the next two are changed
        self._gives: dict[str, Give] = {}  # of tasks' requests
        self._driver: threading.Thread | None = None

    def failed(self, request_id: str, error: ZincError) -> None:
        """For `EngineCore`: an exception behind a `Failed`."""
        self._errors[request_id] = error

    def serve(self, core: EngineCore) -> None:
        """The core to turn."""
        self._core = core

    @property
    def core(self) -> EngineCore:
        """The core, for use with the lock held and between turns. Raises `EngineError` in a turn."""
        self.check_no_turn()
        return self._settled()

    def check_no_turn(self) -> None:
        """Raise `EngineError` where a step runs on this thread: a function that it calls asks for something."""
        if self._turner == threading.get_ident():
            raise EngineError("a step is running on this thread; use the model when it is over")

    def check_prompt(self, tokens: object, *, pictures: bool = False) -> list[int]:
        """A prompt's ids as a list: callers learn at once what the core would refuse in a turn. Raises what
        `EngineCore.check_prompt` raises.
        """
        assert self._core is not None
        return self._core.check_prompt(tokens, pictures=pictures)

    # -- for threads

    def submit(self, output: RequestOutput[T], processors: Processors = ()) -> Inbox[T]:
        """Queue a request; `pieces` gives the pieces of its output. Raises `EngineError` in a turn."""
        self._lock.check_process()
        self.check_no_turn()
        inbox = Inbox[T]()
        self._submitted.append((output, processors, inbox.put))
        return inbox

    def pieces(self, inbox: Inbox[T]) -> Iterator[T]:
        """A request's pieces, to its last; takes turns until there are some.

        Raises the exception behind `Failed`, the exceptions of the output, of the check and of a step, and
        `EngineError` if it is called within a turn, as by `notify`.
        """
        while not inbox.over or inbox.pieces:
            self._wait(inbox.ready)
            yield from inbox.take()

    def whole(self, inbox: Inbox[T]) -> list[T]:
        """All pieces of a request, when it is over. Raises what `pieces` raises."""
        self._wait(lambda: inbox.over)
        return list(inbox.take())

    def wait(self, inboxes: Collection[Inbox[Any]]) -> None:
        """Take turns until one of the inboxes is ready. Raises what a turn raises."""
        self._wait(lambda: any(inbox.ready() for inbox in inboxes))

    def leave(self, request_id: str) -> None:
        """Nobody waits for the request any more; it ends with the next call. May be called at any time, also while a
        turn is interrupted.
        """
        self._left.append(request_id)

    # -- for tasks of event loops: nothing here waits for a step

    def post(self, output: RequestOutput[Any], give: Give, processors: Processors = ()) -> None:
        """Queue a request and give the pieces of its text away. `leave` it then."""
        self._lock.check_process()
        with DeferredInterrupts(), self._tasks:
            if self._driver is None:
                driver = threading.Thread(target=self._drive, name="zinc-tasks", daemon=True)
                driver.start()  # it waits for what is held here
                self._driver = driver
            self._gives[output.request.id] = give
            self._submitted.append((output, processors, give))

    def _drive(self) -> None:
        while True:
            with self._tasks:
                if not self._gives:
                    self._driver = None
                    return
            try:
                self._wait(lambda: not self._gives)
            except BaseException as error:
                self._break_off(error)

    def _break_off(self, error: BaseException) -> None:
        """The driver's turn failed: no task's request goes on."""
        with self._lock:  # others deliver events, and hand the core what is submitted
            with self._tasks:
                gives, self._gives = self._gives, {}
                for _ in range(len(self._submitted)):  # threads may add more meanwhile
                    one = self._submitted.popleft()
                    if one[0].request.id not in gives:
                        self._submitted.append(one)
            for request_id, give in gives.items():
                self.leave(request_id)
                give([error], True)

    # -- turns

    def _wait(self, ready: Callable[[], object]) -> None:
        """Take turns, or wait for those of another thread, until the caller is ready. An interrupt is handled between
        two of them. Raises what `pieces` raises.
        """
        self._lock.check_process()
        while not ready():
            with DeferredInterrupts() as held:
                while not (ready() or held.interrupted):
                    if self._turn_lock.acquire(blocking=False):
                        self._turn(ready)
                    else:
                        self._wait_for_turn(ready)

    def _turn(self, ready: Callable[[], object]) -> None:
        """Take a turn, with its lock held, unless the caller is ready by now; gives the lock back."""
        try:
            self._turner = threading.get_ident()
            with self._lock.inner:
                self._check()
                core = self._settled()
                if not ready():
                    self._deliver(core, core.advance())
        finally:
            self._turner = 0
            self._turn_lock.release()
            if self._n_waiting:
                with self._turned:
                    self._turned.notify_all()
        if self._lock.waiting:
            time.sleep(_YIELD_SECONDS)

    def _wait_for_turn(self, ready: Callable[[], object]) -> None:
        """Wait until the turn of another thread is over."""
        self.check_no_turn()
        with self._turned:
            self._n_waiting += 1  # before the lock is looked at: its holder looks here when it has given it back
            if self._turn_lock.locked() and not ready():
                self._turned.wait()
            self._n_waiting -= 1

    def _settled(self) -> EngineCore:
        """The core, after the messages that came meanwhile."""
        core = self._core
        assert core is not None
        if self._submitted or self._left:
            while self._submitted:
                output, processors, give = self._submitted.popleft()
                self._outputs[output.request.id] = output, give
                output.begin()
                core.submit(output.request, processors)
            while self._left:
                request_id = self._left.popleft()
                self._gives.pop(request_id, None)
                self._outputs.pop(request_id, None)
                core.cancel(request_id)
                self._errors.pop(request_id, None)
            self._deliver(core, core.collect())
        return core

    def _deliver(self, core: EngineCore, events: Sequence[Event]) -> None:
        """Give events away. A request whose text has ended ends here and now: no step has another row of it."""
        while events:
            ended = False
            for event in events:
                error = self._error(event) if isinstance(event, Failed) else None
                if (found := self._outputs.get(event.id)) is None:
                    continue
                output, give = found
                pieces = output.take(event, error)
                if over := output.over:
                    del self._outputs[event.id]
                    self._gives.pop(event.id, None)
                if output.stopped or (over and not isinstance(event, Finished | Failed)):
                    core.cancel(event.id)
                    ended = True
                if pieces or over:
                    give(pieces, over)
            events = core.collect() if ended else ()

    def _error(self, event: Failed) -> Exception:
        """The exception behind an event: of a processor, what that raised."""
        error = self._errors.pop(event.id, None)
        if isinstance(error, ProcessorFailed):
            return error.error
        return error or EngineError(event.message)

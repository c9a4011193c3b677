"""`SharedCore`: callers of one process on one core, threads that wait and tasks of event loops.

A thread that waits for an event turns the loop, for all callers: of several threads that wait, one turns, and the
others get what it finds for them. Tasks cannot wait like that. While some of them have requests, a thread of the core's
own turns as one more of those that wait; it ends with the last of these requests. So nothing is computed, and no thread
is there, while nobody asks.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Generic

from zinc_rt.engine.engine import EngineError
from zinc_rt.errors import ZincError
from zinc_rt.sampling.processors import ProcessorFailed, Processors
from zinc_rt.scheduler.delivery import Delivery, T, Text
from zinc_rt.scheduler.engine_core import EngineCore
from zinc_rt.scheduler.messages import Event, Failed, Submit
from zinc_rt.utils.interrupts import Held

Give = Callable[[Sequence[Any], bool], None]
"""Takes pieces of a request's text, or the exception that ended it, and whether they are the last. It is called on any
thread with the core's lock held, so it returns at once and raises nothing.
"""


class Inbox(Generic[T]):
    """What a thread that waits for a request has not taken yet."""

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
    """

    def __init__(self) -> None:
        self._lock, self._pid = threading.RLock(), os.getpid()
        self._held: list[Held] = []

    def check_process(self) -> None:
        """Raises `EngineError`."""
        if (pid := os.getpid()) != self._pid:
            raise EngineError(f"process {self._pid} loaded the model and forked process {pid}; load it here again")

    def __enter__(self) -> None:
        self.check_process()
        held = Held()
        held.__enter__()
        self._lock.acquire()
        self._held.append(held)

    def __exit__(self, *_: object) -> None:
        held = self._held.pop()
        self._lock.release()
        held.__exit__()


class SharedCore:
    """One core for callers on any threads. `serve` gives it the core.

    Args:
        lock: held while the core is touched.
        check: called with the lock held before each turn; raises where the caller must not go on.
    """

    def __init__(self, lock: CoreLock, check: Callable[[], None]) -> None:
        self._lock, self._check = lock, check
        self._core: EngineCore | None = None
        self._asked: dict[str, tuple[Delivery[Any], Give]] = {}
        self._errors: dict[str, ZincError] = {}
        self._left: deque[str] = deque()  # requests that nobody waits for any more
        self._waits = threading.Condition()
        self._turns: threading.Thread | None = None  # that turns the loop now
        self._gives: dict[str, Give] = {}  # of posted requests
        self._posted: deque[tuple[Submit, Processors, Text[Any], Give]] = deque()
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
        if self._turns is threading.current_thread():
            raise EngineError("a step is running on this thread; use the model when it is over")

    # -- for threads

    def submit(self, request: Submit, text: Text[T], processors: Processors = ()) -> Inbox[T]:
        """Queue a request; `pieces` gives what its text makes of it. Raises what the check raises, `EngineError` in a
        turn.
        """
        with self._lock:
            self._check()
            core, inbox = self.core, Inbox[T]()
            self._asked[request.id] = Delivery(request, text), inbox.put
            core.submit(request, processors)
        return inbox

    def pieces(self, inbox: Inbox[T]) -> Iterator[T]:
        """A request's pieces, to its last; takes turns until there are some.

        Raises the exception behind `Failed`, what the text raises, what the check raises, what `EngineCore.turn`
        raises, and `EngineError` where a turn itself asks for it, as `notify` could.
        """
        while not inbox.over or inbox.pieces:
            self.wait((inbox,))
            yield from inbox.take()

    def wait(self, inboxes: Collection[Inbox[Any]]) -> None:
        """Take turns until one of the inboxes is ready. Raises what a turn raises."""

        def ready() -> bool:
            return any(inbox.ready() for inbox in inboxes)

        while not ready():
            self._advance(ready)

    def leave(self, request_id: str) -> None:
        """Nobody waits for the request any more; it ends with the next call. May be called at any time, also while a
        turn is interrupted.
        """
        self._left.append(request_id)

    # -- for tasks of event loops: nothing here waits for a step

    def post(self, request: Submit, text: Text[Any], give: Give, processors: Processors = ()) -> None:
        """Queue a request and give the pieces of its text away. `leave` it then."""
        self._lock.check_process()
        with Held(), self._waits:
            if self._driver is None:
                driver = threading.Thread(target=self._drive, name="zinc-tasks", daemon=True)
                driver.start()  # it waits for what is held here
                self._driver = driver
            self._gives[request.id] = give
            self._posted.append((request, processors, text, give))

    def _drive(self) -> None:
        while True:
            with self._waits:
                if not self._gives:
                    self._driver = None
                    return
            try:
                self._advance(lambda: not self._gives)
            except BaseException as error:
                self._break_off(error)

    def _break_off(self, error: BaseException) -> None:
        """The driver's turn failed: no posted request goes on."""
        with self._lock:  # others deliver events, and submit what is posted
            with self._waits:
                gives, self._gives = self._gives, {}
                self._posted.clear()
            for request_id, give in gives.items():
                self.leave(request_id)
                give([error], True)

    # -- turns

    def _advance(self, ready: Callable[[], object]) -> None:
        """Take a turn, or wait until another thread's is over; neither where the caller is ready by now. An interrupt
        is handled at the end. Raises what `pieces` raises.
        """
        self._lock.check_process()
        with Held():
            with self._waits:
                if ready():
                    return
                if self._turns is not None:
                    self.check_no_turn()
                    self._waits.wait()
                    return
                self._turns = threading.current_thread()
            try:
                with self._lock:
                    self._check()
                    core = self._settled()
                    if not ready():
                        self._deliver(core, core.advance())
            finally:
                with self._waits:
                    self._turns = None
                    self._waits.notify_all()

    def _settled(self) -> EngineCore:
        """The core, with all that was asked of it meanwhile."""
        core = self._core
        assert core is not None
        while self._posted:
            request, processors, text, give = self._posted.popleft()
            self._asked[request.id] = Delivery(request, text), give
            core.submit(request, processors)
        while self._left:
            request_id = self._left.popleft()
            self._gives.pop(request_id, None)
            self._asked.pop(request_id, None)
            core.cancel(request_id)
            self._errors.pop(request_id, None)
        self._deliver(core, core.collect())
        return core

    def _deliver(self, core: EngineCore, events: Sequence[Event]) -> None:
        """Give events away. A request whose text has ended ends here and now: no step has another row of it."""
        while events:
            for event in events:
                self._hand(core, event)
            events = core.collect()

    def _hand(self, core: EngineCore, event: Event) -> None:
        error = self._error(event) if isinstance(event, Failed) else None
        if event.id not in self._asked:
            return
        delivery, give = self._asked[event.id]
        pieces = delivery.take(event, error)
        if delivery.over:
            del self._asked[event.id]
            self._gives.pop(event.id, None)
        if delivery.ended:
            core.cancel(event.id)
        if pieces or delivery.over:
            give(pieces, delivery.over)

    def _error(self, event: Failed) -> Exception:
        """The exception behind an event: of a processor, what that raised."""
        error = self._errors.pop(event.id, None)
        if isinstance(error, ProcessorFailed):
            return error.error
        return error or EngineError(event.message)

"""`SharedCore`: callers of one process on one core, threads that wait and tasks of event loops.

A thread that waits for an event turns the loop, for all callers: of several threads that wait, one turns, and the
others get what it finds for them. Tasks cannot wait like that. While some of them have requests, a thread of the core's
own turns as one more of those that wait; it ends with the last of these requests. So nothing is computed, and no thread
is there, while nobody asks.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable

from zinc_rt.engine import EngineError
from zinc_rt.errors import ZincError
from zinc_rt.sampling.processors import ProcessorFailed, Processors
from zinc_rt.serving.core.engine_core import EngineCore
from zinc_rt.serving.messages import Event, Failed, Finished, Submit

Give = Callable[[Event | BaseException], None]
"""Takes a request's events, or the exception that ended it. It is called on any thread with the core's lock held, so it
returns at once and raises nothing.
"""


class SharedCore:
    """One core for callers on any threads. `serve` gives it the core.

    Args:
        lock: held while the core is touched.
        check: called with the lock held before each turn; raises where the caller must not go on.
    """

    def __init__(self, lock: threading.RLock, check: Callable[[], None]) -> None:
        self._lock, self._check = lock, check
        self._core: EngineCore | None = None
        self._inboxes: dict[str, deque[Event]] = {}
        self._errors: dict[str, ZincError] = {}
        self._left: deque[str] = deque()  # requests that nobody waits for any more
        self._waits = threading.Condition()
        self._turns: threading.Thread | None = None  # that turns the loop now
        self._gives: dict[str, Give] = {}  # of posted requests
        self._posted: deque[tuple[Submit, Processors]] = deque()
        self._ended: deque[str] = deque()  # posted requests to finish
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

    def submit(self, request: Submit, processors: Processors = ()) -> None:
        """Queue a request; `next` gives its events. Raises what the check raises, `EngineError` in a turn."""
        with self._lock:
            self._check()
            core = self.core
            self._inboxes[request.id] = deque()
            core.submit(request, processors)

    def next(self, request_id: str) -> Event:
        """The request's next event; takes turns until there is one. After `Finished` there is none.

        Raises the exception behind `Failed`, what the check raises, what `EngineCore.turn` raises, and `EngineError`
        where a turn itself asks for it, as `notify` could.
        """
        inbox = self._inboxes[request_id]
        self._until(inbox.__len__)
        event = inbox.popleft()
        if isinstance(event, Failed):
            raise self._error(event)
        return event

    def ready(self, request_ids: Iterable[str]) -> list[str]:
        """Those of the requests that have an event; takes turns until there is one. Raises what a turn does."""
        inboxes = {request_id: self._inboxes[request_id] for request_id in request_ids}
        self._until(lambda: any(inboxes.values()))
        return [request_id for request_id, inbox in inboxes.items() if inbox]

    def _until(self, ready: Callable[[], object]) -> None:
        while self._begin(ready):
            try:
                self._turn(ready)
            finally:
                self._end()

    def finish(self, request_id: str) -> Finished:
        """End a request now; returns its last event."""
        with self._lock:
            self._check()
            core = self.core
            core.cancel(request_id)
            self._deliver(core.collect())
        return next(event for event in self._inboxes[request_id] if isinstance(event, Finished))

    def leave(self, request_id: str) -> None:
        """Nobody waits for the request any more; it ends with the next call. May be called at any time, also while a
        turn is interrupted.
        """
        self._left.append(request_id)

    # -- for tasks of event loops: nothing here waits for a step

    def post(self, request: Submit, give: Give, processors: Processors = ()) -> None:
        """Queue a request and give its events away, the last of them `Finished` or an exception. `leave` it then."""
        with self._waits:
            if self._driver is None:
                driver = threading.Thread(target=self._drive, name="zinc-tasks", daemon=True)
                driver.start()  # it waits for what is held here
                self._driver = driver
            self._gives[request.id] = give
            self._posted.append((request, processors))

    def end(self, request_id: str) -> None:
        """End a posted request soon; its `Finished` follows, maybe after some more tokens."""
        self._ended.append(request_id)

    def _drive(self) -> None:
        while self._begin(self._let_go):
            try:
                self._turn(lambda: not self._gives)
            except BaseException as error:
                self._break_off(error)
            finally:
                self._end()

    def _let_go(self) -> bool:
        """Whether no posted request is left; then there is no driver any more. To call with `_waits` held."""
        if self._gives:
            return False
        self._driver = None
        return True

    def _break_off(self, error: BaseException) -> None:
        """The driver's turn failed: no posted request goes on."""
        with self._waits:
            gives, self._gives = self._gives, {}
            self._posted.clear()
        for request_id, give in gives.items():
            self.leave(request_id)
            give(error)

    # -- turns

    def _begin(self, ready: Callable[[], object]) -> bool:
        """Wait for a turn. False, and no turn, as soon as the caller is ready. Raises `EngineError` in a turn."""
        with self._waits:
            while not ready():
                if self._turns is None:
                    self._turns = threading.current_thread()
                    return True
                self.check_no_turn()
                self._waits.wait()
        return False

    def _end(self) -> None:
        with self._waits:
            self._turns = None
            self._waits.notify_all()

    def _turn(self, ready: Callable[[], object]) -> None:
        with self._lock:
            self._check()
            core = self._settled()
            if not ready():
                self._deliver(core.advance())

    def _settled(self) -> EngineCore:
        """The core, with all that was asked of it meanwhile."""
        core = self._core
        assert core is not None
        while self._posted:
            core.submit(*self._posted.popleft())
        while self._ended:
            core.cancel(self._ended.popleft())
        while self._left:
            request_id = self._left.popleft()
            self._gives.pop(request_id, None)
            core.cancel(request_id)
            self._inboxes.pop(request_id, None)
            self._errors.pop(request_id, None)
        self._deliver(core.collect())
        return core

    def _deliver(self, events: tuple[Event, ...]) -> None:
        for event in events:
            give, inbox = self._gives.get(event.id), self._inboxes.get(event.id)
            if give is not None:
                if isinstance(event, Finished | Failed):
                    del self._gives[event.id]
                give(self._error(event) if isinstance(event, Failed) else event)
            elif inbox is not None:
                inbox.append(event)
            else:
                self._errors.pop(event.id, None)

    def _error(self, event: Failed) -> Exception:
        """The exception behind an event: of a processor, what that raised."""
        error = self._errors.pop(event.id, None)
        if isinstance(error, ProcessorFailed):
            return error.error
        return error or EngineError(event.message)

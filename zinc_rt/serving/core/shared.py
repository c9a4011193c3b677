"""`SharedCore`: callers of one process on one core. Whoever waits for an event turns the loop, for all of them.

There is no thread of its own: nothing is computed while nobody asks. Of several threads that wait, one turns; the
others get what it finds for them.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable

from zinc_rt.engine import EngineError
from zinc_rt.errors import ZincError
from zinc_rt.serving.core.engine_core import EngineCore
from zinc_rt.serving.messages import Event, Failed, Finished, Submit


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

    def failed(self, request_id: str, error: ZincError) -> None:
        """For `EngineCore`: an exception behind a `Failed`."""
        self._errors[request_id] = error

    def serve(self, core: EngineCore) -> None:
        """The core to turn."""
        self._core = core

    @property
    def core(self) -> EngineCore:
        """The core, for use with the lock held and between turns."""
        assert self._core is not None
        self._settle(self._core)
        return self._core

    def submit(self, request: Submit) -> None:
        """Queue a request; `next` gives its events."""
        with self._lock:
            self._check()
            self._inboxes[request.id] = deque()
            self.core.submit(request)

    def next(self, request_id: str) -> Event:
        """The request's next event; takes turns until there is one. After `Finished` there is none.

        Raises the exception behind `Failed`, what the check raises, what `EngineCore.turn` raises, and `EngineError`
        where a turn itself asks for it, as `notify` could.
        """
        inbox = self._inboxes[request_id]
        while not inbox:
            with self._waits:
                while not inbox and self._turns is not None:
                    if self._turns is threading.current_thread():
                        raise EngineError("a step is running on this thread; ask for text when it is over")
                    self._waits.wait()
                if inbox:
                    break
                self._turns = threading.current_thread()
            try:
                self._turn()
            finally:
                with self._waits:
                    self._turns = None
                    self._waits.notify_all()
        event = inbox.popleft()
        if isinstance(event, Failed):
            raise self._errors.pop(request_id, None) or EngineError(event.message)
        return event

    def _turn(self) -> None:
        with self._lock:
            self._check()
            self._deliver(self.core.advance())

    def _deliver(self, events: tuple[Event, ...]) -> None:
        for event in events:
            inbox = self._inboxes.get(event.id)
            if inbox is not None:
                inbox.append(event)
            else:
                self._errors.pop(event.id, None)

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

    def _settle(self, core: EngineCore) -> None:
        while self._left:
            request_id = self._left.popleft()
            core.cancel(request_id)
            self._inboxes.pop(request_id, None)
            self._errors.pop(request_id, None)
        self._deliver(core.collect())

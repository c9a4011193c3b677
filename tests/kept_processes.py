"""Compile processes that wait for the next test: starting one takes as long as compiling a small kernel."""

from __future__ import annotations

import selectors
import threading

from zinc_rt.lang import children

FRESH = ("lang/test_building.py", "lang/test_compiler.py", "lang/test_link.py", "lang/test_orphans.py")
"""The modules whose tests look at the processes themselves, and get new ones."""
_MOST = 2
"""Processes that wait at once, for each worker."""

_Child = children._Child
_command = children.worker_command
_waiting: list[KeptChild] = []


class KeptChild(_Child):
    """One that takes over the process of an earlier one, where some process has answered all that it was asked."""

    def __init__(self, selector: selectors.BaseSelector) -> None:
        while _waiting and children.worker_command is _command:  # else a test has processes of its own
            before = _waiting.pop()
            if before._process.poll() is None:
                vars(self).update(vars(before))
                self.job, self.done, self._selector = None, 0, selector
                selector.register(self._out, selectors.EVENT_READ, self)
                return
            before.leave()
        super().__init__(selector)
        # A process ends with the thread that started it.
        self._lasting = threading.current_thread() is threading.main_thread()

    def end(self) -> None:
        """Let the process wait for its next use."""
        idle = self.job is None and self.done > 0 and not (self._closed or self._outgoing or self._incoming)
        usual = children._Child is KeptChild and children.worker_command is _command
        if not (idle and usual and self._lasting and len(_waiting) < _MOST):
            super().end()
            return
        self._selector.unregister(self._out)
        _waiting.append(self)

    def leave(self) -> None:
        """End the process."""
        with selectors.DefaultSelector() as self._selector:
            super().end()


def keep(kept: bool) -> None:
    """Whether processes are kept from now on; if not, there are none that wait."""
    children._Child = KeptChild if kept else _Child  # type: ignore[misc]
    if not kept:
        end()


def end() -> None:
    """End those that wait."""
    while _waiting:
        _waiting.pop().leave()

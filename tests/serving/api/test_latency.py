"""What is asked of the system for the event loop's thread."""

from __future__ import annotations

import os
import threading
from typing import Any

from zinc_rt.serving.api.ids import new_id
from zinc_rt.serving.api.latency import SLICE_NS, ask_for_short_turns, scheduling


def test_short_turns_of_one_thread_alone() -> None:
    """Policy and niceness stay, and threads that are started are scheduled as usual."""
    found: dict[str, Any] = {}

    def child() -> None:
        found["child"] = scheduling()

    def work() -> None:
        found["before"] = scheduling()
        found["taken"] = ask_for_short_turns()
        found["after"] = scheduling()
        started = threading.Thread(target=child)
        started.start()
        started.join()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    before, after = found["before"], found["after"]
    if before is None or before.policy != os.SCHED_OTHER:
        assert found["taken"] is False
        return
    if found["taken"] and before.runtime:  # 0 where the kernel knows no turns of a thread's own
        assert after.runtime == SLICE_NS
        assert found["child"].runtime == before.runtime
    assert (after.policy, after.nice) == (before.policy, before.nice)


def test_ids_are_of_letters_and_digits_and_differ() -> None:
    made = {new_id("req-") for _ in range(1000)}
    assert len(made) == 1000
    assert all(len(one) == 28 and one.startswith("req-") and one[4:].isalnum() for one in made)

"""State that amdkfd keeps for a process until the process ends, even if all files are closed.

ACQUIRE_VM binds a GPU to one open file of its render node, for the life of the process: with any other file it fails
with EBUSY afterwards, also when /dev/kfd was closed and opened again. The event page can be handed over once and never
freed. So both are kept here and used again, one per GPU and one per process. A forked child starts with nothing.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

from zinc_rt.utils.linux import Linux


@dataclass
class EventPage:
    """The memory with the mailboxes of this process's events. gpu_ids: those that can write to it."""

    va: int
    handle: int
    gpu_ids: set[int]


@dataclass
class KeptState:
    """The kept state of one process. render_files: descriptors by gpu_id; event_page: handed over to amdkfd; lock: held
    while either changes, and while a queue is created: RDNA4 was seen to give colliding doorbells to two queues created
    at once.
    """

    pid: int
    render_files: dict[int, int] = field(default_factory=dict)
    event_page: EventPage | None = None
    lock: threading.RLock = field(default_factory=threading.RLock)


_states: WeakKeyDictionary[Linux, KeptState] = WeakKeyDictionary()
_guard = threading.Lock()


def kept_state(linux: Linux) -> KeptState:
    """That of the calling process."""
    with _guard:
        state = _states.get(linux)
        if state is None or state.pid != linux.pid():
            state = _states[linux] = KeptState(linux.pid())
        return state

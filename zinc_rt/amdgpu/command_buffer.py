"""Packets of command lists in GPU memory: they are copied there once, and submitted again with a new fence.

A list is lowered and copied at its first submission. Each submission stores two dwords, the fence's value, into the
copy. The GPU may read a copy until its fence has retired. So a list that is submitted again before that gets a second
copy. A caller that waits for every step, as decoding does, always uses the first. Copies beyond two are released when
they retire, and all copies of a list when nobody holds the list any more. `submit` never waits for a copy: such a wait
would need a time limit of its own, and a thread could wait for a fence that only it can let retire.
"""

from __future__ import annotations

import weakref
from collections import deque
from dataclasses import dataclass, field

import numpy as np

from zinc_rt.amdgpu.command_list import CommandList
from zinc_rt.amdgpu.gfx import Gfx
from zinc_rt.amdgpu.heaps import Heaps
from zinc_rt.amdgpu.packets import FENCE_VALUE, Words, ended_packets, fence_packets, lower, started_packets
from zinc_rt.amdgpu.pm4 import hi32, lo32
from zinc_rt.amdgpu.pool import GpuMemory, Pool
from zinc_rt.errors import BackendError
from zinc_rt.utils.linux import Linux

KEPT_COPIES = 2


@dataclass(eq=False, slots=True)
class PacketCopy:
    """Packets in GPU memory. value_address: in this process, of the fence's value, two dwords; source: the list that
    they were made from, None for those that serve once; in_use: whether the GPU may read them; work: of the list;
    times: where the GPU stores when they begin and end, two quadwords, None where nobody asks.
    """

    memory: GpuMemory
    n_dwords: int
    value_address: int
    source: RecordedList | None = None
    in_use: bool = False
    work: int = 0
    times: GpuMemory | None = None

    def took(self, linux: Linux, since: int) -> tuple[int, int]:
        """When they ended by the GPU's counter, and how long they ran, both 0 where nobody asked or the
        counter says nothing. They have retired.
        since: when the submission before ended, whose work they had to wait for.
        """
        if self.times is None or self.times.buffer.address is None:
            return 0, 0
        at = self.times.buffer.address + self.times.offset
        start, end = linux.load64(at), linux.load64(at + 8)
        return (end, end - max(start, since)) if 0 < start < end else (0, 0)

    def set_fence(self, linux: Linux, value: int) -> None:
        """Let the packets end with this value."""
        linux.store32(self.value_address, lo32(value))
        linux.store32(self.value_address + 4, hi32(value))


@dataclass(eq=False, slots=True)
class RecordedList:
    """The recorded form of a command list. n_items: how many items the list had when it was lowered to `words`;
    kernels: names of its dispatches, in order; work: of the list; checked: the counts of freed pieces, of the queue's
    memory and of the list's own, at the last check that found none of the list's memory freed.
    """

    commands: weakref.ref[CommandList]
    n_items: int = -1
    work: int = 0
    words: Words = field(default_factory=lambda: np.zeros(0, np.uint32))
    kernels: tuple[str, ...] = ()
    copies: list[PacketCopy] = field(default_factory=list)
    checked: tuple[int, int] = (-1, -1)


class RecordedLists:
    """All lists of one queue. pool: where packets go; times: where it is noted when they began and ended; signal_va:
    where their fences are written; flag_va: what barriers wait for with `by_release`.
    """

    def __init__(
        self, linux: Linux, heaps: Heaps, pool: Pool, times: Pool, gfx: Gfx, signal_va: int, flag_va: int
    ) -> None:
        self._flag_va, self.by_release = flag_va, False
        self._times = times
        self._linux, self._heaps, self._pool, self._gfx, self._signal_va = linux, heaps, pool, gfx, signal_va
        self._by_id: dict[int, RecordedList] = {}
        self._dropped: deque[int] = deque()  # filled by the garbage collector, in any thread and at any time

    def of(self, commands: CommandList, n_freed: int) -> RecordedList:
        """The list as it is now. n_freed: pieces of memory that the queue's callers have freed so far.

        Raises `BackendError` when it uses freed memory, or takes too many packets.
        """
        key = id(commands)
        found = self._by_id.get(key)
        if found is None:
            found = self._by_id[key] = RecordedList(self._watch(commands, key))
        if found.checked != (n_freed, len(commands.memory)):
            freed = next((memory for memory in commands.memory if memory.freed), None)
            if freed is not None:
                raise BackendError(f"{commands.label} uses {freed.label}, {freed.size} bytes that were freed")
            found.checked = n_freed, len(commands.memory)
        if found.n_items != commands.n_items:
            found.words = self._lowered(commands)
            found.kernels = tuple(program.name for program in commands.programs)
            found.n_items, found.work = commands.n_items, commands.work
            self._let_go(found)
        return found

    def _lowered(self, commands: CommandList, marks: tuple[int, int] | None = None) -> Words:
        flag_va = self._flag_va if self.by_release else None
        return np.array(lower(commands, self._gfx, marks, flag_va=flag_va), np.uint32)

    def _watch(self, commands: CommandList, key: int) -> weakref.ref[CommandList]:
        dropped = self._dropped
        return weakref.ref(commands, lambda _: dropped.append(key))

    def take(self, recorded: RecordedList) -> PacketCopy:
        """A copy that the GPU does not use, in use from now on. Raises `InterfaceError` when memory is short."""
        copy = next((copy for copy in recorded.copies if not copy.in_use), None)
        if copy is None:
            copy = self._put(recorded.words, recorded.work)
            copy.source = recorded
            recorded.copies.append(copy)
        copy.in_use = True
        return copy

    def take_marked(self, commands: CommandList, mark_va: int, dispatched: int) -> PacketCopy:
        """A copy that serves once, with a note after each dispatch of how many are done."""
        copy = self._put(self._lowered(commands, (mark_va, dispatched)))
        copy.in_use = True
        return copy

    def give(self, copy: PacketCopy) -> None:
        """Its fence has retired: the GPU does not read it any more."""
        copy.in_use = False
        if copy.source is None or len(copy.source.copies) > KEPT_COPIES:
            self.free(copy)

    def free(self, copy: PacketCopy) -> None:
        """Give the memory back; the GPU does not read it any more, or never began to."""
        if copy.source is not None:
            copy.source.copies.remove(copy)
        self._free(copy)

    def collect(self) -> None:
        """Give back what belongs to lists that nobody holds any more."""
        while self._dropped:
            self._let_go(self._by_id.pop(self._dropped.popleft()))

    def forget(self) -> None:
        """Lower every list anew when it is submitted again."""
        for recorded in self._by_id.values():
            recorded.n_items = -1

    def close(self) -> None:
        """Know nothing any more; the memory goes with its pool."""
        self._by_id.clear()

    def _let_go(self, recorded: RecordedList) -> None:
        """Free the copies; those in use are freed when they are given back."""
        copies, recorded.copies = recorded.copies, []
        for copy in copies:
            copy.source = None
            if not copy.in_use:
                self._free(copy)

    def _free(self, copy: PacketCopy) -> None:
        self._pool.free(copy.memory)
        if copy.times is not None:
            self._times.free(copy.times)

    def _put(self, words: Words, work: int = 0) -> PacketCopy:
        times = self._times.allocate(16, "times") if work else None
        head = started_packets(times.va) if times is not None else []
        end = ended_packets(times.va + 8) if times is not None else []
        before = len(head) + len(words) + len(end)
        tail = fence_packets(before, self._gfx, self._signal_va)
        n = before + len(tail)
        try:
            memory = self._pool.allocate(4 * n, "packets")
        except BaseException:
            if times is not None:
                self._times.free(times)
            raise
        self._store(memory, np.concatenate([np.array(head, np.uint32), words, np.array(end + tail, np.uint32)]))
        assert memory.buffer.address is not None, "packets are visible"
        fence = memory.buffer.address + memory.offset + 4 * (before + FENCE_VALUE)
        return PacketCopy(memory, n, fence, work=work, times=times)

    def _store(self, memory: GpuMemory, words: Words) -> None:
        # Apart from `_put`: an error's traceback must not keep an array of the map alive.
        self._heaps.view(memory).view(np.uint32)[:] = words

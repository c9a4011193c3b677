"""A command list: dispatches, copies, writes and barriers, in order. Recorded once, submitted as often as wanted.

Only a barrier orders them: a dispatch may run beside those before it, and the command processor's own copies and writes
pass running dispatches. Every list begins behind all earlier ones, and its fence is behind all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

from zinc_rt.amdgpu.gfx import GENERATIONS
from zinc_rt.amdgpu.loaded_kernel import LoadedKernel
from zinc_rt.amdgpu.pool import GpuMemory
from zinc_rt.errors import BackendError
from zinc_rt.utils.gpu_calls import Groups, checked_groups

MAX_COPY = 16 << 10
"""Bytes of one copy: the command processor moves eight at a time, so more than this is work for a kernel."""
MAX_WRITE = 4096
"""Dwords of one write."""
_DWORD = 0xFFFFFFFF
# A list is not recorded for one GPU: what it holds runs on every generation.
MAX_GROUPS = tuple(min(counts) for counts in zip(*(gfx.max_groups for gfx in GENERATIONS), strict=True))
"""Workgroups in x, y and z."""
MAX_THREADS = min(gfx.max_threads for gfx in GENERATIONS)
USER_DATA_DWORDS = min(gfx.user_dwords for gfx in GENERATIONS)


@dataclass(frozen=True)
class ListedDispatch:
    """`groups` workgroups of `threads` work-items; user_data: dwords from USER_DATA_0 on."""

    program: LoadedKernel
    groups: tuple[int, int, int]
    threads: tuple[int, int, int]
    user_data: tuple[int, ...]


@dataclass(frozen=True)
class Copy:
    """Bytes from one GPU address to another, by the command processor."""

    source: int
    target: int
    n_bytes: int


@dataclass(frozen=True)
class Write:
    """Dwords to a GPU address, by the command processor."""

    target: int
    values: tuple[int, ...]


@dataclass(frozen=True)
class Barrier:
    """Items behind it see the results of items before it. light: cheaper, and enough if dispatches read the results of
    dispatches; not if one overwrites data that another one read, nor beside copies and writes.
    """

    light: bool = False


Item = ListedDispatch | Copy | Write | Barrier


class CommandList:
    """label: for messages; memory: what it names, which must not be freed before its last submission; work: how much it
    is, in the unit of `submission_budget`, 0 where nothing shall be learnt from it.

    Methods raise `BackendError` for what cannot be run, and return the list. A list only grows: a queue knows by the
    number of items whether the packets that it keeps are still those of the list.
    """

    def __init__(self, label: str = "commands") -> None:
        self.label = label
        self.memory: list[GpuMemory] = []
        self.work = 0
        self._items: list[Item] = []

    @property
    def items(self) -> tuple[Item, ...]:
        """What was recorded, in order."""
        return tuple(self._items)

    @property
    def n_items(self) -> int:
        """How many there are."""
        return len(self._items)

    @property
    def programs(self) -> list[LoadedKernel]:
        """Of its dispatches, in order."""
        return [item.program for item in self._items if isinstance(item, ListedDispatch)]

    def dispatch(
        self,
        program: LoadedKernel,
        groups: Groups,
        *arguments: Any,
        threads: tuple[int, int, int] | None = None,
        user_data: Sequence[int] | None = None,
    ) -> Self:
        """Run a kernel. arguments: as it declares them, `GpuMemory` for pointers; or `user_data`, the dwords as they
        are. threads: other than the program says.
        """
        groups = checked_groups(program.name, groups, MAX_GROUPS)
        threads = threads or program.threads
        n_threads = threads[0] * threads[1] * threads[2]
        if min(threads) < 1 or n_threads > MAX_THREADS:
            raise BackendError(f"{program.name}: workgroups of {threads} work-items; one has 1 to {MAX_THREADS}")
        words = tuple(user_data) if user_data is not None else self._user_data(program, arguments)
        if user_data is not None and arguments:
            raise BackendError(f"{program.name}: arguments and user_data are both given; one of them says it all")
        if len(words) < program.n_user_data or len(words) > USER_DATA_DWORDS:
            raise BackendError(
                f"{program.name}: {len(words)} dwords of user data; it reads {program.n_user_data}, there are"
                f" {USER_DATA_DWORDS}"
            )
        if not all(0 <= word <= _DWORD for word in words):
            raise BackendError(f"{program.name}: user data {words} are not all dwords")
        self._items.append(ListedDispatch(program, groups, threads, words))
        return self

    def copy(
        self, source: GpuMemory, target: GpuMemory, n_bytes: int, *, source_offset: int = 0, target_offset: int = 0
    ) -> Self:
        """Copy up to `MAX_COPY` bytes; all three numbers are multiples of 4. The two ranges must not overlap."""
        if n_bytes > MAX_COPY:
            raise BackendError(f"a copy of {n_bytes} bytes; more than {MAX_COPY} are work for a kernel")
        from_, to = self._at(source, source_offset, n_bytes), self._at(target, target_offset, n_bytes)
        if from_ < to + n_bytes and to < from_ + n_bytes:
            raise BackendError(f"a copy of {n_bytes} bytes from {from_:#x} to {to:#x}: the ranges overlap")
        self._items.append(Copy(from_, to, n_bytes))
        return self

    def write(self, target: GpuMemory, values: Sequence[int], *, offset: int = 0) -> Self:
        """Write dwords at a byte offset, a multiple of 4."""
        if not 0 < len(values) <= MAX_WRITE:
            raise BackendError(f"a write of {len(values)} dwords; one has 1 to {MAX_WRITE}")
        if not all(0 <= value <= _DWORD for value in values):
            raise BackendError("a write takes dwords: 0 to 0xffffffff")
        self._items.append(Write(self._at(target, offset, 4 * len(values)), tuple(values)))
        return self

    def barrier(self, *, light: bool = False) -> Self:
        """See `Barrier`."""
        self._items.append(Barrier(light))
        return self

    def _at(self, memory: GpuMemory, offset: int, n_bytes: int) -> int:
        if offset < 0 or n_bytes < 1 or offset + n_bytes > memory.size:
            raise BackendError(f"{memory.label}: bytes {offset} to {offset + n_bytes} are not all in its {memory.size}")
        if offset % 4 or n_bytes % 4:
            raise BackendError(f"{memory.label}: {n_bytes} bytes at {offset}; the command processor moves whole dwords")
        self._use(memory)
        return memory.va + offset

    def _use(self, memory: GpuMemory) -> None:
        if memory.freed:
            raise BackendError(f"{memory.label}: {memory.size} bytes that were freed")
        self.memory.append(memory)

    def _user_data(self, program: LoadedKernel, arguments: tuple[Any, ...]) -> tuple[int, ...]:
        if program.kernel is None:
            if not arguments:
                return ()
            raise BackendError(f"{program.name} declares no arguments: give user_data, the dwords as they are")
        for argument in arguments:
            if isinstance(argument, GpuMemory):
                self._use(argument)
        return program.kernel.user_data(*(a.va if isinstance(a, GpuMemory) else a for a in arguments))

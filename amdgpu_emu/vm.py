"""A GPU's page tables for one process: buffers, pages and access rights by address."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from dataclasses import dataclass

from amdgpu_emu.errors import GpuFault
from amdgpu_emu.memory import BufferObject

ADDRESS = (1 << 48) - 1
"""The bits of an address that page tables use; addresses of the upper half are written with all higher bits set."""


@dataclass(frozen=True, eq=False)
class Mapping:
    """A mapping: `size` bytes of a buffer from `offset` on, at `va`; all three are whole pages."""

    va: int
    size: int
    bo: BufferObject
    offset: int
    readable: bool
    writable: bool
    executable: bool

    @property
    def end(self) -> int:
        """The first address behind the mapping."""
        return self.va + self.size

    def __str__(self) -> str:
        rights = "".join(
            letter if has else "-"
            for letter, has in (("r", self.readable), ("w", self.writable), ("x", self.executable))
        )
        return f"{self.bo.label} at {self.va:#x}..{self.end:#x} {rights}"


class GpuVm:
    """The page tables of one process: mappings that never overlap, sorted by address."""

    def __init__(self, label: str) -> None:
        self.label = label
        self._starts: list[int] = []
        self._by_start: dict[int, Mapping] = {}
        self._frozen: GpuVm | None = None

    def __iter__(self) -> Iterator[Mapping]:
        return (self._by_start[va] for va in self._starts)

    def __len__(self) -> int:
        return len(self._starts)

    def insert(self, mapping: Mapping) -> None:
        """Add a mapping. The caller has checked for overlaps."""
        self._frozen = None
        insort(self._starts, mapping.va)
        self._by_start[mapping.va] = mapping

    def remove(self, mapping: Mapping) -> None:
        """Remove a mapping."""
        self._frozen = None
        self._starts.remove(mapping.va)
        del self._by_start[mapping.va]

    def frozen(self) -> GpuVm:
        """An immutable copy of the tables."""
        if self._frozen is None:
            self._frozen = GpuVm(self.label)
            self._frozen._starts, self._frozen._by_start = self._starts.copy(), self._by_start.copy()
        return self._frozen

    def starting_at(self, va: int) -> Mapping | None:
        """The mapping that starts at an address, or None."""
        return self._by_start.get(va)

    def at(self, va: int) -> Mapping | None:
        """The mapping that holds an address, or None."""
        va &= ADDRESS
        i = bisect_right(self._starts, va)
        found = self._by_start[self._starts[i - 1]] if i else None
        return found if found is not None and va < found.end else None

    def overlapping(self, va: int, size: int) -> list[Mapping]:
        """The mappings that overlap a range."""
        first = max(0, bisect_right(self._starts, va) - 1)
        found = []
        for start in self._starts[first:]:
            if start >= va + size:
                break
            if self._by_start[start].end > va:
                found.append(self._by_start[start])
        return found

    def of(self, bo: BufferObject) -> list[Mapping]:
        """All mappings of a buffer."""
        return [m for m in self if m.bo is bo]

    def walk(self, va: int, size: int, access: str) -> Iterator[tuple[Mapping, int, int]]:
        """Cut a range into pieces: mapping, byte offset in its buffer, bytes. access: read, write or execute.

        Raises `GpuFault` at the first address that is not mapped or not allowed.
        """
        va &= ADDRESS
        while size > 0:
            mapping = self.at(va)
            if mapping is None:
                raise GpuFault(va, access, "not mapped", self.nearest(va))
            if not {"read": mapping.readable, "write": mapping.writable, "execute": mapping.executable}[access]:
                raise GpuFault(va, access, f"not allowed in {mapping}", self.nearest(va))
            n = min(size, mapping.end - va)
            yield mapping, mapping.offset + va - mapping.va, n
            va, size = va + n, size - n

    def nearest(self, va: int) -> str:
        """The closest mapping, for a message."""
        if not self._starts:
            return "nothing is mapped"
        closest = min(self, key=lambda m: max(m.va - va, va - (m.end - 1), 0))
        if closest.va <= va < closest.end:
            return f"inside {closest}, {va - closest.va:#x} bytes after its start"
        if va < closest.va:
            return f"{closest.va - va:#x} bytes before {closest}"
        return f"{va - closest.end:#x} bytes behind the end of {closest}"

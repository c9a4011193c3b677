"""First fit over one range of numbers: addresses of a GPU, bytes of a buffer. Only the books; no memory is touched."""

from __future__ import annotations

from bisect import bisect_left

from zinc_rt.errors import BackendError


class Ranges:
    """[start, start + size), in parts that are used or free. Free neighbours are always one part."""

    def __init__(self, start: int, size: int, label: str) -> None:
        self.start, self.size, self.label = start, size, label
        self._free: list[tuple[int, int]] = [(start, size)]  # start, size; sorted
        self._used: dict[int, int] = {}

    @property
    def used(self) -> int:
        """What is taken, alignment gaps not counted: they are free."""
        return sum(self._used.values())

    def parts(self) -> dict[int, int]:
        """Start and size of everything in use."""
        return dict(self._used)

    def take(self, size: int, alignment: int = 1) -> int | None:
        """The lowest free multiple of `alignment` with `size` behind it, None when there is none."""
        for i, (start, free) in enumerate(self._free):
            at = -(-start // alignment) * alignment
            if at + size <= start + free:
                rest = ((start, at - start), (at + size, start + free - at - size))
                self._free[i : i + 1] = [part for part in rest if part[1]]
                self._used[at] = size
                return at
        return None

    def give(self, start: int) -> int:
        """Free what `take` returned; its size. Raises `BackendError` for anything else."""
        if start not in self._used:
            raise BackendError(f"{start:#x} of {self.label} is not in use: freed twice, or never allocated")
        size = self._used.pop(start)
        i = bisect_left(self._free, (start, 0))
        low, high = start, start + size
        if i < len(self._free) and self._free[i][0] == high:
            high += self._free.pop(i)[1]
        if i and sum(self._free[i - 1]) == low:
            low = self._free.pop(i - 1)[0]
            i -= 1
        self._free.insert(i, (low, high - low))
        return size

    def check_integrity(self) -> None:
        """Raise `BackendError` unless every number is in exactly one part and free neighbours are merged."""
        parts = sorted([(*part, "free") for part in self._free] + [(*part, "used") for part in self._used.items()])
        at, before = self.start, ""
        for start, size, kind in parts:
            if start != at or size <= 0:
                what = "lost" if start > at else "in two parts"
                raise BackendError(f"{self.label}: {min(start, at):#x}..{max(start, at):#x} is {what}")
            if kind == before == "free":
                raise BackendError(f"{self.label}: two free parts meet at {start:#x} and were not merged")
            at, before = start + size, kind
        if at != self.start + self.size:
            raise BackendError(f"{self.label}: {at:#x}..{self.start + self.size:#x} is lost")
        if self._free != sorted(self._free):
            raise BackendError(f"{self.label}: the free parts are not in order")

"""SVM: attributes of ranges of the process's own addresses (`kfd_svm.c`). Kept and checked; pages do not migrate."""

from __future__ import annotations

import errno
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from amdgpu_emu.errors import CallRefused
from amdgpu_emu.kfd.address_space import is_mapped, is_page_aligned

if TYPE_CHECKING:
    from amdgpu_emu.kfd.process import KfdProcess

NUMBER = 0x20
SET_ATTR, GET_ATTR = 0, 1
(PREFERRED_LOC, PREFETCH_LOC, ACCESS, ACCESS_IN_PLACE, NO_ACCESS, SET_FLAGS, CLR_FLAGS, GRANULARITY) = range(8)
GPU_ALWAYS_MAPPED = 64
UNDEFINED = 0xFFFFFFFF
_HEADER = struct.Struct("<QQII")
_ATTRIBUTE = struct.Struct("<II")
_DEFAULT_FLAGS = 3  # HOST_ACCESS | COHERENT
_DEFAULT_GRANULARITY = 9  # 2 MiB, as a power of two of pages


@dataclass
class _Range:
    start: int
    end: int
    flags: int = _DEFAULT_FLAGS
    values: dict[int, int] = field(default_factory=dict)
    access: dict[int, int] = field(default_factory=dict)  # GPU id: ACCESS, ACCESS_IN_PLACE or NO_ACCESS

    def part(self, start: int, end: int) -> _Range:
        """A copy of this range's attributes for a part of it."""
        return _Range(start, end, self.flags, dict(self.values), dict(self.access))


class SvmRanges:
    """The SVM ranges of one process, which never overlap."""

    def __init__(self) -> None:
        self._ranges: list[_Range] = []

    def overlaps(self, start: int, size: int) -> bool:
        """Whether any byte lies in a range."""
        return any(r.start < start + size and start < r.end for r in self._ranges)

    def always_mapped(self, start: int, size: int) -> bool:
        """Whether the whole range is registered and stays mapped on the GPU."""
        at = start
        for r in self._ranges:
            if r.start <= at < r.end and r.flags & GPU_ALWAYS_MAPPED:
                at = r.end
        return at >= start + size

    def cut(self, start: int, end: int) -> list[_Range]:
        """The ranges that make up [start, end), split at both ends, new ones in the gaps."""
        outside: list[_Range] = []
        inside: list[_Range] = []
        for r in self._ranges:
            low, high = max(r.start, start), min(r.end, end)
            if low >= high:
                outside.append(r)
                continue
            outside += [r.part(a, b) for a, b in ((r.start, low), (high, r.end)) if a < b]
            inside.append(r.part(low, high))
        at = start
        for r in sorted(inside, key=lambda r: r.start):
            if at < r.start:
                inside.append(_Range(at, r.start))
            at = r.end
        if at < end:
            inside.append(_Range(at, end))
        self._ranges = sorted(outside + inside, key=lambda r: r.start)
        return sorted(inside, key=lambda r: r.start)

    def within(self, start: int, end: int) -> list[_Range]:
        """Ranges that share an address with [start, end)."""
        return [r for r in self._ranges if r.start < end and start < r.end]


def svm(kfd: KfdProcess, data: bytes) -> bytes:
    """Serve SVM: the argument, header and attributes; returns it with what GET_ATTR fills in. Raises `CallRefused`."""
    start, size, operation, count = _HEADER.unpack_from(data.ljust(_HEADER.size, b"\0"))
    if not start or not size or not is_page_aligned(start) or not is_page_aligned(size):
        raise CallRefused(errno.EINVAL, f"start {start:#x} or size {size:#x} is 0 or not whole pages")
    if len(data) < _HEADER.size + count * _ATTRIBUTE.size:
        raise CallRefused(errno.EINVAL, f"{count} attributes do not fit into a request of {len(data)} bytes")
    if operation not in (SET_ATTR, GET_ATTR):
        raise CallRefused(errno.EINVAL, f"there is no operation {operation}")
    attributes = [_ATTRIBUTE.unpack_from(data, _HEADER.size + i * _ATTRIBUTE.size) for i in range(count)]
    for kind, value in attributes:
        _check(kfd, kind, value, setting=operation == SET_ATTR)
    if not is_mapped(start, size):
        raise CallRefused(errno.EFAULT, f"{size:#x} bytes at {start:#x} are not all mapped in the process")
    if operation == SET_ATTR:
        for r in kfd.svm.cut(start, start + size):
            for kind, value in attributes:
                _set(r, kind, value)
        return data
    found = kfd.svm.within(start, start + size) or [_Range(start, start + size)]
    answers = b"".join(_ATTRIBUTE.pack(*_get(found, kind, value)) for kind, value in attributes)
    return data[: _HEADER.size] + answers + data[_HEADER.size + len(answers) :]


def _check(kfd: KfdProcess, kind: int, value: int, *, setting: bool) -> None:
    if kind > GRANULARITY:
        raise CallRefused(errno.EINVAL, f"there is no attribute {kind}")
    location = kind in (PREFERRED_LOC, PREFETCH_LOC) and setting and value not in (0, UNDEFINED)
    if location or kind in (ACCESS, ACCESS_IN_PLACE, NO_ACCESS):
        kfd.device(value)


def _set(r: _Range, kind: int, value: int) -> None:
    if kind == SET_FLAGS:
        r.flags |= value
    elif kind == CLR_FLAGS:
        r.flags &= ~value
    elif kind in (ACCESS, ACCESS_IN_PLACE, NO_ACCESS):
        r.access[value] = kind
    else:
        r.values[kind] = min(value, 63) if kind == GRANULARITY else value


def _get(ranges: list[_Range], kind: int, value: int) -> tuple[int, int]:
    """Type and value as the answer has them: flags that all ranges share, a value when all agree."""
    if kind in (SET_FLAGS, CLR_FLAGS):
        flags = 0xFFFFFFFF
        for r in ranges:
            flags &= r.flags if kind == SET_FLAGS else ~r.flags
        return kind, flags & 0xFFFFFFFF
    if kind in (ACCESS, ACCESS_IN_PLACE, NO_ACCESS):
        kinds = {r.access.get(value, NO_ACCESS) for r in ranges}
        return (kinds.pop() if len(kinds) == 1 else NO_ACCESS), value
    default = _DEFAULT_GRANULARITY if kind == GRANULARITY else UNDEFINED
    values = {r.values.get(kind, default) for r in ranges}
    if kind == GRANULARITY:
        return kind, min(values)
    return kind, values.pop() if len(values) == 1 else UNDEFINED

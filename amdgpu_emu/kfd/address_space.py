"""Questions about the calling process's addresses that a kernel answers from its own tables."""

from __future__ import annotations

from zinc_rt.linux import PAGE

USER_END = 0x7FFFFFFFF000
"""The first address that no program on x86-64 with 48-bit addresses can have."""


def is_user_address(address: int, size: int = 8) -> bool:
    """Whether the bytes can be a program's at all, mapped or not (the kernel's `access_ok`)."""
    return address + size <= USER_END


def is_mapped(start: int, size: int) -> bool:
    """Whether the process has something mapped at every address of the range, whatever its rights."""
    at, end = start, start + size
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            low, high = (int(part, 16) for part in line.split(" ", 1)[0].split("-"))
            if low <= at < high:
                at = high
                if at >= end:
                    return True
    return False


def is_page_aligned(value: int) -> bool:
    """Whether it is a whole number of pages."""
    return value % PAGE == 0

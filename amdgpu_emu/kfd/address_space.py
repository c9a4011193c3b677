"""Checks of the calling process's addresses, which a kernel answers from its own tables."""

from __future__ import annotations

from zinc_rt.utils.linux import PAGE

USER_END = 0x7FFFFFFFF000
"""The first address beyond the address space of x86-64 programs with 48-bit addresses."""


def is_user_address(address: int, size: int = 8) -> bool:
    """Whether a range lies in a program's address space, mapped or not (the kernel's `access_ok`)."""
    return address + size <= USER_END


def is_mapped(start: int, size: int) -> bool:
    """Whether every address of a range is mapped in the process, with any rights."""
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
    """Whether a number is a whole number of pages."""
    return value % PAGE == 0

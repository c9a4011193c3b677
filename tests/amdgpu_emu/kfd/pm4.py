"""The few packets that these tests put into rings, as words: not from the code under test."""

from __future__ import annotations

NOP = (0xC0001000, 0)
MALFORMED = (0xC000FF00, 0)


def release(va: int, value: int, *, context: int = 0) -> tuple[int, ...]:
    """RELEASE_MEM: write a u64 after all caches; with a context id also raise an interrupt."""
    selectors = 0x40000000 | (2 << 24 if context else 0)
    return (0xC0064900, 0x06600514, selectors, va & 0xFFFFFFFF, va >> 32, value & 0xFFFFFFFF, value >> 32, context)


def wait_for(va: int, value: int) -> tuple[int, ...]:
    """WAIT_REG_MEM: memory, equal, all bits, poll interval 4."""
    return (0xC0053C00, 0x00000013, va & 0xFFFFFFFF, va >> 32, value, 0xFFFFFFFF, 4)

"""Values that submissions leave behind as proof, and scores as keys that integers can compare.

A sentinel is 16 bits "ZR", 8 bits operation, 40 bits count, so that a late write of another submission never passes for
the expected one: 40 bits of count last a year at 30 µs a submission.
"""

from __future__ import annotations

import struct
from enum import IntEnum

SMOKE = 0x5A494E43_52540000
"""The smoke test's sentinels: this, with 1 and 2 for its two submissions."""

COUNT_BITS = 40
_TAG = 0x5A52


class BoundaryOperation(IntEnum):
    """What a submission does, as the byte that its sentinels carry."""

    copy = 0x10
    argmax_top2 = 0x30
    rms_norm = 0x40
    dmmv_f32 = 0x50
    dmmv_q4_0 = 0x60
    dmmv_q4_0_two_rows = 0x61
    dmmv_q8_0 = 0x70
    dmmv_q8_0_two_ranges = 0x80
    dmmv_q8_0_two_ranges_parallel64 = 0x81
    argmax_range = 0x90
    dmmv_q4_0_argmax = 0xA0
    dmmv_q4_0_parallel = 0xB0


def smoke_sentinel(submission: int) -> int:
    """What the smoke test's first (1) and second (2) submission write."""
    return SMOKE | submission


def sentinel(operation: BoundaryOperation, count: int) -> int:
    """What submission number `count` (from 1) writes when it retires; no two differ in less than a wrap of 2**40."""
    return _TAG << 48 | operation << COUNT_BITS | count % (1 << COUNT_BITS)


def sortable_key(value: float) -> int:
    """u32 whose unsigned order is that of float32: -0 below +0, positive NaN above +inf, negative NaN below -inf."""
    return key_of_bits(int(struct.unpack("<I", struct.pack("<f", value))[0]))


def key_of_bits(bits: int) -> int:
    """The same from the bits of a float32: those of a NaN survive."""
    return ~bits & 0xFFFFFFFF if bits & 0x80000000 else bits ^ 0x80000000


def bits_of_key(key: int) -> int:
    """The bits of the float32 that has this key."""
    return key ^ 0x80000000 if key & 0x80000000 else ~key & 0xFFFFFFFF


def value_of_key(key: int) -> float:
    """The float32 that has this key."""
    return float(struct.unpack("<f", struct.pack("<I", bits_of_key(key)))[0])

"""The read-modify-write operations of atomics, by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np

from amdgpu_emu.core.floats import max_num, min_num
from amdgpu_emu.core.operands import bf16_bits

Update = Callable[[int, int, int], int]


class Atomic(NamedTuple):
    """One atomic operation. dwords: of the number; call: (old, data, compare) -> new, unsigned; compares: takes a
    second number.
    """

    dwords: int
    call: Update
    compares: bool = False


def _signed(x: int, bits: int) -> int:
    return x - (1 << bits) if x >> (bits - 1) else x


def _float(call: Callable[[Any, Any], Any], kind: Any, word: Any) -> Update:
    def update(old: int, data: int, _: int) -> int:
        a, b = np.array([old], word).view(kind), np.array([data], word).view(kind)
        return int(np.asarray(call(a, b)).view(word)[0])

    return update


def _number(call: Callable[[Any, Any], Any], kind: Any, word: Any) -> Update:
    """Minimum or maximum: the other one where one is NaN, quiet or not; the data, made quiet, where both are."""
    inner, quiet = _float(call, kind, word), 1 << np.finfo(kind).nmant - 1

    def update(old: int, data: int, _: int) -> int:
        a, b = np.isnan(np.array([old, data], word).view(kind)).tolist()
        if a or b:
            return data | quiet if a and b else data if a else old
        return inner(old, data, 0)

    return update


def _pk_bf16(old: int, data: int, _: int) -> int:
    a, b = ((np.array([x & 0xFFFF, x >> 16], np.uint32) << np.uint32(16)).view(np.float32) for x in (old, data))
    low, high = bf16_bits(a + b).tolist()
    return int(low | high << 16)


def _pk_f16(old: int, data: int, _: int) -> int:
    a, b = (np.array([x], np.uint32).view(np.float16) for x in (old, data))
    return int((a + b).view(np.uint32)[0])


def _integers(bits: int) -> dict[str, Atomic]:
    n, top = bits // 32, (1 << bits) - 1
    u, i = f"u{bits}", f"i{bits}"
    return {
        f"add_{u}": Atomic(n, lambda o, d, _: o + d & top),
        f"sub_{u}": Atomic(n, lambda o, d, _: o - d & top),
        f"rsub_{u}": Atomic(n, lambda o, d, _: d - o & top),
        f"min_{i}": Atomic(n, lambda o, d, _: min((o, d), key=lambda x: _signed(x, bits))),
        f"max_{i}": Atomic(n, lambda o, d, _: max((o, d), key=lambda x: _signed(x, bits))),
        f"min_{u}": Atomic(n, lambda o, d, _: min(o, d)),
        f"max_{u}": Atomic(n, lambda o, d, _: max(o, d)),
        f"and_b{bits}": Atomic(n, lambda o, d, _: o & d),
        f"or_b{bits}": Atomic(n, lambda o, d, _: o | d),
        f"xor_b{bits}": Atomic(n, lambda o, d, _: o ^ d),
        f"inc_{u}": Atomic(n, lambda o, d, _: 0 if o >= d else o + 1),
        f"dec_{u}": Atomic(n, lambda o, d, _: d if o == 0 or o > d else o - 1),
        f"swap_b{bits}": Atomic(n, lambda o, d, _: d),
        f"storexchg_b{bits}": Atomic(n, lambda o, d, _: d),
        f"cmpswap_b{bits}": Atomic(n, lambda o, d, c: d if o == c else o, compares=True),
        f"cmpstore_b{bits}": Atomic(n, lambda o, d, c: d if o == c else o, compares=True),
        f"mskor_b{bits}": Atomic(n, lambda o, d, c: (o & ~d & top) | c, compares=True),
    }


ATOMICS: Final[dict[str, Atomic]] = {
    **_integers(32),
    **_integers(64),
    "sub_clamp_u32": Atomic(1, lambda o, d, _: max(0, o - d)),
    "cond_sub_u32": Atomic(1, lambda o, d, _: o - d if o >= d else o),
    "add_f32": Atomic(1, _float(np.add, np.float32, np.uint32)),
    "min_num_f32": Atomic(1, _number(min_num, np.float32, np.uint32)),
    "max_num_f32": Atomic(1, _number(max_num, np.float32, np.uint32)),
    "min_num_f64": Atomic(2, _number(min_num, np.float64, np.uint64)),
    "max_num_f64": Atomic(2, _number(max_num, np.float64, np.uint64)),
    "pk_add_f16": Atomic(1, _pk_f16),
    "pk_add_bf16": Atomic(1, _pk_bf16),
}

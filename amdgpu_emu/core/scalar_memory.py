"""Scalar loads, from an address and from a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np

from amdgpu_emu.core.descriptor import Descriptor
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.lane_data import LOADS, U64
from amdgpu_emu.core.operands import reader, scalar_index, wide
from amdgpu_emu.core.spaces import MASK48
from amdgpu_emu.core.state import Array, Group, Step
from amdgpu_emu.isa.instruction import Instruction, OperandKind

_BYTES = {f"b{8 * n}": n for n in (4, 8, 12, 16, 32, 64)} | {"u8": 1, "i8": 1, "u16": 2, "i16": 2}


def compile_scalar_load(ins: Instruction) -> Step:
    """Compile s_load_* or s_buffer_load_*. Raises `Unsupported`."""
    size = ins.name.rpartition("_")[2]
    buffer = ins.name.startswith("s_buffer_load_")
    if size not in _BYTES or not (buffer or ins.name.startswith("s_load_")):
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    n = _BYTES[size]
    base, d = scalar_index(ins.src[0]), scalar_index(ins.dst[0])
    assert base is not None
    assert d is not None
    more = (
        reader(ins.src[1], "u", scalar=True) if len(ins.src) > 1 and ins.src[1].kind is not OperandKind.NULL else None
    )
    offset = U64(ins.modifiers.get("offset", 0) & (1 << 64) - 1)

    def put(g: Group, rows: Array) -> None:
        if n < 4:
            g.put_s(d, rows.view(LOADS[size][1]).reshape(-1).astype(np.uint32))
            return
        words = rows.view(np.uint32)
        for k in range(n // 4):
            g.put_s(d + k, words[:, k])

    def behind(g: Group) -> Any:
        return offset if more is None else offset + np.asarray(more(g)).astype(U64)

    def plain(g: Group) -> None:
        addresses = wide(g.s[base], g.s[base + 1]) + behind(g) & MASK48
        put(g, _read(g, addresses, np.arange(g.n), n))

    def from_buffer(g: Group) -> None:
        """Load from a buffer; each dword (or less) that lies outside of it is 0."""
        descriptor = Descriptor(g, base)
        start = np.broadcast_to(behind(g), (g.n,))
        size, step = descriptor.bytes(), min(n, 4)
        within = np.stack([start + U64(k + step) <= size for k in range(0, n, step)], axis=1)
        addresses = descriptor.base + start & MASK48
        _check(g, addresses, np.arange(g.n), n)
        rows = np.zeros((g.n, n // step, step), np.uint8)
        whole = within.all(axis=1)
        if whole.any():
            rows[whole] = _read(g, addresses[whole], np.flatnonzero(whole), n).reshape(-1, n // step, step)
        for wave in np.flatnonzero(~whole & within.any(axis=1)).tolist():
            for k in np.flatnonzero(within[wave]).tolist():
                rows[wave, k] = _read(g, addresses[[wave]] + U64(step * k), np.array([wave]), step)[0]
        put(g, rows.reshape(g.n, n))

    return from_buffer if buffer else plain


def _check(g: Group, addresses: Array, waves: Array, n: int) -> None:
    g.access = (addresses, waves, np.zeros(len(waves), np.int64), n)
    if int(np.bitwise_or.reduce(addresses)) & (min(n, 4) - 1):
        k = int(np.argmax(addresses & U64(min(n, 4) - 1) != 0))
        raise ShaderError(
            f"a scalar load of {n} bytes at {int(addresses[k]):#x}, which is misaligned", wave=int(waves[k])
        )


def _read(g: Group, addresses: Array, waves: Array, n: int) -> Array:
    """Read n bytes at each address, u8[k, n]."""
    _check(g, addresses, waves, n)
    if np.count_nonzero(addresses != addresses[0]) == 0:  # arguments, as a rule
        different = addresses[:1]
        rows = np.empty((len(addresses), n), np.uint8)
        rows[:] = g.shared.memory.scalar(int(addresses[0]), n)
    else:
        different, which = np.unique(addresses, return_inverse=True)
        rows = np.stack([g.shared.memory.scalar(va, n) for va in different.tolist()])[which.reshape(-1)]
    if g.shared.counters.measure:
        g.shared.counters.scalar_bytes += n * len(waves)
        g.shared.counters.touch("read", different, n)
        g.shared.counters.follow(addresses, g.ids[waves], n)
    return np.ascontiguousarray(rows)

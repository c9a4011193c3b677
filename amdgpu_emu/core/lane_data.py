"""Moves data between vector registers and bytes in memory order, for the active lanes."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.operands import wide
from amdgpu_emu.core.state import Array, Group

U64 = np.uint64
LOADS: Final[dict[str, tuple[int, Any]]] = {
    "u8": (1, np.uint8),
    "i8": (1, np.int8),
    "u16": (2, np.uint16),
    "i16": (2, np.int16),
    "b32": (4, np.uint32),
    "b64": (8, None),
    "b96": (12, None),
    "b128": (16, None),
}
STORES: Final = ("b8", "b16", "b32", "b64", "b96", "b128")


def lanes_of(g: Group) -> tuple[Array, Array]:
    """Wave and lane numbers of the active lanes."""
    if g.mask is None:
        return _all(g.n, g.lanes)
    _, _, waves, lanes = _on(g)
    return waves, lanes


def _on(g: Group) -> tuple[Array, ...]:
    """The mask, and of the lanes that are on the numbers in [n, lanes], waves and lanes. No mask changes in place, so
    they hold for as long as it is the same array.
    """
    found = g.on
    if found is None or found[0] is not g.mask:
        assert g.mask is not None
        flat = np.flatnonzero(g.mask)
        waves = flat // g.lanes
        found = g.on = g.mask, flat, waves, flat - waves * g.lanes
    return found


@lru_cache(maxsize=16)
def _all(n: int, lanes: int) -> tuple[Array, Array]:
    every = np.arange(n * lanes)
    found = every // lanes, every % lanes
    for array in found:
        array.flags.writeable = False
    return found


def of_lanes(g: Group, values: Array) -> Array:
    """Take the values of the active lanes, [k], from [n, lanes]."""
    found: Array = values.reshape(-1)
    return found if g.mask is None else found.take(_on(g)[1])


def put_lanes(g: Group, register: int, values: Array) -> None:
    """Store u32[k] into a register of the active lanes."""
    if g.mask is None:
        g.put(register, values.reshape(g.n, g.lanes))
    else:
        g.v[register].reshape(-1)[_on(g)[1]] = values
        if g.undef_v >> register & 1:
            g.define(register)


def put_half_lanes(g: Group, register: int, half: int, values: Array) -> None:
    """Store u16[k] into one half of a register of the active lanes."""
    if g.mask is None:
        g.halves[register, :, :, half] = values.reshape(g.n, g.lanes)
    else:
        g.halves[register].reshape(-1, 2)[_on(g)[1], half] = values
    if g.undef_v >> register & 1:
        g.define(register)


@cache
def short_kind(what: str) -> tuple[str, int] | None:
    """Size and half of a d16 form: "d16_u8", "d16_hi_b16", and of LDS "u8_d16", "u16_d16_hi"."""
    if "d16" not in what:
        return None
    half = 1 if "hi" in what.split("_") else 0
    size = next((part for part in what.split("_") if part not in ("d16", "hi")), "")
    return size.replace("b16", "u16").replace("b8", "u8"), half


def load_bytes(what: str) -> int | None:
    """Bytes that a load of this kind reads per lane; None if there is no such kind."""
    short = short_kind(what)
    size = short[0] if short else what
    return LOADS[size][0] if size in LOADS else None


@cache
def store_bytes(what: str) -> int | None:
    """Bytes that a store of this kind writes per lane; None if there is no such kind."""
    size = [part for part in what.split("_") if part not in ("d16", "hi")]
    return int(size[0][1:]) // 8 if len(size) == 1 and size[0] in STORES else None


def loaded(g: Group, data: Array, register: int, what: str) -> None:
    """Store loaded bytes, u8[k, n], into the registers of the active lanes."""
    short = short_kind(what)
    if short is not None:
        size, half = short
        put_half_lanes(g, register, half, data.view(LOADS[size][1]).reshape(-1).astype(np.uint16))
        return
    n, kind = LOADS[what]
    if n < 4:
        put_lanes(g, register, data.view(kind).reshape(-1).astype(np.uint32))
        return
    words = np.ascontiguousarray(data).view(np.uint32)
    for k in range(n // 4):
        put_lanes(g, register + k, words[:, k])


def stored(g: Group, register: int, what: str) -> Array:
    """The bytes, u8[k, n], that a store takes from the registers of the active lanes."""
    n = store_bytes(what)
    assert n is not None
    if n < 4:
        flat = of_lanes(g, g.v[register] >> np.uint32(16 if "hi" in what.split("_") else 0))
        return np.ascontiguousarray(flat.astype(np.uint8 if n == 1 else np.uint16)).view(np.uint8).reshape(-1, n)
    columns = [of_lanes(g, g.v[register + k]) for k in range(n // 4)]
    rows = columns[0].reshape(-1, 1) if n == 4 else np.stack(columns, axis=1)
    return rows.view(np.uint8)


def numbers(g: Group, register: int, dwords: int) -> list[int]:
    """Registers of the active lanes as numbers of one or two dwords."""
    columns = [of_lanes(g, g.v[register + k]) for k in range(dwords)]
    found: list[int] = (wide(columns[0], columns[1]) if dwords == 2 else columns[0]).tolist()
    return found


def put_numbers(g: Group, register: int, dwords: int, values: Array) -> None:
    """Store numbers of one or two dwords, u64[k], into registers of the active lanes."""
    for k in range(dwords):
        put_lanes(g, register + k, (values >> U64(32 * k)).astype(np.uint32))

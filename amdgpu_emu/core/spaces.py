"""The address spaces of lanes: global, LDS, scratch, and flat, which is a window onto each of the three.

`Found` holds the active lanes of an access: their addresses, waves and lanes, [k] each. A global or flat address is
u64; one of LDS or scratch counts bytes from the start of the workgroup's or of the lane's memory, i64. Scratch lies as
hardware lays it: dword k of all lanes of a wave side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import numpy as np

from amdgpu_emu.apertures import PRIVATE_BASE, SHARED_BASE
from amdgpu_emu.core.errors import ShaderError
from amdgpu_emu.core.state import Array, Group
from amdgpu_emu.core.waits import issue
from amdgpu_emu.visibility import Hidden

U64 = np.uint64
Found = tuple[Array, Array, Array]
Update = Callable[[int, int], int]
"""A function of an atomic: (which of the k lanes, old number) -> new number."""
MASK48: Final = U64((1 << 48) - 1)
_S32: Final = U64(32)
_LOCAL, _PRIVATE = U64(SHARED_BASE >> 32), U64(PRIVATE_BASE >> 32)


class MemorySpace(NamedTuple):
    """An address space. read: (g, found, n) -> u8[k, n]; write: (g, found, u8[k, n]); atomic: (g, found, n, update) ->
    old, u64[k]: lane after lane, in the order of waves and lanes.
    """

    read: Callable[[Group, Found, int], Array]
    write: Callable[[Group, Found, Array], None]
    atomic: Callable[[Group, Found, int, Update], Array]


def some(found: Found, which: Array) -> Found:
    """Select some lanes, by bool[k] or by indices."""
    return found[0][which], found[1][which], found[2][which]


def aligned(found: Found, n: int, what: str) -> None:
    """Raise `ShaderError` where an address is no multiple of n, a power of two."""
    addresses, waves, lanes = found
    if int(np.bitwise_or.reduce(addresses)) & (n - 1):
        k = int(np.argmax(addresses & addresses.dtype.type(n - 1) != 0))
        at = int(addresses[k])
        where = hex(at) if addresses.dtype == U64 else str(at)
        raise ShaderError(f"{what} at {where}, which is misaligned", wave=int(waves[k]), lane=int(lanes[k]))


# Global.


def _read_global(g: Group, found: Found, n: int) -> Array:
    addresses, waves, _ = found = (found[0] & MASK48, *found[1:])
    g.access = (*found, n)
    if not len(addresses):
        return np.empty((0, n), np.uint8)
    try:
        data: Array = g.shared.memory.gather(addresses, n, g.ids[waves])
    except Hidden as hidden:
        raise ShaderError(
            f"a load of {n} bytes at {int(addresses[hidden.lane]):#x}, which workgroup {hidden.by} has {hidden}; it is"
            " seen after that one's s_wait_storecnt 0 (a release; gfx11: s_waitcnt_vscnt 0) and then a global_inv"
            " scope:SCOPE_DEV here (an acquire; gfx11: buffer_gl1_inv and buffer_gl0_inv)",
            wave=int(waves[hidden.lane]),
            lane=int(found[2][hidden.lane]),
        ) from None
    if g.shared.counters.measure:
        g.shared.counters.request("read", addresses, g.ids[waves], n, g.lanes)
    return data


def _write_global(g: Group, found: Found, data: Array) -> None:
    addresses, waves, _ = found = (found[0] & MASK48, *found[1:])
    g.access = (*found, data.shape[1])
    if not len(addresses):
        return
    g.shared.memory.scatter(addresses, data, g.ids[waves])
    if g.shared.counters.measure:
        g.shared.counters.request("write", addresses, g.ids[waves], data.shape[1], g.lanes)


def _atomic_global(g: Group, found: Found, n: int, update: Update) -> Array:
    addresses, waves, _ = found = (found[0] & MASK48, *found[1:])
    g.access = (*found, n)
    if not len(addresses):
        return np.empty(0, U64)
    aligned(found, n, f"an atomic of {n} bytes")
    old: Array = g.shared.memory.atomic(addresses, n, update)
    if g.shared.counters.measure:
        g.shared.counters.request("read", addresses, g.ids[waves], n, g.lanes)
        g.shared.counters.request("write", addresses, g.ids[waves], n)
    return old


# LDS.


def _local(g: Group, found: Found, n: int, align: int) -> Array:
    """Offsets in the memory of all workgroups."""
    g.access = (*found, n)
    start: Array = g.shared.lds.check(g, found[0], found[1], n)
    # In the alignment mode that Linux sets (SH_MEM_CONFIG) hardware takes any address, and takes the access apart. That
    # is common for packed data in memory; in LDS, which a kernel lays out itself, it is a mistake.
    aligned(found, align, f"an LDS access of {n} bytes")
    return start


def _read_local(g: Group, found: Found, n: int) -> Array:
    data: Array = g.shared.lds.read(g, _local(g, found, n, 4 if n >= 4 else n), found[1], n)
    return data


def _write_local(g: Group, found: Found, data: Array) -> None:
    n = data.shape[1]
    g.shared.lds.write(g, _local(g, found, n, 4 if n >= 4 else n), found[1], data)


def _atomic_local(g: Group, found: Found, n: int, update: Update) -> Array:
    g.access = (*found, n)
    aligned(found, n, f"an LDS atomic of {n} bytes")
    start = g.shared.lds.check(g, found[0], found[1], n)
    old: Array = g.shared.lds.atomic(g, start, n, found[1], update)
    return old


# Scratch.


def _swizzled(g: Group, found: Found, n: int) -> Array:
    """Global addresses of bytes of the lanes' scratch memory, by offset, u64[k]; n: bytes,
    for the check of the size alone."""
    at, waves, lanes = found
    scratch = g.shared.dispatch.scratch
    if scratch is None:
        raise ShaderError("the dispatch has no scratch memory")
    size = scratch.bytes_per_wave // g.lanes
    bad = (at < 0) | (at + n > size)
    if bad.any():
        k = int(np.argmax(bad))
        first = int(at[k])
        byte = first if first < 0 or first >= size else first + n - 1
        raise ShaderError(
            f"byte {byte} of a lane's scratch memory, which has {size}", wave=int(waves[k]), lane=int(lanes[k])
        )
    slot = g.ids[waves] % max(scratch.waves, 1)
    inside = (at >> 2) * (4 * g.lanes) + 4 * lanes + (at & 3)
    found_at: Array = (scratch.base + slot * scratch.bytes_per_wave + inside).astype(U64)
    return found_at


def _pieces(g: Group, found: Found, n: int) -> list[tuple[Found, int, int]]:
    """Global addresses of dwords, or of single bytes where an address is misaligned: each with its place and size."""
    at, waves, lanes = found
    _swizzled(g, found, n)
    step = min(n, 4)
    if (at & (step - 1)).any():
        step = 1
    return [((_swizzled(g, (at + k, waves, lanes), step), waves, lanes), k, step) for k in range(0, n, step)]


def _read_private(g: Group, found: Found, n: int) -> Array:
    parts = [_read_global(g, piece, size) for piece, _, size in _pieces(g, found, n)]
    return parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1)


def _write_private(g: Group, found: Found, data: Array) -> None:
    for piece, k, size in _pieces(g, found, data.shape[1]):
        _write_global(g, piece, np.ascontiguousarray(data[:, k : k + size]))


def _atomic_private(g: Group, found: Found, n: int, update: Update) -> Array:
    if n > 4:
        raise ShaderError(f"a flat atomic of {n} bytes in scratch memory, where no {n} bytes of a lane lie together")
    aligned(found, n, f"an atomic of {n} bytes in scratch memory")
    return _atomic_global(g, (_swizzled(g, found, n), *found[1:]), n, update)


GLOBAL: Final = MemorySpace(_read_global, _write_global, _atomic_global)
LOCAL: Final = MemorySpace(_read_local, _write_local, _atomic_local)
PRIVATE: Final = MemorySpace(_read_private, _write_private, _atomic_private)


# Flat.


def _parts(found: Found) -> list[tuple[MemorySpace, Found, Array]] | None:
    """Split the lanes of a flat access by memory: its lanes, with addresses as that memory takes them, and which ones
    they are. None: all global.
    """
    window = found[0] >> _S32
    local, private = window == _LOCAL, window == _PRIVATE
    if not (local.any() or private.any()):
        return None
    parts: list[tuple[MemorySpace, Found, Array]] = []
    for space, which in ((GLOBAL, ~(local | private)), (LOCAL, local), (PRIVATE, private)):
        index = np.flatnonzero(which)
        if len(index):
            addresses, waves, lanes = some(found, index)
            inside = addresses if space is GLOBAL else (addresses & U64(0xFFFFFFFF)).astype(np.int64)
            parts.append((space, (inside, waves, lanes), index))
    return parts


def _read_flat(g: Group, found: Found, n: int) -> Array:
    parts = _parts(found)
    if parts is None:
        return _read_global(g, found, n)
    data = np.zeros((len(found[0]), n), np.uint8)
    for space, part, index in parts:
        data[index] = space.read(g, part, n)
    return data


def _write_flat(g: Group, found: Found, data: Array) -> None:
    parts = _parts(found)
    if parts is None:
        _write_global(g, found, data)
        return
    for space, part, index in parts:
        space.write(g, part, np.ascontiguousarray(data[index]))
        _under_way(g, space)


def _atomic_flat(g: Group, found: Found, n: int, update: Update) -> Array:
    parts = _parts(found)
    if parts is None:
        return _atomic_global(g, found, n, update)
    old = np.zeros(len(found[0]), U64)
    for space, part, index in parts:
        old[index] = space.atomic(g, part, n, _of(update, index.tolist()))
        _under_way(g, space)
    return old


def _of(update: Update, which: list[int]) -> Update:
    return lambda k, now: update(which[k], now)


def _under_way(g: Group, space: MemorySpace) -> None:
    """A flat instruction that changes LDS is one that a barrier must not overtake, as a ds_store is."""
    if space is LOCAL:
        issue(g, "dscnt", 0, False, g.pc, "a flat access of LDS")


FLAT: Final = MemorySpace(_read_flat, _write_flat, _atomic_flat)

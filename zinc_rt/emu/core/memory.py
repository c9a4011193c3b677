"""Scalar loads, and loads, stores and atomics of global, flat and scratch memory.

Flat addresses are taken for global ones: LDS and scratch through flat instructions are refused by the page tables.
Scratch lies as hardware lays it: dword k of all lanes of a wave side by side.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final

import numpy as np

from zinc_rt.emu.core.atomics import ATOMICS
from zinc_rt.emu.core.errors import ShaderError, Unsupported
from zinc_rt.emu.core.operands import reader, scalar_index, wide
from zinc_rt.emu.core.state import Array, Group, Step
from zinc_rt.emu.isa.instruction import Format, Instruction, Kind

U64 = np.uint64
Locate = Callable[[Group], tuple[Array, Array, Array]]
"""Addresses u64[k], and the waves and lanes that they belong to, of all lanes that are on."""
LOADS: Final[dict[str, tuple[int, Any]]] = {
    "u8": (1, np.uint8), "i8": (1, np.int8), "u16": (2, np.uint16), "i16": (2, np.int16), "b32": (4, np.uint32),
    "b64": (8, None), "b96": (12, None), "b128": (16, None),
}  # fmt: skip
NOTHING: Final = frozenset(
    {
        "global_inv", "global_wb", "global_wbinv", "global_prefetch_b8", "flat_prefetch_b8", "s_dcache_inv",
        "s_prefetch_inst", "s_prefetch_inst_pc_rel", "s_prefetch_data", "s_prefetch_data_pc_rel",
        "s_buffer_prefetch_data", "scratch_prefetch_b8",
    }
)  # fmt: skip
_MASK48 = U64((1 << 48) - 1)


def compile_memory(ins: Instruction, lanes: int) -> Step:
    """What a memory instruction does. Raises `Unsupported`."""
    name = ins.name
    if name in NOTHING:
        return lambda g: None
    if ins.format is Format.SMEM:
        return _scalar_load(ins)
    if ins.format not in (Format.GLOBAL, Format.FLAT, Format.SCRATCH):
        raise Unsupported(f"{name} is not executed by this shader core")
    operation = name.split("_", 1)[1]
    if operation.startswith("atomic_"):
        return _atomic(ins, operation.removeprefix("atomic_"), _locate(ins))
    if operation.startswith("load_"):
        return _load(ins, operation.removeprefix("load_"), lanes)
    if operation.startswith("store_"):
        return _store(ins, operation.removeprefix("store_"), lanes)
    raise Unsupported(f"{name} is not executed by this shader core")


def lanes_of(g: Group) -> tuple[Array, Array]:
    """Waves and lanes that are on."""
    if g.mask is None:
        return _all(g.n, g.lanes)
    waves, lanes = np.nonzero(g.mask)
    return waves, lanes


@lru_cache(maxsize=16)
def _all(n: int, lanes: int) -> tuple[Array, Array]:
    every = np.arange(n * lanes)
    found = every // lanes, every % lanes
    for array in found:
        array.flags.writeable = False
    return found


def _locate(ins: Instruction) -> Locate:
    offset = U64(ins.modifiers.get("offset", 0) & (1 << 64) - 1)
    address = ins.src[0]
    base = ins.src[-1] if ins.format is Format.GLOBAL else None
    if base is not None and base.kind not in (Kind.NULL, Kind.VGPR) and address.dwords == 1:
        index = scalar_index(base)
        assert index is not None
        register = address.index

        def with_base(g: Group) -> Array:
            start = wide(g.s[index], g.s[index + 1]) + offset
            found: Array = g.v[register].astype(U64) + start[:, None]
            return found

        return lambda g: _on(g, with_base(g))
    low = address.index
    return lambda g: _on(g, wide(g.v[low], g.v[low + 1]) + offset)


def _on(g: Group, addresses: Array) -> tuple[Array, Array, Array]:
    waves, lanes = lanes_of(g)
    flat = addresses.reshape(-1) if g.mask is None else addresses[g.mask]
    return flat & _MASK48, waves, lanes


def _scratch(ins: Instruction) -> Callable[[Group, int], tuple[Array, Array, Array]]:
    """Addresses of one dword (or less) at an offset behind the instruction's address."""
    offset = ins.modifiers.get("offset", 0)
    register = ins.src[0].index if ins.src[0].kind is Kind.VGPR else None
    base = ins.src[-1]
    index = None if base.kind in (Kind.NULL, Kind.VGPR) else scalar_index(base)

    def locate(g: Group, more: int) -> tuple[Array, Array, Array]:
        scratch = g.world.dispatch.scratch
        if scratch is None:
            raise ShaderError("the dispatch has no scratch memory")
        waves, lanes = lanes_of(g)
        at = np.full(len(waves), offset + more, np.int64)
        if register is not None:
            at += g.v[register].view(np.int32)[waves, lanes]
        if index is not None:
            at += g.s[index].view(np.int32)[waves]
        size = scratch.bytes_per_wave // g.lanes
        bad = (at < 0) | (at >= size)
        if bad.any():
            k = int(np.argmax(bad))
            raise ShaderError(
                f"byte {int(at[k])} of a lane's scratch memory, which has {size}",
                wave=int(waves[k]),
                lane=int(lanes[k]),
            )
        slot = g.ids[waves] % max(scratch.waves, 1)
        swizzled = (at >> 2) * (4 * g.lanes) + 4 * lanes + (at & 3)
        return (scratch.base + slot * scratch.bytes_per_wave + swizzled).astype(U64), waves, lanes

    return locate


def _gather(g: Group, found: tuple[Array, Array, Array], n: int) -> Array:
    addresses, waves, lanes = found
    g.access = (addresses, waves, lanes, n)
    if not len(addresses):
        return np.empty((0, n), np.uint8)
    data: Array = g.world.memory.gather(addresses, n)
    if g.world.counters.measure:
        g.world.counters.request("read", addresses, g.ids[waves], n)
    return data


def _scatter(g: Group, found: tuple[Array, Array, Array], data: Array) -> None:
    addresses, waves, lanes = found
    g.access = (addresses, waves, lanes, data.shape[1])
    if not len(addresses):
        return
    g.world.memory.scatter(addresses, data)
    if g.world.counters.measure:
        g.world.counters.request("write", addresses, g.ids[waves], data.shape[1])


def put_lanes(g: Group, register: int, values: Array) -> None:
    """u32[k] into the lanes that are on."""
    if g.mask is None:
        g.put(register, values.reshape(g.n, g.lanes))
    else:
        g.v[register][g.mask] = values
        if g.undef_v >> register & 1:
            g.define(register)


def put_half_lanes(g: Group, register: int, half: int, values: Array) -> None:
    """u16[k] into halves of the lanes that are on."""
    if g.mask is None:
        g.halves[register, :, :, half] = values.reshape(g.n, g.lanes)
    else:
        g.halves[register, :, :, half][g.mask] = values
    if g.undef_v >> register & 1:
        g.define(register)


def short_kind(what: str) -> tuple[str, int] | None:
    """Of d16 forms the size, and which half: "d16_u8", "d16_hi_b16", and of LDS "u8_d16", "u16_d16_hi"."""
    if "d16" not in what:
        return None
    half = 1 if "hi" in what.split("_") else 0
    size = next(part for part in what.split("_") if part not in ("d16", "hi"))
    return size.replace("b16", "u16").replace("b8", "u8"), half


def loaded(g: Group, data: Array, register: int, what: str) -> None:
    """u8[k, n] as they come from memory into registers."""
    short = short_kind(what)
    if short is not None:
        size, half = short
        values = data.view(LOADS[size][1]).reshape(-1).astype(np.int16 if size[0] == "i" else np.uint16)
        put_half_lanes(g, register, half, values.view(np.uint16))
        return
    n, kind = LOADS[what]
    if n < 4:
        values = data.view(kind).reshape(-1).astype(np.int32 if what[0] == "i" else np.uint32).view(np.uint32)
        put_lanes(g, register, values)
        return
    words = np.ascontiguousarray(data).view(np.uint32)
    for k in range(n // 4):
        put_lanes(g, register + k, words[:, k])


def stored(g: Group, register: int, what: str) -> Array:
    """u8[k, n] of registers as they go to memory."""
    high = "hi" in what.split("_")
    n = int(next(part for part in what.split("_") if part[0] == "b")[1:]) // 8
    if n < 4:
        words = g.v[register] >> np.uint32(16 if high else 0)
        flat = words.reshape(-1) if g.mask is None else words[g.mask]
        return np.ascontiguousarray(flat.astype(np.uint8 if n == 1 else np.uint16)).view(np.uint8).reshape(-1, n)
    columns = [g.v[register + k].reshape(-1) if g.mask is None else g.v[register + k][g.mask] for k in range(n // 4)]
    return np.ascontiguousarray(np.stack(columns, axis=1)).view(np.uint8)


def _load(ins: Instruction, what: str, lanes: int) -> Step:
    short = short_kind(what)
    size = short[0] if short else what
    if size not in LOADS:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    n, register = LOADS[size][0], ins.dst[0].index
    if ins.format is Format.SCRATCH:
        dword = _scratch(ins)

        def private(g: Group) -> None:
            parts = [_gather(g, dword(g, k), min(n, 4)) for k in range(0, n, 4)]
            loaded(g, parts[0] if len(parts) == 1 else np.concatenate(parts, axis=1), register, what)

        return private
    locate = _locate(ins)

    def run(g: Group) -> None:
        loaded(g, _gather(g, locate(g), n), register, what)

    return run


def _store(ins: Instruction, what: str, lanes: int) -> Step:
    if not any(part[0] == "b" for part in what.split("_")) or "block" in what:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    register = ins.src[1].index
    if ins.format is Format.SCRATCH:
        dword = _scratch(ins)

        def private(g: Group) -> None:
            data = stored(g, register, what)
            for k in range(0, data.shape[1], 4):
                _scatter(g, dword(g, k), np.ascontiguousarray(data[:, k : k + 4]))

        return private
    locate = _locate(ins)
    return lambda g: _scatter(g, locate(g), stored(g, register, what))


def numbers(g: Group, register: int, dwords: int) -> list[int]:
    """Registers of the lanes that are on, as numbers of one or two dwords."""
    columns = [g.v[register + k].reshape(-1) if g.mask is None else g.v[register + k][g.mask] for k in range(dwords)]
    found: list[int] = (wide(columns[0], columns[1]) if dwords == 2 else columns[0]).tolist()
    return found


def put_numbers(g: Group, register: int, dwords: int, values: Array) -> None:
    """Numbers of one or two dwords, u64[k], into the lanes that are on."""
    for k in range(dwords):
        put_lanes(g, register + k, (values >> U64(32 * k)).astype(np.uint32))


def _atomic(ins: Instruction, what: str, locate: Locate) -> Step:
    how = ATOMICS.get(what)
    if how is None:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    n = 4 * how.dwords
    data_register = ins.src[1].index
    result = ins.dst[0].index if ins.dst else None

    def run(g: Group) -> None:
        addresses, waves, lanes = locate(g)
        g.access = (addresses, waves, lanes, n)
        if not len(addresses):
            return
        crooked = addresses & U64(n - 1) != 0
        if crooked.any():
            k = int(np.argmax(crooked))
            raise ShaderError(
                f"an atomic of {n} bytes at {int(addresses[k]):#x}, which is misaligned",
                wave=int(waves[k]),
                lane=int(lanes[k]),
            )
        data = numbers(g, data_register, how.dwords)
        compare = numbers(g, data_register + how.dwords, how.dwords) if how.compares else data
        call = how.call
        old = g.world.memory.atomic(addresses, n, lambda lane, now: call(now, data[lane], compare[lane]))
        if g.world.counters.measure:
            g.world.counters.request("read", addresses, g.ids[waves], n)
            g.world.counters.request("write", addresses, g.ids[waves], n)
        if result is not None:
            put_numbers(g, result, how.dwords, old)

    return run


def _scalar_load(ins: Instruction) -> Step:
    name = ins.name
    if not name.startswith("s_load_"):
        raise Unsupported(f"{name} is not executed by this shader core")
    size = name.removeprefix("s_load_")
    n = {"b32": 4, "b64": 8, "b96": 12, "b128": 16, "b256": 32, "b512": 64, "u8": 1, "i8": 1, "u16": 2, "i16": 2}[size]
    base, d = scalar_index(ins.src[0]), scalar_index(ins.dst[0])
    assert base is not None
    assert d is not None
    more = reader(ins.src[1], "u", scalar=True) if len(ins.src) > 1 and ins.src[1].kind is not Kind.NULL else None
    offset = ins.modifiers.get("offset", 0)
    kind = LOADS[size][1] if n < 4 else np.uint32

    def run(g: Group) -> None:
        addresses = wide(g.s[base], g.s[base + 1]) + U64(offset & (1 << 64) - 1)
        if more is not None:
            addresses = addresses + np.asarray(more(g)).astype(U64)
        addresses &= _MASK48
        g.access = (addresses, np.arange(g.n), np.zeros(g.n, np.int64), n)
        crooked = addresses & U64(min(n, 4) - 1) != 0
        if crooked.any():
            k = int(np.argmax(crooked))
            raise ShaderError(f"a scalar load of {n} bytes at {int(addresses[k]):#x}, which is misaligned", wave=k)
        different, which = np.unique(addresses, return_inverse=True)
        rows = np.stack([g.world.memory.scalar(va, n) for va in different.tolist()])[which.reshape(-1)]
        if g.world.counters.measure:
            g.world.counters.scalar_bytes += n * g.n
            g.world.counters.touch("read", different, n)
        if n < 4:
            signed = np.int32 if size[0] == "i" else np.uint32
            g.put_s(d, np.ascontiguousarray(rows).view(kind).reshape(-1).astype(signed).view(np.uint32))
            return
        words = np.ascontiguousarray(rows).view(np.uint32)
        for k in range(n // 4):
            g.put_s(d + k, words[:, k])

    return run

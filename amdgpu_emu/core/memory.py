"""Loads, stores and atomics of global, flat and scratch memory. Scalar loads and buffers have modules of their own."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from amdgpu_emu.core.atomics import ATOMICS
from amdgpu_emu.core.buffers import compile_buffer
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.lane_data import (
    U64,
    lanes_of,
    load_bytes,
    loaded,
    numbers,
    of_lanes,
    put_lanes,
    put_numbers,
    store_bytes,
    stored,
)
from amdgpu_emu.core.operands import scalar_index, wide
from amdgpu_emu.core.scalar_memory import compile_scalar_load
from amdgpu_emu.core.spaces import FLAT, GLOBAL, PRIVATE, Found, MemorySpace, Update, some
from amdgpu_emu.core.state import M0, Array, Group, Step
from amdgpu_emu.isa.instruction import Encoding, Instruction, OperandKind

Locate = Callable[[Group], Found]
"""Gives the addresses at which the active lanes read and write."""
NOTHING: Final = frozenset(
    {
        "global_wb",
        "s_dcache_inv",
        "s_prefetch_inst",
        "s_prefetch_inst_pc_rel",
        "s_prefetch_data",
        "s_prefetch_data_pc_rel",
        "s_buffer_prefetch_data",
        "s_gl1_inv",
    }
)
"""Cache instructions that do nothing: stores are on their way to the L2 at once, and scalar loads are for what no wave
stores.
"""
_INVALIDATES: Final = ("global_inv", "global_wbinv", "buffer_gl0_inv", "buffer_gl1_inv")
_DEV: Final = 2
"""The scope of the device: what reaches beyond the caches of a compute unit."""
_SPACES: Final = {Encoding.GLOBAL: GLOBAL, Encoding.FLAT: FLAT, Encoding.SCRATCH: PRIVATE}
_WINDOWS: Final = (0x10000, 0x20000)


def compile_memory(ins: Instruction, lanes: int) -> Step:
    """Compile a memory instruction. Raises `Unsupported`."""
    name = ins.name
    if name in NOTHING:
        return lambda g: None
    if name in _INVALIDATES:
        return _invalidate(ins)
    if ins.format is Encoding.SMEM:
        return compile_scalar_load(ins)
    if ins.format is Encoding.BUFFER:
        return compile_buffer(ins)
    space, operation = _SPACES[ins.format], name.split("_", 1)[1]
    if "addtid" in operation:
        return _access(ins, space, operation.replace("_addtid", ""), _by_lane(ins), ins.src[0].index)
    locate = _locate_private(ins) if space is PRIVATE else _locate(ins)
    data = ins.src[1].index if len(ins.src) > 1 else 0
    if operation.endswith("_block"):
        return _block(ins, space, locate, data)
    if operation == "load_tr_b128" and lanes == 32:
        return _transposed(ins, locate)
    if operation.startswith("atomic_"):
        return atomic(ins, space, operation.removeprefix("atomic_"), locate, data)
    return _access(ins, space, operation, locate, data)


# Addresses.


def _locate(ins: Instruction) -> Locate:
    """Addresses of global and flat instructions: from a register pair, or a scalar base and a 32-bit register."""
    offset = U64(ins.modifiers.get("offset", 0) & (1 << 64) - 1)
    address = ins.src[0]
    base = ins.src[-1] if ins.format is Encoding.GLOBAL else None
    if base is not None and base.kind not in (OperandKind.NULL, OperandKind.VGPR) and address.dwords == 1:
        index = scalar_index(base)
        assert index is not None
        register = address.index

        def with_base(g: Group) -> Found:
            start = wide(g.s[index], g.s[index + 1]) + offset
            waves, lanes = lanes_of(g)
            return of_lanes(g, g.v[register]).astype(U64) + start.take(waves), waves, lanes

        return with_base
    low = address.index
    if ins.format is Encoding.FLAT:
        return lambda g: _in_window(_pair(g, low), offset, *lanes_of(g))
    return lambda g: (_pair(g, low) + offset, *lanes_of(g))


def _pair(g: Group, low: int) -> Array:
    """Two registers of the lanes that are on, u64[k]."""
    found: Array = wide(of_lanes(g, g.v[low]), of_lanes(g, g.v[low + 1]))
    return found


def _in_window(start: Array, offset: np.uint64, waves: Array, lanes: Array) -> Found:
    """Raises where an offset leads into LDS or scratch, or out of them: which memory is meant is then not defined."""
    addresses = start + offset
    if offset:
        before, behind = start >> U64(32), addresses >> U64(32)
        moved = (before != behind) & (np.isin(before, _WINDOWS) | np.isin(behind, _WINDOWS))
        if moved.any():
            k = int(np.argmax(moved))
            raise ShaderError(
                f"the offset takes {int(start[k]):#x} to {int(addresses[k]):#x}, in other memory",
                wave=int(waves[k]),
                lane=int(lanes[k]),
            )
    return addresses, waves, lanes


def _locate_private(ins: Instruction) -> Locate:
    """Addresses of scratch instructions: from a vector register, a scalar register, both or none."""
    offset = ins.modifiers.get("offset", 0)
    register = ins.src[0].index if ins.src[0].kind is OperandKind.VGPR else None
    base = ins.src[-1]
    index = None if base.kind in (OperandKind.NULL, OperandKind.VGPR) else scalar_index(base)

    def locate(g: Group) -> Found:
        waves, lanes = lanes_of(g)
        at = np.full(len(waves), offset, np.int64)
        if register is not None:
            at += g.v[register].view(np.int32)[waves, lanes]
        if index is not None:
            at += g.s[index].view(np.int32)[waves]
        return at, waves, lanes

    return locate


def _by_lane(ins: Instruction) -> Locate:
    """A dword for each lane behind a scalar base, or behind 0."""
    offset, base = U64(ins.modifiers.get("offset", 0) & (1 << 64) - 1), ins.src[-1]
    index = None if base.kind is OperandKind.NULL else scalar_index(base)

    def locate(g: Group) -> Found:
        waves, lanes = lanes_of(g)
        start = np.zeros(g.n, U64) if index is None else wide(g.s[index], g.s[index + 1])
        return start[waves] + offset + U64(4) * lanes.astype(U64), waves, lanes

    return locate


# Accesses.


def _access(ins: Instruction, space: MemorySpace, operation: str, locate: Locate, data: int) -> Step:
    """Loads and stores, "load_..." and "store_...", of at most 16 bytes."""
    verb, _, what = operation.partition("_")
    step: Step | None = None
    if verb == "load":
        n, register = load_bytes(what), ins.dst[0].index
        if n is not None:
            size = n
            step = lambda g: loaded(g, space.read(g, locate(g), size), register, what)  # noqa: E731
    if verb == "store" and store_bytes(what) is not None:
        step = lambda g: space.write(g, locate(g), stored(g, data, what))  # noqa: E731
    if step is not None:
        return step if space is PRIVATE or not _for_device(ins) else _past_caches(step)
    raise Unsupported(f"{ins.name} is not executed by this shader core")


def _past_caches(step: Step) -> Step:
    """A load or store in the L2, where all waves of the device see the same."""

    def run(g: Group) -> Any:
        memory = g.shared.memory
        memory.past_caches = True
        try:
            return step(g)
        finally:
            memory.past_caches = False

    return run


def _for_device(ins: Instruction) -> bool:
    """Whether an instruction is for the scope of the device: gfx12 names it, a load of gfx11 has GLC."""
    return ins.modifiers.get("scope", 0) >= _DEV or bool(ins.modifiers.get("glc"))


def _invalidate(ins: Instruction) -> Step:
    """The wave sees what others have released by now: by global_inv for the device or more, on gfx11 by buffer_gl0_inv
    what was released before the last buffer_gl1_inv, whose cache the other one reads.
    """
    if ins.name == "buffer_gl1_inv":
        return lambda g: g.shared.memory.order.acquired_gl1(g.ids)
    if ins.name == "buffer_gl0_inv":
        return lambda g: g.shared.memory.order.acquired_gl0(g.ids)
    if not _for_device(ins):
        return lambda g: None
    return lambda g: g.shared.memory.order.acquired(g.ids)


def atomic(
    ins: Instruction, space: MemorySpace, what: str, locate: Locate, data: int, compare: int | None = None
) -> Step:
    """Compile an atomic. data, compare: registers; without `compare` it lies behind the data. Raises `Unsupported`."""
    how = ATOMICS.get(what)
    if how is None:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    dwords, call = how.dwords, how.call
    second = data + dwords if compare is None else compare
    result = ins.dst[0].index if ins.dst else None

    def update(g: Group) -> Update:
        new = numbers(g, data, dwords)
        if not how.compares:
            return lambda k, now: call(now, new[k], 0)
        other = numbers(g, second, dwords)
        return lambda k, now: call(now, new[k], other[k])

    def run(g: Group) -> None:
        old = space.atomic(g, locate(g), 4 * dwords, update(g))
        if result is not None:
            put_numbers(g, result, dwords, old)

    return run


def _block(ins: Instruction, space: MemorySpace, locate: Locate, data: int) -> Step:
    """Up to 32 registers and as many dwords in a row, those whose bits M0 holds."""
    load = "load" in ins.name
    first = ins.dst[0].index if load else data

    def run(g: Group) -> None:
        found = locate(g)
        chosen = g.s[M0][found[1]]
        mask = g.mask
        for k in range(32):
            which = chosen >> np.uint32(k) & np.uint32(1) != 0
            if not which.any():
                continue
            addresses, waves, lanes = some(found, which)
            part = addresses + addresses.dtype.type(4 * k), waves, lanes
            here = np.zeros((g.n, g.lanes), np.bool_)
            here[waves, lanes] = True
            g.mask = here
            try:
                if load:
                    put_lanes(g, first + k, space.read(g, part, 4).view(np.uint32).reshape(-1))
                else:
                    _written(g, first + k, here)
                    space.write(g, part, stored(g, first + k, "b32"))
            finally:
                g.mask = mask

    return run


def _written(g: Group, register: int, lanes: Array) -> None:
    bad = lanes & ~g.v_defined[register]
    if g.undef_v >> register & 1 and bad.any():
        wave, lane = (int(k) for k in np.argwhere(bad)[0])
        raise ShaderError(f"v{register} is read and was never written", wave=wave, lane=lane)


def _transposed(ins: Instruction, locate: Locate) -> Step:
    """global_load_tr_b128 of 32 lanes: each group of 8 lanes reads eight rows of eight 16-bit numbers, one row a lane,
    and lane i of it gets number i of each row, as was measured on gfx1201. The other forms are not documented.
    """
    register = ins.dst[0].index

    def run(g: Group) -> None:
        off = ~g.active()
        if off.any():
            wave, lane = (int(k) for k in np.argwhere(off)[0])
            raise ShaderError("a transposing load needs all lanes, and this one is off", wave=wave, lane=lane)
        rows = GLOBAL.read(g, locate(g), 16).view(np.uint16).reshape(-1, 8, 8)
        columns = np.ascontiguousarray(rows.transpose(0, 2, 1)).reshape(-1, 8)
        loaded(g, columns.view(np.uint8), register, "b128")

    return run

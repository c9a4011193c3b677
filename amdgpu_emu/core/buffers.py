"""Loads, stores and atomics through buffer resources, without those that convert formats."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from amdgpu_emu.core.atomics import ATOMICS
from amdgpu_emu.core.descriptor import RAW, Descriptor
from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.lane_data import (
    U64,
    lanes_of,
    load_bytes,
    loaded,
    numbers,
    of_lanes,
    put_numbers,
    store_bytes,
    stored,
)
from amdgpu_emu.core.operands import reader, scalar_index
from amdgpu_emu.core.spaces import GLOBAL, Found, some
from amdgpu_emu.core.state import Array, Group, Step
from amdgpu_emu.isa.instruction import Instruction, OperandKind

_Locate = Callable[[Group, int], tuple[Found, Array]]
"""Gives the addresses of the active lanes for n bytes, and the indices of those that lie in the buffer."""


def compile_buffer(ins: Instruction) -> Step:
    """Compile a buffer_* instruction. Raises `Unsupported`."""
    operation = ins.name.removeprefix("buffer_")
    verb, _, what = operation.partition("_")
    locate = _locate(ins)
    if verb == "load" and (n := load_bytes(what)) is not None:
        return _load(ins, what, n, locate)
    if verb == "store" and (n := store_bytes(what)) is not None:
        return _store(ins, what, n, locate)
    if verb == "atomic" and what in ATOMICS:
        return _atomic(ins, what, locate)
    raise Unsupported(f"{ins.name} is not executed by this shader core")


def _locate(ins: Instruction) -> _Locate:
    address, resource, scalar = ins.src[-3:]
    register = scalar_index(resource)
    assert register is not None
    constant = ins.modifiers.get("offset", 0)
    indexed, offset_register = ins.modifiers.get("idxen", 0), ins.modifiers.get("offen", 0)
    more = None if scalar.kind is OperandKind.NULL else reader(scalar, "u", scalar=True)

    def locate(g: Group, n: int) -> tuple[Found, Array]:
        waves, lanes = lanes_of(g)
        descriptor = Descriptor(g, register)
        index = np.where(descriptor.add_lane[waves] != 0, lanes, 0).astype(np.int64)
        offset = np.full(len(waves), constant, np.int64)
        if indexed:
            index += of_lanes(g, g.v[address.index])
        if offset_register:
            offset += of_lanes(g, g.v[address.index + (1 if indexed else 0)])
        within = descriptor.within(waves, index, offset, n)
        at = descriptor.behind(waves, index, offset)
        if more is not None:  # not part of the range check
            at += np.broadcast_to(np.asarray(more(g)), (g.n,)).astype(np.int64)[waves]
        beyond = within & (descriptor.check[waves] == RAW) & (descriptor.swizzle[waves] == 0)
        beyond &= at + n > descriptor.records[waves]
        if beyond.any():
            k = int(np.argmax(beyond))
            raise ShaderError(
                f"byte {int(at[k])} of a raw buffer of {int(descriptor.records[waves[k]])}: the scalar offset and the"
                " index lead out of it, and are not part of the range check",
                wave=int(waves[k]),
                lane=int(lanes[k]),
            )
        return (descriptor.base[waves] + at.astype(U64), waves, lanes), np.flatnonzero(within)

    return locate


def _load(ins: Instruction, what: str, n: int, locate: _Locate) -> Step:
    register = ins.dst[0].index

    def run(g: Group) -> None:
        found, within = locate(g, n)
        data = np.zeros((len(found[0]), n), np.uint8)
        data[within] = GLOBAL.read(g, some(found, within), n)
        loaded(g, data, register, what)

    return run


def _store(ins: Instruction, what: str, n: int, locate: _Locate) -> Step:
    register = ins.src[0].index

    def run(g: Group) -> None:
        found, within = locate(g, n)
        GLOBAL.write(g, some(found, within), np.ascontiguousarray(stored(g, register, what)[within]))

    return run


def _atomic(ins: Instruction, what: str, locate: _Locate) -> Step:
    how = ATOMICS[what]
    data, dwords, call = ins.src[0].index, how.dwords, how.call
    result = ins.dst[0].index if ins.dst else None

    def run(g: Group) -> None:
        found, within = locate(g, 4 * dwords)
        new = numbers(g, data, dwords)
        other = numbers(g, data + dwords, dwords) if how.compares else new
        which = within.tolist()
        old = np.zeros(len(found[0]), U64)
        old[within] = GLOBAL.atomic(
            g, some(found, within), 4 * dwords, lambda k, now: call(now, new[which[k]], other[which[k]])
        )
        if result is not None:
            put_numbers(g, result, dwords, old)

    return run

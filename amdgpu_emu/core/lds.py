"""DS: loads, stores and atomics of LDS, and exchanges between lanes that go through its crossbar."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from amdgpu_emu.core.errors import ShaderError, Unsupported
from amdgpu_emu.core.lane_data import (
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
from amdgpu_emu.core.lanes import check_lanes
from amdgpu_emu.core.memory import atomic
from amdgpu_emu.core.spaces import LOCAL, Found, aligned
from amdgpu_emu.core.state import M0, Group, Step
from amdgpu_emu.isa.instruction import Instruction

_Locate = Callable[[Group], Found]


def compile_lds(ins: Instruction, lanes: int) -> Step:
    """Compile a DS instruction. Raises `Unsupported`."""
    what = ins.name.removeprefix("ds_")
    if what == "nop":
        return lambda g: None
    if what in ("permute_b32", "bpermute_b32", "bpermute_fi_b32"):
        return _permute(ins, what)
    if what == "swizzle_b32":
        return _swizzle(ins, lanes)
    if "_2addr" in what:
        return _two(ins, what)
    if what in ("append", "consume"):
        return _count(ins, 1 if what == "append" else -1)
    if "addtid" in what:
        return _access(ins, what.replace("_addtid", ""), _by_lane(ins), ins.src[0].index if ins.src else 0)
    locate = _locate(ins.src[0].index, ins.modifiers.get("offset", 0))
    if what == "condxchg32_rtn_b64":
        return _condxchg(ins, locate)
    if what.startswith(("load_", "store_")):
        return _access(ins, what, locate, ins.src[1].index if len(ins.src) > 1 else 0)
    data, *compare = (op.index for op in ins.src[1:])
    return atomic(ins, LOCAL, what.replace("_rtn", ""), locate, data, compare[0] if compare else None)


def _locate(register: int, offset: int) -> _Locate:
    return lambda g: (of_lanes(g, g.v[register] + np.uint32(offset)).astype(np.int64), *lanes_of(g))


def _by_lane(ins: Instruction) -> _Locate:
    offset = ins.modifiers.get("offset", 0)

    def locate(g: Group) -> Found:
        waves, lanes = lanes_of(g)
        return (g.s[M0][waves] & np.uint32(0xFFFF)).astype(np.int64) + offset + 4 * lanes, waves, lanes

    return locate


def _access(ins: Instruction, what: str, locate: _Locate, data: int) -> Step:
    verb, _, kind = what.partition("_")
    if verb == "load" and (n := load_bytes(kind)) is not None:
        register, size = ins.dst[0].index, n
        return lambda g: loaded(g, LOCAL.read(g, locate(g), size), register, kind)
    if verb == "store" and store_bytes(kind) is not None:
        return lambda g: LOCAL.write(g, locate(g), stored(g, data, kind))
    raise Unsupported(f"{ins.name} is not executed by this shader core")


def _two(ins: Instruction, what: str) -> Step:
    """Two accesses of an address and two offsets, which count in numbers, or in rows of 64."""
    kind = "b64" if "b64" in what else "b32"
    n = 8 if kind == "b64" else 4
    step = n * (64 if "stride64" in what else 1)
    locates = [_locate(ins.src[0].index, ins.modifiers.get(f"offset{k}", 0) * step) for k in (0, 1)]
    values = [op.index for op in ins.src[1:3]]
    result = ins.dst[0].index if ins.dst else 0

    def places(g: Group) -> list[Found]:
        found = [locate(g) for locate in locates]
        for place in found:
            g.access = (*place, n)
            aligned(place, n, f"an LDS access of two times {n} bytes")
        return found

    def load(g: Group) -> None:
        parts = [LOCAL.read(g, found, n) for found in places(g)]
        for k, part in enumerate(parts):
            loaded(g, part, result + k * (n // 4), kind)

    def store(g: Group) -> None:
        for source, found in zip(values, places(g), strict=True):
            LOCAL.write(g, found, stored(g, source, kind))

    def exchange(g: Group) -> None:
        first, second = places(g)
        workgroups = [g.workgroup[found[1]] * (1 << 32) + found[0] for found in (first, second)]
        both = np.isin(workgroups[0], workgroups[1])
        if both.any():
            k = int(np.argmax(both))
            raise ShaderError(
                f"LDS byte {int(first[0][k])} is exchanged twice at once: which one comes first is not defined",
                wave=int(first[1][k]),
                lane=int(first[2][k]),
            )
        old = []
        for source, found in zip(values, (first, second), strict=True):
            new = numbers(g, source, n // 4)
            old.append(LOCAL.atomic(g, found, n, lambda k, now, new=new: new[k]))  # type: ignore[misc]
        for k, part in enumerate(old):
            put_numbers(g, result + k * (n // 4), n // 4, part)

    if what.startswith("storexchg"):
        return exchange
    return load if what.startswith("load") else store


def _count(ins: Instruction, sign: int) -> Step:
    """ds_append, ds_consume: the lanes that are on are added to, or taken from, a number at M0 and the offset; all of
    them get what it was."""
    offset, result = ins.modifiers.get("offset", 0), ins.dst[0].index

    def run(g: Group) -> None:
        count = np.full(g.n, g.lanes) if g.mask is None else g.mask.sum(axis=1)
        waves = np.flatnonzero(count)
        at = (g.s[M0][waves] & np.uint32(0xFFFF)).astype(np.int64) + offset
        by = (sign * count[waves]).tolist()
        old = LOCAL.atomic(g, (at, waves, np.zeros_like(waves)), 4, lambda k, now: now + by[k] & 0xFFFFFFFF)
        each = np.zeros(g.n, np.uint32)
        each[waves] = old.astype(np.uint32)
        put_lanes(g, result, each[lanes_of(g)[0]])

    return run


def _condxchg(ins: Instruction, locate: _Locate) -> Step:
    """Two dwords, each replaced by 31 bits of the data where its bit 31 is set; an address counts in 8 bytes."""
    data, result = ins.src[1].index, ins.dst[0].index

    def run(g: Group) -> None:
        addresses, waves, lanes = locate(g)
        new = numbers(g, data, 2)

        def update(k: int, now: int) -> int:
            halves = [(now >> s & 0xFFFFFFFF, new[k] >> s & 0xFFFFFFFF) for s in (0, 32)]
            low, high = (d & 0x7FFFFFFF if d >> 31 else old for old, d in halves)
            return low | high << 32

        old = LOCAL.atomic(g, (addresses & 0xFFF8, waves, lanes), 8, update)
        put_numbers(g, result, 2, old)

    return run


def _permute(ins: Instruction, what: str) -> Step:
    """ds_permute_b32, ds_bpermute_b32. bpermute: lane i reads lane address / 4; permute: lane i sends there.

    Lanes count modulo 32 within a wave32; what comes from lanes that are off is 0.
    """
    address, source, d = ins.src[0].index, ins.src[1].index, ins.dst[0].index
    offset = np.uint32(ins.modifiers.get("offset", 0))
    fi = "_fi_" in what

    def pull(g: Group) -> None:
        index = ((g.v[address] + offset) >> np.uint32(2) & np.uint32(g.lanes - 1)).astype(np.int64)
        value = np.take_along_axis(g.v[source], index, axis=1)
        if g.mask is None or fi:
            check_lanes(g, source, g.active(), index)
        else:
            on = np.take_along_axis(g.mask, index, axis=1)
            check_lanes(g, source, on & g.mask, index)
            value = np.where(on, value, np.uint32(0))
        g.put(d, value)

    def push(g: Group) -> None:
        waves, lanes = lanes_of(g)
        index = ((g.v[address] + offset) >> np.uint32(2) & np.uint32(g.lanes - 1)).astype(np.int64)
        out = np.zeros((g.n, g.lanes), np.uint32)
        out[waves, index[waves, lanes]] = g.v[source][waves, lanes]
        g.put(d, out)

    return pull if what != "permute_b32" else push


def _swizzle(ins: Instruction, lanes: int) -> Step:
    """Top three bits 111: a butterfly of an FFT; 110: rotation; bit 15 set: quads (QUAD_PERM mode); else and, or, xor
    masks within 32 lanes."""
    offset, source, d = ins.modifiers.get("offset", 0), ins.src[0].index, ins.dst[0].index
    lane = np.arange(lanes)
    if offset >> 13 == 7:
        keep = offset & 31
        reverse = np.array([int(f"{i & 31:05b}"[::-1], 2) for i in range(lanes)])
        index = (reverse >> keep.bit_count()) | (lane & keep) | (lane & 32)
    elif offset >> 13 == 6:
        amount, keep = offset >> 5 & 31, offset & 31
        by = -amount if offset >> 10 & 1 else amount
        index = (lane & ~31) | (lane & keep) | ((lane + by) & ~keep & 31)
    elif offset >> 15:
        index = (lane & ~3) + (offset >> 2 * (lane & 3) & 3)
    else:
        index = (lane & ~31) | (((lane & (offset & 31)) | (offset >> 5 & 31)) ^ (offset >> 10 & 31))

    def run(g: Group) -> None:
        value = g.v[source][:, index]
        on = g.active()
        check_lanes(g, source, on & on[:, index], index[None, :])
        g.put(d, np.where(on[:, index], value, np.uint32(0)))

    return run

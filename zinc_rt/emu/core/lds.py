"""DS: loads, stores and atomics of LDS, and exchanges between lanes that go through its crossbar."""

from __future__ import annotations

import numpy as np

from zinc_rt.emu.core.atomics import ATOMICS
from zinc_rt.emu.core.errors import ShaderError, Unsupported
from zinc_rt.emu.core.lanes import check_lanes
from zinc_rt.emu.core.memory import LOADS, lanes_of, loaded, numbers, put_numbers, short_kind, stored
from zinc_rt.emu.core.state import M0, Array, Group, Step
from zinc_rt.emu.isa.instruction import Instruction


def compile_lds(ins: Instruction, lanes: int) -> Step:
    """What a DS instruction does. Raises `Unsupported`."""
    what = ins.name.removeprefix("ds_")
    if what == "nop":
        return lambda g: None
    if what in ("permute_b32", "bpermute_b32", "bpermute_fi_b32"):
        return _permute(ins, what)
    if what == "swizzle_b32":
        return _swizzle(ins, lanes)
    if what.startswith(("load_2addr", "store_2addr", "storexchg_2addr")):
        return _two(ins, what)
    if "addtid" in what:
        return _addtid(ins, what)
    if what.startswith("load_"):
        return _load(ins, what.removeprefix("load_"))
    if what.startswith("store_"):
        return _store(ins, what.removeprefix("store_"))
    return _atomic(ins, what.replace("_rtn", ""))


def _addresses(g: Group, register: int, offset: int) -> tuple[Array, Array, Array]:
    waves, lanes = lanes_of(g)
    base = g.v[register].reshape(-1) if g.mask is None else g.v[register][g.mask]
    return (base + np.uint32(offset)).astype(np.int64), waves, lanes


def _offsets(g: Group, found: tuple[Array, Array, Array], n: int) -> Array:
    addresses, waves, lanes = found
    g.access = (addresses, waves, lanes, n)
    at: Array = g.world.lds.check(g, addresses, waves, n)
    return at


def _load(ins: Instruction, what: str) -> Step:
    short = short_kind(what)
    size = short[0] if short else what
    if size not in LOADS:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    n, register, address, offset = LOADS[size][0], ins.dst[0].index, ins.src[0].index, ins.modifiers.get("offset", 0)

    def run(g: Group) -> None:
        found = _addresses(g, address, offset)
        loaded(g, g.world.lds.read(g, _offsets(g, found, n), found[1]), register, what)

    return run


def _store(ins: Instruction, what: str) -> Step:
    register, address, offset = ins.src[1].index, ins.src[0].index, ins.modifiers.get("offset", 0)
    if not any(part[0] == "b" for part in what.split("_")):
        raise Unsupported(f"{ins.name} is not executed by this shader core")

    def run(g: Group) -> None:
        found = _addresses(g, address, offset)
        data = stored(g, register, what)
        g.world.lds.write(g, _offsets(g, found, data.shape[1]), found[1], data)

    return run


def _two(ins: Instruction, what: str) -> Step:
    kind = "b64" if "b64" in what else "b32"
    n = 8 if kind == "b64" else 4
    step = n * (64 if "stride64" in what else 1)
    offsets = [ins.modifiers.get(f"offset{k}", 0) * step for k in (0, 1)]
    address = ins.src[0].index
    if what.startswith("load"):
        register = ins.dst[0].index

        def load(g: Group) -> None:
            parts = []
            for offset in offsets:
                found = _addresses(g, address, offset)
                parts.append(g.world.lds.read(g, _offsets(g, found, n), found[1]))
            for k, part in enumerate(parts):
                loaded(g, part, register + k * (n // 4), kind)

        return load
    if what.startswith("storexchg"):
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    sources = [op.index for op in ins.src[1:3]]

    def store(g: Group) -> None:
        for source, offset in zip(sources, offsets, strict=True):
            found = _addresses(g, address, offset)
            g.world.lds.write(g, _offsets(g, found, n), found[1], stored(g, source, kind))

    return store


def _addtid(ins: Instruction, what: str) -> Step:
    offset = ins.modifiers.get("offset", 0)

    def place(g: Group) -> tuple[Array, Array, Array]:
        waves, lanes = lanes_of(g)
        return g.s[M0].astype(np.int64)[waves] % 65536 + offset + 4 * lanes, waves, lanes

    if what.startswith("load"):
        register = ins.dst[0].index

        def load(g: Group) -> None:
            found = place(g)
            loaded(g, g.world.lds.read(g, _offsets(g, found, 4), found[1]), register, "b32")

        return load
    source = ins.src[0].index

    def store(g: Group) -> None:
        found = place(g)
        g.world.lds.write(g, _offsets(g, found, 4), found[1], stored(g, source, "b32"))

    return store


def _atomic(ins: Instruction, what: str) -> Step:
    how = ATOMICS.get(what)
    if how is None:
        raise Unsupported(f"{ins.name} is not executed by this shader core")
    n = 4 * how.dwords
    address, offset = ins.src[0].index, ins.modifiers.get("offset", 0)
    data_register = ins.src[1].index
    compare_register = ins.src[2].index if how.compares else data_register
    result = ins.dst[0].index if ins.dst else None

    def run(g: Group) -> None:
        found = _addresses(g, address, offset)
        addresses, waves, lanes = found
        at = _offsets(g, found, n)
        crooked = addresses % n != 0
        if crooked.any():
            k = int(np.argmax(crooked))
            raise ShaderError(
                f"an LDS atomic of {n} bytes at {int(addresses[k])}, which is misaligned",
                wave=int(waves[k]),
                lane=int(lanes[k]),
            )
        data, compare = numbers(g, data_register, how.dwords), numbers(g, compare_register, how.dwords)
        old = g.world.lds.atomic(g, at[:, 0], n, waves, lambda k, now: how.call(now, data[k], compare[k]))
        if result is not None:
            put_numbers(g, result, how.dwords, old)

    return run


def _permute(ins: Instruction, what: str) -> Step:
    """bpermute: lane i reads lane address / 4; permute: lane i sends there. Lanes count modulo 32 within a wave32; what
    comes from lanes that are off is 0."""
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
    """Bit 15 set: quads (QUAD_PERM mode); top three bits 110: rotation; else and, or, xor masks within 32 lanes."""
    offset, source, d = ins.modifiers.get("offset", 0), ins.src[0].index, ins.dst[0].index
    lane = np.arange(lanes)
    if offset >> 13 == 7:
        raise Unsupported("ds_swizzle_b32 in FFT mode")
    if offset >> 13 == 6:
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

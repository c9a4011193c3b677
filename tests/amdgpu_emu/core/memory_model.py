"""What memory instructions do, one lane after the other, on integers and bytes: what the core is held to.

They follow AMD's RDNA4 ISA document, and for buffers Mesa's notes on range checks. `DEFINITIONS` has one for each
instruction, by its name; it is called with the machine's `State` and the decoded instruction.
"""

from __future__ import annotations

from collections.abc import Callable

from amdgpu_emu.isa.instruction import Encoding, Instruction, OperandKind
from tests.amdgpu_emu.core.memory_numbers import COMPARES, OPERATIONS, PAIRS, dwords_of, summed
from tests.amdgpu_emu.core.memory_places import U32, Definition, Place, State, Where, buffer, flat, glob, local, private
from tests.amdgpu_emu.core.one import signed

DEFINITIONS: dict[str, Definition] = {}


# Loads and stores.

LOADS = {
    "u8": (1, False, None), "i8": (1, True, None), "u16": (2, False, None), "i16": (2, True, None),
    "b32": (4, False, None), "b64": (8, False, None), "b96": (12, False, None), "b128": (16, False, None),
    "d16_u8": (1, False, 0), "d16_i8": (1, True, 0), "d16_b16": (2, False, 0),
    "d16_hi_u8": (1, False, 1), "d16_hi_i8": (1, True, 1), "d16_hi_b16": (2, False, 1),
}  # fmt: skip
"""Bytes, whether the sign is extended, and which half alone is written."""
STORES = {
    "b8": (1, 0),
    "b16": (2, 0),
    "b32": (4, 0),
    "b64": (8, 0),
    "b96": (12, 0),
    "b128": (16, 0),
    "d16_hi_b8": (1, 16),
    "d16_hi_b16": (2, 16),
}
"""Bytes, and from which bit on."""


def _load(where: Where, n: int, sign: bool, half: int | None) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, lane in state.active():
            place = where(state, ins, wave, lane)
            number = state.load(place, n) if place else 0
            d = ins.dst[0].index
            if half is None:
                bits = 8 * max(n, 4)
                state.put(wave, lane, d, max(n // 4, 1), (signed(number, 8 * n) if sign else number) & (1 << bits) - 1)
                continue
            short = (signed(number, 8 * n) if sign else number) & 0xFFFF
            keep = state.vgpr(wave, lane, d) & (0xFFFF if half else 0xFFFF0000)
            state.put(wave, lane, d, 1, keep | short << 16 * half)

    return run


def _store(where: Where, n: int, shift: int, data: int = 1) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, lane in state.active():
            place = where(state, ins, wave, lane)
            if place:
                number = state.vgpr(wave, lane, ins.src[data].index, max(n // 4, 1)) >> shift
                state.store(place, n, number)

    return run


for _family, _where in (("global", glob), ("flat", flat), ("scratch", private)):
    DEFINITIONS |= {f"{_family}_load_{k}": _load(_where, *how) for k, how in LOADS.items()}
    DEFINITIONS |= {f"{_family}_store_{k}": _store(_where, *how) for k, how in STORES.items()}
DEFINITIONS |= {f"buffer_load_{k}": _load(buffer(how[0]), *how) for k, how in LOADS.items()}
DEFINITIONS |= {f"buffer_store_{k}": _store(buffer(how[0]), *how, 0) for k, how in STORES.items()}
DEFINITIONS |= {f"ds_load_{k}": _load(local, *how) for k, how in LOADS.items() if "d16" not in k}
DEFINITIONS |= {f"ds_store_{k}": _store(local, *how) for k, how in STORES.items() if "d16" not in k}
DEFINITIONS |= {
    "ds_load_u8_d16": _load(local, 1, False, 0),
    "ds_load_u8_d16_hi": _load(local, 1, False, 1),
    "ds_load_i8_d16": _load(local, 1, True, 0),
    "ds_load_i8_d16_hi": _load(local, 1, True, 1),
    "ds_load_u16_d16": _load(local, 2, False, 0),
    "ds_load_u16_d16_hi": _load(local, 2, False, 1),
    "ds_store_b8_d16_hi": _store(local, 1, 16),
    "ds_store_b16_d16_hi": _store(local, 2, 16),
}


def _block(where: Where, load: bool) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, lane in state.active():
            place = where(state, ins, wave, lane)
            assert place
            for k in range(32):
                part = (*place[:3], place[3] + 4 * k)
                if state.m0[wave] >> k & 1 and load:
                    state.put(wave, lane, ins.dst[0].index + k, 1, state.load(part, 4))
                elif state.m0[wave] >> k & 1:
                    state.store(part, 4, state.vgpr(wave, lane, ins.src[1].index + k))

    return run


for _family, _where in (("global", glob), ("scratch", private)):
    DEFINITIONS |= {f"{_family}_{verb}_block": _block(_where, verb == "load") for verb in ("load", "store")}


def _by_lane_global(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    return "global", wave, lane, state.sgpr(wave, ins.src[-1].index, 2) + ins.modifiers.get("offset", 0) + 4 * lane


def _by_lane_local(state: State, ins: Instruction, wave: int, lane: int) -> Place:
    return "lds", wave, lane, (state.m0[wave] & 0xFFFF) + ins.modifiers.get("offset", 0) + 4 * lane


DEFINITIONS |= {
    "global_load_addtid_b32": _load(_by_lane_global, 4, False, None),
    "global_store_addtid_b32": _store(_by_lane_global, 4, 0, 0),
    "ds_load_addtid_b32": _load(_by_lane_local, 4, False, None),
    "ds_store_addtid_b32": _store(_by_lane_local, 4, 0, 0),
}


def _transposed(state: State, ins: Instruction) -> None:
    """Lane L gets, as its number j, number L % 8 of the eight that lane 8 * (L / 8) + j reads."""
    for wave in range(len(state.v)):
        rows = []
        for lane in range(32):
            place = glob(state, ins, wave, lane)
            rows.append([state.load((*place[:3], place[3] + 2 * j), 2) for j in range(8)])
        for lane in range(32):
            got = [rows[lane // 8 * 8 + j][lane % 8] for j in range(8)]
            state.put(wave, lane, ins.dst[0].index, 4, sum(x << 16 * j for j, x in enumerate(got)))


DEFINITIONS["global_load_tr_b128"] = _transposed


# Atomics.


def _atomic(where: Where, operation: str, data: int = 1, compare: int | None = None) -> Definition:
    """compare: which operand; None: it lies behind the data."""
    n = dwords_of(operation)

    def new(state: State, place: Place, old: int, d: int, c: int) -> int:
        if operation in PAIRS:
            halves = [summed(old >> k & 0xFFFF, d >> k & 0xFFFF, PAIRS[operation]) for k in (0, 16)]
            for k, half in enumerate(halves):
                if isinstance(half, float):
                    state.nans.append(((*place[:3], place[3] + 2 * k), PAIRS[operation]))
            low, high = (0 if isinstance(half, float) else half for half in halves)
            return low | high << 16
        found = OPERATIONS[operation](old, d, c)
        if isinstance(found, float):
            state.nans.append((place, 32 * n))
            return 0
        return found

    def run(state: State, ins: Instruction) -> None:
        for wave, lane in state.active():
            place = where(state, ins, wave, lane)
            old = 0
            if place:
                old = state.load(place, 4 * n)
                d = state.vgpr(wave, lane, ins.src[data].index, n)
                c = 0
                if operation in COMPARES:
                    behind = ins.src[data].index + n if compare is None else ins.src[compare].index
                    c = state.vgpr(wave, lane, behind, n)
                state.store(place, 4 * n, new(state, place, old, d, c))
            if ins.dst:
                state.put(wave, lane, ins.dst[0].index, n, old)

    return run


ONLY_LDS = ("rsub_u32", "rsub_u64", "mskor_b32", "mskor_b64", "min_num_f64", "max_num_f64")
IN_MEMORY = [name for name in (*OPERATIONS, *PAIRS) if name not in ONLY_LDS]
IN_LDS = {
    name: name.replace("swap", "storexchg") if "cmp" not in name else name.replace("cmpswap", "cmpstore")
    for name in (*OPERATIONS, *PAIRS)
}
for _op in IN_MEMORY:
    DEFINITIONS[f"global_atomic_{_op}"] = _atomic(glob, _op)
    DEFINITIONS[f"flat_atomic_{_op}"] = _atomic(flat, _op)
    DEFINITIONS[f"buffer_atomic_{_op}"] = _atomic(buffer(4 * dwords_of(_op)), _op, 0)
for _op, _name in IN_LDS.items():
    _stem, _, _type = _name.rpartition("_")
    if "storexchg" not in _name:
        DEFINITIONS[f"ds_{_name}"] = _atomic(local, _op, 1, 2)
    DEFINITIONS[f"ds_{_stem}_rtn_{_type}"] = _atomic(local, _op, 1, 2)


# The rest of DS.


def _two(n: int, stride: int, verb: str) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, lane in state.active():
            at = state.vgpr(wave, lane, ins.src[0].index)
            places = [("lds", wave, lane, at + ins.modifiers.get(f"offset{k}", 0) * n * stride) for k in (0, 1)]
            old = [state.load(place, n) if verb != "store" else 0 for place in places]
            if verb != "load":
                for k, place in enumerate(places):
                    state.store(place, n, state.vgpr(wave, lane, ins.src[1 + k].index, n // 4))
            if verb != "store":
                state.put(wave, lane, ins.dst[0].index, n // 2, old[0] | old[1] << 8 * n)

    return run


for _n in (4, 8):
    for _rows, _stride in (("", 1), ("stride64_", 64)):
        for _verb, _rtn in (("load", ""), ("store", ""), ("storexchg", "rtn_")):
            DEFINITIONS[f"ds_{_verb}_2addr_{_rows}{_rtn}b{8 * _n}"] = _two(_n, _stride, _verb)


def _count(sign: int) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, on in enumerate(state.on):
            if any(on):
                place = ("lds", wave, 0, (state.m0[wave] & 0xFFFF) + ins.modifiers.get("offset", 0))
                old = state.load(place, 4)
                state.store(place, 4, (old + sign * sum(on)) & U32)
                for lane in range(state.lanes):
                    if on[lane]:
                        state.put(wave, lane, ins.dst[0].index, 1, old)

    return run


def _condxchg(state: State, ins: Instruction) -> None:
    for wave, lane in state.active():
        at = local(state, ins, wave, lane)[3] & 0xFFF8
        data, old = state.vgpr(wave, lane, ins.src[1].index, 2), []
        for k in (0, 1):
            place, word = ("lds", wave, lane, at + 4 * k), data >> 32 * k & U32
            old.append(state.load(place, 4))
            if word >> 31:
                state.store(place, 4, word & 0x7FFFFFFF)
        state.put(wave, lane, ins.dst[0].index, 2, old[0] | old[1] << 32)


def _exchange(
    source: Callable[[int, int, int], int], state: State, ins: Instruction, data: int, fetch_inactive: bool = False
) -> None:
    """source: (address, lane, lanes) -> which lane is read; 0 comes from those that are off, or what they hold."""
    got = []
    for wave, lane in state.active():
        other = source(state.vgpr(wave, lane, ins.src[0].index) + ins.modifiers.get("offset", 0), lane, state.lanes)
        there = fetch_inactive or state.on[wave][other]
        got.append((wave, lane, state.v[wave][data][other] if there else 0))
    for wave, lane, number in got:
        state.put(wave, lane, ins.dst[0].index, 1, number)


def _bpermute(state: State, ins: Instruction) -> None:
    _exchange(lambda address, lane, lanes: (address & U32) // 4 % lanes, state, ins, ins.src[1].index)


def _bpermute_fi(state: State, ins: Instruction) -> None:
    _exchange(lambda address, lane, lanes: (address & U32) // 4 % lanes, state, ins, ins.src[1].index, True)


def _permute(state: State, ins: Instruction) -> None:
    for wave, on in enumerate(state.on):
        out = [0] * state.lanes
        for lane in range(state.lanes):
            if on[lane]:
                at = state.vgpr(wave, lane, ins.src[0].index) + ins.modifiers.get("offset", 0) & U32
                out[at // 4 % state.lanes] = state.vgpr(wave, lane, ins.src[1].index)
        for lane in range(state.lanes):
            if on[lane]:
                state.put(wave, lane, ins.dst[0].index, 1, out[lane])


def swizzled(offset: int, lane: int) -> int:
    """The lane that ds_swizzle_b32 reads."""
    low, group = lane & 31, lane & 32
    if offset >= 0xE000:
        reverse = int(f"{low:05b}"[::-1], 2)
        return (reverse >> (offset & 31).bit_count()) | (lane & offset & 31) | group
    if offset >= 0xC000:
        by = -(offset >> 5 & 31) if offset >> 10 & 1 else offset >> 5 & 31
        return (lane & offset & 31) | ((lane + by) & ~offset & 31) | group
    if offset >= 0x8000:
        return (lane & ~3) + (offset >> 2 * (lane & 3) & 3)
    return (((low & offset & 31) | offset >> 5 & 31) ^ (offset >> 10 & 31)) | group


def _swizzle(state: State, ins: Instruction) -> None:
    offset = ins.modifiers.get("offset", 0)
    _exchange(lambda address, lane, lanes: swizzled(offset, lane), state, ins, ins.src[0].index)


DEFINITIONS |= {
    "ds_append": _count(1),
    "ds_consume": _count(-1),
    "ds_condxchg32_rtn_b64": _condxchg,
    "ds_bpermute_b32": _bpermute,
    "ds_bpermute_fi_b32": _bpermute_fi,
    "ds_permute_b32": _permute,
    "ds_swizzle_b32": _swizzle,
}


# Scalar loads.


def _scalar(n: int, sign: bool, buffer: bool) -> Definition:
    def run(state: State, ins: Instruction) -> None:
        for wave, registers in enumerate(state.s):
            base = state.sgpr(wave, ins.src[0].index, 2)
            start = ins.modifiers.get("offset", 0)
            if ins.src[1].kind is OperandKind.SGPR:
                start += registers[ins.src[1].index]
            size = None
            if buffer:
                stride, base = base >> 48 & 0x3FFF, base & (1 << 48) - 1
                size = registers[ins.src[0].index + 2] * (stride or 1)
            found, step = 0, min(n, 4)
            for k in range(0, n, step):
                if size is None or start + k + step <= size:
                    found |= state.load(("global", wave, 0, base + start + k), step) << 8 * k
            if n < 4:
                found = (signed(found, 8 * n) if sign else found) & U32
            for k in range(max(n // 4, 1)):
                registers[ins.dst[0].index + k] = found >> 32 * k & U32

    return run


for _family in ("s_load", "s_buffer_load"):
    for _name, _n, _sign in (
        ("u8", 1, False),
        ("i8", 1, True),
        ("u16", 2, False),
        ("i16", 2, True),
        *((f"b{8 * n}", n, False) for n in (4, 8, 12, 16, 32, 64)),
    ):
        DEFINITIONS[f"{_family}_{_name}"] = _scalar(_n, _sign, _family == "s_buffer_load")


# What only moves caches, or nothing.


def _nothing(state: State, ins: Instruction) -> None:
    """Registers and memory stay as they are."""


NOTHING = (
    "ds_nop", "global_inv", "global_wb", "global_wbinv", "s_dcache_inv", "s_prefetch_inst", "s_prefetch_inst_pc_rel",
    "s_prefetch_data", "s_prefetch_data_pc_rel", "s_buffer_prefetch_data",
)  # fmt: skip
DEFINITIONS |= dict.fromkeys(NOTHING, _nothing)
FORMATS = {
    "ds": Encoding.DS,
    "global": Encoding.GLOBAL,
    "flat": Encoding.FLAT,
    "scratch": Encoding.SCRATCH,
    "buffer": Encoding.BUFFER,
    "s": Encoding.SMEM,
}

"""Matrix times few rows of activations, the work of a decode step: one wave a row of weights, one lane a group."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of, looks_up
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.kernels.gpu.dequant_dot import (
    group_activations,
    group_loads,
    group_lookups,
    group_values,
    group_weights,
)
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    bitcast,
    cast,
    first_lane,
    fma,
    lane_id,
    load,
    regs,
    schedule_barrier,
    select,
    static_assert,
    unroll,
    wave_shuffle_xor,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f16, f32, i8, ptr, u8, u16, u32, u64
from zinc_rt.numerics import GROUP, TREE_LANES

WAVES = 4
"""Rows of weights of a workgroup: of a wave each, or where there are several rows of activations of one wave."""
HELD = 8
"""Rows of activations of which a lane holds a group at once."""


@inline
def wave_row():
    """The row of this wave, the same in all lanes."""
    return workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)


@inline
def clamped(x: u32, n: u32):
    """x, or n - 1 where it is no less than n."""
    return select(x < n, x, n - 1)


@inline
def bytes_before(base: u32, FMT: str):
    """Bytes of a row of weights before group `base`, the first one of a block."""
    F = format_of(FMT)
    return (base >> F.group_shift) * F.block_bytes


@inline
def rows_of_activations(x, group: u32, base: u32, across: u32, FMT: str, FIRST: int, LAST: int):
    """What a lane loads of rows FIRST … LAST - 1, for its group behind `base`; rows are `across` groups apart."""
    return tuple(group_activations(x, across * m + base, group, FMT) for m in range(FIRST, LAST))


@inline
def add_groups(
    lines, x, sums, base: u32, n_groups: u32, across: u32, STEPS: int, FMTS: tuple, M: int, MOST: int, WHOLE: bool
):
    """sums[r * M + m] += v_g of lines[r] and row m, for this lane's groups base + lane, 32 further, … STEPS times.

    MOST: rows of activations that are held at once. WHOLE: every lane has all groups; without, those beyond the end
    count as 0.
    """
    KINDS = tuple(FMTS[r] for r in range(len(FMTS)) if all(FMTS[i] != FMTS[r] for i in range(r)))
    TURNS = tuple(divmod(t, len(FMTS)) for t in range(STEPS * len(FMTS)))
    PLACES = tuple(divmod(t, len(KINDS)) for t in range(STEPS * len(KINDS)))
    at = tuple(base + i * TREE_LANES + lane_id() for i in range(STEPS))
    starts = tuple(base + i * TREE_LANES if WHOLE else base - base for i in range(STEPS))
    groups = tuple(lane_id() if WHOLE else clamped(at[i], n_groups) for i in range(STEPS))
    skips = tuple(bytes_before(starts[t[0]], FMTS[t[1]]) for t in TURNS)
    loaded = tuple(
        group_loads(lines[TURNS[t][1]], skips[t], groups[TURNS[t][0]], FMTS[TURNS[t][1]]) for t in range(len(TURNS))
    )
    for first in unroll(0, M, MOST):
        last = min(first + MOST, M)
        if first > 0:
            schedule_barrier()  # registers hold one part
        rows = tuple(
            rows_of_activations(x, groups[p[0]], starts[p[0]], across, KINDS[p[1]], first, last) for p in PLACES
        )
        # All of these are asked for before the first of them is needed.
        schedule_barrier()
        if first == 0:
            loaded = tuple(group_lookups(loaded[t], FMTS[TURNS[t][1]]) for t in range(len(TURNS)))
            if any(looks_up(f) for f in FMTS):
                schedule_barrier()
        for t in unroll(len(TURNS)):
            i, r = TURNS[t]
            weights = group_weights(loaded[t], groups[i], FMTS[r])
            for p in unroll(len(PLACES)):
                if PLACES[p][0] == i and KINDS[PLACES[p][1]] == FMTS[r]:
                    values = group_values(weights, rows[p], FMTS[r])
                    for m in unroll(last - first):
                        k = r * M + first + m
                        v = values[m]
                        sums[k] = sums[k] + (v if WHOLE else select(at[i] < n_groups, v, 0.0))


@inline
def add_all_groups(lines, x, sums, n_groups: u32, across: u32, STEPS: int, FMTS: tuple, M: int, MOST: int = HELD):
    """sums[r * M + m] += v_g of all groups of this lane, of each row of weights and of activations."""
    many: u32 = 0
    while many + TREE_LANES * STEPS <= n_groups:
        add_groups(lines, x, sums, many, n_groups, across, STEPS, FMTS, M, MOST, WHOLE=True)
        many += TREE_LANES * STEPS
    for base in range(many, n_groups, TREE_LANES):
        add_groups(lines, x, sums, base, n_groups, across, 1, FMTS, M, MOST, WHOLE=False)


@inline
def lines_of(w: ptr[u8], row: u32, n_rows: u32, size: u32, ROWS: int):
    """ROWS rows of weights from one on; the last one again where there are no more."""
    return tuple(w + u64(clamped(row + r, n_rows)) * u64(size) for r in range(ROWS))


@inline
def halved(values, DISTANCE: int):
    """Sums of pairs of lanes at a distance: lanes with that bit have those of the second half of the values."""
    upper = (lane_id() & DISTANCE) != 0
    n = len(values) // 2
    own = tuple(select(upper, values[i + n], values[i]) for i in range(n))
    return tuple(own[i] + wave_shuffle_xor(select(upper, values[i], values[i + n]), DISTANCE) for i in range(n))


@inline
def wave_sums(values, n: int):
    """Sums of n values over the wave by the tree of `wave_reduce_add`; lane l has that of value l // sharing(n)."""
    COUNT = TREE_LANES // sharing(n)
    parts = tuple(values[min(i, n - 1)] for i in range(COUNT))
    for DISTANCE in unroll((16, 8, 4, 2, 1)):
        if len(parts) > 1:
            parts = halved(parts, DISTANCE)
        else:
            parts = (parts[0] + wave_shuffle_xor(parts[0], DISTANCE),)
    return parts[0]


@inline
def sharing(n: int):
    """Lanes that have the same sum, static."""
    return max(lanes for lanes in (1, 2, 4, 8, 16, 32) if lanes * n <= TREE_LANES)


@inline
def store_sums(y: ptr[f32], sums, row: u32, n_rows: u32, across: u32, extra, ROWS: int, M: int, BIAS: bool):
    """y[m * across + row + r] = the sum over the wave of sums[r * M + m], plus `extra` in the lanes that have it."""
    total = wave_sums(sums, ROWS * M)
    r, m = place_of(ROWS, M)
    if lane_id() % sharing(ROWS * M) == 0 and r < ROWS and row + r < n_rows:
        y[m * across + row + r] = total + extra if BIAS else total


@inline
def place_of(ROWS: int, M: int):
    """Which sum a lane has behind `wave_sums`: that of a row of weights and of activations."""
    value = lane_id() // sharing(ROWS * M)
    return value // M, value % M


@inline
def own_bias(bias: ptr[f32], row: u32, n_rows: u32, ROWS: int, M: int):
    """What is added to the sum that a lane will have."""
    return bias[clamped(row + place_of(ROWS, M)[0], n_rows)]


@inline
def rows_of_groups(w, q, d, s, y, bias, n_groups, n_rows, row, FMT: str, M: int, STEPS: int, BIAS: bool, ROWS: int):
    """ROWS rows of weights from `row` on times M rows of activations, by a wave."""
    F = format_of(FMT)
    if row < n_rows:
        block = workgroup_id(1) * M
        first = u64(block) * u64(n_groups)
        lines = lines_of(w, row, n_rows, (n_groups >> F.group_shift) * F.block_bytes, ROWS)
        extra = own_bias(bias, row, n_rows, ROWS, M) if BIAS else 0.0  # asked for before the weights, not behind them
        sums = regs(f32, ROWS * M)
        x = (q + first * GROUP, d + first, s + first)
        add_all_groups(lines, x, sums, n_groups, n_groups, STEPS, (FMT,) * ROWS, M)
        store_sums(y + u64(block) * u64(n_rows), sums, row, n_rows, n_rows, extra, ROWS, M, BIAS)


@inline
def float_loads(row: ptr[u8], group: u32, first: int, n: int, FMT: str):
    """What a lane loads for n weights of a group from element `first` on: vectors of 16 bytes."""
    F = format_of(FMT)
    p = row + group * F.group_bytes
    if F.kind == CodeLayout.F32:
        return tuple(load(cast(p, ptr[f32]), first + i, lanes=4) for i in range(0, n, 4))
    if F.kind == CodeLayout.F16:
        return tuple(load(cast(p, ptr[f16]), first + i, lanes=8) for i in range(0, n, 8))
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: float_loads does not know numbers of kind {F.kind!s}")
    return tuple(load(cast(p, ptr[u32]), (first + i) // 2, lanes=4, align=2) for i in range(0, n, 8))


@inline
def float_of(loaded, i: int, FMT: str):
    """Weight i of them."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        return loaded[i // 4][i % 4]
    if F.kind == CodeLayout.F16:
        return f32(loaded[i // 8][i % 8])
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: float_of does not know numbers of kind {F.kind!s}")
    pair = loaded[i // 8][i % 8 // 2]
    return bitcast(pair & 0xFFFF0000 if i % 2 else pair << 16, f32)


@inline
def float_at(row: ptr[u8], i: u32, FMT: str):
    """One weight."""
    F = format_of(FMT)
    if F.kind == CodeLayout.F32:
        return load(cast(row, ptr[f32]), i)
    if F.kind == CodeLayout.F16:
        return f32(load(cast(row, ptr[f16]), i))
    static_assert(F.kind == CodeLayout.BF16, f"format {FMT}: float_at does not know numbers of kind {F.kind!s}")
    return bitcast(u32(load(cast(row, ptr[u16]), i)) << 16, f32)


@inline
def chunk_of(M: int, ROWS: int):
    """Elements of a group that are loaded together: as many as registers hold of all rows, static."""
    return max(n for n in (8, 16, 32) if n == 8 or n * (M + ROWS) <= 96)


@inline
def activations_of(x: ptr[f32], group: u32, first: int, n: int):
    """n activations of a group from element `first` on."""
    at = cast(cast(x, ptr[u8]) + group * (GROUP * 4), ptr[f32])
    parts = tuple(load(at, first + i, lanes=4) for i in range(0, n, 4))
    return tuple(parts[i // 4][i % 4] for i in range(n))


@inline
def add_whole_chains(lines, x: ptr[f32], sums, group: u32, across: u32, FMTS: tuple, M: int):
    """sums[r * M + m] += the chain over a group of lines[r] and row m, from where `lines` and x point on."""
    ROWS = len(FMTS)
    CHUNK = chunk_of(M, ROWS)
    chains = regs(f32, ROWS * M)
    for first in unroll(0, GROUP, CHUNK):
        if M > 4:
            schedule_barrier()  # registers hold the rows of one chunk
        loaded = tuple(float_loads(lines[r], group, first, CHUNK, FMTS[r]) for r in range(ROWS))
        rows = tuple(activations_of(x + across * m, group, first, CHUNK) for m in range(M))
        # All of these are asked for before the first of them is needed.
        schedule_barrier()
        for i in unroll(CHUNK):
            for r in unroll(ROWS):
                weight = float_of(loaded[r], i, FMTS[r])
                for m in unroll(M):
                    chains[r * M + m] = fma(weight, rows[m][i], chains[r * M + m])
    for k in unroll(ROWS * M):
        sums[k] = sums[k] + chains[k]


@inline
def add_some_chain(lines, x: ptr[f32], sums, first: u32, n: u32, across: u32, FMTS: tuple, M: int):
    """The same over elements first … n - 1."""
    ROWS = len(FMTS)
    chains = regs(f32, ROWS * M)
    for i in range(first, n):
        for r in unroll(ROWS):
            weight = float_at(lines[r], i, FMTS[r])
            for m in unroll(M):
                chains[r * M + m] = fma(weight, load(x + across * m, i), chains[r * M + m])
    for k in unroll(ROWS * M):
        sums[k] = sums[k] + chains[k]


@inline
def add_chains(lines, x: ptr[f32], sums, group: u32, n: u32, across: u32, FMTS: tuple, M: int):
    """sums[r * M + m] += the chain over a group of rows of n floats; rows of activations are `across` floats apart."""
    if group * GROUP + GROUP <= n:
        add_whole_chains(lines, x, sums, group, across, FMTS, M)
    else:
        add_some_chain(lines, x, sums, group * GROUP, n, across, FMTS, M)


@inline
def add_all_chains(lines, x: ptr[f32], sums, n: u32, across: u32, FMTS: tuple, M: int):
    """sums[r * M + m] += all chains of this lane, of each row of weights and of activations."""
    many: u32 = 0
    while (many + TREE_LANES) * GROUP <= n:
        here = tuple(lines[r] + many * format_of(FMTS[r]).group_bytes for r in range(len(FMTS)))
        add_whole_chains(here, x + many * GROUP, sums, lane_id(), across, FMTS, M)
        many += TREE_LANES
    if many * GROUP < n:
        group = many + lane_id()
        if group * GROUP < n:
            add_chains(lines, x, sums, group, n, across, FMTS, M)


@inline
def rows_of_floats(w, x, y, bias, n, n_rows, row, FMT: str, M: int, BIAS: bool, ROWS: int):
    """ROWS rows of float weights from `row` on times M rows of activations, by a wave."""
    if row < n_rows:
        block = workgroup_id(1) * M
        lines = lines_of(w, row, n_rows, n * format_of(FMT).block_bytes, ROWS)
        extra = own_bias(bias, row, n_rows, ROWS, M) if BIAS else 0.0
        sums = regs(f32, ROWS * M)
        add_all_chains(lines, x + u64(block) * u64(n), sums, n, n, (FMT,) * ROWS, M)
        store_sums(y + u64(block) * u64(n_rows), sums, row, n_rows, n_rows, extra, ROWS, M, BIAS)


@kernel(workgroup=128)
def matvec(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str, M: int = 1,
    STEPS: int = 2,
):  # fmt: skip
    """y[m, row] = W times row m of quantised activations (see `quantize`); four rows of W a workgroup in x, M rows of
    activations in y: all M of the last one are read and written, so there must be room for them.

    STEPS: groups of a lane that are loaded together.
    """
    rows_of_groups(w, q, d, s, y, y, n_groups, n_rows, wave_row(), FMT, M, STEPS, BIAS=False, ROWS=1)


@kernel(workgroup=128)
def matvec_bias(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str,
    M: int = 1, STEPS: int = 2,
):  # fmt: skip
    """As `matvec`, plus bias[row]."""
    rows_of_groups(w, q, d, s, y, bias, n_groups, n_rows, wave_row(), FMT, M, STEPS, BIAS=True, ROWS=1)


@kernel(workgroup=32)
def matvec_block(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str, M: int,
    STEPS: int = 1,
):  # fmt: skip
    """As `matvec` for several rows of activations: a wave has four rows of W, so that each of its loads of activations
    is for all of them.
    """
    first = workgroup_id(0) * WAVES
    rows_of_groups(w, q, d, s, y, y, n_groups, n_rows, first, FMT, M, STEPS, BIAS=False, ROWS=WAVES)


@kernel(workgroup=32)
def matvec_block_bias(
    w: ptr[u8], q: ptr[i8], d: ptr[f32], s: ptr[u32], bias: ptr[f32], y: ptr[f32], n_groups: u32, n_rows: u32, FMT: str,
    M: int, STEPS: int = 1,
):  # fmt: skip
    """As `matvec_block`, plus bias[row]."""
    first = workgroup_id(0) * WAVES
    rows_of_groups(w, q, d, s, y, bias, n_groups, n_rows, first, FMT, M, STEPS, BIAS=True, ROWS=WAVES)


@kernel(workgroup=128)
def matvec_float(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int = 1):
    """As `matvec` for F32, F16 and BF16 weights and rows of n floats; a lane chains a group's products in order."""
    rows_of_floats(w, x, y, y, n, n_rows, wave_row(), FMT, M, BIAS=False, ROWS=1)


@kernel(workgroup=128)
def matvec_float_bias(w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int = 1):
    """As `matvec_float`, plus bias[row]."""
    rows_of_floats(w, x, y, bias, n, n_rows, wave_row(), FMT, M, BIAS=True, ROWS=1)


@kernel(workgroup=32)
def matvec_float_block(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int):
    """As `matvec_block` for float weights."""
    rows_of_floats(w, x, y, y, n, n_rows, workgroup_id(0) * WAVES, FMT, M, BIAS=False, ROWS=WAVES)


@kernel(workgroup=32)
def matvec_float_block_bias(
    w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int
):
    """As `matvec_float_block`, plus bias[row]."""
    rows_of_floats(w, x, y, bias, n, n_rows, workgroup_id(0) * WAVES, FMT, M, BIAS=True, ROWS=WAVES)

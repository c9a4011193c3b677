"""Float weights times many rows of few: the waves of a workgroup share what they load of the activations.

A lane's chain runs over 32 floats in a row, so lanes load from lines of their own, and the vector cache gives 16 bytes
where it could give 64. With eight rows of activations that, not memory, would be the bound. Here a workgroup brings
the activations of 32 groups into LDS, in whole lines, once for all its waves.
"""

from __future__ import annotations

from zinc_rt.formats.decode import format_of
from zinc_rt.kernels.gpu.matvec import (
    add_chains,
    float_loads,
    float_of,
    lines_of,
    own_bias,
    rows_of_floats,
    store_sums,
)
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    first_lane,
    fma,
    lane_id,
    load,
    regs,
    schedule_barrier,
    shared,
    static_assert,
    store,
    unroll,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f32, ptr, u8, u32, u64
from zinc_rt.numerics import GROUP, TREE_LANES

SHARED_FROM = 5
"""Rows of activations from which on they are shared."""
WAVES = 8
EACH = 4
"""Rows of weights of a wave."""
FOURS = GROUP // 4
"""Loads of a group."""
PIECES = TREE_LANES * FOURS
"""Loads of a row for 32 groups."""


@inline
def chunk_of(FMTS: tuple):
    """Weights of a group that are loaded together, static: as many as registers hold of all rows."""
    return 8 if any(format_of(f).block_bytes > 2 for f in FMTS) else 16


@inline
def bring(xs, x: ptr[f32], across: u32, M: int, N_WAVES: int):
    """The 32 groups from x on of M rows, to LDS: by row, by four of a group, by lane."""
    LANES = N_WAVES * TREE_LANES
    TURNS = M * PIECES // LANES
    static_assert(TURNS * LANES == M * PIECES, f"{M} rows for {N_WAVES} waves: each work-item brings as much as any")
    at = tuple(workitem_id() + i * LANES for i in range(TURNS))
    found = tuple(load(x + u64(p // PIECES) * u64(across), p % PIECES * 4, lanes=4) for p in at)
    for i in unroll(TURNS):
        row, piece = at[i] // PIECES, at[i] % PIECES
        store(xs, found[i], ((row * FOURS + piece % FOURS) * TREE_LANES + piece // FOURS) * 4, align=16)


@inline
def add_brought(loaded, xs, chains, first: int, FMTS: tuple, M: int):
    """Go on with the chains of each row of weights and of activations, over some elements of the lane's group."""
    for four in unroll(chunk_of(FMTS) // 4):
        for m in unroll(M):
            x = load(xs, ((m * FOURS + (first // 4 + four)) * TREE_LANES + lane_id()) * 4, lanes=4, align=16)
            for i in unroll(4):
                for r in unroll(len(FMTS)):
                    k = r * M + m
                    chains[k] = fma(float_of(loaded[r], four * 4 + i, FMTS[r]), x[i], chains[k])


@inline
def room_for_rows(M: int):
    """LDS for what is brought at once."""
    return shared(f32, M * PIECES * 4)


@inline
def add_shared_chains(lines, x: ptr[f32], xs, sums, n: u32, across: u32, FMTS: tuple, M: int, N_WAVES: int):
    """As `add_all_chains`, by all N_WAVES waves of the workgroup: every one of them must come here. xs: of
    `room_for_rows`.
    """
    ROWS, CHUNK = len(FMTS), chunk_of(FMTS)
    many: u32 = 0
    while (many + TREE_LANES) * GROUP <= n:
        barrier()  # all have read what was brought before
        bring(xs, x + many * GROUP, across, M, N_WAVES)
        here = tuple(lines[r] + many * format_of(FMTS[r]).group_bytes for r in range(ROWS))
        chains = regs(f32, ROWS * M)
        for first in unroll(0, GROUP, CHUNK):
            loaded = tuple(float_loads(here[r], lane_id(), first, CHUNK, FMTS[r]) for r in range(ROWS))
            schedule_barrier()
            if first == 0:
                barrier()
            add_brought(loaded, xs, chains, first, FMTS, M)
        for k in unroll(ROWS * M):
            sums[k] = sums[k] + chains[k]
        many += TREE_LANES
    group = many + lane_id()
    if group * GROUP < n:
        add_chains(lines, x, sums, group, n, across, FMTS, M)


@inline
def float_rows(w, x, y, bias, n, n_rows, row, FMT: str, M: int, BIAS: bool, ROWS: int):
    """As `rows_of_floats`, in a workgroup of eight waves, all of which come here."""
    if M >= SHARED_FROM:
        block = workgroup_id(1) * M
        lines = lines_of(w, row, n_rows, n * format_of(FMT).block_bytes, ROWS)
        extra = own_bias(bias, row, n_rows, ROWS, M) if BIAS else 0.0
        sums = regs(f32, ROWS * M)
        xs = room_for_rows(M)
        add_shared_chains(lines, x + u64(block) * u64(n), xs, sums, n, n, (FMT,) * ROWS, M, WAVES)
        store_sums(y + u64(block) * u64(n_rows), sums, row, n_rows, n_rows, extra, ROWS, M, BIAS)
    else:
        rows_of_floats(w, x, y, bias, n, n_rows, row, FMT, M, BIAS, ROWS)


@inline
def own_rows():
    """This wave's first row of weights."""
    return (workgroup_id(0) * WAVES + first_lane(workitem_id() >> 5)) * EACH


@kernel(workgroup=256)
def matvec_float_shared(w: ptr[u8], x: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int):
    """As `matvec_float_block`, 32 rows of W a workgroup."""
    float_rows(w, x, y, y, n, n_rows, own_rows(), FMT, M, False, EACH)


@kernel(workgroup=256)
def matvec_float_shared_bias(
    w: ptr[u8], x: ptr[f32], bias: ptr[f32], y: ptr[f32], n: u32, n_rows: u32, FMT: str, M: int
):
    """As `matvec_float_shared`, plus bias[row]."""
    float_rows(w, x, y, bias, n, n_rows, own_rows(), FMT, M, True, EACH)

"""Products of low rank that adapters add, a choice of adapters for each row."""

from __future__ import annotations

from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, cast, fma, regs, shared, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f16, f32, i32, ptr, struct, u8, u32, u64
from zinc_rt.numerics import GROUP, TREE_LANES

RANKS = 16
"""Elements of t of a workgroup."""
LEVELS = TREE_LANES.bit_length() - 1


@struct
class GpuLoraArgs:
    """The operands of both operations; what one has not got is 0.

    x: rows of n elements. m: elements of t for a use, r for each pair. a: [adapter][expert][m / 16, n, 16]; b:
    [adapter][expert][ceil(n / 16), r, 16]. ids: experts of rows, or token ids.
    """

    x: ptr[f32]
    a: ptr[u8]
    b: ptr[u8]
    pairs: ptr[f32]  # [pairs, n_adapters, 2]: rank, factor
    adapters: ptr[i32]
    scales: ptr[f32]
    wanted: ptr[i32]
    ids: ptr[i32]
    weights: ptr[f32]
    t: ptr[f32]
    base: ptr[f32]
    y: ptr[f32]
    n: u32
    m: u32
    r: u32
    pair: u32
    start: u32
    depth: u32
    n_adapters: u32
    n_experts: u32


@inline
def kept(p: ptr[u8], at: u64, HALF: bool):
    """A number of a matrix as f32."""
    if HALF:
        return f32(cast(p, ptr[f16])[at])
    return cast(p, ptr[f32])[at]


@inline
def rank_of(p: ptr[GpuLoraArgs, Space.CONSTANT], pair: u32, adapter: i32):
    """Of a pair in an adapter; 0 for no adapter."""
    rank: i32 = 0
    if adapter >= 0:
        rank = i32(p.pairs[(u64(pair) * u64(p.n_adapters) + u64(adapter)) * 2])
    return rank


@kernel(workgroup=256)
def lora_a(
    p: ptr[GpuLoraArgs, Space.CONSTANT], USED: int, LISTED: bool, X_USED: int, HALF: bool, WANTED: bool, LOOKUP: bool,
):  # fmt: skip
    """t = A x. m / 16 workgroups in x, a use each in y: an adapter of a row with one of its USED experts.

    LISTED: `ids` says which experts; else the j-th part of a row has the j-th matrix. X_USED: rows of x for each row of
    the step. LOOKUP: t is the row of A that `ids` says.
    """
    parts = shared(f32, 16 * RANKS)
    n, m, depth = p.n, p.m, p.depth
    lane = workitem_id()
    column = lane & (RANKS - 1)
    tree = lane >> 4
    tile = workgroup_id(0) * RANKS
    use = workgroup_id(1)
    place = use // depth
    row: u32 = place
    if USED > 1:
        row = place // USED
    source: u32 = row
    if WANTED:
        source = u32(p.wanted[row])
    adapter = p.adapters[source * depth + (use - place * depth)]
    own = tile // p.r
    if i32(tile - own * p.r) < rank_of(p, p.pair + own, adapter):
        at: u64 = u64(adapter) * u64(p.n_experts)
        if LISTED:
            at = at + u64(p.ids[place])
        elif USED > 1:
            at = at + u64(place - row * USED)
        at = (at * u64(m) + u64(tile)) * u64(n) + u64(column)
        if LOOKUP:
            if tree == 0:
                p.t[u64(use) * u64(m) + u64(tile + column)] = kept(p.a, at + u64(p.ids[row]) * RANKS, HALF)
        else:
            from_row: u64 = u64(source)
            if X_USED > 1:
                from_row = u64(place)
            both: f32 = 0.0
            for half in unroll(2):
                total: f32 = 0.0
                for group in range(tree + half * 16, (n + (GROUP - 1)) // GROUP, TREE_LANES):
                    chain: f32 = 0.0
                    end: u32 = group * GROUP + GROUP
                    if end > n:
                        end = n
                    for i in range(group * GROUP, end):
                        chain = fma(kept(p.a, at + u64(i) * RANKS, HALF), p.x[from_row * u64(n) + u64(i)], chain)
                    total = total + chain
                both = both + total
            parts[lane] = both
            barrier()
            level: u32 = 8
            while level > 0:
                if tree < level:
                    parts[lane] = parts[lane] + parts[lane + level * RANKS]
                barrier()
                level = level >> 1
            if tree == 0:
                p.t[u64(use) * u64(m) + u64(tile + column)] = parts[column]


@inline
def chain_of(b: ptr[u8], at: u64, t: ptr[f32], first: i32, rank: i32, HALF: bool):
    """The chain of one group of ranks, from +0.0. at: of rank 0; t: of the pair."""
    end: i32 = first + GROUP
    if end > rank:
        end = rank
    chain: f32 = 0.0
    for i in range(first, end):
        chain = fma(kept(b, at + u64(i) * RANKS, HALF), t[i], chain)
    return chain + 0.0


@inline
def tree_of(b: ptr[u8], at: u64, t: ptr[f32], rank: i32, HALF: bool, GROUPS: int):
    """The product of one column. The tree's lanes come in the order in which it meets them, so that a sum of each level
    is all that is kept; GROUPS: lanes that there is room for, the others are empty.
    """
    if GROUPS == 1:
        return chain_of(b, at, t, 0, rank, HALF)
    sums = regs(f32, LEVELS)
    p: f32 = 0.0
    for j in unroll(TREE_LANES):
        lane = sum(((j >> k) & 1) << (LEVELS - 1 - k) for k in range(LEVELS))
        p = 0.0
        if lane < GROUPS:
            p = chain_of(b, at, t, lane * GROUP, rank, HALF)
        ones = 0
        for k in unroll(LEVELS):
            if all((j >> i) & 1 for i in range(k + 1)):
                p = sums[k] + p
                ones = k + 1
        if ones < LEVELS:
            sums[ones] = p
    return p


@kernel(workgroup=256)
def lora_b(
    p: ptr[GpuLoraArgs, Space.CONSTANT], USED: int, LISTED: bool, HALF: bool, WANTED: bool, SUMMED: bool, GROUPS: int,
):  # fmt: skip
    """y = base + scale * (B t). ceil(n / 256) workgroups in x, a row of y each in y. SUMMED: y is the experts' sum."""
    n, m, r, depth = p.n, p.m, p.r, p.depth
    column = workgroup_id(0) * 256 + workitem_id()
    place = workgroup_id(1)
    row: u32 = place
    if USED > 1 and not SUMMED:
        row = place // USED
    source: u32 = row
    if WANTED:
        source = u32(p.wanted[row])
    # Of an expert's matrix, and the column's first element in it.
    of_expert = u64((n + (RANKS - 1)) // RANKS) * u64(r) * RANKS
    inside = u64(column // RANKS) * u64(r) * RANKS + u64(column & (RANKS - 1))
    if column < n:
        value: f32 = p.base[u64(place) * u64(n) + u64(column)]
        for k in range(depth):
            adapter = p.adapters[source * depth + k]
            rank = rank_of(p, p.pair, adapter)
            if rank > 0:
                factor = p.pairs[(u64(p.pair) * u64(p.n_adapters) + u64(adapter)) * 2 + 1]
                scale = p.scales[source * depth + k] * factor
                v: f32 = 0.0
                if SUMMED:
                    for j in range(USED):
                        one = u64(row) * USED + u64(j)
                        expert = u64(adapter) * u64(p.n_experts) + u64(p.ids[one])
                        at = expert * of_expert + inside
                        own = p.t + ((one * u64(depth) + u64(k)) * u64(m) + u64(p.start))
                        v = fma(p.weights[one], tree_of(p.b, at, own, rank, HALF, GROUPS), v)
                else:
                    expert: u64 = u64(adapter) * u64(p.n_experts)
                    if LISTED:
                        expert = expert + u64(p.ids[place])
                    elif USED > 1:
                        expert = expert + u64(place - row * USED)
                    at = expert * of_expert + inside
                    own = p.t + ((u64(place) * u64(depth) + u64(k)) * u64(m) + u64(p.start))
                    v = tree_of(p.b, at, own, rank, HALF, GROUPS)
                value = value + scale * v
        p.y[u64(place) * u64(n) + u64(column)] = value

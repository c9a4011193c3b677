"""Scores of an indexer's candidates, and the choice of the best of them; see `zinc_rt.ir.ops.indexer`."""

from __future__ import annotations

from zinc_rt.kernels.gpu.attention import scores_of
from zinc_rt.kernels.gpu.router import sortable
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    fma,
    lane_id,
    regs,
    select,
    shared,
    unroll,
    wave_reduce_add,
    workgroup_id,
    workitem_id,
)
from zinc_rt.lang.types import f16, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import PAGE_SHIFT, PAGE_TOKENS, SPLIT


@struct
class GpuIndexScoresArgs:
    """q: f32[rows, HEADS, DIM]; k_cache: f16[pages, 16, DIM]; weights: f32[rows, HEADS], with WEIGHTED; y: f32[rows,
    max_pages * 16].
    """

    q: ptr[f32]
    k_cache: ptr[f16]
    weights: ptr[f32]
    y: ptr[f32]
    positions: ptr[i32]
    slots: ptr[i32]
    page_table: ptr[i32]
    max_pages: u32
    scale: f32


@kernel(workgroup=256)
def index_scores(a: ptr[GpuIndexScoresArgs], HEADS: int, DIM: int, BLOCK: int, WEIGHTED: bool):
    """Workgroups: 256 candidates in x, rows in y. DIM: a multiple of 8."""
    TOGETHER = max(h for h in (4, 2, 1) if HEADS % h == 0)
    row = workgroup_id(1)
    n = (unchanged(a.positions)[row] + 1) // BLOCK
    candidate = workgroup_id(0) * SPLIT + workitem_id()
    if candidate < n:
        at = candidate * BLOCK + (BLOCK - 1)
        pages = unchanged(a.page_table) + u64(unchanged(a.slots)[row]) * u64(a.max_pages)
        k = a.k_cache + u64(pages[at >> PAGE_SHIFT] * PAGE_TOKENS + (at & (PAGE_TOKENS - 1))) * DIM
        total: f32 = 0.0
        for head in range(u32(0), HEADS, TOGETHER):
            products = regs(f32, TOGETHER)
            first = u64(row) * HEADS + u64(head)
            scores_of(k, a.q + first * DIM, products, TOGETHER, DIM)
            for i in unroll(TOGETHER):
                passed = select(products[i] < 0.0, 0.0, products[i])
                if WEIGHTED:
                    total = fma(passed, a.weights[first + i], total)
                else:
                    total = total + passed
        a.y[u64(row) * u64(a.max_pages * PAGE_TOKENS) + u64(candidate)] = total * a.scale


@inline
def in_all(counts, count: f32):
    """The sum of a whole number of each of 256 lanes, in every lane."""
    total = wave_reduce_add(count)
    barrier()  # what the last sum left has been read
    if lane_id() == 0:
        counts[workitem_id() >> 5] = total
    barrier()
    out: f32 = 0.0
    for w in unroll(8):
        out = out + counts[w]
    return out


@inline
def no_less(counts, scores, bound: u32, n: u32):
    """How many of n scores have keys no less than a bound."""
    count: f32 = 0.0
    for i in range(workitem_id(), n, 256):
        count = count + select(sortable(scores[i]) >= bound, f32(1.0), 0.0)
    return in_all(counts, count)


@inline
def equal_before(counts, scores, bound: u32, end: u32, n: u32):
    """How many of the first `end` of n scores have the key `bound`."""
    count: f32 = 0.0
    for i in range(workitem_id(), select(end < n, end, n), 256):
        count = count + select(sortable(scores[i]) == bound, f32(1.0), 0.0)
    return in_all(counts, count)


@kernel(workgroup=256)
def index_choice(scores: ptr[f32], positions: ptr[i32], y: ptr[i32], max_pages: u32, top_k: u32, BLOCK: int):
    """Workgroups: rows. The least key that is chosen is found bit by bit, and so is the place up to which keys equal to
    it are.
    """
    counts = shared(f32, 8)
    row = workgroup_id(0)
    length = unchanged(positions)[row] + 1
    n = length // BLOCK
    keep = (top_k + (BLOCK - 1) - (length - n * BLOCK)) // BLOCK
    own = scores + u64(row) * u64(max_pages * PAGE_TOKENS)
    bound: u32 = 0
    end: u32 = n
    if keep < n:
        wanted = f32(keep)
        bit: u32 = 0x80000000
        for _ in range(32):
            if no_less(counts, own, bound | bit, n) >= wanted:
                bound = bound | bit
            bit = bit >> 1
        equal = wanted - no_less(counts, own, bound + 1, n)  # no score has the greatest of all keys
        end = u32(0)
        bit = u32(1 << 24)
        for _ in range(25):
            if equal_before(counts, own, bound, end | bit, n) <= equal:
                end = end | bit
            bit = bit >> 1
    words = y + u64(row) * u64(max_pages)
    for page in range(workitem_id(), (length + (PAGE_TOKENS - 1)) >> PAGE_SHIFT, 256):
        word: u32 = 0
        for i in unroll(PAGE_TOKENS):
            candidate = (page * PAGE_TOKENS + i) // BLOCK
            whole = candidate < n
            key = sortable(own[select(whole, candidate, candidate - candidate)])
            chosen = (key > bound) | ((key == bound) & (candidate < end)) | (keep >= n)
            if chosen | (candidate >= n):
                word = word | (1 << i)
        words[page] = i32(word)

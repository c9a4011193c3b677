"""Logits to a token by the rules of docs/how/sampling.md: scores, bias and penalties, sums over a whole vocabulary.

Every kernel takes `GpuSampleArgs`; each row of the batch has parameters of its own. `sampling_top` sorts between
`sample_adjust` and `sample_totals`, `sampling_draw` ends it.
"""

from __future__ import annotations

from zinc_rt.kernels.sampling_math import below_top, exp, key_score, ranked
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, cast, select, shared, unroll, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f32, f64, i32, ptr, struct, u32, u64
from zinc_rt.numerics import SUM_BLOCK


@struct
class GpuSampleRow:
    """A row's parameters. What changes with every token: step and n_touched. Zeros are a row that nobody reads."""

    temperature: f64  # 0: the best score wins
    top_p: f64
    min_p: f64
    repetition: f64
    frequency: f64
    presence: f64
    seed: u64
    step: u64  # index of the token in its text
    top_k: u32  # tokens that stay; n for all
    n_touched: u32  # tokens with a bias or a penalty


@struct
class Touched:
    """A token whose score changes: it occurs `count` times among the recent ones."""

    bias: f64
    token: u32
    count: u32


@struct
class GpuSampleArgs:
    """What a batch of rows works on; no kernel that takes this writes rows, touched, keys, ids or table. n: tokens; k:
    candidates of a row, in order; n_blocks: of SUM_BLOCK scores.
    """

    rows: ptr[GpuSampleRow]  # [rows]
    touched: ptr[Touched]  # [rows, max_touched], each token of a row once
    logits: ptr[f32]  # [rows, n]
    scores: ptr[f64]  # [rows, n]
    keys: ptr[u64]  # [rows, k]
    ids: ptr[u32]  # [rows, k]
    totals: ptr[f64]  # [rows, n_blocks]
    table: ptr[u64, Space.CONSTANT]  # [128], of exp
    tokens: ptr[i32]  # [rows]
    status: ptr[u32]  # [rows]
    n: u32
    k: u32
    n_blocks: u32
    max_touched: u32


@inline
def params_of(a, row):
    """A row's parameters."""
    return cast(a.rows, ptr[GpuSampleRow, Space.CONSTANT]) + row


@inline
def keys_of(a):
    """The candidates' keys."""
    return cast(a.keys, ptr[u64, Space.CONSTANT])


@inline
def row_scores(a, row):
    """Where a row's scores begin."""
    return a.scores + u64(row) * u64(a.n)


@inline
def final_weight(offset, row, table):
    """The weight that is drawn by: 0 for what min-p drops."""
    w: f64 = 1.0
    if row.min_p > 0.0:
        w = select(exp(offset, table) >= row.min_p, w, 0.0)
    # A wave in which min-p keeps nothing has no more to do.
    if w > 0.0:
        w = exp(offset / row.temperature, table)
    return w


@kernel(workgroup=256)
def sample_scores(a: ptr[GpuSampleArgs, Space.CONSTANT]):
    """scores = logits, NaN as −infinity; a workgroup does 1024 of a row."""
    row = u64(workgroup_id(1)) * u64(a.n)
    for part in unroll(0, 1024, 256):
        i = workgroup_id(0) * 1024 + (workitem_id() + part)
        if i < a.n:
            a.scores[row + u64(i)] = ranked(f64(a.logits[row + u64(i)]))


@kernel(workgroup=64)
def sample_adjust(a: ptr[GpuSampleArgs, Space.CONSTANT]):
    """Bias, then penalties, a lane for each touched token; a workgroup does 64 of a row."""
    row = params_of(a, workgroup_id(1))
    i = workgroup_id(0) * 64 + workitem_id()
    if i < row.n_touched:
        t = cast(a.touched, ptr[Touched, Space.CONSTANT]) + (u64(workgroup_id(1)) * u64(a.max_touched) + u64(i))
        scores = row_scores(a, workgroup_id(1))
        s: f64 = ranked(scores[t.token] + t.bias)
        if t.count != 0:
            s = select(s <= 0.0, s * row.repetition, s / row.repetition)
            s = ranked(s - (f64(t.count) * row.frequency + row.presence))
        scores[t.token] = s


@kernel(workgroup=256)
def sample_totals(a: ptr[GpuSampleArgs, Space.CONSTANT]):
    """The sum of a block's weights, for rows that keep more tokens than there are candidates; a block a workgroup.

    They are those of top-p where it drops some, else those that are drawn by.
    """
    weights = shared(f64, SUM_BLOCK)
    row = params_of(a, workgroup_id(1))
    if (row.top_k > a.k) & (row.top_k == a.n):
        scores = row_scores(a, workgroup_id(1))
        top = key_score(keys_of(a)[u64(workgroup_id(1)) * u64(a.k)])
        for at in range(workitem_id(), SUM_BLOCK, 256):
            i = workgroup_id(0) * SUM_BLOCK + at
            w: f64 = 0.0
            if i < a.n:
                offset = below_top(scores[i], top)
                if row.top_p < 1.0:
                    w = exp(offset, a.table)
                else:
                    w = final_weight(offset, row, a.table)
            weights[at] = w
        barrier()
        if workitem_id() == 0:
            total: f64 = 0.0
            for j in range(SUM_BLOCK):
                total += weights[j]
            a.totals[u64(workgroup_id(1)) * u64(a.n_blocks) + u64(workgroup_id(0))] = total

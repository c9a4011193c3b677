"""The end of sampling: from a row's sorted candidates, or from all its scores, to one token. A workgroup a row.

Sums have an order (docs/how/sampling.md), so one lane adds them; everything else is done by all.
"""

from __future__ import annotations

from zinc_rt.kernels.gpu.sampling import GpuSampleArgs, final_weight, keys_of, params_of, row_scores
from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.sampling_math import KEY_OF_NOTHING, below_top, exp, key_score, uniform
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import barrier, minimum, select, shared, target_has, workgroup_id, workitem_id
from zinc_rt.lang.types import Space, f64, i32, ptr, u32, u64
from zinc_rt.numerics import SUM_BLOCK

LANES = 1024
MOST = 1024
"""Candidates of a row, and blocks of its scores."""
RESIDENT_MOST = 256
"""Candidates in a resident program, whose workgroups have as many work-items. It draws from no whole vocabulary."""
CHOSEN = 0
"""Status: there is a token."""
DEGENERATE = 1
"""Status: every score is -infinity."""
UNFINISHED = 2
"""Status: more tokens count than there are candidates; `Sampler` can tell which."""
NO_TOKEN = -1
NOT_LIVE = 0xFFFFFFFF
RANK = 10
"""Bits of a candidate's rank below its id, in one word that is sorted."""
ALMOST = 1.0 - 2.0**-40
"""exp is exact to 2^-52 but not proven to be monotonic: where a weight is so much below a bound, all later ones are."""


@inline
def most():
    """`MOST` or `RESIDENT_MOST`, static."""
    return RESIDENT_MOST if target_has("resident") else MOST


@inline
def answer(a, token, status: int):
    """Write a row's result; all lanes come here."""
    if workitem_id() == 0:
        a.tokens[workgroup_id(0)] = token
        a.status[workgroup_id(0)] = status


@inline
def sort_words(words, size: u32):
    """Bitonic sort of up to 1024 words in LDS, rising; what was written before needs no barrier."""
    width: u32 = 2
    while width <= size:
        distance: u32 = width >> 1
        while distance > 0:
            barrier()
            pair = workitem_id()
            if pair < size >> 1:
                i = pair * 2 - (pair & (distance - 1))
                x = words[i]
                y = words[i + distance]
                if (x > y) == ((i & width) == 0):
                    words[i] = y
                    words[i + distance] = x
            distance >>= 1
        width <<= 1
    barrier()


@inline
def first_above(sums, n: u32, target):
    """The first place of rising sums with more than the target; one lane's work. There is one: the last."""
    low: u32 = 0
    high: u32 = n - 1
    while low < high:
        middle = (low + high) >> 1
        if sums[middle] > target:
            high = middle
        else:
            low = middle + 1
    return low


@inline
def running_sums(sums, n: u32):
    """Each of n numbers becomes the sum of those up to it; one lane's work."""
    run: f64 = 0.0
    for i in range(n):
        run += sums[i]
        sums[i] = run
    return run


@inline
def sum_from_left(values, n: u32):
    """One lane's work."""
    run: f64 = 0.0
    for i in range(n):
        run += values[i]
    return run


@inline
def ranks_to_reach(weights, n: u32, min_p, target):
    """How many of the largest weights it takes to reach the target or to have all that min-p keeps; one lane's work.

    n + 1 where more than these n are needed to know.
    """
    run: f64 = 0.0
    rank: u32 = 0
    count: u32 = n + 1
    while rank < n:
        w = weights[rank]
        run += select(w >= min_p, w, 0.0)
        rank += 1
        if (run >= target) | (w < min_p * ALMOST):
            count = rank
            rank = n
    return count


@inline
def sums_by_block(sums, words, n: u32, whole):
    """As `running_sums`, in blocks: of SUM_BLOCK ids where the candidates stand for the whole vocabulary, else one."""
    base: f64 = 0.0
    run: f64 = 0.0
    block: u32 = 0
    for i in range(n):
        here = select(whole, words[i] >> (RANK + 10), block)
        if here != block:
            base += run
            run = 0.0
            block = here
        run += sums[i]
        sums[i] = base + run
    return base + run


@inline
def sort_by_id(words, ids, n: u32):
    """words, in LDS, gets the first n candidates by rising id: the id and the rank."""
    size: u32 = 1
    while size < n:
        size <<= 1
    me = workitem_id()
    if me < size:
        word: u32 = NOT_LIVE
        if me < n:
            word = (ids[me] << RANK) | me
        words[me] = word
    sort_words(words, size)


@inline
def draw_listed(a, row, sums, live: u32, whole):
    """A draw from the first `live` candidates. whole: they are the best of all tokens, the sums of whose weights
    `totals` has, and no token but them may be drawn only if top-p or min-p turns out to say so. sums: LDS, f64[most()].
    """
    weights = shared(f64, most())  # by rank
    words = shared(u32, most())
    count_ = shared(u32, 1)
    me = workitem_id()
    first = u64(workgroup_id(0)) * u64(a.k)
    keys = keys_of(a) + first
    ids = unchanged(a.ids) + first
    top = key_score(keys[0])
    count: u32 = live
    unknown: u32 = 0
    if row.top_p < 1.0:
        if me < live:
            weights[me] = exp(below_top(key_score(keys[me]), top), a.table)
        if whole:
            barrier()
        else:
            sort_by_id(words, ids, live)
            if me < live:
                sums[me] = weights[words[me] & (most() - 1)]
            barrier()
        if me == 0:
            total: f64 = 0.0
            if whole:
                total = sum_from_left(a.totals + u64(workgroup_id(0)) * u64(a.n_blocks), a.n_blocks)
            else:
                total = sum_from_left(sums, live)
            count_[0] = ranks_to_reach(weights, live, row.min_p, row.top_p * total)
        barrier()
        count = minimum(count_[0], live)
        if (count_[0] > live) & whole:
            unknown = 1
    if unknown != 0:
        answer(a, NO_TOKEN, UNFINISHED)
    else:
        # What top-p drops has the weight 0, which no sum notices: it is left out.
        sort_by_id(words, ids, count)
        if me < count:
            offset = below_top(key_score(keys[words[me] & (most() - 1)]), top)
            sums[me] = final_weight(offset, row, a.table)
        barrier()
        if me == 0:
            total = sums_by_block(sums, words, count, whole)
            at = first_above(sums, count, uniform(row.seed, row.step) * total)
            a.tokens[workgroup_id(0)] = i32(words[at] >> RANK)
            a.status[workgroup_id(0)] = CHOSEN


@inline
def draw_whole(a, row, sums):
    """A draw from all tokens, by the blocks' totals: first the block, then the token in it. sums: LDS, f64[MOST]."""
    found = shared(f64, 2)
    block_ = shared(u32, 1)
    me = workitem_id()
    n_blocks = a.n_blocks
    if me < n_blocks:
        sums[me] = a.totals[u64(workgroup_id(0)) * u64(n_blocks) + u64(me)]
    barrier()
    if me == 0:
        target = uniform(row.seed, row.step) * running_sums(sums, n_blocks)
        block = first_above(sums, n_blocks, target)
        base: f64 = 0.0
        if block > 0:
            base = sums[block - 1]
        found[0] = target
        found[1] = base
        block_[0] = block
    barrier()
    i = block_[0] * SUM_BLOCK + me
    top = key_score(keys_of(a)[u64(workgroup_id(0)) * u64(a.k)])
    w: f64 = 0.0
    if i < a.n:
        w = final_weight(below_top(row_scores(a, workgroup_id(0))[i], top), row, a.table)
    sums[me] = w
    barrier()
    if me == 0:
        base = found[1]
        run: f64 = 0.0
        for j in range(SUM_BLOCK):
            run += sums[j]
            sums[j] = base + run
        a.tokens[workgroup_id(0)] = i32(block_[0] * SUM_BLOCK + first_above(sums, u32(SUM_BLOCK), found[0]))
        a.status[workgroup_id(0)] = CHOSEN


@kernel(workgroup=1024, resident=256)
def sample_draw(a: ptr[GpuSampleArgs, Space.CONSTANT]):
    """tokens[row] and status[row], which is `CHOSEN`, `DEGENERATE` or `UNFINISHED`; else the token is −1."""
    sums = shared(f64, most())
    row = params_of(a, workgroup_id(0))
    first = u64(workgroup_id(0)) * u64(a.k)
    whole = row.top_k > a.k
    if keys_of(a)[first] <= KEY_OF_NOTHING:
        answer(a, NO_TOKEN, DEGENERATE)
    elif row.temperature == 0.0:
        answer(a, i32(unchanged(a.ids)[first]), CHOSEN)
    elif whole & (row.top_k != a.n):
        answer(a, NO_TOKEN, UNFINISHED)
    elif whole & (row.top_p >= 1.0):
        if target_has("resident"):
            answer(a, NO_TOKEN, UNFINISHED)
        else:
            draw_whole(a, row, sums)
    else:
        draw_listed(a, row, sums, minimum(row.top_k, a.k), whole)

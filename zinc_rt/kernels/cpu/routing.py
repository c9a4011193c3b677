"""Choosing experts for rows, and putting rows in the order of their experts."""

from __future__ import annotations

from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, LEAST_ROWS, PANEL_ROWS
from zinc_rt.kernels.cpu.packs import load_some, not_null, store_group, store_some, store_words
from zinc_rt.kernels.cpu.structs import (
    EIGHTH_WORDS,
    EIGHTHS,
    ExpertPackArgs,
    GatherArgs,
    RouteArgs,
    SharedArgs,
    StepRecord,
    TopkArgs,
)
from zinc_rt.kernels.maths import INFINITY, exp, sigmoid, softplus
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    array,
    bitcast,
    iota,
    lanes,
    load,
    maximum,
    reduce_add,
    reduce_max,
    reduce_min,
    regs,
    select,
    splat,
    sqrt,
    static_assert,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, i32, i64, ptr, u32, vec
from zinc_rt.numerics import GROUP, LEAST_EXPERT_WEIGHTS, MIXER_OUT, MIXER_REACH, TREE_LANES

# Order of choices as integers: what was chosen or may not be, then NaN, then all numbers from -infinity on.
CHOSEN = -0x80000000
NAN_KEY = -0x7FFFFFFF


@inline
def choice_key(x):
    """Integers that compare as the choice of experts does, for f32 lanes."""
    bits = bitcast(x + 0.0, vec[i32, lanes(x)])
    key = select(bits < 0, bits ^ 0x7FFFFFFF, bits)
    return select(x == x, key, NAN_KEY)  # noqa: PLR0124  only NaN differs from itself


@inline
def best_of(key: ptr[i32], n: i32, W: int):
    """The place of the greatest of n keys, the first of equal ones. Keys up to the next multiple of W are CHOSEN."""
    best = load(key, lanes=W)
    where: vec[i32, W] = iota(i32, W)
    now: vec[i32, W] = iota(i32, W)
    for at in range(W, n, W):
        now = now + W
        v = load(key, at, lanes=W)
        better = v > best
        best = select(better, v, best)
        where = select(better, now, where)
    return reduce_min(select(best == splat(reduce_max(best), W), where, 0x7FFFFFFF))


@inline
def softmax(x: ptr[f32], n: i32, W: int):
    """x = softmax of n elements. Elements up to the next multiple of TREE_LANES are overwritten."""
    C = TREE_LANES // W
    top: vec[f32, W] = -INFINITY
    for at in range(0, n, W):
        # What pads the last vector must not count: it repeats the first element.
        top = maximum(top, select(splat(n - at, W) > iota(i32, W), load(x, at, lanes=W), splat(x[0], W)))
    most = splat(reduce_max(top), W)
    sums = regs(vec[f32, W], C)
    for at in range(0, n, TREE_LANES):
        for i in unroll(C):
            inside = splat(n - at - i * W, W) > iota(i32, W)
            p = select(inside, exp(load(x, at + i * W, lanes=W) - most), 0.0)
            store(x, p, at + i * W)
            sums[i] = sums[i] + p
    for half in unroll(tuple(h // W for h in (TREE_LANES >> k for k in range(1, 6)) if h >= W)):
        for i in unroll(half):
            sums[i] = sums[i] + sums[i + half]
    total = splat(reduce_add(sums[0]), W)
    for at in range(0, n, W):
        store(x, load(x, at, lanes=W) / total, at)


@inline
def mixed(logits: ptr[f32], key: ptr[i32], near: ptr[f32], n: i32, e: i32, W: int):
    """The softmax of e's logit among those that are near it and were not chosen before. near: scratch."""
    top = splat(logits[e], W)
    for at in range(0, n, W):
        v = load(logits, at, lanes=W)
        takes_part = top - v <= maximum(maximum(v, -v), top) * MIXER_REACH
        free = load(key, at, lanes=W) != CHOSEN
        store(near, select(free, select(takes_part, v, MIXER_OUT), MIXER_OUT), at)
    softmax(near, n, W)
    return near[e]


@inline
def keep_best_groups(choice: ptr[f32], key: ptr[i32], n: i32, groups: i32, used: i32, W: int, MOST: int):
    """CHOSEN for all experts but those of the `used` groups with the largest sums of their two best."""
    score = array(i32, MOST, zero=False)
    size = i32(u32(n) // u32(groups))
    for g in range((groups + (W - 1)) & -W):
        score[g] = CHOSEN
    for g in range(groups):
        first: i32 = g * size
        second: i32 = -1
        for e in range(g * size + 1, (g + 1) * size):
            if key[e] > key[first]:
                second = first
                first = e
            elif second < 0 or key[e] > key[second]:
                second = e
        total: f32 = choice[first]
        if second >= 0:
            total = total + choice[second]
        keys = choice_key(splat(total, 4))
        score[g] = keys[0]
    for _ in range(used):
        score[best_of(score, groups, W)] = CHOSEN
    # What is left is no group of the best; those were marked.
    for g in range(groups):
        if score[g] != CHOSEN:
            for e in range(g * size, (g + 1) * size):
                key[e] = CHOSEN


@kernel
def topk(a: ptr[TopkArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, GATING: str, MOST: int):
    """Units: rows. MOST: experts at the most, a multiple of TREE_LANES."""
    n = a.n_experts
    k = a.k
    probs = array(f32, MOST, zero=False)
    choice = array(f32, MOST, zero=False)
    key = array(i32, MOST, zero=False)
    taken = array(i32, MOST, zero=False)
    some = array(f32, MOST, zero=False)
    won = array(f32, MOST, zero=False)
    for row in range(first, last):
        x = a.logits + i64(row) * i64(n)
        ids = a.ids + i64(row) * i64(k)
        weights = a.weights + i64(row) * i64(k)
        for at in range(0, n, W):
            store(probs, load_some(x, at, n, W), at)
        if GATING == "softmax":
            softmax(probs, n, W)
        elif GATING == "sigmoid":
            for at in range(0, n, W):
                store(probs, sigmoid(load(probs, at, lanes=W)), at)
        elif GATING == "sqrt_softplus":
            for at in range(0, n, W):
                store(probs, sqrt(softplus(load(probs, at, lanes=W))), at)
        else:
            known = ("softmax_chosen", "sigmoid_chosen", "sparse_mixer")
            static_assert(GATING in known, f"gating {GATING} is not known")
        for at in range(0, n, W):
            v = load(probs, at, lanes=W)
            if not_null(a.bias):
                v = v + load_some(a.bias, at, n, W)
            store(choice, v, at)
            store(key, select(splat(n - at, W) > iota(i32, W), choice_key(v), CHOSEN), at)
            store(taken, zeros(vec[i32, W]), at)
        if a.n_groups_used < a.n_groups:
            keep_best_groups(choice, key, n, a.n_groups, a.n_groups_used, W, MOST)
        for i in range(k):
            if not_null(a.table):
                taken[i32(a.table[i64(step.token_ids[row]) * i64(k) + i64(i)])] = 1
            else:
                e = best_of(key, n, W)
                if GATING == "sparse_mixer":
                    won[e] = mixed(probs, key, choice, n, e, W)
                key[e] = CHOSEN
                taken[e] = 1
        j: i32 = 0
        for e in range(n):
            if taken[e] != 0:
                ids[j] = e
                if GATING == "sparse_mixer":
                    some[j] = won[e]
                else:
                    some[j] = probs[e]
                j += 1
        if GATING == "softmax_chosen":
            softmax(some, k, W)
        elif GATING == "sigmoid_chosen":
            for at in range(0, k, W):
                store(some, sigmoid(load(some, at, lanes=W)), at)
        if a.normalise != 0:
            total: f32 = 0.0
            for i in range(k):
                total = total + some[i]
            # A NaN stays one.
            if total < LEAST_EXPERT_WEIGHTS:
                total = LEAST_EXPERT_WEIGHTS
            for i in range(k):
                some[i] = some[i] / total
        for i in range(k):
            w: f32 = some[i] * a.scale
            if not_null(a.expert_scale):
                w = w * a.expert_scale[ids[i]]
            weights[i] = w


@kernel
def route(a: ptr[RouteArgs], step: ptr[StepRecord], first: i32, last: i32):
    """One unit: all rows. The slots of an expert of 16 rows and more are whole blocks."""
    r = a.route
    k = a.k
    pairs = step.n_rows * k
    for e in range(a.n_experts):
        r.index[e] = 0
    for p in range(pairs):
        e = a.ids[p]
        r.index[e] = r.index[e] + 1
    used: i32 = 0
    slot: i32 = 0
    for e in range(a.n_experts):
        n = r.index[e]
        if n > 0:
            r.expert[used] = e
            r.start[used] = slot
            r.count[used] = n
            r.filled[used] = 0
            r.index[e] = used
            used += 1
            slot += n
            if n >= BLOCK_ROWS:
                slot += -n & (BLOCK_ROWS - 1)
    for p in range(pairs):
        u = r.index[a.ids[p]]
        i = r.filled[u]
        r.filled[u] = i + 1
        block: i32 = r.count[u]
        if block >= BLOCK_ROWS:
            block = BLOCK_ROWS
        r.place[p * 3] = r.start[u] + (i & -BLOCK_ROWS)
        r.place[p * 3 + 1] = i & (BLOCK_ROWS - 1)
        r.place[p * 3 + 2] = block
        r.pair[r.start[u] + i] = p
    # Threads take much at first and little at the end, so long jobs stand at the end.
    jobs: i32 = 0
    for long in range(2):
        for u in range(used):
            for at in range(0, r.count[u], PANEL_ROWS):
                more: i32 = 0
                if r.count[u] - at >= BLOCK_ROWS:
                    more = 1
                if more == long:
                    r.job[jobs * 2] = u
                    r.job[jobs * 2 + 1] = at
                    jobs += 1
    r.used[0] = used
    r.used[1] = jobs


@kernel
def gather(a: ptr[GatherArgs], step: ptr[StepRecord], first: i32, last: i32):
    """Units: pairs. A step of one row needs none of it."""
    rows = step.n_rows
    groups = a.pack.n_groups
    wanted = a.slots.sums
    block: i32 = rows
    if block > BLOCK_ROWS:
        block = BLOCK_ROWS
    if rows > 1:
        row: i32 = i32(u32(first) // u32(a.k))
        j: i32 = first - row * a.k
        for p in range(first, last):
            to = a.route.place[p * 3 + 2]
            inside = row & (BLOCK_ROWS - 1)
            source = i64(row - inside) * i64(groups) + i64(inside)
            slot = a.route.place[p * 3 + 1]
            target = i64(a.route.place[p * 3]) * i64(groups) + i64(slot)
            for g in range(groups):
                x = source + i64(g) * i64(block)
                y = target + i64(g) * i64(to)
                if not_null(a.slots.q):
                    q = load(a.pack.q + x * GROUP, lanes=GROUP)
                    store(a.slots.q + y * GROUP, q)
                    if to >= LEAST_ROWS:
                        if not_null(a.slots.words):
                            store_words(a.slots.words + y * GROUP, q)
                    a.slots.d[y] = a.pack.d[x]
                    for i in unroll(EIGHTHS):
                        if wanted & (1 << i) != 0:
                            a.slots.s[a.slots.s_stride * i + y] = a.pack.s[a.pack.s_stride * i + x]
                    if wanted & (1 << EIGHTHS) != 0:
                        words = load(a.pack.s, a.pack.s_stride * EIGHTHS + x * EIGHTH_WORDS, lanes=EIGHTH_WORDS)
                        store(a.slots.s, words, a.slots.s_stride * EIGHTHS + y * EIGHTH_WORDS)
                if not_null(a.slots.f):
                    fx = a.pack.f + ((x - i64(inside)) * GROUP + i64(inside))
                    fy = a.slots.f + ((y - i64(slot)) * GROUP + i64(slot))
                    for i in range(GROUP):
                        fy[i64(i) * i64(to)] = fx[i64(i) * i64(block)]
            j += 1
            if j == a.k:
                j = 0
                row += 1


@kernel
def pack_pairs(a: ptr[ExpertPackArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: pairs. The packed form of f32[pairs, n]."""
    n = a.n
    for p in range(first, last):
        at = a.route.place + p * 3
        for g in range(a.slots.n_groups):
            v = regs(vec[f32, W], GROUP // W)
            for i in unroll(GROUP // W):
                v[i] = load_some(a.x + i64(p) * i64(n), g * GROUP + i * W, n, W)
            store_group(a.slots, v, at[0], at[1], at[2], g, W)


@kernel
def add_shared(a: ptr[SharedArgs], step: ptr[StepRecord], first: i32, last: i32, W: int):
    """Units: rows."""
    n = a.n
    for row in range(first, last):
        offset = i64(row) * i64(n)
        opened: vec[f32, W] = 1.0
        if not_null(a.gate):
            opened = sigmoid(splat(a.gate[row], W))
        for at in range(0, n, W):
            v = load_some(a.shared + offset, at, n, W)
            if not_null(a.gate):
                v = opened * v
            store_some(a.y + offset, load_some(a.routed + offset, at, n, W) + v, at, n, W)

"""The choice of experts from a row's logits, by one wave: probabilities, the best k, their weights."""

from __future__ import annotations

from zinc_rt.kernels.gpu.waves import wave_best, wave_max
from zinc_rt.kernels.maths import INFINITY, exp, sigmoid, softplus
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    bitcast,
    lane_id,
    maximum,
    regs,
    select,
    shared,
    sqrt,
    static_assert,
    unroll,
    wave_reduce_add,
    workgroup_id,
)
from zinc_rt.lang.types import Space, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import LEAST_EXPERT_WEIGHTS, MIXER_OUT, MIXER_REACH, TREE_LANES

MOST_EXPERTS = 512
"""A lane keeps 16 of them in registers."""
MOST_CHOSEN = 32
"""Each lane writes one."""
MOST_GROUPS = 32
"""Each lane adds up one."""


@struct
class GpuRouterArgs:
    """logits: f32[rows, experts]; bias, expert_scale: f32[experts], with BIAS and SCALED; ids, weights: [rows, k], by
    increasing id. table: f32[n_vocab, k], with BY_TOKEN: the experts of each token.
    """

    logits: ptr[f32]
    bias: ptr[f32]
    expert_scale: ptr[f32]
    ids: ptr[i32]
    weights: ptr[f32]
    scale: f32
    token_ids: ptr[i32]
    table: ptr[f32]


@inline
def sortable(x):
    """A number of 32 bits that orders as f32 does, zeros alike; 1 for NaN, above the 0 of what is gone."""
    bits = bitcast(x + 0.0, u32)
    key = select(bits >> 31 == 1, ~bits, bits | 0x80000000)
    return select(x == x, key, key - key + 1)  # noqa: PLR0124 (a NaN is not itself)


@inline
def softmax_of(values, SLOTS: int, E: int):
    """The softmax of what the lanes hold: lane l has elements l, l + 32, … below E."""
    top: f32 = -INFINITY
    for i in unroll(SLOTS):
        live = lane_id() + i * TREE_LANES < E
        top = maximum(top, select(live, values[i], -INFINITY))
    top = wave_max(top)
    total: f32 = 0.0
    for i in unroll(SLOTS):
        live = lane_id() + i * TREE_LANES < E
        e = exp(select(live, values[i] - top, 0.0))
        values[i] = e
        total += select(live, e, 0.0)
    total = wave_reduce_add(total)
    for i in unroll(SLOTS):
        values[i] = values[i] / total


@inline
def probabilities(values, E: int, GATING: str):
    """What experts are chosen by and weighted with, in place of their logits."""
    SLOTS = -(-E // TREE_LANES)
    if GATING == "softmax":
        softmax_of(values, SLOTS, E)
    elif GATING == "sigmoid":
        for i in unroll(SLOTS):
            values[i] = sigmoid(values[i])
    elif GATING == "sqrt_softplus":
        for i in unroll(SLOTS):
            values[i] = sqrt(softplus(values[i]))
    else:
        known = ("softmax_chosen", "sigmoid_chosen", "sparse_mixer")
        static_assert(GATING in known, f"the router knows no gating {GATING}")


@inline
def sort_keys(values, bias: ptr[f32], keys, E: int, BIAS: bool):
    """keys[i]: by what the lane's expert i is chosen, 0 where there is none. values: probabilities."""
    for i in unroll(-(-E // TREE_LANES)):
        at = lane_id() + i * TREE_LANES
        live = at < E
        value: f32 = values[i]
        if BIAS:
            value = value + bias[select(live, at, at - at)]
        keys[i] = select(live, sortable(value), 0)


@inline
def best_two(values, bias: ptr[f32], E: int, GROUPS: int, BIAS: bool):
    """In lane g the sum of the two largest of group g's experts (the one, in groups of one)."""
    SLOTS = -(-E // TREE_LANES)
    SIZE = E // GROUPS
    choice = shared(f32, SLOTS * TREE_LANES)
    for i in unroll(SLOTS):
        at = lane_id() + i * TREE_LANES
        value: f32 = values[i]
        if BIAS:
            value = value + bias[select(at < E, at, at - at)]
        choice[at] = value
    barrier()
    group = select(lane_id() < GROUPS, lane_id(), lane_id() - lane_id())
    first: f32 = choice[group * SIZE]
    if SIZE == 1:
        return first
    second: f32 = choice[group * SIZE + 1]
    swap = sortable(second) > sortable(first)
    top: f32 = select(swap, second, first)
    next_: f32 = select(swap, first, second)
    for i in range(u32(2), u32(SIZE)):
        x = choice[group * SIZE + i]
        key = sortable(x)
        above = key > sortable(top)
        next_ = select(above, top, select(key > sortable(next_), x, next_))
        top = select(above, x, top)
    return top + next_


@inline
def leave_groups(values, bias: ptr[f32], keys, E: int, GROUPS: int, USED: int, BIAS: bool):
    """Takes the keys of experts below those of the best groups: they are chosen only when no others are left."""
    score = best_two(values, bias, E, GROUPS, BIAS)
    key: u32 = select(lane_id() < GROUPS, sortable(score), 0)
    used: u32 = 0
    for turn in range(u32(0), u32(USED)):
        _, best = wave_best(key, lane_id())
        used = used | (u32(1) << best)
        key = select(lane_id() == best, 0, key)
    for i in unroll(-(-E // TREE_LANES)):
        group = (lane_id() + i * TREE_LANES) // (E // GROUPS)
        keys[i] = select((used >> (group & 31)) & 1 == 1, keys[i], 0)


@inline
def best_experts(keys, E: int, K: int):
    """Lane i gets the expert of the i-th greatest key, the lowest id of equal ones; lanes beyond K anything."""
    SLOTS = -(-E // TREE_LANES)
    mine: u32 = 0
    for turn in range(u32(0), u32(K)):
        best: u32 = keys[0]
        place: u32 = lane_id()
        for i in unroll(1, SLOTS):
            take = keys[i] > best
            best = select(take, keys[i], best)
            place = select(take, lane_id() + i * TREE_LANES, place)
        _, at = wave_best(best, place)
        for i in unroll(SLOTS):
            keys[i] = select(lane_id() + i * TREE_LANES == at, 0, keys[i])
        mine = select(lane_id() == turn, at, mine)
    return mine


@inline
def ascending(mine, K: int):
    """Lane i's expert among the K of the lanes by increasing id; lanes beyond K get the first one."""
    unsorted = shared(u32, TREE_LANES)
    ordered = shared(u32, TREE_LANES)
    unsorted[lane_id()] = mine
    barrier()
    rank: u32 = 0
    for i in range(u32(0), u32(K)):
        rank += u32(unsorted[i] < mine)
    if lane_id() < K:
        ordered[rank] = mine
    barrier()
    return ordered[select(lane_id() < K, lane_id(), lane_id() - lane_id())]


@inline
def mixed(values, numbers, mine, expert, E: int, K: int):
    """The softmax of the logit of each lane's expert among those near it that were not chosen before.

    values, numbers: the logits, in registers and shared. mine: lane i has the i-th choice. expert: those by id.
    """
    SLOTS = -(-E // TREE_LANES)
    order = shared(u32, TREE_LANES)
    weights = shared(f32, SLOTS * TREE_LANES)
    order[lane_id()] = mine
    barrier()
    gone = regs(u32, SLOTS)
    for i in unroll(SLOTS):
        gone[i] = 0
    out: f32 = 0.0
    near = regs(f32, SLOTS)
    for turn in range(u32(0), u32(K)):
        chosen = order[turn]
        top = numbers[chosen]
        for i in unroll(SLOTS):
            v = values[i]
            takes_part = top - v <= maximum(maximum(v, -v), top) * MIXER_REACH
            near[i] = select(gone[i] == 0, select(takes_part, v, MIXER_OUT), MIXER_OUT)
        softmax_of(near, SLOTS, E)
        for i in unroll(SLOTS):
            weights[lane_id() + i * TREE_LANES] = near[i]
        barrier()
        out = select(expert == chosen, weights[chosen], out)
        barrier()
        for i in unroll(SLOTS):
            gone[i] = select(lane_id() + i * TREE_LANES == chosen, 1, gone[i])
    return out


@inline
def divided(weight, K: int):
    """Each lane's weight by the sum of the K of them, which is no less than the constant."""
    parts = shared(f32, TREE_LANES)
    parts[lane_id()] = weight
    barrier()
    total: f32 = 0.0
    for i in range(u32(0), u32(K)):
        total += parts[i]
    return weight / maximum(total, LEAST_EXPERT_WEIGHTS)


@inline
def choose(
    a, row: u64, E: int, K: int, GATING: str, NORMALISE: bool, BIAS: bool, SCALED: bool, GROUPS: int, USED: int,
    BY_TOKEN: bool,
):  # fmt: skip
    """The experts of one row, by one wave, which is all of its workgroup that runs this."""
    static_assert(
        E <= MOST_EXPERTS and K <= MOST_CHOSEN and K <= E and GROUPS <= MOST_GROUPS,
        f"{K} of {E} experts in {GROUPS} groups: the router does {MOST_CHOSEN} of {MOST_EXPERTS} in {MOST_GROUPS}",
    )
    SLOTS = -(-E // TREE_LANES)
    logits = a.logits + row * E
    values = regs(f32, SLOTS)
    for i in unroll(SLOTS):
        at = lane_id() + i * TREE_LANES
        values[i] = logits[select(at < E, at, at - at)]
    probabilities(values, E, GATING)
    numbers = shared(f32, SLOTS * TREE_LANES)
    for i in unroll(SLOTS):
        numbers[lane_id() + i * TREE_LANES] = values[i]
    keys = regs(u32, SLOTS)
    mine: u32 = 0
    if BY_TOKEN:
        token = u32(a.token_ids[row])
        mine = u32(a.table[u64(token) * K + u64(select(lane_id() < K, lane_id(), lane_id() - lane_id()))])
    else:
        sort_keys(values, a.bias, keys, E, BIAS)
        if USED < GROUPS:
            leave_groups(values, a.bias, keys, E, GROUPS, USED, BIAS)
        mine = best_experts(keys, E, K)
    expert = ascending(mine, K)
    weight: f32 = numbers[expert]
    if GATING == "sparse_mixer":
        weight = mixed(values, numbers, mine, expert, E, K)
    elif GATING == "softmax_chosen":
        one = regs(f32, 1)
        one[0] = weight
        softmax_of(one, 1, K)
        weight = one[0]
    elif GATING == "sigmoid_chosen":
        weight = sigmoid(weight)
    if NORMALISE:
        weight = divided(weight, K)
    weight = weight * a.scale
    if SCALED:
        weight = weight * a.expert_scale[expert]
    if lane_id() < K:
        out = row * K + u64(lane_id())
        a.ids[out] = i32(expert)
        a.weights[out] = weight


@kernel(workgroup=32)
def choose_experts(
    a: ptr[GpuRouterArgs, Space.CONSTANT], E: int, K: int, GATING: str, NORMALISE: bool, BIAS: bool, SCALED: bool,
    GROUPS: int = 1, USED: int = 1, BY_TOKEN: bool = False,
):  # fmt: skip
    """ids and weights of K of E experts; a workgroup a row."""
    choose(a, u64(workgroup_id(0)), E, K, GATING, NORMALISE, BIAS, SCALED, GROUPS, USED, BY_TOKEN)

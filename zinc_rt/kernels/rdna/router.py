"""The choice of experts from a row's logits, by one wave: probabilities, the best k, their weights."""

from __future__ import annotations

from zinc_rt.kernels.maths import exp, sigmoid
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import (
    barrier,
    bitcast,
    lane_id,
    maximum,
    regs,
    select,
    shared,
    static_assert,
    unroll,
    wave_reduce_add,
    wave_shuffle_xor,
    workgroup_id,
)
from zinc_rt.lang.types import Space, f32, i32, ptr, struct, u32, u64
from zinc_rt.numerics import TREE_LANES

INFINITY = float("inf")
MOST_EXPERTS = 512
"""A lane keeps 16 of them in registers."""
MOST_CHOSEN = 32
"""Each lane writes one."""
GATINGS = ("softmax", "sigmoid", "softmax_chosen")


@struct
class GpuRouterArgs:
    """logits: f32[rows, experts]; bias: f32[experts], with BIAS; ids, weights: [rows, k], by increasing id."""

    logits: ptr[f32]
    bias: ptr[f32]
    ids: ptr[i32]
    weights: ptr[f32]
    scale: f32
    least: f32  # below which the sum of weights does not fall before it divides them


@inline
def sortable(x):
    """A number of 32 bits that orders as f32 does, zeros alike; 1 for NaN, above the 0 of what is gone."""
    bits = bitcast(x + 0.0, u32)
    key = select(bits >> 31 == 1, ~bits, bits | 0x80000000)
    return select(x == x, key, key - key + 1)  # noqa: PLR0124 (a NaN is not itself)


@inline
def wave_max(x):
    """The greatest of 32 lanes; NaN where any is."""
    top: f32 = x
    for distance in unroll((16, 8, 4, 2, 1)):
        top = maximum(top, wave_shuffle_xor(top, distance))
    return top


@inline
def wave_first(key, at):
    """The place of the greatest key of 32 lanes, the least place of equal ones; every lane gets it."""
    top: u32 = key
    place: u32 = at
    for distance in unroll((16, 8, 4, 2, 1)):
        other = wave_shuffle_xor(top, distance)
        where = wave_shuffle_xor(place, distance)
        take = (other > top) | ((other == top) & (where < place))
        top = select(take, other, top)
        place = select(take, where, place)
    return place


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
    else:
        static_assert(GATING == "softmax_chosen", f"the router knows no gating {GATING}")


@inline
def chosen_by(values, bias: ptr[f32], kept, E: int, K: int, BIAS: bool):
    """The place of this lane's expert: lane i gets the i-th best, lanes beyond K anything. kept: of each slot, whether
    its expert may be chosen.
    """
    SLOTS = -(-E // TREE_LANES)
    keys = regs(u32, SLOTS)
    for i in unroll(SLOTS):
        at = lane_id() + i * TREE_LANES
        live = at < E
        value: f32 = values[i]
        if BIAS:
            value = value + bias[select(live, at, at - at)]
        keys[i] = select(live & kept[i], sortable(value), 0)
    mine: u32 = 0
    for turn in range(u32(0), u32(K)):
        best: u32 = keys[0]
        place: u32 = lane_id()
        for i in unroll(1, SLOTS):
            take = keys[i] > best
            best = select(take, keys[i], best)
            place = select(take, lane_id() + i * TREE_LANES, place)
        at = wave_first(best, place)
        for i in unroll(SLOTS):
            keys[i] = select(lane_id() + i * TREE_LANES == at, 0, keys[i])
        mine = select(lane_id() == turn, at, mine)
    return mine


@inline
def choose(
    logits: ptr[f32], bias: ptr[f32], ids: ptr[i32], weights: ptr[f32], scale: f32, least: f32, E: int, K: int,
    GATING: str, NORMALISE: bool, BIAS: bool,
):  # fmt: skip
    """The experts of one row, by one wave, all lanes active."""
    static_assert(E <= MOST_EXPERTS and K <= MOST_CHOSEN and K <= E, f"{K} of {E} experts: the router does 32 of 512")
    SLOTS = -(-E // TREE_LANES)
    values = regs(f32, SLOTS)
    for i in unroll(SLOTS):
        at = lane_id() + i * TREE_LANES
        values[i] = logits[select(at < E, at, at - at)]
    probabilities(values, E, GATING)
    numbers = shared(f32, SLOTS * TREE_LANES)
    for i in unroll(SLOTS):
        numbers[lane_id() + i * TREE_LANES] = values[i]
    kept = tuple(lane_id() < TREE_LANES for i in range(SLOTS))
    mine = chosen_by(values, bias, kept, E, K, BIAS)
    # Lane i's expert goes to the place that its id has among the chosen ones.
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
    here = select(lane_id() < K, lane_id(), lane_id() - lane_id())
    expert = ordered[here]
    weight: f32 = numbers[expert]
    if GATING == "softmax_chosen":
        one = regs(f32, 1)
        one[0] = weight
        softmax_of(one, 1, K)
        weight = one[0]
    if NORMALISE:
        parts = shared(f32, TREE_LANES)
        parts[lane_id()] = weight
        barrier()
        total: f32 = 0.0
        for i in range(u32(0), u32(K)):
            total += parts[i]
        weight = weight / maximum(total, least)
    if lane_id() < K:
        ids[lane_id()] = i32(expert)
        weights[lane_id()] = weight * scale


@kernel(workgroup=32)
def choose_experts(
    a: ptr[GpuRouterArgs, Space.CONSTANT], E: int, K: int, GATING: str, NORMALISE: bool, BIAS: bool
):  # fmt: skip
    """ids and weights of K of E experts; a workgroup a row."""
    row = u64(workgroup_id(0))
    choose(
        a.logits + row * E, a.bias, a.ids + row * K, a.weights + row * K, a.scale, a.least, E, K, GATING, NORMALISE,
        BIAS,
    )  # fmt: skip

"""The reference's mixture of experts against plain Python in exact arithmetic, and its wrong variants."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.kernels import exact, oracle
from tests.kernels.material import T, packed_rows
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import DEFINITIONS
from zinc_rt.kernels.reference.matmul import Weight, weights_of
from zinc_rt.kernels.reference.routing import choose_experts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.routed import MAX_EXPERTS, MAX_USED, Routing

LEAST = 6.103515625e-05


def better(a: tuple[float, int], b: tuple[float, int]) -> bool:
    """Whether (value, place) a goes before b."""
    if math.isnan(a[0]) != math.isnan(b[0]):
        return math.isnan(b[0])
    if math.isnan(a[0]) or a[0] == b[0]:
        return a[1] < b[1]
    return a[0] > b[0]


def best(values: list[float], places: list[int], n: int) -> list[int]:
    """The places of the n best, one after another."""
    left, found = list(places), []
    for _ in range(n):
        top = left[0]
        for place in left[1:]:
            if better((values[place], place), (values[top], top)):
                top = place
        left.remove(top)
        found.append(top)
    return found


def near_softmax(logits: list[float], gone: list[int], e: int) -> float:
    """The weight of a sparse mixer: e's softmax among the logits near it, without those chosen before."""
    top, reach = logits[e], float(np.float32(0.02))
    left = []
    for place, x in enumerate(logits):
        most = x if x >= -x else -x
        most = most if most >= top else top
        near = exact.sub(top, x) <= exact.mul(most, reach)
        left.append(x if near and place not in gone else float(np.float32(-1e30)))
    return oracle.softmax(left)[e]


def chosen(
    logits: list[float], k: int, *, gating: str = "softmax", bias: list[float] | None = None,
    expert_scale: list[float] | None = None, normalise: bool = False, scale: float = 1.0, n_groups: int = 1,
    n_groups_used: int = 1,
) -> tuple[list[int], list[float]]:  # fmt: skip
    """What a row chooses."""
    n = len(logits)
    if gating == "softmax":
        probs = oracle.softmax(logits)
    else:
        probs = [exact.sigmoid(x) for x in logits] if gating == "sigmoid" else list(logits)
    choice = probs if bias is None else [exact.add(p, b) for p, b in zip(probs, bias, strict=True)]
    size, allowed = n // n_groups, list(range(n))
    if n_groups_used < n_groups:
        scores = []
        for g in range(n_groups):
            two = best(choice, list(range(g * size, (g + 1) * size)), min(2, size))
            scores.append(choice[two[0]] if size == 1 else exact.add(choice[two[0]], choice[two[1]]))
        groups = best(scores, list(range(n_groups)), n_groups_used)
        allowed = [e for e in allowed if e // size in groups]
    order = best(choice, allowed, k)
    ids = sorted(order)
    weights = [probs[e] for e in ids]
    if gating == "sparse_mixer":
        weights = [near_softmax(logits, order[: order.index(e)], e) for e in ids]
    if gating == "softmax_chosen":
        weights = oracle.softmax(weights)
    if normalise:
        total = 0.0
        for w in weights:
            total = exact.add(total, w)
        weights = [exact.div(w, LEAST if total < LEAST else total) for w in weights]
    weights = [exact.mul(w, float(np.float32(scale))) for w in weights]
    if expert_scale is not None:
        weights = [exact.mul(w, expert_scale[e]) for w, e in zip(weights, ids, strict=True)]
    return ids, weights


CASES: list[tuple[int, dict[str, Any], bool, bool]] = [
    (40, {"k": 6, "normalise": True}, False, False),
    (7, {"k": 7}, False, True),
    (12, {"k": 1, "gating": "sigmoid", "scale": 2.5}, True, False),
    (24, {"k": 5, "gating": "sigmoid", "normalise": True, "n_groups": 6, "n_groups_used": 2}, True, True),
    (6, {"k": 2, "n_groups": 6, "n_groups_used": 3}, False, False),
    (33, {"k": 4, "gating": "softmax_chosen"}, False, False),
    (16, {"k": 2, "gating": "sparse_mixer"}, False, False),
]


def rows_of_logits(rng: np.random.Generator, n: int) -> np.ndarray:
    """Ordinary numbers, ties, zeros of both signs, and what is no number."""
    rows = [
        rng.standard_normal(n) * 3,
        rng.integers(-1, 2, n),
        rng.choice([0.0, -0.0], n),
        rng.standard_normal(n) * 90,
        np.where(rng.random(n) < 0.2, np.nan, rng.standard_normal(n)),
        np.full(n, np.nan),
        np.where(rng.random(n) < 0.3, rng.choice([np.inf, -np.inf], n), rng.integers(0, 2, n)),
        np.full(n, -np.inf),
    ]
    return np.asarray(rows, np.float32)


@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c[1].get('gating', 'softmax')}-{c[0]}")
def test_choice(case: tuple[int, dict[str, Any], bool, bool]) -> None:
    n, attrs, biased, scaled = case
    rng = np.random.default_rng(n)
    logits = rows_of_logits(rng, n)
    bias = (rng.integers(-2, 3, n) / 4).astype(np.float32) if biased else None
    scales = rng.standard_normal(n).astype(np.float32) if scaled else None
    ids, weights = choose_experts(logits, bias=bias, expert_scale=scales, **attrs)
    for row, some in enumerate(logits):
        want = chosen(
            oracle.floats(some),
            bias=None if bias is None else oracle.floats(bias),
            expert_scale=None if scales is None else oracle.floats(scales),
            **attrs,
        )
        assert ids[row].tolist() == want[0], row
        oracle.same_bits(weights[row], want[1])


@pytest.mark.parametrize(
    "wrong",
    [{"normalise": False}, {"scale": 1.0}, {"bias": None}, {"gating": "softmax"}, {"n_groups_used": 6}, {"k": 4}],
    ids=str,
)
def test_every_attribute_matters(wrong: dict[str, Any]) -> None:
    rng = np.random.default_rng(5)
    logits, bias = rng.standard_normal((20, 24)).astype(np.float32), rng.standard_normal(24).astype(np.float32)
    right: dict[str, Any] = {
        "k": 5,
        "gating": "sigmoid",
        "normalise": True,
        "scale": 1.5,
        "n_groups": 6,
        "n_groups_used": 2,
        "bias": bias,
    }
    ids, weights = choose_experts(logits, **right)
    others, other_weights = choose_experts(logits, **{**right, **wrong})
    assert not (np.array_equal(ids, others) and np.array_equal(weights, other_weights))


def run(op: Op, inputs: list[Any], *shapes: tuple[int, ...], **attrs: Any) -> list[np.ndarray]:
    """A node on the reference kernel."""
    definition = DEFINITIONS[op]
    signature = definition.signature_of(attrs)
    assert signature is not None
    outputs = [np.zeros(shape, np.float32) for shape in shapes]
    operands = SimpleNamespace(name="n", attrs=signature.with_defaults(attrs), inputs=inputs, outputs=outputs)
    definition.reference(operands)
    return outputs


def stack(kind: GGMLType, rng: np.random.Generator, e: int, n_out: int, n_in: int) -> tuple[list[Weight], np.ndarray]:
    raw = packed_rows(kind, rng, e * n_out, n_in)
    return weights_of(kind, raw, e), raw.reshape(e, n_out, -1)


def test_gate_up_and_down() -> None:
    """Every element from the row's own experts, in increasing id, with one fused step each."""
    rng = np.random.default_rng(6)
    e, k, f, n, r = 5, 3, 32, 64, 4
    x = rng.standard_normal((r, n)).astype(np.float32)
    ids = np.sort([rng.permutation(e)[:k] for _ in range(r)], axis=1).astype(np.int32)
    weights = rng.random((r, k), np.float32)
    (gate, gate_raw), (up, up_raw), (down, down_raw) = (
        stack(kind, rng, e, *shape) for kind, shape in ((T.Q4_0, (f, n)), (T.Q8_0, (f, n)), (T.Q5_1, (n, f)))
    )
    biases = [rng.standard_normal((e, m)).astype(np.float32) for m in (f, f, n)]
    gated, upped = run(Op.MOE_GATE_UP, [x, ids, gate, up, *biases[:2]], (r, k * f), (r, k * f))
    act = rng.standard_normal((r, k * f)).astype(np.float32)
    (y,) = run(Op.MOE_DOWN_ACC, [act, ids, weights, down, biases[2]], (r, n))
    for row in range(r):
        for j, expert in enumerate(ids[row]):
            for kind, raw, bias, got in ((T.Q4_0, gate_raw, biases[0], gated), (T.Q8_0, up_raw, biases[1], upped)):
                dots = [oracle.quant_dot(kind, w[None], oracle.floats(x[row])) for w in raw[expert]]
                want = [exact.add(d, b) for d, b in zip(dots, oracle.floats(bias[expert]), strict=True)]
                oracle.same_bits(got[row, j * f : (j + 1) * f], want)
        sums = [0.0] * n
        for j, expert in enumerate(ids[row]):
            some = oracle.floats(act[row, j * f : (j + 1) * f])
            for i in range(n):
                v = exact.add(oracle.quant_dot(T.Q5_1, down_raw[expert, i][None], some), float(biases[2][expert, i]))
                sums[i] = exact.fma(float(weights[row, j]), v, sums[i])
        oracle.same_bits(y[row], sums)


def test_shared_expert() -> None:
    rng = np.random.default_rng(7)
    routed, shared = rng.standard_normal((2, 3, 8)).astype(np.float32)
    gate = np.float32([[0.5], [-3], [40]])
    (plain,) = run(Op.SHARED_EXPERT, [routed, shared], (3, 8))
    (opened,) = run(Op.SHARED_EXPERT, [routed, shared, gate], (3, 8))
    for row in range(3):
        a, b, g = oracle.floats(routed[row]), oracle.floats(shared[row]), exact.sigmoid(float(gate[row, 0]))
        oracle.same_bits(plain[row], [exact.add(x, y) for x, y in zip(a, b, strict=True)])
        oracle.same_bits(opened[row], [exact.add(x, exact.mul(g, y)) for x, y in zip(a, b, strict=True)])


@pytest.mark.parametrize(
    ("counts", "message"),
    [
        ({"n_experts": 8, "n_used": 9}, "expert_used_count is 9, it must be between 1 and .* 8"),
        ({"n_experts": 8, "n_used": 0}, "expert_used_count is 0"),
        ({"n_experts": 0, "n_used": 0}, "expert_count, which is 0"),
        ({"n_experts": 8, "n_used": 2, "n_groups": 3}, "expert_group_count is 3, it must divide .* 8"),
        (
            {"n_experts": 8, "n_used": 3, "n_groups": 4},
            "3 experts cannot come from 1 of 4 groups of 2",
        ),
        ({"n_experts": 8, "n_used": 2, "n_groups": 2, "n_groups_used": 3}, "expert_group_used_count is 3"),
        ({"n_experts": MAX_EXPERTS + 1, "n_used": 2}, "2 of 1025 experts .* at most 64 of 1024"),
        ({"n_experts": 128, "n_used": MAX_USED + 1}, "65 of 128 experts"),
    ],
)
def test_counts_out_of_range(counts: dict[str, int], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        Routing(**counts)

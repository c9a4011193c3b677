"""The kernels that read a matrix row by row: embed, matvec, lm_head and the expert router."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gguf.judge import dequantized
from tests.kernels import oracle
from tests.kernels.exact import add
from tests.kernels.material import FLOATS, QUANTISED, activations, float_rows, packed_rows
from tests.kernels.oracle import same_bits
from zinc_rt import kernels
from zinc_rt.gguf import GGMLType, GGUFError, UnsupportedTensorType
from zinc_rt.kernels import RoutingRule
from zinc_rt.seed.kernels.errors import EmptyInput, InvalidTopK, ShapeMismatch, TokenOutOfRange, TooManyExperts

every = pytest.mark.parametrize("kind", [*FLOATS, *QUANTISED], ids=lambda t: t.name)
N_IN, N_ROWS = 256, 6


def matrix(kind: GGMLType, seed: int = 1, n_rows: int = N_ROWS) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if kind.quantized:
        return packed_rows(kind, rng, n_rows, N_IN)
    return float_rows(kind, activations(rng, n_rows, N_IN))


def vector(seed: int = 2) -> np.ndarray:
    return activations(np.random.default_rng(seed), 1, N_IN)[0]


def products(kind: GGMLType, raw: np.ndarray, x: np.ndarray) -> list[float]:
    if kind.quantized:
        return [oracle.quant_dot(kind, row, x.tolist()) for row in raw]
    widened = dequantized(kind, raw).astype(np.float32)
    return [oracle.float_dot(row, x.tolist()) for row in widened.tolist()]


def scratch() -> np.ndarray:
    return np.zeros(N_IN, np.float32)


@every
def test_embed(kind: GGMLType) -> None:
    raw, out = matrix(kind), np.empty(N_IN, np.float32)
    want = dequantized(kind, raw)
    for token in (0, 3, N_ROWS - 1):
        kernels.embed(raw.tobytes(), kind, token, N_IN, N_ROWS, out)
        same_bits(out, want[token].astype(np.float32))


@every
def test_matvec_and_lm_head(kind: GGMLType) -> None:
    raw, x = matrix(kind), vector()
    want = products(kind, raw, x)
    out = np.full(N_ROWS, 5.0, np.float32)
    kernels.matvec(raw, kind, x, scratch(), out)
    same_bits(out, want)
    kernels.matvec(raw.tobytes(), kind, x, scratch(), out, accumulate=True)
    same_bits(out, [add(w, w) for w in want])
    logits = np.empty(N_ROWS, np.float32)
    kernels.lm_head(memoryview(raw.tobytes()), kind, x, scratch(), logits)
    same_bits(logits, want)
    few = np.empty(2, np.float32)
    kernels.lm_head(raw, kind, x, scratch(), few)  # fewer logits: the first rows
    same_bits(few, want[:2])


@pytest.mark.filterwarnings("error")
def test_accumulation_overflows_to_infinity() -> None:
    out = np.float32([3e38])
    kernels.matvec(np.float32([[1.0]]).view(np.uint8), GGMLType.F32, [3e38], np.zeros(1, np.float32), out, True)
    assert out[0] == np.inf


def test_odd_float_rows() -> None:
    w, x = np.float32([[1.0, 2.0, 3.0], [-1.0, 0.5, 0.25]]), np.float32([4.0, 5.0, 6.0])
    out = np.empty(2, np.float32)
    kernels.matvec(w.view(np.uint8), GGMLType.F32, x, np.zeros(3, np.float32), out)
    assert out.tolist() == [32.0, 0.0]


def test_embed_errors() -> None:
    raw, out = matrix(GGMLType.Q8_0), np.zeros(N_IN, np.float32)
    for token in (-1, N_ROWS, 1 << 40):
        with pytest.raises(TokenOutOfRange, match=f"token id {token} is outside the vocabulary of {N_ROWS}"):
            kernels.embed(raw, GGMLType.Q8_0, token, N_IN, N_ROWS, out)
    with pytest.raises(ShapeMismatch, match="output has 255"):
        kernels.embed(raw, GGMLType.Q8_0, 0, N_IN, N_ROWS, out[:-1])
    with pytest.raises(ShapeMismatch, match="7 Q8_0 rows of 256 need 1904 bytes, got 1632"):
        kernels.embed(raw, GGMLType.Q8_0, 0, N_IN, N_ROWS + 1, out)
    with pytest.raises(UnsupportedTensorType, match="Q8_K"):
        kernels.embed(bytes(292), GGMLType.Q8_K, 0, N_IN, 1, out)
    assert not out.any()


@pytest.mark.parametrize("name", ["matvec", "lm_head"])
def test_projection_errors(name: str) -> None:
    kernel, raw, out = getattr(kernels, name), matrix(GGMLType.Q8_0), np.zeros(N_ROWS, np.float32)
    with pytest.raises(EmptyInput, match=f"{name}: .* is empty"):
        kernel(raw, GGMLType.Q8_0, [], scratch()[:0], out)
    for size in (N_IN - 1, N_IN + 1):
        with pytest.raises(ShapeMismatch, match=f"row_scratch has {size} elements, 256 are needed"):
            kernel(raw, GGMLType.Q8_0, vector(), np.zeros(size, np.float32), out)
    with pytest.raises(ShapeMismatch, match="7 Q8_0 rows"):
        kernel(raw, GGMLType.Q8_0, vector(), scratch(), np.zeros(N_ROWS + 1, np.float32))
    with pytest.raises(GGUFError, match="33 elements"):
        kernel(raw, GGMLType.Q8_0, np.zeros(33), np.zeros(33, np.float32), out)
    with pytest.raises(UnsupportedTensorType, match="Q8_K"):
        kernel(bytes(292 * N_ROWS), GGMLType.Q8_K, vector(), scratch(), out)
    assert not out.any()


# The router.


def route(
    logits: list[float], k: int, rule: RoutingRule = RoutingRule.softmax_all
) -> tuple[list[int], np.ndarray, np.ndarray]:
    """Route with these logits: a one-column F32 matrix times 1."""
    w = np.float32(logits)
    got, ids, weights = np.zeros(len(w), np.float32), np.full(k, -1, np.int32), np.zeros(k, np.float32)
    kernels.moe_gate_topk(w.tobytes(), GGMLType.F32, [1.0], np.zeros(1, np.float32), got, k, ids, weights, rule)
    same_bits(got, w + np.float32(0.0))
    return ids.tolist(), weights, got


def test_the_table_of_the_kernel_pages() -> None:
    ids, weights, _ = route([1.0, -5.0, 3.0], 2, RoutingRule.softmax_selected)
    assert ids == [2, 0]
    np.testing.assert_allclose(weights, [0.880797, 0.119203], atol=5e-7)


@pytest.mark.parametrize("rule", list(RoutingRule))
def test_routing_bit_for_bit(rule: RoutingRule) -> None:
    rng = np.random.default_rng(3)
    for n, k in ((1, 1), (8, 2), (60, 4), (256, 256)):
        logits = (rng.standard_normal(n) * 4).astype(np.float32)
        ids, weights, _ = route(logits.tolist(), k, rule)
        want = sorted(range(n), key=lambda i: (-float(logits[i]), i))[:k]
        assert ids == want
        if rule is RoutingRule.softmax_all:
            everyone = oracle.softmax(logits.tolist())
            same_bits(weights, [everyone[i] for i in want])
        else:
            same_bits(weights, oracle.softmax([float(logits[i]) for i in want]))


def test_ties_and_nan() -> None:
    assert route([2.0, 2.0, 2.0], 2)[0] == [0, 1]
    assert route([1.0, 2.0, 1.0, 2.0], 3)[0] == [1, 3, 0]
    assert route([np.nan, -np.inf, 1.0, np.nan], 3)[0] == [2, 1, 0]
    np.testing.assert_array_equal(route([2.0, 2.0], 2, RoutingRule.softmax_selected)[1], [0.5, 0.5])


def test_routing_through_a_quantised_gate() -> None:
    raw, x = matrix(GGMLType.Q8_0, 4, 16), vector(5)
    logits, ids, weights = np.empty(16, np.float32), np.empty(3, np.int64), np.empty(3, np.float32)
    kernels.moe_gate_topk(raw, GGMLType.Q8_0, x, scratch(), logits, 3, ids, weights)
    want = products(GGMLType.Q8_0, raw, x)
    same_bits(logits, want)
    assert ids.tolist() == sorted(range(16), key=lambda i: -want[i])[:3]


def test_router_errors() -> None:
    def call(
        n: int = 4, k: int = 2, n_ids: int | None = None, n_weights: int | None = None, n_scratch: int = 1
    ) -> None:
        ids = np.zeros(k if n_ids is None else n_ids, np.int32)
        weights = np.zeros(k if n_weights is None else n_weights, np.float32)
        raw, logits = np.zeros(4 * n, np.uint8), np.zeros(n, np.float32)
        kernels.moe_gate_topk(raw, GGMLType.F32, [1.0], np.zeros(n_scratch, np.float32), logits, k, ids, weights)

    call()
    call(n=256)
    with pytest.raises(TooManyExperts, match="257 experts, at most 256"):
        call(n=257)
    for k in (0, 5, -1):
        with pytest.raises(InvalidTopK, match=f"k = {k} must be between 1 and the 4 experts"):
            call(k=k, n_ids=1, n_weights=1)
    with pytest.raises(EmptyInput, match="logits"):
        call(n=0)
    with pytest.raises(ShapeMismatch, match="output_ids has 3"):
        call(n_ids=3)
    with pytest.raises(ShapeMismatch, match="output_weights has 1"):
        call(n_weights=1)
    with pytest.raises(ShapeMismatch, match="row_scratch has 2"):
        call(n_scratch=2)
    with pytest.raises(EmptyInput, match="hidden"):
        kernels.moe_gate_topk(
            b"",
            GGMLType.F32,
            [],
            np.zeros(0, np.float32),
            np.zeros(1, np.float32),
            1,
            np.zeros(1, np.int32),
            np.zeros(1, np.float32),
        )

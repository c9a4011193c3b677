"""Costs against counting what naive code does, against the gguf package's sizes, and against sums done by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest

from tests.gguf.judge import SIZES
from tests.ir.dense import F16, F32, I32, INPUT, OUTPUT, STATE, TEMP, WEIGHT, Dims, dense
from zinc_rt.errors import UsageError
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.cost import Cost, graph_cost, node_cost
from zinc_rt.ir.graph import BufferKind, Dim, DType, Graph
from zinc_rt.ir.op import Op
from zinc_rt.ir.sizes import CostSizes


class Counted:
    """A number whose arithmetic is counted; `+0.0` at the start of a sum counts as any other addition."""

    count = 0

    def _did(self, *_: object) -> Counted:
        Counted.count += 1
        return self

    __add__ = __sub__ = __mul__ = __truediv__ = __radd__ = __rsub__ = __rmul__ = __rtruediv__ = _did
    sqrt = exp = _did

    def __gt__(self, _: object) -> bool:
        Counted.count += 1
        return True


def numbers(n: int) -> list[Counted]:
    return [Counted() for _ in range(n)]


def dot(a: Sequence[Counted], b: Sequence[Counted]) -> Any:
    total: Any = 0.0
    for x, y in zip(a, b, strict=True):
        total = total + x * y
    return total


def naive_norm(x: Sequence[Counted], w: Sequence[Counted]) -> None:
    scale = 1.0 / (dot(x, x) / len(x) + 1e-6).sqrt()
    for value, weight in zip(x, w, strict=True):
        value * scale * weight


def naive_rope(x: Sequence[Counted], rotated: int) -> None:
    for i in range(rotated // 2):
        a, b, cos, sin = x[2 * i], x[2 * i + 1], Counted(), Counted()
        a * cos - b * sin
        a * sin + b * cos


def naive_attention(
    q: Sequence[Counted], context: int, value_dim: int | None = None, *, capped: bool = False, sink: bool = False
) -> None:
    n = len(q) if value_dim is None else value_dim
    best: Any = -math.inf
    scores = []
    for _ in range(context):
        score: Any = dot(q, numbers(len(q))) * Counted()
        if capped:
            score = (score / Counted()).exp() * Counted()  # a hyperbolic tangent counts as one operation, too
        best = max(best, score)
        scores.append(score)
    total: Any = 0.0
    out: list[Any] = [0.0] * n
    for score in scores:
        p = (score - best).exp()
        total = total + p
        out = [o + p * v for o, v in zip(out, numbers(n), strict=True)]
    if sink:
        top = max(best, Counted())
        old, new = (best - top).exp(), (Counted() - top).exp()
        total, out = total * old + new, [o * old for o in out]
    for o in out:
        o / total


def naive_swiglu(gate: Sequence[Counted], up: Sequence[Counted]) -> None:
    for g, u in zip(gate, up, strict=True):
        g / (1.0 + g.exp()) * u


def naive_argmax(x: Sequence[Counted]) -> None:
    best: Any = -math.inf
    for value in x:
        best = max(best, value)


def counted(graph: Graph, name: str, sizes: CostSizes) -> int:
    """Operations that naive code of the node `name` of `dense()` does, counted while it runs."""
    rows, d = sizes.n_rows, Dims()
    node = next(n for n in graph.nodes if n.name == name)
    Counted.count = 0
    for _ in range(rows):
        match node.op:
            case Op.RMS_NORM if "head_dim" in node.attrs:
                for _ in range(int(node.attrs["n_heads"])):
                    naive_norm(numbers(d.head_dim), numbers(d.head_dim))
            case Op.RMS_NORM:
                naive_norm(numbers(d.n_embd), numbers(d.n_embd))
            case Op.RESIDUAL_RMS_NORM:
                naive_norm([a + Counted() for a in numbers(d.n_embd)], numbers(d.n_embd))
            case Op.RESIDUAL_ADD:
                [a + Counted() for a in numbers(d.n_embd)]
            case Op.BIAS_ADD:
                [a + Counted() for a in numbers(d.heads * d.head_dim)]
            case Op.MATMUL:
                for _ in range(d.n_embd):
                    dot(numbers(d.n_ff), numbers(d.n_ff))
            case Op.ROPE:
                for _ in range(int(node.attrs["n_heads"])):
                    naive_rope(numbers(d.head_dim), d.head_dim)
            case Op.FLASH_ATTN:
                for _ in range(d.heads):
                    naive_attention(numbers(d.head_dim), sizes.context)
            case Op.SWIGLU:
                naive_swiglu(numbers(d.n_ff), numbers(d.n_ff))
    for _ in range(sizes.n_logits):
        match node.op:
            case Op.LM_HEAD:
                for _ in range(d.n_vocab):
                    dot(numbers(d.n_embd), numbers(d.n_embd))
            case Op.ARGMAX:
                naive_argmax(numbers(d.n_vocab))
    return Counted.count


@pytest.mark.parametrize("sizes", [CostSizes(context=7), CostSizes(n_rows=5, n_logits=2, context=40)])
@pytest.mark.parametrize(
    "name",
    ["embed", "blk.0.attn_norm", "blk.0.attn_q_norm", "blk.0.attn_k_norm", "blk.0.attn_q_bias", "blk.0.attn_q_rope",
     "blk.0.attn_k_rope", "blk.0.kv", "blk.0.attn", "blk.0.ffn_norm", "blk.0.ffn_act", "blk.0.ffn_down", "last",
     "lm_head", "argmax"],
)  # fmt: skip
def test_operations_are_those_of_naive_code(name: str, sizes: CostSizes) -> None:
    graph = dense()
    node = next(n for n in graph.nodes if n.name == name)
    assert node_cost(graph, node, sizes).operations == counted(graph, name, sizes)


def attention_cost(sizes: CostSizes, *, latent: bool, **attrs: Any) -> Cost:
    """Four heads over one key head of 24 elements, of which 8 turn or are no part of values; a sink a head."""
    b = GraphBuilder("g")
    positions, slots = (b.buffer(name, INPUT, I32, ["n_rows"]) for name in ("positions", "slots"))
    where = [positions, slots, b.buffer("pages", INPUT, I32, ["n_slots", "max_pages"])]
    k, rest = (
        b.buffer(name, INPUT, F32, ["n_rows", n])
        for name, n in (("k", 16 if latent else 24), ("v", 8 + 8 * (not latent)))
    )
    cache = b.buffer("k_cache", STATE, F16, ["n_pages", 16, 1, 24])
    caches = [cache] if latent else [cache, b.buffer("v_cache", STATE, F16, ["n_pages", 16, 1, 16])]
    widths = [64, 32] if latent else [96]
    queries = [b.buffer(f"q{n}", INPUT, F32, ["n_rows", n]) for n in widths]
    sizes_of = {"latent_dim": 16, "rope_dim": 8} if latent else {"head_dim": 24, "value_dim": 16}
    b.node(Op.KV_WRITE, [k, rest, *where], caches, n_kv_heads=1, **sizes_of)
    b.node(
        Op.FLASH_ATTN,
        [*queries, *caches, *where, b.buffer("sinks", WEIGHT, F32, [4])],
        [b.buffer("y", OUTPUT, F32, ["n_rows", 64])],
        n_heads=4,
        n_kv_heads=1,
        scale=1.0,
        **sizes_of,
        **attrs,
    )
    graph = b.build()
    return node_cost(graph, graph.nodes[1], sizes)


@pytest.mark.parametrize("latent", [False, True])
def test_attention_with_windows_caps_and_sinks(latent: bool) -> None:
    """Keys and values that the window hides are neither read nor worked on."""
    sizes = CostSizes(n_rows=3, context=100)
    cost = attention_cost(sizes, latent=latent, window=20, softcap=30.0)
    Counted.count = 0
    for _ in range(3 * 4):
        naive_attention(numbers(24), 20, 16, capped=True, sink=True)
    assert cost.operations == Counted.count
    # Queries, positions, slots, sinks; 20 positions of 24 and 16 elements (latent: of 24), on two pages.
    position = 24 * 2 if latent else 40 * 2
    assert cost.bytes_read == 3 * 96 * 4 + 2 * 3 * 4 + 4 * 4 + 3 * (20 * position + 2 * 4)
    assert attention_cost(sizes, latent=latent, window=500, softcap=30.0) == attention_cost(
        sizes, latent=latent, softcap=30.0
    )


def bytes_of(name: str, sizes: CostSizes) -> tuple[int, int]:
    graph = dense()
    cost = node_cost(graph, next(n for n in graph.nodes if n.name == name), sizes)
    return cost.bytes_read, cost.bytes_written


def test_bytes_by_hand() -> None:
    sizes = CostSizes(n_rows=3, n_logits=2, context=40, n_slots=2)
    q8_row = 34 * 64 // 32
    head = 32
    assert bytes_of("embed", sizes) == (3 * 4 + 3 * q8_row, 3 * 64 * 4)
    assert bytes_of("blk.0.attn_norm", sizes) == (3 * 64 * 4 + 64 * 4, 3 * 64 * 4)
    assert bytes_of("blk.0.attn_q", sizes) == (3 * 64 * 4 + 128 * q8_row, 3 * 128 * 4)
    assert bytes_of("blk.0.attn_q_bias", sizes) == (3 * 128 * 4 + 128 * 4, 3 * 128 * 4)
    # A row of the table for each row of the step, whatever the table's length.
    assert bytes_of("blk.0.attn_q_rope", sizes) == (3 * 128 * 4 + 3 * 4 + 3 * 16 * 2 * 4, 3 * 128 * 4)
    # Positions, slots and one page number for each row; float16 keys and values of two heads.
    assert bytes_of("blk.0.kv", sizes) == (2 * 3 * 64 * 4 + 3 * 3 * 4, 2 * 3 * 2 * head * 2)
    # 40 positions lie on three pages.
    assert bytes_of("blk.0.attn", sizes) == (
        3 * 128 * 4 + 2 * 3 * 4 + 3 * (2 * 40 * 2 * head * 2) + 3 * 3 * 4,
        3 * 128 * 4,
    )
    assert bytes_of("blk.0.ffn_norm", sizes) == (2 * 3 * 64 * 4 + 64 * 4, 2 * 3 * 64 * 4)
    assert bytes_of("lm_head", sizes) == (2 * 64 * 4 + 50 * q8_row + 2 * 4, 2 * 50 * 4)
    assert bytes_of("argmax", sizes) == (2 * 50 * 4, 2 * 4)
    assert bytes_of("lm_head", CostSizes(n_logits=0)) == (0, 0)


@pytest.mark.parametrize("dtype", [d for d in DType if d is not I32])
def test_weight_bytes_are_those_of_the_gguf_package(dtype: DType) -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, F32, ["n_rows", 512]), b.buffer("y", OUTPUT, F32, ["n_rows", 3])
    b.node(Op.MATMUL, [x, b.buffer("w", WEIGHT, dtype, [3, 512])], [y])
    block, n_bytes = SIZES[dtype.ggml]
    expected = 3 * 512 // block * n_bytes
    cost = graph_cost(b.build())
    assert cost.bytes_by_kind[BufferKind.WEIGHT] == expected
    assert cost.total == Cost(expected + 512 * 4, 3 * 4, 2 * 3 * 512)
    assert cost.total.bytes_read + cost.total.bytes_written == expected + 515 * 4


def test_totals_are_the_sums() -> None:
    graph = dense()
    sizes = CostSizes(n_rows=4, context=33, n_slots=3)
    cost = graph_cost(graph, sizes)
    assert len(cost.nodes) == len(graph.nodes)
    assert cost.total.bytes_read == sum(c.bytes_read for c in cost.nodes)
    assert cost.total.bytes_written == sum(c.bytes_written for c in cost.nodes)
    assert cost.total.operations == sum(c.operations or 0 for c in cost.nodes)
    assert cost.uncounted == ()
    # Two layers, two caches, three sequences of three pages of 16 positions, two heads of 32 in float16.
    assert cost.bytes_by_kind[STATE] == 2 * 2 * 3 * 3 * 16 * 2 * 32 * 2
    assert cost.bytes_by_kind[OUTPUT] == 50 * 4 + 4
    assert set(cost.bytes_by_kind) == set(BufferKind)


def naive_unit(x: Sequence[Counted]) -> list[Any]:
    scale = 1.0 / (dot(x, x) + 1e-6).sqrt()
    return [value * scale for value in x]


def naive_silu(x: Any) -> Any:
    return x / (1.0 + x.exp())


def naive_delta_net(n_k: int, n_v: int, d: int) -> None:
    for _ in range(n_k):
        [value * Counted() for value in naive_unit(numbers(d))]
        naive_unit(numbers(d))
    for _ in range(n_v):
        # The logarithm of a softplus counts like an exponential.
        decay = ((1.0 + (Counted() + Counted()).exp()).exp() * Counted()).exp()
        strength = 1.0 / (1.0 + Counted().exp())
        state = [[decay * s for s in numbers(d)] for _ in range(d)]
        change = [strength * (Counted() - dot([line[v] for line in state], numbers(d))) for v in range(d)]
        state = [[s + Counted() * c for s, c in zip(line, change, strict=True)] for line in state]
        for v in range(d):
            dot([line[v] for line in state], numbers(d))


@pytest.mark.parametrize("n_slots", [1, 4])
def test_recurrent_layers(n_slots: int) -> None:
    n_k, n_v, d, taps, rows = 2, 4, 8, 4, 3
    b = GraphBuilder("g")
    width = (2 * n_k + n_v) * d
    x, z, alpha, beta = (b.buffer(f"x{i}", INPUT, F32, ["n_rows", n]) for i, n in enumerate((width, n_v * d, n_v, n_v)))
    where = [b.buffer(name, INPUT, I32, ["n_rows"]) for name in ("positions", "slots")]
    kept = [
        b.buffer(f"s{i}", STATE, F32, shape)
        for i, shape in enumerate((["n_slots", taps - 1, width], ["n_slots", n_v, d, d]))
    ]
    u, o = b.buffer("u", TEMP, F32, ["n_rows", width]), b.buffer("o", TEMP, F32, ["n_rows", n_v * d])
    w, a, dt, norm = (b.buffer(f"w{i}", WEIGHT, F32, s) for i, s in enumerate(([width, taps], [n_v], [n_v], [d])))
    b.node(Op.SSM_CONV1D, [x, w, kept[0], *where], [u, kept[0]])
    b.node(
        Op.SSM_DELTA_NET,
        [u, alpha, beta, a, dt, kept[1], *where],
        [o, kept[1]],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=d,
        eps=1e-6,
        pairing="block",
    )
    y = b.buffer("y", OUTPUT, F32, ["n_rows", n_v * d])
    b.node(Op.SSM_GATED_NORM, [o, z, norm], [y], eps=1e-6, n_heads=n_v, head_dim=d)
    conv, delta, gated = graph_cost(b.build(), CostSizes(n_rows=rows, n_slots=n_slots)).nodes
    sequences = min(rows, n_slots)

    def counting(work: Any) -> int:
        Counted.count = 0
        for _ in range(rows):
            work()
        return Counted.count

    def naive_conv() -> None:
        for _ in range(width):
            naive_silu(dot(numbers(taps), numbers(taps)))

    def naive_gated_norm() -> None:
        for _ in range(n_v):
            naive_norm(numbers(d), numbers(d))
            [naive_silu(value) * Counted() for value in numbers(d)]

    assert conv.operations == counting(naive_conv)
    assert delta.operations == counting(lambda: naive_delta_net(n_k, n_v, d))
    assert gated.operations == counting(naive_gated_norm)
    state = 4 * sequences * (taps - 1) * width
    assert (conv.bytes_read, conv.bytes_written) == (
        4 * (rows * (width + 2) + width * taps) + state,
        4 * rows * width + state,
    )
    state = 4 * sequences * n_v * d * d
    assert delta.bytes_read == 4 * (rows * (width + 2 * n_v + 2) + 2 * n_v) + state
    assert delta.bytes_written == 4 * rows * n_v * d + state


def naive_scan(n_heads: int, dim: int, size: int) -> None:
    for _ in range(n_heads):
        step = (1.0 + (Counted() + Counted()).exp()).exp()  # the logarithm of a softplus counts like an exponential
        decay = (step * Counted()).exp()
        for _ in range(dim):
            added, blocks = step * Counted(), []
            state = [decay * s + Counted() * added for s in numbers(size)]
            for start in range(0, size, 32):
                blocks.append(dot(state[start : start + 32], numbers(len(state[start : start + 32]))))
            sum(blocks[1:], blocks[0]) + Counted() * Counted()


def test_scans() -> None:
    n_heads, dim, groups, size, rows = 4, 8, 2, 40, 3
    b = GraphBuilder("g")
    width = n_heads * dim + 2 * groups * size
    u, dt = (b.buffer(f"x{i}", INPUT, F32, ["n_rows", n]) for i, n in enumerate((width, n_heads)))
    where = [b.buffer(name, INPUT, I32, ["n_rows"]) for name in ("positions", "slots")]
    kept = b.buffer("s", STATE, F32, ["n_slots", n_heads, size, dim])
    factors = [b.buffer(f"w{i}", WEIGHT, F32, s) for i, s in enumerate(([n_heads, 1], [n_heads], [n_heads, 1]))]
    y = b.buffer("y", OUTPUT, F32, ["n_rows", n_heads * dim])
    sizes = {"n_heads": n_heads, "head_dim": dim, "n_groups": groups, "state_size": size}
    b.node(Op.SSM_SCAN, [u, dt, *factors, kept, *where], [y, kept], **sizes)
    (scan,) = graph_cost(b.build(), CostSizes(n_rows=rows, n_slots=2)).nodes
    Counted.count = 0
    for _ in range(rows):
        naive_scan(n_heads, dim, size)
    assert scan.operations == Counted.count
    state = 4 * 2 * n_heads * size * dim
    assert scan.bytes_read == 4 * (rows * (width + n_heads + 2) + 3 * n_heads) + state
    assert scan.bytes_written == 4 * rows * n_heads * dim + state


def test_operations_without_a_formula_are_named_not_guessed() -> None:
    b = GraphBuilder("g")
    x, y = b.buffer("x", INPUT, F32, ["n_rows", 8]), b.buffer("y", OUTPUT, F16, ["n_rows", 8])
    b.node(Op.STORE_REQUEST_STATE, [x], [y], "conv")
    cost = graph_cost(b.build(), CostSizes(n_rows=2))
    assert cost.nodes == (Cost(2 * 8 * 4, 2 * 8 * 2, None),)
    assert cost.uncounted == ("conv",)
    assert cost.total.operations == 0


def test_split_rows_cost_the_same() -> None:
    def cost(shape: tuple[Dim, ...]) -> Cost:
        b = GraphBuilder("g")
        x, y = b.buffer("x", INPUT, F32, shape), b.buffer("y", TEMP, F32, ["n_rows", 64])
        w = b.buffer("w", WEIGHT, F32, [16])
        b.node(Op.RMS_NORM, [x, w], [y], eps=1e-6, n_heads=4, head_dim=16)
        b.node(Op.STREAM_OUT, [y], [])
        graph = b.build()
        return node_cost(graph, graph.nodes[0], CostSizes(n_rows=3))

    assert cost(("n_rows", 64)) == cost(("n_rows", 4, 16))


def test_sizes_follow_the_context() -> None:
    assert dict(CostSizes(context=17).symbols) == {
        "n_rows": 1,
        "n_logits": 1,
        "n_slots": 1,
        "n_pages": 2,
        "max_pages": 2,
        "n_ctx": 17,
    }
    given = CostSizes(n_rows=2, n_logits=0, context=10, n_ctx=100, n_slots=4, n_pages=9, max_pages=5)
    assert given.symbols["n_pages"] == 9
    assert given.dim("n_ctx") == 100
    assert given.dim(7) == 7


@pytest.mark.parametrize(
    ("name", "value"),
    [("n_rows", 0), ("n_logits", -1), ("context", 0), ("n_slots", 0), ("n_ctx", 0), ("n_pages", -2), ("max_pages", 0)],
)
def test_impossible_sizes(name: str, value: int) -> None:
    sizes: dict[str, Any] = {name: value}
    with pytest.raises(UsageError, match=f"{name} is {value}, expected at least"):
        CostSizes(**sizes)

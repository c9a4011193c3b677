"""Graphs of unusual shape: random ones, and those that fusing, sharing and naming could get wrong."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.backends.cpu.both import (
    LEVELS,
    Case,
    Net,
    Outputs,
    Step,
    assert_same,
    check,
    expected,
    native,
    outputs,
    reference,
)
from tests.backends.cpu.hostile import ordinary, rows
from tests.helpers import soon
from tests.kernels.material import T, packed_rows
from zinc_rt.backends.base import check_step
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import BufferKind
from zinc_rt.ir.op import Op

WIDTH = 64
N_CTX, N_PAGES = 300, 40
PLACES = (([0, 1, 2, 0, 1], [0, 0, 0, 1, 1]), ([3], [0]), ([4, 2, 5, 6], [0, 1, 0, 0]), ([7, 3], [0, 1]))
FORMATS = (T.Q8_0, T.Q4_0, T.F16)
TEMP, OUTPUT = BufferKind.TEMP, BufferKind.OUTPUT


class RandomNet(Net):
    """Operations on rows of 64 elements, each reading any results before it."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__(7, n_logits=5, n_ctx=N_CTX, n_slots=2, n_pages=N_PAGES)
        self.rng = rng
        self.inputs = {name: self.rows(name, WIDTH) for name in ("x0", "x1")}
        self.known = list(self.inputs.values())  # what can be read
        self.wanted = self.indices("logit_rows", "n_logits")
        self.positions, self.slots, self.pages = self.where()
        angles = rng.uniform(0, 9, (N_CTX, 8))
        self.turns = self.table(np.stack([np.cos(angles), np.sin(angles)], axis=2))
        self.result: list[tuple[int, str]] = []

    def pick(self) -> int:
        """Something read before, recent results more often."""
        return self.known[-1 - min(int(self.rng.geometric(0.5)) - 1, len(self.known) - 1)]

    def made(self, name: str) -> int:
        """A result: kept for the caller in one case of four."""
        kind = OUTPUT if self.rng.random() < 0.25 else TEMP
        return self.b.buffer(f"{name}{len(self.known)}", kind, "f32", ["n_rows", WIDTH])

    def some_matrix(self) -> int:
        kind = FORMATS[self.rng.integers(len(FORMATS))]
        if kind is T.F16:
            raw = (self.rng.standard_normal((WIDTH, WIDTH)) / 8).astype("<f2").view(np.uint8)
        else:
            raw = packed_rows(kind, self.rng, WIDTH, WIDTH)
        return self.matrix(kind, raw)

    def scales(self, n: int = WIDTH) -> int:
        return self.vector(ordinary(self.rng, 1, n)[0])

    def heads(self) -> dict[str, int]:
        dim = int(self.rng.choice([16, 32]))
        return {"n_heads": WIDTH // dim, "head_dim": dim}

    def add(self) -> None:
        what = self.rng.choice(
            [
                "norm",
                "residual_norm",
                "sum",
                "swiglu",
                "times",
                "gated",
                "product",
                "product",
                "bias",
                "rope",
                "head_norm",
                "attention",
            ]
        )
        x, y = self.pick(), self.made(what)
        if what == "norm":
            self.node(Op.RMS_NORM, [x, self.scales()], [y], eps=1e-5)
        elif what == "residual_norm":
            total = self.made("total")
            self.node(Op.RESIDUAL_RMS_NORM, [x, self.pick(), self.scales()], [total, y], eps=1e-6)
            self.known.append(total)
        elif what in ("sum", "swiglu"):
            self.node(Op.RESIDUAL_ADD if what == "sum" else Op.SWIGLU, [x, self.pick()], [y])
        elif what in ("times", "gated"):
            self.node(Op.MUL if what == "times" else Op.SIGMOID_MUL, [x, self.pick()], [y])
        elif what == "product":
            self.node(Op.MATMUL, [x, self.some_matrix()], [y])
        elif what == "bias":
            self.node(Op.BIAS_ADD, [x, self.scales()], [y])
        elif what == "rope":
            layout = bool(self.rng.integers(2))
            self.node(Op.ROPE, [x, self.positions, self.turns], [y], interleaved=layout, **self.heads())
        elif what == "head_norm":
            shape = self.heads()
            self.node(Op.RMS_NORM, [x, self.scales(shape["head_dim"])], [y], eps=1e-5, **shape)
        else:
            shape = self.heads()
            n_heads, dim = shape["n_heads"], shape["head_dim"]
            where, caches = [self.positions, self.slots, self.pages], self.caches(n_heads, dim)
            self.node(Op.KV_WRITE, [self.pick(), x, *where], caches, n_kv_heads=n_heads, head_dim=dim)
            self.node(Op.FLASH_ATTN, [self.pick(), *caches, *where], [y], scale=0.2, n_kv_heads=n_heads, **shape)
        self.known.append(y)

    def finish(self) -> None:
        """Whatever nobody read is an output of the graph, and a head reads the last result."""
        x, y = self.pick(), self.b.buffer("turned", OUTPUT, "f32", ["n_rows", WIDTH])
        self.node(Op.ROPE, [x, self.positions, self.turns], [y], interleaved=False, n_heads=4, head_dim=16)
        where, caches = [self.positions, self.slots, self.pages], self.caches(4, 16)
        self.node(Op.KV_WRITE, [x, self.pick(), *where], caches, n_kv_heads=4, head_dim=16)
        attended = self.b.buffer("attended", OUTPUT, "f32", ["n_rows", WIDTH])
        self.node(Op.FLASH_ATTN, [y, *caches, *where], [attended], scale=0.2, n_heads=4, n_kv_heads=4, head_dim=16)
        logits = self.b.buffer("logits", OUTPUT, "f32", ["n_logits", 64])
        self.node(Op.LM_HEAD, [self.pick(), self.some_matrix(), self.wanted], [logits])
        self.node(Op.ARGMAX, [logits], [self.b.buffer("tokens", OUTPUT, "i32", ["n_logits"])])
        for unread in range(2):
            total = self.b.buffer(f"all{unread}", OUTPUT, "f32", ["n_rows", WIDTH])
            self.node(Op.RESIDUAL_ADD, [self.known[unread], self.known[unread]], [total])
        read = {i for n in self.b._nodes for i in n.inputs}
        for buffer in list(self.b._buffers):
            if buffer.kind is TEMP and buffer.id not in read:
                total = self.b.buffer(f"kept{buffer.id}", OUTPUT, "f32", ["n_rows", WIDTH])
                self.node(Op.RESIDUAL_ADD, [buffer.id, buffer.id], [total])


@cache
def random_case(seed: int) -> tuple[Case, Outputs]:
    rng = np.random.default_rng(seed)
    net = RandomNet(rng)
    for _ in range(int(rng.integers(2, 12))):
        net.add()
    net.finish()
    pages = rng.permutation(N_PAGES).reshape(2, -1)[:, : net.sizes.max_pages]
    pages = np.concatenate([pages, np.zeros((2, net.sizes.max_pages - pages.shape[1]), np.int64)], axis=1)
    steps = []
    for positions, slots in PLACES:
        n = len(positions)
        wanted = rng.permutation(n)[: rng.integers(0, n + 1)]
        given = {"logit_rows": wanted, "positions": positions, "slots": slots, "page_table": pages}
        given |= {name: rows(rng, n, WIDTH) if rng.random() < 0.5 else ordinary(rng, n, WIDTH) for name in net.inputs}
        steps.append(Step(n, given, len(wanted)))
    case = net.case(steps)
    return case, expected(case)


def short_case(seed: int) -> tuple[Case, Outputs]:
    """The random graph with two steps: of five rows, and of one."""
    case, want = random_case(seed)
    return replace(case, steps=case.steps[:2]), want[:2]


SEEDS = (0, len(LEVELS) - 1)
"""By default: of the best level and of the least, whose kernels other tests compile."""


@pytest.mark.parametrize("seed", soon(SEEDS, range(30)))
def test_random_graphs(seed: int) -> None:
    case, want = random_case(seed)
    check(case, want, LEVELS[seed % len(LEVELS)], 1 + seed % 4)


@pytest.mark.slow
@pytest.mark.parametrize("isa", LEVELS)
@pytest.mark.parametrize("seed", range(30, 200))
def test_many_random_graphs(seed: int, isa: str) -> None:
    case, want = random_case(seed)
    for threads in (1, 2, 4):
        check(case, want, isa, threads)


def attend(net: Net, name: str, where: list[int], n_heads: int, n_kv: int, dim: int) -> None:
    """Keys, values and queries from outside, attention of its own shape."""
    k, v, q = (net.rows(f"{name}.{part}", n * dim) for part, n in (("k", n_kv), ("v", n_kv), ("q", n_heads)))
    caches = net.caches(n_kv, dim)
    net.node(Op.KV_WRITE, [k, v, *where], caches, n_kv_heads=n_kv, head_dim=dim)
    out = net.out(f"{name}.y", n_heads * dim)
    net.node(Op.FLASH_ATTN, [q, *caches, *where], [out], scale=0.3, n_heads=n_heads, n_kv_heads=n_kv, head_dim=dim)


@cache
def attentions_that_differ() -> tuple[Case, Outputs]:
    """In one graph: other group sizes, numbers of heads and head sizes, past a split's end."""
    rng = np.random.default_rng(1)
    net = Net(300, n_ctx=N_CTX, n_pages=19)
    where = net.where()
    shapes = {"a": (2, 1, 16), "b": (8, 8, 16), "c": (5, 1, 32), "d": (6, 2, 16)}
    for name, shape in shapes.items():
        attend(net, name, where, *shape)
    steps = []
    for start, n in ((0, 270), (270, 1), (271, 3), (274, 9)):
        given = {
            f"{name}.{part}": ordinary(rng, n, width * dim)
            for name, (heads, n_kv, dim) in shapes.items()
            for part, width in (("k", n_kv), ("v", n_kv), ("q", heads))
        }
        where_from = {"positions": np.arange(start, start + n), "slots": np.zeros(n, np.int32)}
        steps.append(Step(n, {**given, **where_from, "page_table": np.arange(19)[None]}))
    case = net.case(steps)
    return case, expected(case)


@pytest.mark.parametrize("threads", soon((2,), (1, 2, 4)))
def test_attentions_that_differ(threads: int) -> None:
    check(*attentions_that_differ(), LEVELS[0], threads)


@cache
def heads_split_anew() -> tuple[Case, Outputs]:
    """A norm over heads of 8, a rotation over heads of 16, a cache of heads of 32: all of the same row."""
    rng = np.random.default_rng(2)
    net = Net(4, n_ctx=16)
    x, q, where = net.rows("x", 32), net.rows("q", 32), net.where()
    turns = net.table(rng.standard_normal((16, 4, 2)))
    normed, turned, caches = net.temp(32), net.temp(32), net.caches(1, 32)
    net.node(Op.RMS_NORM, [x, net.vector(ordinary(rng, 1, 8)[0])], [normed], eps=1e-5, n_heads=4, head_dim=8)
    net.node(Op.ROPE, [normed, where[0], turns], [turned], interleaved=True, n_heads=2, head_dim=16)
    net.node(Op.KV_WRITE, [turned, x, *where], caches, n_kv_heads=1, head_dim=32)
    net.node(Op.FLASH_ATTN, [q, *caches, *where], [net.out("y", 32)], scale=0.2, n_heads=1, n_kv_heads=1, head_dim=32)
    inputs = {"x": ordinary(rng, 4, 32), "q": ordinary(rng, 4, 32)}
    where_from = {"positions": np.arange(4), "slots": np.zeros(4, np.int32), "page_table": np.zeros((1, 1), np.int32)}
    case = net.case([Step(4, {**inputs, **where_from})])
    return case, expected(case)


def test_heads_split_anew() -> None:
    check(*heads_split_anew(), LEVELS[0], 2)


def test_step_inputs_may_have_any_name() -> None:
    """What an input is for follows from the operations that read it."""
    rng = np.random.default_rng(3)
    net = Net(4, n_logits=3, n_ctx=16, n_slots=2, n_pages=2)
    ids, rows_wanted = net.indices("words", "n_rows"), net.indices("answers", "n_logits")
    where = [net.indices("times", "n_rows"), net.indices("texts", "n_rows"), net.indices("map", "n_slots", "max_pages")]
    table = net.matrix(T.Q8_0, packed_rows(T.Q8_0, rng, 20, 32))
    x, y, caches = net.temp(32), net.temp(32), net.caches(1, 32)
    net.node(Op.EMBED, [ids, table], [x])
    net.node(Op.KV_WRITE, [x, x, *where], caches, n_kv_heads=1, head_dim=32)
    net.node(Op.FLASH_ATTN, [x, *caches, *where], [y], scale=0.2, n_heads=1, n_kv_heads=1, head_dim=32)
    net.node(Op.LM_HEAD, [y, table, rows_wanted], [net.out("logits", 20, "n_logits")])
    given = {"words": [3, 19, 0], "answers": [2, 0], "times": [0, 1, 0], "texts": [0, 0, 1], "map": [[1], [0]]}
    case = net.case([Step(3, given, 2)])
    check(case, expected(case), LEVELS[0], 2)


def test_two_inputs_for_one_thing_are_refused() -> None:
    rng = np.random.default_rng(4)
    net = Net(4)
    x, turns = net.rows("x", 16), net.table(rng.standard_normal((16, 8, 2)))
    for name in ("one", "two"):
        net.node(
            Op.ROPE,
            [x, net.indices(name, "n_rows"), turns],
            [net.out(f"y.{name}", 16)],
            interleaved=False,
            n_heads=1,
            head_dim=16,
        )
    case = net.case([])
    with pytest.raises(BackendError, match="take positions from one input of the step, one, not from input two"):
        outputs(native(LEVELS[0], 1), case)


def test_sums_and_choices_of_rows_and_of_logits() -> None:
    rng = np.random.default_rng(5)
    net = Net(9, n_logits=2)
    x, z, v = net.rows("x", 33), net.rows("z", 33, "n_logits"), net.vector(ordinary(rng, 1, 33)[0])
    net.node(Op.BIAS_ADD, [z, v], [net.out("biased", 33, "n_logits")])
    net.node(Op.RESIDUAL_ADD, [z, z], [net.out("twice", 33, "n_logits")])
    net.node(Op.ARGMAX, [x], [net.b.buffer("tokens", OUTPUT, "i32", ["n_rows"])])
    net.node(Op.ARGMAX, [z], [net.b.buffer("choices", OUTPUT, "i32", ["n_logits"])])
    case = net.case([Step(n, {"x": rows(rng, n, 33), "z": rows(rng, k, 33)}, k) for n, k in ((9, 1), (1, 2), (4, 0))])
    want = expected(case)
    for threads in (1, 3):
        check(case, want, LEVELS[0], threads)


@pytest.mark.parametrize("first", ["n_logits", "n_slots", 7])
def test_other_numbers_of_rows_are_refused(first: str | int) -> None:
    net = Net(9, n_logits=2)
    x = net.b.buffer("x", "input", "f32", [first, 32])
    y = net.b.buffer("y", "output", "f32", [first, 32])
    net.node(Op.SWIGLU, [x, x], [y])
    with pytest.raises(BackendError, match=f"compiled kernels work on n_rows rows, buffer x has {first}"):
        outputs(native(LEVELS[0], 1), net.case([]))


@pytest.mark.parametrize("kernels", ["native", "reference"])
def test_counts_are_checked_without_tokens_too(kernels: str) -> None:
    net = Net(4, n_logits=2)
    x = net.rows("x", 32)
    net.node(Op.RESIDUAL_ADD, [x, x], [net.out("y", 32)])
    case = net.case([])
    backend = native(LEVELS[0], 2) if kernels == "native" else reference()
    batch = backend.lower(backend.plan(case.graph, case.sizes), {}, {})
    for counts, message in (((5, 0), "5 rows.* lowered for 4"), ((-1, 0), "-1 rows"), ((1, 3), "3 wanted.* for 2")):
        batch.counts[:] = counts
        with pytest.raises(BackendError, match=message):
            backend.submit(check_step(batch))


def test_a_batch_of_another_backend_runs() -> None:
    """A native batch keeps all it needs; any backend with native kernels runs it."""
    case, want = random_case(0)
    other = native(LEVELS[0], 2)
    own = native(LEVELS[0], 1)
    batch = own.lower(own.plan(case.graph, case.sizes), case.weights, case.constants)
    for name, array in batch.inputs.items():
        given = np.asarray(case.steps[0].inputs[name])
        bits = given.astype(np.float32 if given.dtype.kind == "f" else np.int32).view(np.int32)
        array[tuple(slice(n) for n in bits.shape)] = bits
    batch.counts[:] = case.steps[0].n_rows, case.steps[0].n_logits
    other.submit_and_wait(batch)
    got = batch.outputs["all0"].view(np.uint32)[: case.steps[0].n_rows]
    assert_same(got, want[0]["all0"][: case.steps[0].n_rows], "all0")

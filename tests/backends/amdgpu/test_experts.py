"""Routed feed-forwards on the emulated GPU: the reference's bits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pytest

from tests.backends.amdgpu.stage import amd_backend, check, kernels
from tests.backends.cpu.both import Case, Net, Step, expected, finite_share
from tests.backends.cpu.hostile import hostile, ordinary
from tests.helpers import soon
from tests.kernels.material import FLOATS, QUANTISED, T, float_rows, packed_rows
from zinc_rt.backends.amdgpu.backend import AmdBackend
from zinc_rt.backends.amdgpu.emulated import EmulatedBackend
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import BufferKind, DType
from zinc_rt.ir.op import Op


def raw_rows(kind: T, rng: np.random.Generator, n_out: int, n_in: int) -> np.ndarray:
    """Random packed rows of any format."""
    if kind in FLOATS:
        return np.ascontiguousarray(float_rows(kind, ordinary(rng, n_out, n_in)))
    return packed_rows(kind, rng, n_out, n_in)


def tensor(net: Net, name: str, kind: T, raw: np.ndarray, n_experts: int) -> int:
    """A weight of several matrices, whose rows lie one after another."""
    net.weights[name] = raw
    n_in = raw.shape[1] // kind.block_bytes * kind.block_size
    return net.b.buffer(name, BufferKind.WEIGHT, DType[kind.name], [n_experts, len(raw) // n_experts, n_in])


def ids_of(net: Net, k: int) -> int:
    return net.b.buffer("ids", BufferKind.TEMP, DType.I32, ["n_rows", k])


@dataclass(frozen=True)
class Layer:
    """n: width of a row; f: of an expert; shared: of the shared one's matrices, None for no such expert."""

    gate: T = T.Q4_K
    up: T = T.Q4_K
    down: T = T.Q6_K
    n: int = 256
    f: int = 256
    n_experts: int = 6
    k: int = 3
    bias: bool = False
    shared: T | None = None
    gated: bool = True
    gating: str = "softmax"
    activation: str = "silu"


def layer(a: Layer, rows: tuple[int, ...] = (1, 3, 9), seed: int = 3) -> Case:
    """The router, the experts, and the shared expert where there is one."""
    rng = np.random.default_rng(seed)
    net = Net(max(rows))
    x = net.rows("x", a.n)
    logits, ids, weights = net.temp(a.n_experts), ids_of(net, a.k), net.temp(a.k)
    net.node(Op.MATMUL, [x, net.matrix(T.F32, ordinary(rng, a.n_experts, a.n).view(np.uint8))], [logits])
    net.node(Op.MOE_GATE_TOPK, [logits], [ids, weights], k=a.k, normalise=True, gating=a.gating)
    e, f = a.n_experts, a.f
    matrices = [
        tensor(net, name, kind, raw_rows(kind, rng, e * n_out, n_in), e)
        for name, kind, n_out, n_in in (("gate", a.gate, f, a.n), ("up", a.up, f, a.n), ("down", a.down, 13, f))
    ]
    widths = (f, f, 13) if a.bias else ()
    biases = [net.matrix(T.F32, ordinary(rng, e, n).view(np.uint8)) for n in widths]
    gated, upped, act = (net.temp(a.k * f) for _ in range(3))
    net.node(Op.MOE_GATE_UP, [x, ids, *matrices[:2], *biases[:2]], [gated, upped])
    net.node(Op.MOE_SWIGLU, [gated, upped], [act], activation=a.activation)
    y = net.out("y", 13) if a.shared is None else net.temp(13)
    net.node(Op.MOE_DOWN_ACC, [act, ids, weights, matrices[2], *biases[2:]], [y])
    if a.shared is not None:
        g, u, s, p = net.temp(f), net.temp(f), net.temp(f), net.temp(13)
        for out in (g, u):
            net.node(Op.MATMUL, [x, net.matrix(a.shared, raw_rows(a.shared, rng, f, a.n))], [out])
        net.node(Op.SWIGLU, [g, u], [s], activation=a.activation)
        net.node(Op.MATMUL, [s, net.matrix(a.shared, raw_rows(a.shared, rng, 13, f))], [p])
        inputs = [y, p]
        if a.gated:
            inputs.append(net.temp(1))
            net.node(Op.MATMUL, [x, net.matrix(T.F32, ordinary(rng, 1, a.n).view(np.uint8))], inputs[2:])
        net.node(Op.SHARED_EXPERT, inputs, [net.out("y", 13)])
    return net.case([Step(n, {"x": ordinary(rng, n, a.n) * 0.1}) for n in rows])


FORMATS = [kind.name for kind in (*QUANTISED, *FLOATS)]
LAYERS: dict[str, Layer] = {
    **{name: Layer(T[name], T[name], T[name]) for name in FORMATS},
    "shared": Layer(shared=T.Q4_K, k=4, n_experts=9),
    "shared, no gate": Layer(
        T.Q8_0, T.Q8_0, T.Q8_0, n=64, f=64, shared=T.Q8_0, gated=False, gating="sigmoid", activation="gelu"
    ),
    "gelu": Layer(T.Q8_0, T.Q8_0, T.Q8_0, n=64, f=64, shared=T.Q4_0, activation="gelu"),
    "clamped": Layer(T.Q4_0, T.Q4_0, T.F16, n=64, f=48, bias=True, activation="clamped"),
    "shared floats": Layer(T.F16, T.F16, T.F16, n=72, f=40, shared=T.F32, bias=True),
    "biases": Layer(T.Q8_0, T.Q4_0, T.Q5_0, n=96, f=96, bias=True, gating="softmax_chosen"),
    "float down": Layer(T.Q8_0, T.Q8_0, T.BF16, n=64, f=96),
    "quantised down": Layer(T.F32, T.F32, T.Q8_0, n=40, f=64),
    "long down": Layer(T.Q4_0, T.Q4_0, T.Q4_1, n=32, f=1120, k=2, n_experts=3),
    "wide": Layer(T.Q6_K, T.Q5_K, T.Q4_K, n=2304, f=768, n_experts=3, k=2),
    "one of each kind": Layer(T.F16, T.Q8_0, T.Q8_0, n=64, f=64),
    "many": Layer(T.Q4_0, T.Q4_0, T.Q5_1, n=32, f=256, n_experts=20, k=17),
    "all": Layer(T.Q8_0, T.Q8_0, T.Q8_0, n=32, f=32, n_experts=4, k=4),
}


@pytest.fixture(scope="module")
def backend() -> Iterator[AmdBackend]:
    with amd_backend() as (made, _):
        yield made


SOON = ("shared, no gate", "clamped", "biases", "long down")
"""What layers have besides; formats run by default in `tests/kernels/gpu/test_matvec.py`. A shared
expert with a gate is in `test_fusion.py`'s model.
"""


SEVERAL = ("biases",)
"""The layers whose steps have several rows by default. Products have kernels for one row, two, four and eight."""


@pytest.mark.parametrize("name", soon(SOON, LAYERS))
def test_layers(backend: AmdBackend, name: str) -> None:
    try_layer(backend, name, (1, 3, 9) if name in SEVERAL else (1,))


@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in LAYERS if n not in (*SEVERAL, "wide", "long down", "shared", "many")])
def test_layers_of_several_rows(backend: AmdBackend, name: str) -> None:
    try_layer(backend, name, (2, 3, 9))


def try_layer(backend: AmdBackend, name: str, rows: tuple[int, ...]) -> None:
    case = layer(LAYERS[name], rows)
    want = expected(case)
    assert finite_share(want, case) > 0.99
    check(backend, case, want)


TILED = {
    "blocks": Layer(T.Q4_0, T.Q4_0, T.Q8_0, n=96, f=64, bias=True, n_experts=3, k=2, gating="softmax_chosen"),
    "floats": Layer(T.F16, T.F16, T.F32, n=40, f=36, n_experts=5, k=2, activation="clamped"),
    "shared": Layer(T.Q4_K, T.Q4_K, T.Q6_K, shared=T.Q8_0),
    "mixed": Layer(T.MXFP4, T.Q8_0, T.BF16, n=64, f=96, gating="sigmoid"),
    "long": Layer(T.Q4_0, T.Q4_0, T.Q8_0, n=1120, f=64, n_experts=2, k=2),
    "minima": Layer(T.Q5_K, T.Q2_K, T.Q4_1, f=1024, n_experts=3, k=2),
}


@pytest.mark.parametrize(
    "name", [name if name == "blocks" else pytest.param(name, marks=pytest.mark.slow) for name in TILED]
)
def test_steps_of_many_rows(backend: AmdBackend, name: str) -> None:
    """Experts of no row, of a few, of more than a tile has."""
    case = layer(TILED[name], (16, 99) if name == "blocks" else (23,))
    check(backend, case, expected(case))


@pytest.mark.slow  # `test_only_chosen_experts_are_read` counts bytes by default
def test_experts_are_read_once_for_all_their_rows() -> None:
    """Of 16 rows that choose two of 24 experts: those that any row chose, however many did, and activations."""
    a = Layer(T.Q8_0, T.Q8_0, T.Q8_0, n=256, n_experts=24, k=2, gating="softmax_chosen")
    case = layer(a, (16,))
    x = np.asarray(case.steps[0].inputs["x"])
    router = next(w for w in case.weights.values() if w.shape == (24, 256 * 4)).view(np.float32)
    _, counts = np.unique(np.argsort(x @ router.T, axis=1)[:, -2:], return_counts=True)
    used = len(counts)
    assert used < 16
    with EmulatedBackend(cache=kernels()) as emulated:
        batch = emulated.lower(emulated.plan(case.graph, case.sizes), case.weights, case.constants)
        batch.inputs["x"][...] = x.view(np.int32)
        batch.counts[:] = 16, 0
        emulated.start_profile(batch)
        emulated.submit_and_wait(batch)
        found = emulated.finish_profile()
    gate, up, down = (r.work for r in found.records if r.name.startswith("block_expert_tiles"))
    for work, n_out in ((gate, 256), (up, 256), (down, 13)):
        weights = used * n_out * T.Q8_0.row_bytes(256)
        slabs = 8 * int((32 * (counts + counts % 2) + 4 * counts).sum())  # 8 groups: pairs of rows as int8, scales
        halves = 16 * 2 * n_out * 4  # the first half of each sum, read again
        assert weights + slabs < work.unique_read < weights + slabs + halves + 24 * 16 + 64
        if n_out == 256:  # two workgroups for each expert: no byte of its weights is asked for twice
            assert work.bytes_read < 1.05 * (weights + 2 * slabs + halves)


def test_only_chosen_experts_are_read() -> None:
    """Of twelve experts a row's two: their bytes and hardly more, of which no line is left half read."""
    case = layer(Layer(n_experts=12, k=2), (1,))
    with EmulatedBackend(cache=kernels()) as emulated:
        batch = emulated.lower(emulated.plan(case.graph, case.sizes), case.weights, case.constants)
        batch.inputs["x"][...] = np.asarray(case.steps[0].inputs["x"]).view(np.int32)
        batch.counts[:] = 1, 0
        emulated.start_profile(batch)
        emulated.submit_and_wait(batch)
        found = emulated.finish_profile()
    read = {r.name.split()[0]: r.work.unique_read for r in found.records}
    chosen = {"gated_experts": 2 * 2 * 256 * T.Q4_K.row_bytes(256), "experts_down": 2 * 13 * T.Q6_K.row_bytes(256)}
    assert chosen["gated_experts"] < read["gated_experts"] < 1.01 * chosen["gated_experts"]
    activations = 2 * (256 + 8 * 8) + 2 * 8 + 200  # as int8, with scales and sums; ids, weights, arguments
    assert chosen["experts_down"] < read["experts_down"] < chosen["experts_down"] + activations


def test_products_apart(backend: AmdBackend) -> None:
    """Gate and up that something else reads, and no activation behind them."""
    rng = np.random.default_rng(8)
    net = Net(3)
    x, ids = net.rows("x", 64), ids_of(net, 2)
    net.node(Op.MOE_GATE_TOPK, [net.rows("logits", 5)], [ids, net.out("weights", 2)], k=2)
    gate, up = (tensor(net, s, T.Q8_0, packed_rows(T.Q8_0, rng, 5 * 32, 64), 5) for s in ("gate", "up"))
    net.node(Op.MOE_GATE_UP, [x, ids, gate, up], [net.out("gated", 64), net.out("upped", 64)])
    case = net.case([Step(n, {"x": ordinary(rng, n, 64), "logits": ordinary(rng, n, 5)}) for n in (1, 3)])
    check(backend, case, expected(case))


@dataclass(frozen=True)
class Choice:
    n_experts: int
    k: int
    gating: str = "softmax"
    normalise: bool = True
    scale: float = 1.0
    bias: bool = False
    scaled: bool = False
    groups: int = 1
    used: int = 1


CHOICES = {
    "8 of 256": Choice(256, 8),
    "sigmoid": Choice(40, 6, "sigmoid", scale=2.5, bias=True),
    "chosen": Choice(32, 4, "softmax_chosen", normalise=False),
    "mixer": Choice(40, 3, "sparse_mixer", normalise=False),
    "most": Choice(512, 32, "sigmoid", normalise=False),
    "one": Choice(3, 1, normalise=False, scale=0.5),
    "all": Choice(5, 5, "softmax_chosen"),
    "scales": Choice(20, 3, bias=True, scaled=True),
    "groups": Choice(64, 6, "sigmoid", bias=True, groups=8, used=3),
    "groups of one": Choice(8, 2, groups=8, used=2),
    "groups of two": Choice(8, 3, groups=4, used=2),
}


def choice(a: Choice) -> Case:
    """Ordinary logits, ties, zeros of both signs, infinities, NaN, nothing but NaN."""
    rng = np.random.default_rng(a.n_experts)
    net = Net(9)
    inputs = [net.rows("logits", a.n_experts)]
    inputs += [net.vector(ordinary(rng, 1, a.n_experts)[0]) for used in (a.bias, a.scaled) if used]
    ids = net.b.buffer("ids", BufferKind.OUTPUT, DType.I32, ["n_rows", a.k])
    attrs = {
        "gating": a.gating,
        "normalise": a.normalise,
        "scale": a.scale,
        "n_groups": a.groups,
        "n_groups_used": a.used,
    }
    net.node(Op.MOE_GATE_TOPK, inputs, [ids, net.out("weights", a.k)], k=a.k, **attrs)
    x = (rng.standard_normal((9, a.n_experts)) * 3).astype(np.float32)
    x[1] = np.round(x[1])
    x[2] = rng.choice(np.float32([0.0, -0.0]), a.n_experts)
    x[3, a.n_experts // 2] = np.nan
    x[4] = -np.inf
    x[5, 0] = np.inf
    x[6] = np.nan
    x[7] = hostile(rng, 1, a.n_experts, finite=False)[0]
    return net.case([Step(9, {"logits": x}), Step(1, {"logits": x[:1] * 0.25})])


@pytest.mark.parametrize("name", soon(("sigmoid", "mixer", "all", "scales", "groups"), CHOICES))
def test_choices(backend: AmdBackend, name: str) -> None:
    case = choice(CHOICES[name])
    check(backend, case, expected(case))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (Choice(513, 2), "513 experts; the GPU kernels do up to 512"),
        (Choice(64, 33), "33 experts of a row; the GPU kernels do up to 32"),
        (Choice(66, 2, groups=33, used=2), "33 groups of experts; the GPU kernels do up to 32"),
    ],
)
def test_what_the_kernels_cannot_do(wrong: Choice, words: str) -> None:
    case = choice(wrong)
    with pytest.raises(BackendError, match=words):
        GpuLowering(case.graph, case.sizes).run()

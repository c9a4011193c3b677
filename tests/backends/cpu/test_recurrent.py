"""Recurrent layers on the native kernels: the reference's bits over steps, sequences, levels and threads."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest

from tests.backends.cpu.both import (
    BEST_AND_LEAST,
    LEVELS,
    THREADS,
    Case,
    Net,
    Outputs,
    Step,
    check,
    expected,
    finite_share,
)
from tests.backends.cpu.hostile import hostile, ordinary
from tests.helpers import soon
from tests.kernels.material import T
from zinc_rt.ir.graph import BufferKind
from zinc_rt.ir.op import Op

# Three sequences: chunks of one, one that begins anew in a slot that was used, rows of two mixed, and a long stretch.
PLACES: tuple[tuple[list[int], list[int]], ...] = (
    ([0, 1, 2, 3, 4], [0] * 5),
    ([5, 0, 0], [0, 1, 2]),
    ([1, 6, 2, 7, 3], [1, 0, 1, 0, 1]),
    ([0, 1, 8], [1, 1, 0]),
    (list(range(9, 22)), [0] * 13),
    ([2], [1]),
)
ROWS = max(len(positions) for positions, _ in PLACES)


def net() -> Net:
    return Net(ROWS, n_ctx=32, n_slots=3)


def steps(rng: np.random.Generator, widths: dict[str, int], rows: Callable[..., np.ndarray] = ordinary) -> list[Step]:
    out = []
    for positions, slots in PLACES:
        n = len(positions)
        given = {name: rows(rng, n, width) for name, width in widths.items()}
        out.append(Step(n, {"positions": positions, "slots": slots, **given}))
    return out


def where(made: Net) -> list[int]:
    return [made.indices("positions", "n_rows"), made.indices("slots", "n_rows")]


def state(made: Net, *shape: int) -> int:
    return made.b.buffer(f"state{len(shape)}", BufferKind.STATE, "f32", ["n_slots", *shape])


@cache
def conv(n: int, taps: int, bias: bool, gated: bool, wild: bool = False, apart: bool = False) -> Case:
    rng = np.random.default_rng(n + taps)
    made = net()
    kept = state(made, taps - 1, n)
    w = made.matrix(T.F32, ordinary(rng, n, taps).view(np.uint8))
    given = {"q": n // 3, "k": n // 3, "v": n // 3} if apart else {"x": n}
    inputs = [*(made.rows(name, width) for name, width in given.items()), w, kept, *where(made)]
    if bias:
        inputs.append(made.vector(ordinary(rng, 1, n)[0]))
    attrs: dict[str, Any] = {"apart": True} if apart else {}
    made.node(Op.SSM_CONV1D, inputs, [made.out("y", n), kept], activation="silu" if gated else "none", **attrs)
    return made.case(steps(rng, given, hostile if wild else ordinary))


@cache
def delta(n_k: int, n_v: int, dim: int, pairing: str, wild: bool = False, **decay: Any) -> Case:
    """decay: attributes of decays of channels."""
    rng = np.random.default_rng(n_v * dim)
    made = net()
    kept, width, rates = state(made, n_v, dim, dim), (2 * n_k + n_v) * dim, n_v * dim if decay else n_v
    a, dt = made.vector(-np.exp(ordinary(rng, 1, n_v)[0])), made.vector(ordinary(rng, 1, rates)[0])
    made.node(
        Op.SSM_DELTA_NET,
        [made.rows("u", width), made.rows("alpha", rates), made.rows("beta", n_v), a, dt, kept, *where(made)],
        [made.out("o", n_v * dim), kept],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=dim,
        eps=1e-6,
        pairing=pairing,
        **decay,
    )
    return made.case(steps(rng, {"u": width, "alpha": rates, "beta": n_v}, hostile if wild else ordinary))


@cache
def sigmoid_norm(n_heads: int, dim: int) -> Case:
    rng = np.random.default_rng(dim)
    made, n = net(), n_heads * dim
    inputs = [made.rows("o", n), made.rows("z", n), made.vector(ordinary(rng, 1, dim)[0])]
    attrs: dict[str, Any] = {"eps": 1e-6, "n_heads": n_heads, "head_dim": dim, "activation": "sigmoid"}
    made.node(Op.SSM_GATED_NORM, inputs, [made.out("y", n)], **attrs)
    return made.case(steps(rng, {"o": n, "z": n}))


@cache
def scan(n_heads: int, dim: int, groups: int, size: int, wild: bool = False, *, norm: bool = False) -> Case:
    """Channels and B and C in one buffer, as a convolution leaves them. norm: gate and norm of groups behind it."""
    rng = np.random.default_rng(n_heads * dim + size)
    made, n = net(), n_heads * dim
    kept, width = state(made, n_heads, size, dim), n_heads * dim + 2 * groups * size
    u, dt = made.rows("u", width), made.rows("dt", n_heads)
    d = made.matrix(T.F32, ordinary(rng, n_heads, 1).view(np.uint8))
    a = made.matrix(T.F32, -np.exp(ordinary(rng, n_heads, 1)).view(np.uint8))
    y = made.temp(n) if norm else made.out("y", n)
    made.node(
        Op.SSM_SCAN,
        [u, dt, a, made.vector(ordinary(rng, 1, n_heads)[0]), d, kept, *where(made)],
        [y, kept],
        n_heads=n_heads,
        head_dim=dim,
        n_groups=groups,
        state_size=size,
    )
    widths = {"u": width, "dt": n_heads}
    if norm:
        weight = made.matrix(T.F32, ordinary(rng, groups, n // groups).view(np.uint8))
        made.node(
            Op.SSM_GATED_NORM, [y, made.rows("z", n), weight], [made.out("g", n)], eps=1e-5, n_heads=groups,
            head_dim=n // groups, gate_first=True,
        )  # fmt: skip
        widths["z"] = n
    return made.case(steps(rng, widths, hostile if wild else ordinary))


@cache
def channel_scan(n: int, size: int, wild: bool = False) -> Case:
    """Mamba 1: a step size for each channel, a decay for each element of its state."""
    rng = np.random.default_rng(n + size)
    made = net()
    kept = state(made, size, n)
    rates = made.matrix(T.F32, -np.exp(np.minimum(ordinary(rng, size + 1, n), 8)).view(np.uint8))
    inputs = [made.rows("x", n), made.rows("b", size), made.rows("c", size), made.rows("dt", n), rates, kept]
    made.node(
        Op.SSM_SCAN, [*inputs, *where(made)], [made.out("y", n), kept], head_dim=n, state_size=size, per_channel=True
    )
    return made.case(steps(rng, {"x": n, "b": size, "c": size, "dt": n}, hostile if wild else ordinary))


@cache
def layer() -> Case:
    """All of a layer, as its products see it: the gated norm and the gate feed matrices."""
    rng = np.random.default_rng(5)
    made, n_k, n_v, dim = net(), 2, 4, 32
    width, at = (2 * n_k + n_v) * dim, where(made)
    x, convolved, o, normed, gated = made.rows("x", width), *(made.temp(n) for n in (width, 128, 128, 128))
    inputs, kept = state(made, 3, width), state(made, n_v, dim, dim)
    taps = made.matrix(T.F32, ordinary(rng, width, 4).view(np.uint8))
    made.node(Op.SSM_CONV1D, [x, taps, inputs, *at], [convolved, inputs])
    a, dt = made.vector(-np.exp(ordinary(rng, 1, n_v)[0])), made.vector(ordinary(rng, 1, n_v)[0])
    made.node(
        Op.SSM_DELTA_NET,
        [convolved, made.rows("alpha", n_v), made.rows("beta", n_v), a, dt, kept, *at],
        [o, kept],
        n_k_heads=n_k,
        n_v_heads=n_v,
        head_dim=dim,
        eps=1e-6,
        pairing="modulo",
    )
    z = made.rows("z", 128)
    norm = made.vector(ordinary(rng, 1, dim)[0])
    made.node(Op.SSM_GATED_NORM, [o, z, norm], [normed], eps=1e-6, n_heads=n_v, head_dim=dim)
    made.node(Op.SIGMOID_MUL, [normed, z], [gated])
    made.node(Op.MUL, [gated, z], [made.out("product", 128)])
    for name, source in (("y", normed), ("g", gated)):
        raw = ordinary(rng, 18, 128).view(np.uint8)
        made.node(Op.MATMUL, [source, made.matrix(T.F32, raw)], [made.out(name, 18)])
    return made.case(steps(rng, {"x": width, "alpha": n_v, "beta": n_v, "z": 128}))


CASES: dict[str, Callable[[], Case]] = {
    "conv 4": lambda: conv(300, 4, False, True),
    "conv 2 with bias": lambda: conv(64, 2, True, False),
    "conv of odd width": lambda: conv(37, 3, True, True),
    "wild conv": lambda: conv(64, 4, False, True, True),
    "delta 32": lambda: delta(2, 4, 32, "modulo"),
    "delta 128": lambda: delta(1, 2, 128, "block"),
    "delta 32 in blocks": lambda: delta(2, 6, 32, "block"),
    "delta of odd size": lambda: delta(1, 3, 12, "modulo"),
    "wild delta": lambda: delta(2, 4, 32, "modulo", True),
    "conv of thirds": lambda: conv(75, 4, False, True, apart=True),
    "wide conv of thirds": lambda: conv(900, 3, False, False, apart=True),
    "channels 32": lambda: delta(2, 2, 32, "block", decay="channel"),
    "bounded channels 128": lambda: delta(1, 1, 128, "block", decay="channel", lower_bound=-5.0),
    "channels of odd size": lambda: delta(1, 3, 12, "modulo", decay="channel", lower_bound=-5.0),
    "wild channels": lambda: delta(2, 2, 32, "block", True, decay="channel"),
    "sigmoid norm": lambda: sigmoid_norm(3, 24),
    "layer": layer,
    "scan": lambda: scan(4, 64, 2, 48, norm=True),
    "scan of odd size": lambda: scan(3, 12, 1, 33),
    "wild scan": lambda: scan(2, 32, 2, 40, True),
    "scan of channels": lambda: channel_scan(96, 16),
    "wild scan of channels": lambda: channel_scan(40, 16, True),
}


SOON = (
    *(
        "conv of odd width",
        "conv of thirds",
        "wild conv",
        "delta of odd size",
        "wild delta",
        "wild channels",
        "sigmoid norm",
    ),
    *("channels of odd size", "layer", "scan", "scan of channels"),
)
"""Each form of each kernel in one size, and sizes that fill no lanes; compiling takes most of the time."""


@cache
def wanted(name: str) -> Outputs:
    return expected(CASES[name]())


@pytest.mark.parametrize("isa", BEST_AND_LEAST)
@pytest.mark.parametrize("name", soon(SOON, CASES))
def test_recurrent(name: str, isa: str) -> None:
    case, want = CASES[name](), wanted(name)
    assert finite_share(want, case) > (0.05 if "wild" in name else 0.99)
    for threads in THREADS if isa == LEVELS[0] else (2,):
        check(case, want, isa, threads)

"""Products of parts of rows with a matrix each, and the same as products of their own."""

from __future__ import annotations

import numpy as np

from tests.backends.cpu.both import Case, Net, Step
from tests.backends.cpu.hostile import hostile, ordinary
from tests.kernels.material import FLOATS, T, float_rows, packed_rows
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.op import Op

# format, parts, n_in, n_out
SHAPES = (
    (T.Q8_0, 5, 96, 24),
    (T.Q4_0, 3, 64, 40),
    (T.Q6_K, 2, 256, 16),
    (T.F16, 3, 40, 33),
    (T.F32, 4, 64, 17),
    (T.Q8_0, 1, 1056, 9),
)
COUNTS = (1, 2, 3, 5, 16, 17, 40)


def activations(rng: np.random.Generator, n: int, width: int) -> np.ndarray:
    return np.where(rng.random((n, 1)) < 0.7, ordinary(rng, n, width), hostile(rng, n, width, finite=False))


def grouped(kind: GGMLType, parts: int, n_in: int, n_out: int, counts: tuple[int, ...] = COUNTS) -> tuple[Case, Case]:
    """One node of all parts; a node for each part, over inputs and outputs of their own."""
    rng = np.random.default_rng([parts, n_in, n_out])
    total = parts * n_out
    raw = packed_rows(kind, rng, total, n_in) if kind not in FLOATS else float_rows(kind, ordinary(rng, total, n_in))
    raw, most = np.ascontiguousarray(raw), max(counts)
    rows = [activations(rng, n, parts * n_in) for n in counts]
    whole, apart = Net(most), Net(most)
    matrix = whole.matrix(kind, raw, parts)
    whole.node(Op.GROUP_MATMUL, [whole.rows("x", parts * n_in), matrix], [whole.out("y", total)])
    for part, piece in enumerate(np.split(raw, parts)):
        matrix = apart.matrix(kind, np.ascontiguousarray(piece))
        apart.node(Op.MATMUL, [apart.rows(f"x{part}", n_in), matrix], [apart.out(f"y{part}", n_out)])
    pieces = [{f"x{i}": x for i, x in enumerate(np.split(part, parts, axis=1))} for part in rows]
    return (
        whole.case([Step(n, {"x": x}) for n, x in zip(counts, rows, strict=True)]),
        apart.case([Step(n, x) for n, x in zip(counts, pieces, strict=True)]),
    )

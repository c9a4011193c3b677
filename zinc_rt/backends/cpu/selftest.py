"""Whether this machine runs compiled kernels as it should.

Its matrix registers are tried before they are trusted: a kernel uses them for 16 rows together and vectors for fewer,
so one kernel computes the same rows both ways.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import record
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner, UnitsPer, plain_step
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.lang.library import Library

_ROWS, _N_OUT, _N_IN = layout.BLOCK_ROWS, 20, 512  # a whole tile and a rest, two super-blocks
_PART = 8


def sums_are_right(library: Library, threads: int) -> bool:
    """A small program on so many threads of its own: the sums of numbers that are known."""
    n, chunk = 3 * threads, 4096
    x = huge_bytes(n * chunk)
    words = x.view(np.int32).reshape(n, -1)
    words[:] = np.arange(n)[:, None]
    sums = np.zeros(n, np.int64)
    arguments = {"x": x, "y": sums, "chunk": chunk}
    op = CpuOperation(
        "sum", "sum", TargetTuning.of(library.target).read_sum(), structs.SumArgs, arguments, n, UnitsPer.ONCE, phase=0
    )
    runner = Runner(library, threads)
    library.load([op.kernel, *runner.kernels()])  # all at once: they are compiled side by side
    try:
        runner.run(CpuProgram.build([op], plain_step(), library, threads))
    finally:
        runner.close()
    return bool((sums == words.sum(axis=1)).all())


def matrix_products_agree(library: Library, choice: TargetTuning, kind: GGMLType) -> bool:
    """Sixteen rows of a format at once and in two parts, bit for bit."""
    rng = np.random.default_rng(0)
    groups = layout.n_groups(_N_IN)
    w = huge_bytes(layout.matrix_bytes(kind, _N_OUT, _N_IN))
    w[:] = rng.integers(0, 60, w.size)  # bytes below 60: every float16 among them is finite
    q = rng.integers(-127, 128, (groups, _ROWS, 32)).astype(np.int8)
    d = rng.standard_normal((groups, _ROWS)).astype(np.float32)
    s = rng.integers(-4000, 4000, (6, groups, _ROWS)).astype(np.int32)
    s[0] = rng.standard_normal((groups, _ROWS)).astype(np.float32).view(np.int32)
    runner = Runner(library, 1)
    whole = _product(library, runner, choice, kind, w, q, d, s)
    for at in range(0, _ROWS, _PART):
        rows = slice(at, at + _PART)
        part = _product(library, runner, choice, kind, w, q[:, rows], d[:, rows], s[:, :, rows])
        if not np.array_equal(whole[rows].view(np.uint32), part.view(np.uint32)):
            return False
    return True


def _product(
    library: Library, runner: Runner, choice: TargetTuning, kind: GGMLType, w: npt.NDArray[np.uint8],
    q: npt.NDArray[np.int8], d: npt.NDArray[np.float32], s: npt.NDArray[np.int32],
) -> npt.NDArray[np.float32]:  # fmt: skip
    """y f32[rows, n_out] of q i8[groups, rows, 32], d f32[groups, rows], s i32[6, groups, rows]: a block of a pack."""
    groups, rows = d.shape
    # A record keeps addresses alone: these arrays stay until the product is done.
    parts = {name: np.ascontiguousarray(a) for name, a in (("q", q), ("d", d), ("s", s))}
    pack = record(structs.Pack, {**parts, "s_stride": rows * groups, "n": _N_IN, "n_groups": groups})
    y = np.zeros((rows, _N_OUT), np.float32)
    arguments = {
        "w": w, "tile_bytes": layout.tile_bytes(kind, _N_IN), "pack": pack, "y": y, "bias": 0, "n_out": _N_OUT,
        "by_logit": 0,
    }  # fmt: skip
    op = CpuOperation(
        "self-test", "matmul", choice.matmul(kind), structs.MatmulArgs, arguments, layout.n_tiles(_N_OUT),
        UnitsPer.ONCE,
        phase=0,
    )  # fmt: skip
    runner.run(CpuProgram.build([op], record(structs.StepRecord, {"n_rows": rows}), library, 1))
    return y

"""Whether this machine runs compiled kernels as it should.

Its matrix registers are tried before they are trusted: the same product is computed with them and in vectors.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.arg_structs import record
from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner, UnitsPer, plain_step
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout, structs
from zinc_rt.lang.library import Library
from zinc_rt.numerics import GROUP

TRIAL_ROWS = 3 * layout.BLOCK_ROWS + 5
"""Two blocks at once, one by itself, and a rest that vectors take."""


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


class ProductTrial:
    """A matrix and rows of known numbers, for products of one format.

    rows: as many as there are; products take the first so many of them.
    """

    def __init__(self, library: Library, kind: GGMLType, n_out: int, n_in: int, rows: int, *, threads: int = 1) -> None:
        self.library, self.kind, self.n_out, self.n_in = library, kind, n_out, n_in
        self.runner = Runner(library, threads)
        rng = np.random.default_rng(0)
        groups = layout.n_groups(n_in)
        self._w = huge_bytes(layout.matrix_bytes(kind, n_out, n_in))
        # Bytes below 60: every float16 among them is finite.
        self._w[:] = np.resize(rng.integers(0, 60, min(self._w.size, 1 << 20), np.uint8), self._w.size)
        self._q = rng.integers(-127, 128, (rows, groups, GROUP), np.int8)
        self._d = rng.standard_normal((rows, groups), np.float32)
        first, second = (half.sum(axis=-1, dtype=np.int32) for half in np.split(self._q, 2, axis=-1))
        self._s = [
            (first + second).astype(np.float32).view(np.int32),
            *((first + second) * -bias for bias in structs.BIASES),
            first * -structs.HALF_BIAS,
            second * -structs.HALF_BIAS,
            -(self._q[..., ::2].astype(np.int32) * self._q[..., 1::2]).sum(axis=-1, dtype=np.int32),
            *rng.integers(-(1 << 31), 1 << 31, (structs.EIGHTH_WORDS, rows, groups), np.int32),
        ]

    @classmethod
    def small(cls, library: Library, kind: GGMLType) -> ProductTrial:
        """Large enough to see whether products are right: a whole tile and a rest, lanes of one group and of two."""
        return cls(library, kind, 20, 1280, TRIAL_ROWS)

    def program(self, choice: TargetTuning, rows: int) -> tuple[CpuProgram, npt.NDArray[np.float32]]:
        """A product, and y f32[rows, n_out] that it writes."""
        q = self._q[:rows]
        parts = {
            "q": _packed(q),
            "words": _packed(np.concatenate([q[..., ::2], q[..., 1::2]], axis=-1).astype(np.int16)),
            "d": _packed(self._d[:rows]),
            "s": np.stack([_packed(sums[:rows]) for sums in self._s]),
        }
        pack = record(
            structs.Pack,
            {**parts, "s_stride": parts["d"].size, "n": self.n_in, "n_groups": layout.n_groups(self.n_in)},
        )
        y = np.zeros((rows, self.n_out), np.float32)
        arguments = {
            "w": self._w,
            "tile_bytes": layout.tile_bytes(self.kind, self.n_in),
            "pack": pack,
            "y": y,
            "bias": 0,
            "n_out": self.n_out,
            "by_logit": 0,
        }
        op = CpuOperation(
            "self-test",
            "matmul",
            choice.matmul(self.kind),
            structs.MatmulArgs,
            arguments,
            layout.n_tiles(self.n_out),
            UnitsPer.ONCE,
            phase=0,
        )
        program = CpuProgram.build(
            [op], record(structs.StepRecord, {"n_rows": rows}), self.library, self.runner.threads
        )
        program.keep.append(parts)  # a record keeps addresses alone
        return program, y

    def product(self, choice: TargetTuning, rows: int) -> npt.NDArray[np.float32]:
        """y f32[rows, n_out]."""
        program, y = self.program(choice, rows)
        self.runner.run(program)
        return y

    def agrees(self, choice: TargetTuning) -> bool:
        """Whether a product of few rows and one of many are those of vectors, bit for bit."""
        vectors = replace(choice, ways=())
        return all(
            np.array_equal(self.product(choice, rows).view(np.uint32), self.product(vectors, rows).view(np.uint32))
            for rows in (layout.BLOCK_ROWS, TRIAL_ROWS)
        )


def _packed(rows: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows [rows, groups, ...] in the order of a `structs.Pack`, in one dimension."""
    block = min(len(rows), layout.BLOCK_ROWS)
    whole = np.zeros((-(-len(rows) // block) * block, *rows.shape[1:]), rows.dtype)
    whole[: len(rows)] = rows
    blocks = whole.reshape(-1, block, *rows.shape[1:])
    return np.ascontiguousarray(blocks.swapaxes(1, 2)).reshape(-1)

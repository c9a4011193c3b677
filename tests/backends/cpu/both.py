"""One graph on the native kernels and on the reference ones: the same bits, where NaN equals NaN.

A `Case` is a small graph with its weights and some steps. What the reference makes of it is computed once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from tests.helpers import soon
from tests.ir.dense import named
from zinc_rt.backends.base import Backend, Capacity
from zinc_rt.backends.cpu.backend import CpuBackend
from zinc_rt.backends.reference.backend import ReferenceBackend
from zinc_rt.gguf import GGMLType
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import BufferKind, DType, Graph
from zinc_rt.ir.op import Op
from zinc_rt.lang.target import host_targets

LEVELS = tuple(t.name for t in host_targets())
"""Instruction-set levels that this machine runs, best first."""
BEST_AND_LEAST = soon((LEVELS[0], LEVELS[-1]), LEVELS)
"""Those between only in slow tests, as compiling takes most of the time. Between the two, levels
differ in the lanes of a register, which are those of the best or of the least, and in how bytes are multiplied, which
`test_products.py` tries on each of them.
"""
THREADS = (1, 2, 3, 4)
UNTOUCHED = 0x7FC0BEEF
"""What outputs hold before a step, as bits: rows that a step does not have must keep it."""
GARBAGE = np.random.default_rng(1).integers(-(1 << 31), 1 << 31, 4099).astype(np.int32)
"""What inputs hold behind a step's rows, over and over."""


def on_levels(cases: Iterable[Any], least: Collection[Any], best: Collection[Any] | None = None) -> list[Any]:
    """Parameters (case, isa): `best` of the cases on the best level, all by default, and `least` on the least one; the
    others, and the levels between, in slow tests.
    """
    cases = list(cases)
    soon = {LEVELS[-1]: least, LEVELS[0]: cases if best is None else best}
    return [
        pytest.param(case, isa, id=f"{case}-{isa}", marks=() if case in soon.get(isa, ()) else pytest.mark.slow)
        for isa in LEVELS
        for case in cases
    ]


@cache
def native(isa: str, threads: int) -> CpuBackend:
    """A backend for all tests."""
    return CpuBackend(isa=isa, threads=threads)


@cache
def reference() -> ReferenceBackend:
    return ReferenceBackend()


@dataclass(frozen=True)
class Step:
    """inputs: by name, the first rows of each input; what lies behind them is filled with garbage."""

    n_rows: int
    inputs: Mapping[str, npt.ArrayLike]
    n_logits: int = 0


@dataclass(frozen=True)
class Case:
    graph: Graph
    sizes: Capacity
    weights: Mapping[str, np.ndarray]
    constants: Mapping[str, np.ndarray]
    steps: Sequence[Step]


Outputs = list[dict[str, np.ndarray]]


class Net:
    """Builds a case: buffers with their contents, then nodes."""

    def __init__(self, n_rows: int, *, n_logits: int = 1, n_ctx: int = 16, n_slots: int = 1, n_pages: int = 1) -> None:
        self.sizes = Capacity(n_rows, n_logits, n_ctx, n_slots, n_pages)
        self.b = GraphBuilder("case")
        self.weights: dict[str, np.ndarray] = {}
        self.constants: dict[str, np.ndarray] = {}
        self._count = 0

    def _name(self, kind: str) -> str:
        self._count += 1
        return f"{kind}{self._count}"

    def rows(self, name: str, width: int, first: str = "n_rows") -> int:
        """Activations that a step brings: f32[n_rows, width]."""
        return self.b.buffer(name, BufferKind.INPUT, DType.F32, [first, width])

    def indices(self, name: str, *shape: str) -> int:
        return self.b.buffer(name, BufferKind.INPUT, DType.I32, shape)

    def where(self) -> list[int]:
        """Where a step's rows stand in the cache."""
        return [
            self.indices("positions", "n_rows"),
            self.indices("slots", "n_rows"),
            self.indices("page_table", "n_slots", "max_pages"),
        ]

    def temp(self, width: int, first: str = "n_rows") -> int:
        return self.b.buffer(self._name("temp"), BufferKind.TEMP, DType.F32, [first, width])

    def out(self, name: str, width: int, first: str = "n_rows") -> int:
        return self.b.buffer(name, BufferKind.OUTPUT, DType.F32, [first, width])

    def matrix(self, kind: GGMLType, raw: np.ndarray, parts: int = 0) -> int:
        """A weight from packed rows, u8[n_out, row_bytes]; parts: so many matrices, one after another."""
        name = self._name("w")
        self.weights[name] = raw
        n_in = raw.shape[1] // kind.block_bytes * kind.block_size
        shape = [parts, len(raw) // parts] if parts else [len(raw)]
        return self.b.buffer(name, BufferKind.WEIGHT, DType[kind.name], [*shape, n_in])

    def vector(self, values: np.ndarray) -> int:
        """A norm's weights or a bias, f32[n], or f32[n_heads, n] with those of each head."""
        name = self._name("v")
        self.weights[name] = np.ascontiguousarray(np.atleast_2d(values), np.float32).view(np.uint8)
        return self.b.buffer(name, BufferKind.WEIGHT, DType.F32, list(values.shape))

    def table(self, values: np.ndarray) -> int:
        """A table by position, as that of a rotation, f32[n_ctx, pairs, 2]."""
        name = self._name("table")
        self.constants[name] = np.ascontiguousarray(values, np.float32)
        return self.b.buffer(name, BufferKind.CONSTANT, DType.F32, ["n_ctx", *values.shape[1:]])

    def cache(self, n_kv: int, dim: int, dtype: DType = DType.F16) -> int:
        return self.b.buffer(self._name("cache"), BufferKind.STATE, dtype, ["n_pages", 16, n_kv, dim])

    def caches(self, n_kv: int, dim: int, value_dim: int | None = None, dtype: DType = DType.F16) -> list[int]:
        """Of keys and of values."""
        return [self.cache(n_kv, dim, dtype), self.cache(n_kv, value_dim or dim, dtype)]

    def node(self, op: Op, inputs: Iterable[int], outputs: Iterable[int], **attrs: object) -> None:
        self.b.node(op, inputs, outputs, **attrs)

    def case(self, steps: Sequence[Step]) -> Case:
        return Case(self.b.build(), self.sizes, self.weights, self.constants, steps)


def outputs(backend: Backend, case: Case) -> Outputs:
    """Every output of every step, as bits, whole buffers."""
    plan = backend.tune(backend.plan(case.graph, case.sizes))
    batch = backend.lower(plan, case.weights, case.constants)
    garbage = {name: np.resize(GARBAGE, array.shape) for name, array in batch.inputs.items()}
    out: Outputs = []
    for step in case.steps:
        for name, array in batch.inputs.items():
            given = np.asarray(step.inputs[name])
            bits = np.ascontiguousarray(given, np.float32 if given.dtype.kind == "f" else np.int32).view(np.int32)
            array[...] = garbage[name] if given.dtype.kind == "f" else 0
            array[tuple(slice(n) for n in bits.shape)] = bits
        for array in batch.outputs.values():
            array.view(np.uint32)[...] = UNTOUCHED
        batch.counts[:] = step.n_rows, step.n_logits
        backend.submit_and_wait(batch)
        out.append({name: array.view(np.uint32).copy() for name, array in batch.outputs.items()})
    return out


def expected(case: Case) -> Outputs:
    """What the reference kernels give."""
    return outputs(reference(), case)


def check(case: Case, want: Outputs, isa: str, threads: int) -> None:
    """The native kernels give the same."""
    compare(case, outputs(native(isa, threads), case), want, f"{isa}, {threads} threads")


def compare(case: Case, got: Outputs, want: Outputs, who: str) -> None:
    """The same bits, and rows that a step does not have are untouched."""
    for number, (step, a, b) in enumerate(zip(case.steps, got, want, strict=True)):
        for name, bits in a.items():
            buffer = named(case.graph, name)
            live = step.n_rows if buffer.shape[0] == "n_rows" else step.n_logits
            where = f"{who}, step {number} of {live} rows, {name}"
            assert (bits[live:] == UNTOUCHED).all(), f"{where}: wrote behind the step's rows"
            assert_same(bits[:live], b[name][:live], where, floats=buffer.dtype is DType.F32)


def assert_same(got: np.ndarray, want: np.ndarray, where: str, *, floats: bool = True) -> None:
    """Equal bits; for floats any NaN equals any other."""
    assert got.shape == want.shape, where
    differ = got != want
    if floats:
        x, y = got.view(np.float32), want.view(np.float32)
        differ &= ~(np.isnan(x) & np.isnan(y))
    if differ.any():
        at = tuple(int(i) for i in np.argwhere(differ)[0])
        kind = np.float32 if floats else np.int32
        raise AssertionError(
            f"{where}: {int(differ.sum())} of {differ.size} differ, first at {at}:"
            f" {got.view(kind)[at]!r} ({int(got[at]):#010x}) instead of {want.view(kind)[at]!r} ({int(want[at]):#010x})"
        )


def finite_share(want: Outputs, case: Case) -> float:
    """The share of numbers among the live outputs: a case whose results are all NaN shows nothing."""
    live = [
        w[name][: step.n_rows if named(case.graph, name).shape[0] == "n_rows" else step.n_logits]
        for step, w in zip(case.steps, want, strict=True)
        for name in w
    ]
    return float(np.mean([np.isfinite(bits.view(np.float32)).mean() for bits in live if bits.size]))

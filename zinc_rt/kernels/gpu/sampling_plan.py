"""Sampling as a part of a batch: which kernels run, in what order, on which memory.

A plan knows sizes only. What changes from token to token (parameters of rows, the tokens that bias and penalties touch)
is in memory that the host writes before a submission, so a batch that was recorded once serves every step.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import numpy as np

from zinc_rt.kernels.gpu.sampling import GpuSampleArgs, GpuSampleRow, Touched
from zinc_rt.kernels.gpu.sampling_draw import MOST, RESIDENT_MOST
from zinc_rt.kernels.gpu.sampling_top import BLOCK, RESIDENT_BLOCK
from zinc_rt.lang.types import layout_of
from zinc_rt.numerics import SUM_BLOCK


def _dtype(struct: object) -> np.dtype[np.void]:
    return np.dtype(dict(layout_of(struct).numpy))  # type: ignore[call-overload,no-any-return]


MOST_TOKENS: Final = MOST * SUM_BLOCK
"""Of a vocabulary: `sample_draw` holds the sums of so many blocks."""
SCORES_OF_GROUP: Final = 1024
TOUCHED_OF_GROUP: Final = 64
ROW: Final = _dtype(GpuSampleRow)
TOUCHED: Final = _dtype(Touched)
ARGS: Final = _dtype(GpuSampleArgs)
INPUTS: Final = ("logits", "rows", "touched", "table")
"""Memory that is written before: by the step, by the host for each token, and once."""
OUTPUTS: Final = ("tokens", "status")
_POINTERS: Final = (*INPUTS, *OUTPUTS, "scores", "totals")


@dataclass(frozen=True)
class SamplingShape:
    """What the rows of a batch may ask for at most. candidates: tokens of a row in order, a power of two up to 1024;
    whole: whether a row may keep more tokens than that; touched: tokens of a row that bias and penalties change.
    """

    candidates: int = 1
    whole: bool = False
    touched: int = 0

    def __or__(self, other: SamplingShape) -> SamplingShape:
        """Enough for both."""
        return SamplingShape(
            max(self.candidates, other.candidates), self.whole or other.whole, max(self.touched, other.touched)
        )


class PlanRecorder(Protocol):
    """A list of dispatches that a plan is recorded into."""

    def dispatch(self, program: Any, groups: tuple[int, int, int], *arguments: Any) -> Any:
        """Run a kernel."""

    def barrier(self, *, light: bool = False) -> Any:
        """Dispatches behind it see the results of those before it."""


@dataclass(frozen=True)
class SamplingStep:
    """One dispatch: a kernel of the catalogue, its workgroups, its arguments: names of memory, and numbers."""

    kernel: str
    groups: tuple[int, int, int]
    arguments: tuple[str | int, ...]


@dataclass(frozen=True)
class SamplingPlan:
    """n_vocab tokens, `rows` of them at once. memory: dtype and elements of everything, by name; the inputs and outputs
    may be larger.
    """

    n_vocab: int
    rows: int
    shape: SamplingShape
    steps: tuple[SamplingStep, ...]
    memory: Mapping[str, tuple[np.dtype[Any], int]]
    rounds: int  # of sorting

    @property
    def scratch_bytes(self) -> int:
        """Of what is neither input nor output."""
        return sum(t.itemsize * n for name, (t, n) in self.memory.items() if name not in (*INPUTS, *OUTPUTS))

    def arguments(self, address: Mapping[str, int]) -> np.ndarray[Any, Any]:
        """The `GpuSampleArgs` that memory `args` gets, once. address: of all other memory."""
        args = np.zeros(1, ARGS)
        for name in _POINTERS:
            args[name] = address[name]
        args["keys"], args["ids"] = address[f"keys{self.rounds - 1}"], address[f"ids{self.rounds - 1}"]
        args["n"], args["k"] = self.n_vocab, self.shape.candidates
        args["n_blocks"], args["max_touched"] = -(-self.n_vocab // SUM_BLOCK), self.shape.touched
        return args

    def record(self, batch: PlanRecorder, programs: Mapping[str, Any], memory: Mapping[str, Any]) -> None:
        """Append the dispatches to a batch, each behind a barrier. programs: by the kernels' names."""
        for step in self.steps:
            batch.barrier(light=True)
            batch.dispatch(
                programs[step.kernel], step.groups, *(memory[a] if isinstance(a, str) else a for a in step.arguments)
            )


def resident_plan(n_vocab: int, rows: int, shape: SamplingShape) -> SamplingPlan | None:
    """The same within a resident program; None for what its kernels do not take: whole vocabularies, many candidates.

    Raises what `plan` raises.
    """
    if shape.whole or shape.candidates > RESIDENT_MOST:
        return None
    return plan(n_vocab, rows, shape, RESIDENT_BLOCK)


def plan(n_vocab: int, rows: int, shape: SamplingShape, block: int = BLOCK) -> SamplingPlan:
    """How `rows` rows of logits become tokens. block: scores or candidates that a workgroup puts in order.

    Raises `ValueError` for sizes that the kernels do not take.
    """
    k = shape.candidates
    if not 1 <= n_vocab <= MOST_TOKENS:
        raise ValueError(f"a vocabulary of {n_vocab} tokens; the kernels take 1 to {MOST_TOKENS}")
    if not 1 <= k <= MOST or k & (k - 1):
        raise ValueError(f"{k} candidates; they must be a power of two up to {MOST}")
    if not 1 <= rows < 1 << 16 or shape.touched < 0:
        raise ValueError(f"{rows} rows with {shape.touched} touched tokens each; rows are 1 to 65535")
    blocks = -(-n_vocab // SUM_BLOCK)
    u64, u32, f64 = np.dtype(np.uint64), np.dtype(np.uint32), np.dtype(np.float64)
    memory: dict[str, tuple[np.dtype[Any], int]] = {
        "args": (ARGS, 1),
        "logits": (np.dtype(np.float32), rows * n_vocab),
        "rows": (ROW, rows),
        "touched": (TOUCHED, rows * max(shape.touched, 1)),
        "table": (u64, 128),
        "tokens": (np.dtype(np.int32), rows),
        "status": (u32, rows),
        "scores": (f64, rows * n_vocab),
        "totals": (f64, rows * blocks),
    }
    steps = [SamplingStep("sample_scores", (-(-n_vocab // SCORES_OF_GROUP), rows, 1), ("args",))]
    if shape.touched:
        steps.append(SamplingStep("sample_adjust", (-(-shape.touched // TOUCHED_OF_GROUP), rows, 1), ("args",)))
    left, rounds = n_vocab, 0
    while True:
        groups = -(-left // block)
        memory[f"keys{rounds}"], memory[f"ids{rounds}"] = (u64, rows * groups * k), (u32, rows * groups * k)
        to = (f"keys{rounds}", f"ids{rounds}", left, k)
        if rounds == 0:
            steps.append(SamplingStep("sample_top_scores", (groups, rows, 1), ("scores", *to)))
        else:
            steps.append(SamplingStep("sample_top", (groups, rows, 1), (f"keys{rounds - 1}", f"ids{rounds - 1}", *to)))
        left, rounds = groups * k, rounds + 1
        if groups == 1:
            break
    if shape.whole:
        steps.append(SamplingStep("sample_totals", (blocks, rows, 1), ("args",)))
    steps.append(SamplingStep("sample_draw", (rows, 1, 1), ("args",)))
    return SamplingPlan(n_vocab, rows, shape, tuple(steps), memory, rounds)

"""Rows of a step: what a caller asks for, the checks of it, and the step's input arrays made of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.errors import ZincError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.models.hidden import LAST_POSITIONS

_STEP_INPUTS = ("token_ids", "positions", "slots")


class EngineError(ZincError):
    """The engine was used against its rules."""


@dataclass(frozen=True)
class Rows:
    """Consecutive positions of one sequence in a step.

    slot: the sequence; start: position of the first token; tokens: ids; wanted: which of them (indices) want logits.
    draft: how many of the last tokens are guesses, which `Engine.settle` confirms or takes back after the step.
    """

    slot: int
    start: int
    tokens: Sequence[int] | npt.NDArray[np.integer]
    wanted: Sequence[int] = ()
    draft: int = 0


def write_rows(
    rows: Sequence[Rows],
    inputs: Mapping[str, npt.NDArray[np.int32]],
    sizes: Capacity,
    check_start: Callable[[Rows], None],
) -> tuple[int, int]:
    """Check rows and write a step's inputs; returns its row and logit counts.

    check_start: called with the first rows of each sequence, to raise where they cannot start.

    Raises `EngineError`, `TokenOutOfRange` for ids outside int32.
    """
    n_rows, n_wanted = 0, 0
    ids, positions, slots = (inputs[name] for name in _STEP_INPUTS)
    logit_rows, last = inputs.get("logit_rows"), inputs.get(LAST_POSITIONS)
    ends: dict[int, int] = {}  # of sequences that have rows in this step already
    for part in rows:
        end = part.start + len(part.tokens)
        _check_rows(part, n_rows, sizes)
        held = ends.get(part.slot)
        if held is None:
            check_start(part)
        elif part.start != held:
            raise EngineError(f"sequence {part.slot} holds {held} positions, rows cannot start at {part.start}")
        if last is not None and (part.start or held is not None):
            raise EngineError(f"sequence {part.slot}: every row sees all others; a step takes all of its rows at once")
        ends[part.slot] = end
        try:  # whether the ids are in the vocabulary the backend looks, before it runs
            if end == part.start + 1:  # as in every decode step: elements are set sooner than slices
                ids[n_rows], positions[n_rows], slots[n_rows] = int(part.tokens[0]), part.start, part.slot
            else:
                at = slice(n_rows, n_rows + len(part.tokens))
                ids[at], positions[at], slots[at] = [*map(int, part.tokens)], np.arange(part.start, end), part.slot
        except OverflowError:
            raise TokenOutOfRange(f"sequence {part.slot}: a token id is outside every vocabulary") from None
        if last is not None:
            last[n_rows : n_rows + len(part.tokens)] = end - 1
        if logit_rows is not None:
            if n_wanted + len(part.wanted) > sizes.n_logits:
                raise EngineError(
                    f"the step wants the logits of {n_wanted + len(part.wanted)} rows or more, n_logits is"
                    f" {sizes.n_logits}"
                )
            for i in part.wanted:
                logit_rows[n_wanted] = n_rows + int(i)
                n_wanted += 1
        n_rows += len(part.tokens)
    if not n_rows:
        raise EngineError("a step needs at least one row")
    return n_rows, n_wanted


def _check_rows(part: Rows, n_before: int, sizes: Capacity) -> None:
    n = len(part.tokens)
    if n_before + n > sizes.n_rows:
        raise EngineError(f"the step has {n_before + n} rows or more, n_batch is {sizes.n_rows}")
    if part.start < 0 or part.start + n > sizes.n_ctx:
        raise EngineError(
            f"positions {part.start} to {part.start + n - 1} do not fit the context of {sizes.n_ctx} tokens"
        )
    for i in part.wanted:
        if not 0 <= int(i) < n:
            raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")
    if len(part.wanted) > 1 and len(set(part.wanted)) != len(part.wanted):
        raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")

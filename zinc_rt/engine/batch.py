"""The rows of a step: chunks of sequences, their checks, and the step's input arrays made of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.graph import ADAPTERS, SCALES
from zinc_rt.adapters.slots import AdapterUse
from zinc_rt.backends.base import Capacity
from zinc_rt.errors import ZincError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.models.hidden import LAST_POSITIONS


class EngineError(ZincError):
    """The engine was used against its rules."""


@dataclass(slots=True)  # freezing it costs a microsecond a chunk
class SequenceChunk:
    """Consecutive positions of one sequence in a step, a row each.

    seq_id: the sequence. start: position of the first token. tokens: ids. logits_indices: the tokens whose rows want
    logits, as indices into `tokens`. n_draft: how many of the last tokens are a draft; after the step
    `KVCacheManager.accept_drafts` is told how many of them stay. adapters: of all its rows, in rising order of their
    slots; the salt with which the sequence was opened has to name them.
    """

    seq_id: int
    start: int
    tokens: Sequence[int] | npt.NDArray[np.integer]
    logits_indices: Sequence[int] = ()
    n_draft: int = 0
    adapters: tuple[AdapterUse, ...] = ()


LookedUp = Callable[[SequenceChunk, int, SequenceChunk | None], Sequence[int] | npt.NDArray[np.integer]]


def write_batch(
    chunks: Sequence[SequenceChunk],
    inputs: Mapping[str, npt.NDArray[np.int32]],
    sizes: Capacity,
    check_start: Callable[[SequenceChunk], None],
    looked_up: LookedUp | None = None,
) -> tuple[int, int]:
    """Check chunks and write a step's inputs, but for the page table; returns the numbers of rows and of logits.

    check_start: called with the first chunk of each sequence, to raise where it cannot start. looked_up: of models that
    read pictures, gives the tokens that are looked up for a chunk; it gets the number of its first row and the chunk
    before it of the same sequence.

    Raises `EngineError`, `TokenOutOfRange` for ids outside int32.
    """
    n_rows, n_logits = 0, 0
    ids, positions, slots = inputs["token_ids"], inputs["positions"], inputs["slots"]
    logit_rows, last = inputs.get("logit_rows"), inputs.get(LAST_POSITIONS) if looked_up is None else None
    adapters = _AdapterRows(inputs) if ADAPTERS in inputs else None
    ends: dict[int, int] = {}  # of sequences that have rows in this step already
    before: dict[int, SequenceChunk] = {}  # their chunks, where pictures ask for them
    for chunk in chunks:
        seq_id, start, tokens, wanted = chunk.seq_id, chunk.start, chunk.tokens, chunk.logits_indices
        n = len(tokens)
        end, n_after = start + n, n_rows + n
        if n_after > sizes.n_rows:
            raise EngineError(f"the step has {n_after} rows or more, n_batch is {sizes.n_rows}")
        if start < 0 or end > sizes.n_ctx:
            raise EngineError(f"positions {start} to {end - 1} do not fit the context of {sizes.n_ctx} tokens")
        if len(wanted) != 1 or not 0 <= wanted[0] < n:
            _check_indices(wanted, n)
        length = ends.get(seq_id)
        if length is None:
            check_start(chunk)
        elif start != length:
            raise EngineError(f"sequence {seq_id} holds {length} positions, rows cannot start at {start}")
        if last is not None and (start or length is not None):
            raise EngineError(f"sequence {seq_id}: every row sees all others; a step takes all of its rows at once")
        ends[seq_id] = end
        if looked_up is not None:
            tokens = looked_up(chunk, n_rows, before.get(seq_id))
            before[seq_id] = chunk
        try:  # whether the ids are in the vocabulary the backend looks, before it runs
            if n == 1:  # as in every decode step: elements are set sooner than slices
                ids[n_rows], positions[n_rows], slots[n_rows] = int(tokens[0]), start, seq_id
            else:
                ids[n_rows:n_after] = [*map(int, tokens)]
                positions[n_rows:n_after] = np.arange(start, end)
                slots[n_rows:n_after] = seq_id
        except OverflowError:
            raise TokenOutOfRange(f"sequence {seq_id}: a token id is outside every vocabulary") from None
        if last is not None:
            last[n_rows:n_after] = end - 1
        if adapters is not None:
            adapters.write(n_rows, n_after, chunk.adapters)
        elif chunk.adapters:
            raise EngineError(f"sequence {seq_id} has adapters, and the model was loaded without room for any")
        if logit_rows is not None:
            if n_logits + len(wanted) > sizes.n_logits:
                raise EngineError(
                    f"the step wants the logits of {n_logits + len(wanted)} rows or more, n_logits is {sizes.n_logits}"
                )
            for i in wanted:
                logit_rows[n_logits] = n_rows + int(i)
                n_logits += 1
        n_rows = n_after
    if not n_rows:
        raise EngineError("a step needs at least one row")
    return n_rows, n_logits


class _AdapterRows:
    """The step's inputs that say which adapters rows have."""

    def __init__(self, inputs: Mapping[str, npt.NDArray[np.int32]]) -> None:
        self._listed, self._scales = inputs[ADAPTERS], inputs[SCALES].view(np.float32)
        self._depth = self._listed.shape[1]

    def write(self, start: int, stop: int, uses: Sequence[AdapterUse]) -> None:
        """The adapters of rows start .. stop - 1. Raises `EngineError` for too many, and for another order."""
        slots = [use.slot for use in uses]
        if len(slots) > self._depth or slots != sorted(set(slots)) or (slots and slots[0] < 0):
            raise EngineError(f"adapters {slots} of a row; they must rise, {self._depth} at the most")
        listed = self._listed[start:stop]
        listed[:, len(slots) :] = -1
        for i, use in enumerate(uses):
            listed[:, i] = use.slot
            self._scales[start:stop, i] = use.scale


def _check_indices(wanted: Sequence[int], n: int) -> None:
    for i in wanted:
        if not 0 <= i < n:
            raise EngineError(f"logits_indices must be distinct indices below {n}, got {list(wanted)}")
    if len(wanted) > 1 and len(set(wanted)) != len(wanted):
        raise EngineError(f"logits_indices must be distinct indices below {n}, got {list(wanted)}")

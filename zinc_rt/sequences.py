"""The sequences of an engine: what each holds, its pages and recurrent state, and where its next rows may start."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.snapshots import Snapshots
from zinc_rt.checks import show, whole_numbers
from zinc_rt.errors import ZincError
from zinc_rt.kernels.errors import TokenOutOfRange
from zinc_rt.mem.kv_pages import KVPages
from zinc_rt.models.hidden import LAST_POSITIONS

_STEP_INPUTS = ("token_ids", "positions", "slots")


class EngineError(ZincError):
    """The engine was used against its rules."""


class PositionsSkipped(EngineError):
    """Rows do not follow the positions that a sequence holds."""


class ContextFull(ZincError):
    """A sequence has no room for the positions of a step."""


@dataclass(frozen=True)
class Rows:
    """Consecutive positions of one sequence in a step.

    slot: the sequence; start: position of the first token; tokens: ids; wanted: which of them (indices) want logits.
    """

    slot: int
    start: int
    tokens: Sequence[int] | npt.NDArray[np.integer]
    wanted: Sequence[int] = ()


def known_tokens(tokens: object, n_vocab: int, name: str = "token ids", where: str = "") -> list[int]:
    """Ids that a vocabulary has. name: what the ids are called; where: what an error about one of them begins with.

    Raises `UsageError` for what is no sequence of whole numbers, `TokenOutOfRange`.
    """
    ids = whole_numbers(name, tokens)
    wrong = next((token for token in ids if not 0 <= token < n_vocab), None)
    if wrong is not None:
        raise TokenOutOfRange(f"{where}token id {show(wrong)} is outside the vocabulary of {n_vocab}")
    return ids


class Sequences:
    """The books of at most `sizes.n_slots` sequences.

    Args:
        sizes: what the graph was lowered for.
        page_table: i32[n_slots, max_pages], the step's input, all zero; written in place.
        snapshots: of the states of recurrent layers, where the model has them.
    """

    def __init__(self, sizes: Capacity, page_table: npt.NDArray[np.int32], snapshots: Snapshots | None) -> None:
        self._sizes, self.snapshots = sizes, snapshots
        self._pages = KVPages(sizes.n_pages, sizes.n_slots, sizes.max_pages, page_table)
        self._lengths: dict[int, int] = {}  # open sequences: how many positions they hold

    def open(self) -> int:
        """A free slot. Raises `EngineError` when all are taken."""
        for slot in range(self._sizes.n_slots):
            if slot not in self._lengths:
                self._lengths[slot] = 0
                return slot
        raise EngineError(f"all {self._sizes.n_slots} sequences are in use; close one or raise n_slots")

    def close(self, slot: int) -> None:
        """Free the slot and its pages. Raises `EngineError` when it is not open."""
        self._check_open(slot)
        del self._lengths[slot]
        self._pages.release(slot)
        if self.snapshots is not None:
            self.snapshots.forget(slot)

    def close_all(self) -> None:
        """Give back what lies outside the lowered graph."""
        if self.snapshots is not None:
            self.snapshots.close()

    def checkpoint(self, slot: int) -> None:
        """Keep what recurrent layers hold now. Raises `EngineError` when the sequence is not open, `BackendError`."""
        self._check_open(slot)
        if self.snapshots is not None:
            self.snapshots.keep(slot)

    def resumable(self, slot: int, n_tokens: int) -> int:
        """Of the first `n_tokens` positions, as many as the sequence can go on after.

        Raises `EngineError` when it is not open.
        """
        self._check_open(slot)
        n = min(self._lengths[slot], max(0, n_tokens))
        return n if self.snapshots is None else self.snapshots.resumable(slot, n)

    def truncate(self, slot: int, n_tokens: int) -> int:
        """Go back to the last resumable position and say which. Raises `EngineError`, `BackendError`."""
        n = self.resumable(slot, n_tokens)
        if self.snapshots is not None:
            self.snapshots.go_back(slot, n)
        self._lengths[slot] = n
        self._pages.shrink(slot, n)
        return n

    def _check_open(self, slot: int) -> None:
        if slot not in self._lengths:
            raise EngineError(f"sequence {slot} is not open")

    def check_integrity(self) -> None:
        """Raise `PageIntegrityError` unless the KV page books add up."""
        self._pages.check_integrity()

    def schedule(self, rows: Sequence[Rows], inputs: Mapping[str, npt.NDArray[np.int32]]) -> tuple[int, int]:
        """Write a step's inputs; returns its row and logit counts.

        Raises `EngineError`, `ContextFull`, `PagesExhausted`, `TokenOutOfRange`.
        """
        n_rows, n_wanted = 0, 0
        ids, positions, slots = (inputs[name] for name in _STEP_INPUTS)
        logit_rows, last = inputs.get("logit_rows"), inputs.get(LAST_POSITIONS)
        ends: dict[int, int] = {}  # of sequences that have rows in this step already
        for part in rows:
            end = part.start + len(part.tokens)
            self._check_rows(part, n_rows, ends.get(part.slot))
            if LAST_POSITIONS in inputs and (part.start or part.slot in ends):
                raise EngineError(
                    f"sequence {part.slot}: every row sees all others; a step takes all of its rows at once"
                )
            self._pages.grow(part.slot, end)
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
                if n_wanted + len(part.wanted) > self._sizes.n_logits:
                    raise EngineError(
                        f"the step wants the logits of {n_wanted + len(part.wanted)} rows or more, n_logits is"
                        f" {self._sizes.n_logits}"
                    )
                for i in part.wanted:
                    logit_rows[n_wanted] = n_rows + int(i)
                    n_wanted += 1
            n_rows += len(part.tokens)
        if not n_rows:
            raise EngineError("a step needs at least one row")
        return n_rows, n_wanted

    def begin(self, rows: Sequence[Rows]) -> None:
        """The step of these rows begins."""
        if self.snapshots is not None:
            self.snapshots.begin({part.slot: part.start for part in reversed(rows)})

    def end(self, rows: Sequence[Rows]) -> None:
        """The step of these rows is over."""
        ends = {part.slot: part.start + len(part.tokens) for part in rows}
        self._lengths.update(ends)
        if self.snapshots is not None:
            self.snapshots.end(ends)

    @staticmethod
    def _check_follows(part: Rows, position: int | None) -> None:
        """Recurrent layers go on where their state is, or begin anew at 0."""
        if position is None:
            raise PositionsSkipped(
                f"sequence {part.slot}: a step broke off, so the state of its recurrent layers is lost; rows cannot"
                f" start at {part.start} before truncate() has gone back"
            )
        if part.start != position:
            raise PositionsSkipped(
                f"sequence {part.slot}: recurrent layers hold the state after {position} positions, rows cannot start"
                f" at {part.start}; truncate() goes back to a checkpoint"
            )

    def _check_rows(self, part: Rows, n_before: int, end: int | None) -> None:
        n, sizes = len(part.tokens), self._sizes
        self._check_open(part.slot)
        if n_before + n > sizes.n_rows:
            raise EngineError(f"the step has {n_before + n} rows or more, n_batch is {sizes.n_rows}")
        if part.start < 0 or part.start + n > sizes.n_ctx:
            raise ContextFull(
                f"positions {part.start} to {part.start + n - 1} do not fit the context of {sizes.n_ctx} tokens"
            )
        if part.start > self._lengths[part.slot] if end is None else part.start != end:
            held = self._lengths[part.slot] if end is None else end
            raise PositionsSkipped(f"sequence {part.slot} holds {held} positions, rows cannot start at {part.start}")
        if self.snapshots is not None and end is None and part.start:
            self._check_follows(part, self.snapshots.position(part.slot))
        for i in part.wanted:
            if not 0 <= int(i) < n:
                raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")
        if len(part.wanted) > 1 and len(set(part.wanted)) != len(part.wanted):
            raise EngineError(f"wanted must be distinct indices below {n}, got {list(part.wanted)}")

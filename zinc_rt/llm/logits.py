"""Computes the logits after each token of a text, on sequences that it borrows from a model's core."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import numpy.typing as npt

from zinc_rt.adapters.slots import AdapterUse
from zinc_rt.engine.engine import Engine, SequenceChunk
from zinc_rt.mem.errors import MemoryPlanError
from zinc_rt.mem.plan import available_memory, format_bytes
from zinc_rt.scheduler.in_process import CoreLock, InProcessClient


class LogitsRows:
    """Computes rows of logits on sequences that it borrows from a core.

    Args:
        engine: the core's.
        client: has the core.
        lock: held while a step runs and while what it gave is read.
        check: called with the lock held before each step; raises where it must not run.
        adapters: names and scales of those that rows have, asked for at each text.
    """

    def __init__(
        self,
        engine: Engine,
        client: InProcessClient,
        lock: CoreLock,
        check: Callable[[], None],
        adapters: Callable[[], tuple[tuple[str, float], ...]],
    ) -> None:
        self._engine, self._client, self._lock, self._check = engine, client, lock, check
        self.adapters = adapters

    def whole(self, ids: list[int], n_vocab: int) -> npt.NDArray[np.float32]:
        """All rows, f32[len(ids), n_vocab]. Raises `MemoryPlanError`, and what `parts` raises."""
        n_bytes, free = 4 * len(ids) * n_vocab, available_memory()
        if free is not None and n_bytes > free:
            raise MemoryPlanError(
                f"the logits of {len(ids)} tokens take {format_bytes(n_bytes)}, {format_bytes(free)} are free;"
                " take them a part at a time, from logits_in_parts"
            )
        out = np.empty((len(ids), n_vocab), np.float32)
        for start, part in self.parts(ids):
            out[start : start + len(part)] = part
        return out

    def parts(self, ids: list[int]) -> Iterator[tuple[int, npt.NDArray[np.float32]]]:
        """The rows in order, a step's worth at a time: (index of the first, f32[some, n_vocab]).

        A part is valid until the next is asked for. Raises what `Engine.step` and the check raise, `EngineError` in a
        turn of the core.
        """
        sizes = self._engine.sizes
        assert sizes is not None
        for start in range(0, len(ids), sizes.n_logits):
            part = ids[start : start + sizes.n_logits]
            with self._lock, self.sequence_holding(ids, start, start + len(part)) as (seq_id, uses):
                wanted = range(len(part))
                result = self._engine.step([SequenceChunk(seq_id, start, part, wanted, adapters=uses)])
            yield start, result.logits

    @contextmanager
    def sequence_holding(self, ids: list[int], start: int, end: int) -> Iterator[tuple[int, tuple[AdapterUse, ...]]]:
        """A sequence that holds a text's first `start` tokens, with room for `end`, while the block runs; and the
        adapters of its rows.

        Requests may have taken what an earlier one held of the text: that is computed again.
        """
        self._check()
        core, engine, sizes = self._client.core, self._engine, self._engine.sizes
        assert sizes is not None
        with core.adapted(self.adapters()) as (uses, salt):
            seq_id = core.borrow(ids[: start + 1], end, salt)
            try:
                held, n_batch = engine.truncate(seq_id, start), sizes.n_rows
                for at in range(held, start, n_batch):
                    self._check()
                    engine.step([SequenceChunk(seq_id, at, ids[at : min(at + n_batch, start)], adapters=uses)])
                yield seq_id, uses
            finally:
                core.give_back(seq_id, salt)

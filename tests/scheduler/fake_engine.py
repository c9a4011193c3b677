"""An engine without a model: the real books of sequences and pages over a pretended cache, and a clock that steps move.

The logits of a row are a hash of the tokens that its sequence's pages hold. So a page that was given to two texts, or
written to while another read it, changes tokens.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity
from zinc_rt.engine.engine import Options, SequenceChunk
from zinc_rt.engine.kv_cache import KVCacheManager
from zinc_rt.engine.recurrent_state import Snapshots
from zinc_rt.errors import BackendError
from zinc_rt.numerics import PAGE_TOKENS, pages_for
from zinc_rt.sampling.request import HostSampled, SamplingRequest

N_VOCAB = 24
STOP = 23
NAN = 21
"""A token behind which all logits are NaN."""


class Clock:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class FakeEngine:
    """See above. A step takes `step_ms`, and `row_ms` for each row of a prompt or of a text.

    recurrent: logits are made from a sequence's state, which steps move on, not from its pages.
    """

    generates, whole_sequences, description = True, False, "a fake"

    def __init__(
        self,
        n_slots: int = 4,
        n_batch: int = 32,
        n_ctx: int = 256,
        n_pages: int | None = None,
        *,
        step_ms: float = 5.0,
        prompt_ms: float = 0.25,
        text_ms: float = 1.0,
        recurrent: bool = False,
    ) -> None:
        n_pages = pages_for(n_ctx) * n_slots if n_pages is None else n_pages
        self.sizes = Capacity(n_batch, n_batch, n_ctx, n_slots, n_pages)
        self.options = Options(n_batch=n_batch, n_slots=n_slots)
        self.clock = Clock()
        self.fails: BaseException | None = None
        self.n_steps = 0
        self.rows: list[int] = []
        self._ms = step_ms, prompt_ms, text_ms
        self._table = np.zeros((n_slots, self.sizes.max_pages), np.int32)
        self._contents = np.full((n_pages, PAGE_TOKENS), -1, np.int64)
        names = ("token_ids", "positions", "slots", "logit_rows")
        self._inputs = {name: np.zeros(n_batch, np.int32) for name in names} | {"page_table": self._table}
        self._states: list[tuple[int, ...]] = [()] * n_slots
        self._recurrent = recurrent
        states = SimpleNamespace(save_state=self._save_state, load_state=self._load_state)
        snapshots = Snapshots(states, SimpleNamespace(), 2 * n_slots, 2) if recurrent else None  # type: ignore[arg-type]
        lowered: Any = SimpleNamespace(inputs=self._inputs, caches={})
        backend: Any = SimpleNamespace(drain=lambda: None)
        self.cache = KVCacheManager(backend, lowered, self.sizes, snapshots, lambda salt: b"root" + salt)
        self.untouched = 3

    def _save_state(self, _lowered: object, slot: int, _into: object = None) -> SimpleNamespace:
        return SimpleNamespace(tokens=self._states[slot], n_bytes=8, close=lambda: None)

    def _load_state(self, _lowered: object, slot: int, state: SimpleNamespace) -> None:
        self._states[slot] = state.tokens

    def step(self, batch: Sequence[SequenceChunk], sampling: Sequence[SamplingRequest] = ()) -> HostSampled:
        """Write the rows' tokens to the cache; read logits from it."""
        n_rows, n_logits = self.cache.write_batch(batch)
        assert n_logits == len(sampling)
        self.cache.begin_step(batch)
        if self.fails is not None:
            error, self.fails = self.fails, None
            raise error
        for chunk in batch:
            for i, token in enumerate(chunk.tokens):
                page, at = divmod(chunk.start + i, PAGE_TOKENS)
                self._contents[self._table[chunk.seq_id, page], at] = token
            before = self._states[chunk.seq_id] if chunk.start else ()
            assert not self._recurrent or len(before) == chunk.start
            self._states[chunk.seq_id] = (*before, *map(int, chunk.tokens))
        wanted = [(chunk.seq_id, chunk.start + int(i) + 1) for chunk in batch for i in chunk.logits_indices]
        logits = np.array([self._logits(*place) for place in wanted], np.float32).reshape(-1, N_VOCAB)
        self.cache.end_step(batch)
        step_ms, prompt_ms, text_ms = self._ms
        single = sum(len(chunk.tokens) == 1 for chunk in batch)
        self.clock.now += (step_ms + single * text_ms + (n_rows - single) * prompt_ms) / 1000
        self.n_steps += 1
        self.rows.append(n_rows)
        return HostSampled(
            sampling, logits, logits.argmax(axis=1).astype(np.int32) if len(logits) else np.empty(0, np.int32)
        )

    def _logits(self, slot: int, n: int) -> npt.NDArray[np.float32]:
        pages = self._contents[self._table[slot, : pages_for(n)]].reshape(-1)[:n]
        if self._recurrent:
            pages = np.array(self._states[slot][:n])
        if pages[-1] == NAN:
            return np.full(N_VOCAB, np.nan, np.float32)
        seed = hashlib.blake2b(pages.tobytes(), digest_size=N_VOCAB).digest()
        logits = np.frombuffer(seed, np.uint8).astype(np.float32) / 64
        logits[NAN] = -100.0
        return logits

    def touch_states(self) -> Iterator[None]:
        """Parts of the memory, one after the other."""
        while self.untouched:
            self.untouched -= 1
            yield

    def lose(self) -> None:
        """The next step fails."""
        self.fails = BackendError("the device is lost")

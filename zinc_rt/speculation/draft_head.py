"""Graphs that draft on the model's device: `DraftHead`, a block of the model itself, and `Assistant`, a small model.

Both read the model's hidden states. A head has a KV cache. Its row of position p has the token at p and the model's
hidden state of position p - 1. So the head's keys and values at a position depend on the text up to there, like the
model's own, and the head uses the model's page table. A page that texts share has the head's keys and values, too, and
going back needs no further code. Rows of a draft lie behind the text, where a sequence may have no page yet; each
sequence has spare pages for them. An assistant has no cache: it reads the model's.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity, check_step
from zinc_rt.engine.batch import EngineError, SequenceChunk, write_batch
from zinc_rt.engine.engine import Engine
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition
from zinc_rt.models.cache_format import with_cache, with_states_of
from zinc_rt.models.constants import Constants
from zinc_rt.models.drafts import PRIOR
from zinc_rt.models.hidden import HIDDEN, LAST_POSITIONS
from zinc_rt.models.renaming import OWN
from zinc_rt.numerics import pages_for
from zinc_rt.sampling.request import HostSampled, SampledStep, SamplingRequest

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class HeadRows:
    """Consecutive positions of a sequence, for a head.

    seq_id: the sequence. start: position of the first token. tokens: ids. prior: f32[n, n_embd], the hidden state
    before each. wanted: whether the last one's logits are wanted.
    """

    seq_id: int
    start: int
    tokens: Sequence[int]
    prior: F32
    wanted: bool = False


@dataclass(frozen=True)
class HeadStep:
    """The results of a head's step for its wanted rows, in order.

    chosen: their tokens and logits, valid until the next step. hidden: f32[n_wanted, n_embd], a copy.
    """

    chosen: SampledStep
    hidden: F32


class DraftGraph:
    """A graph of a model's file, or of another, on the model's device. Belongs to the engine's thread; its steps run
    between the engine's.

    Args:
        engine: has loaded `hidden.hidden_beside` of the model.
        definition: of the graph. Weights and states that have names of the model's are the model's.
        raw: a weight's rows in its file, by its name.
        release: lets go of the memory behind them.
        draft_max: tokens of a draft at the most.
        spare: KV pages of each sequence beside the model's.

    Raises:
        EngineError: the engine's model hands out no hidden states.
        MemoryPlanError, BackendError: there is no room, or the device failed.
    """

    own_cache: bool
    """Whether it has keys and values of its own, which are to be computed of all positions."""

    def __init__(
        self,
        engine: Engine,
        definition: ModelDefinition,
        raw: Callable[[str], npt.NDArray[np.uint8]],
        release: Callable[[str], None],
        draft_max: int,
        spare: int,
    ) -> None:
        self._backend, self._model = engine.backend, engine.lowered
        sizes = engine.sizes
        if sizes is None or HIDDEN not in self._model.outputs:
            raise EngineError("the model hands out no hidden states; load it with hidden_beside")
        self.draft_max, self._n_pages, self._spare = draft_max, sizes.n_pages, spare
        self.n_embd = int(self._model.outputs[HIDDEN].shape[1])
        self.sizes = Capacity(
            sizes.n_rows,
            min(sizes.n_rows, sizes.n_slots),
            sizes.n_ctx,
            sizes.n_slots,
            sizes.n_pages + sizes.n_slots * spare,
        )
        graph = definition.graph
        planned = self._backend.plan(graph, self.sizes, self._model)
        parts = dict(planned.n_bytes)
        if self.own_cache:  # what the drafter keeps of each page
            parts["kv_cache"] += 4 * sizes.n_pages * self.n_embd
        self.plan = MemoryPlan(**parts, available=self._backend.memory_available)
        if engine.plan is not None:  # what the model has not touched yet counts as available
            self.plan = replace(engine.plan, **parts, snapshots=0, main_model=engine.plan.total)
        if engine.options.check_memory:
            self.plan.check()
        weights = {b.name: raw(b.name) for b in graph.of_kind(BufferKind.WEIGHT)}
        constants = Constants(definition.constants, sizes.n_ctx)
        self._lowered = self._backend.lower(self._backend.tune(planned), weights, constants, release)
        self._prior = self._lowered.inputs[PRIOR].view(np.float32)

    def hidden(self, n_rows: int) -> F32:
        """The model's hidden states of its last step, f32[n_rows, n_embd], valid until its next one."""
        return self._model.outputs[HIDDEN][:n_rows].view(np.float32)

    def page_of(self, seq_id: int, position: int) -> int:
        """The page of a position that the sequence holds."""
        return int(self._model.inputs["page_table"][seq_id, pages_for(position + 1) - 1])

    def step(self, rows: Sequence[HeadRows], held: Sequence[int], sampling: Sequence[SamplingRequest] = ()) -> HeadStep:
        """Compute rows, and keep their keys and values where the graph has some.

        Args:
            rows: at most `sizes.n_rows` in all, and one `HeadRows` for each sequence.
            held: for each, how many positions the engine's sequence holds.
            sampling: how to choose the token of each wanted row, in order.

        Raises:
            EngineError: bad rows.
            BackendError: the device failed.
        """
        lowered, device = self._lowered, None
        if sampling and self._backend.features.samples:
            device = self._backend.sampling_for(lowered, sampling, self.sizes.n_ctx)
        self._backend.drain()
        last = self._write(rows, held)
        if device is not None:
            device.write(sampling)
        self._backend.wait(self._backend.submit(check_step(lowered), device))
        logits = lowered.outputs["logits"][: len(last)].view(np.float32)
        likeliest = lowered.outputs["tokens"][: len(last)].view(np.int32)
        hidden = lowered.outputs[HIDDEN].view(np.float32)[last]
        if device is None:
            return HeadStep(HostSampled(sampling, logits, likeliest), hidden)
        fetch = partial(self._backend.fetch_logits, lowered, device)
        return HeadStep(device.sampled(sampling, logits, likeliest, fetch), hidden)

    def _write(self, rows: Sequence[HeadRows], held: Sequence[int]) -> list[int]:
        """Write a step's inputs; which rows are wanted."""
        inputs, at, wanted = self._lowered.inputs, 0, []
        asked = [SequenceChunk(r.seq_id, r.start, r.tokens, (len(r.tokens) - 1,) if r.wanted else ()) for r in rows]
        indices = {name: array for name, array in inputs.items() if name != LAST_POSITIONS}
        self._lowered.counts[:] = write_batch(asked, indices, self.sizes, lambda part: None)
        for row, n in zip(rows, held, strict=True):
            end = at + len(row.tokens)
            self._place(row, n, slice(at, end))
            self._prior[at:end] = row.prior
            if row.wanted:
                wanted.append(end - 1)
            at = end
        return wanted

    def _place(self, row: HeadRows, held: int, at: slice) -> None:
        """Write where the keys and values of a sequence are. at: its rows in the step."""
        table, n = self._lowered.inputs["page_table"][row.seq_id], pages_for(held)
        table[:n] = self._model.inputs["page_table"][row.seq_id, :n]


class DraftHead(DraftGraph):
    """The head of an engine's model.

    Args:
        engine: has loaded `hidden.hidden_beside` of the model.
        file: the model's file, or another with the head alone.
        head: what `define_draft_head` made of it; of another file, what `renaming.as_own` made of that.
        draft_max: tokens of a draft at the most.

    Attributes:
        reach: how many positions behind what a sequence holds its rows may have.

    Raises what `DraftGraph` raises.
    """

    own_cache = True

    def __init__(self, engine: Engine, file: GGUFFile, head: ModelDefinition, draft_max: int) -> None:
        # Tokens of the last draft that were right and are computed again, the one behind them, and the next draft.
        self.reach = 2 * draft_max + 1
        head = with_cache(head, engine.options.kv)
        super().__init__(
            engine, head, partial(head.raw, file), partial(head.release, file), draft_max, pages_for(self.reach)
        )

    def _place(self, row: HeadRows, held: int, at: slice) -> None:
        """The sequence's pages, and behind them its spare ones."""
        if row.start + len(row.tokens) > held + self.reach:
            raise EngineError(f"sequence {row.seq_id} holds {held} positions, a draft has at most {self.reach} more")
        super()._place(row, held, at)
        table, n = self._lowered.inputs["page_table"][row.seq_id], pages_for(held)
        first = self._n_pages + row.seq_id * self._spare
        spare = min(self._spare, len(table) - n)
        table[n : n + spare] = np.arange(first, first + spare)


class Assistant(DraftGraph):
    """A small model that reads the keys and values of an engine's model.

    Args:
        engine: has loaded `hidden.hidden_beside` of the model.
        file: the model's file.
        own: the small model's.
        definition: what `define_assistant` made of them.
        draft_max: tokens of a draft at the most.

    Raises what `DraftGraph` raises.
    """

    own_cache = False

    def __init__(
        self, engine: Engine, file: GGUFFile, own: GGUFFile, definition: ModelDefinition, draft_max: int
    ) -> None:
        self.reach = draft_max + 1

        def file_of(name: str) -> GGUFFile:
            return own if name.startswith(OWN) else file

        memory = engine.lowered.memory
        definition = with_states_of(definition, {name: found.dtype for name, found in memory.items()})
        super().__init__(
            engine,
            definition,
            lambda name: definition.raw(file_of(name), name),
            lambda name: definition.release(file_of(name), name),
            draft_max,
            0,
        )

    def _place(self, row: HeadRows, held: int, at: slice) -> None:
        """Rows see what the sequence holds, wherever they stand themselves."""
        super()._place(row, held, at)
        self._lowered.inputs[LAST_POSITIONS][at] = held - 1

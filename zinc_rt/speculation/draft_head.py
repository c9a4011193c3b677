"""`DraftHead`: the block of a model that drafts, as a graph of its own beside the model's, and its KV cache.

A head's row of position p has the token there and the hidden state of the model's row before it, so what its cache
holds of a position follows from the text up to there, as in the model's own layers. Its cache therefore has the model's
page table: a page that texts share, or that is found again, has the head's keys and values, too, and going back needs
no books. Rows of a draft lie behind the text, where a sequence may have no page yet; each sequence has spare pages for
these.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Capacity, check_step
from zinc_rt.engine import Engine
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferKind
from zinc_rt.mem.kv_pages import pages_for
from zinc_rt.mem.plan import MemoryPlan
from zinc_rt.models import ModelDefinition
from zinc_rt.models.cache_format import with_cache
from zinc_rt.models.constants import Constants
from zinc_rt.models.drafts import PRIOR
from zinc_rt.models.hidden import HIDDEN
from zinc_rt.rows import EngineError, Rows, write_rows
from zinc_rt.sampling.request import HostSampled, SampledStep, SamplingRequest

F32 = npt.NDArray[np.float32]


@dataclass(frozen=True)
class HeadRows:
    """Consecutive positions of a sequence, for a head.

    slot: the sequence. start: position of the first token. tokens: ids. prior: f32[n, n_embd], the hidden state before
    each. wanted: whether the last one's logits are wanted.
    """

    slot: int
    start: int
    tokens: Sequence[int]
    prior: F32
    wanted: bool = False


@dataclass(frozen=True)
class HeadStep:
    """What a step of a head gives for its wanted rows, in order.

    chosen: their tokens and logits, valid until the next step. hidden: f32[n_wanted, n_embd], a copy.
    """

    chosen: SampledStep
    hidden: F32


class DraftHead:
    """The head of an engine's model. Belongs to the engine's thread; its steps run between the engine's.

    Args:
        engine: has loaded `hidden.hidden_beside` of the model.
        file: the model's file.
        head: what `define_draft_head` made of it.
        most: tokens of a draft at the most.

    Attributes:
        reach: how many positions behind what a sequence holds its rows may have.

    Raises:
        EngineError: the engine's model hands out no hidden states.
        MemoryPlanError, BackendError: there is no room, or the device failed.
    """

    def __init__(self, engine: Engine, file: GGUFFile, head: ModelDefinition, most: int) -> None:
        self._backend, self._model = engine.beside()
        sizes = engine.sizes
        if sizes is None or HIDDEN not in self._model.outputs:
            raise EngineError("the model hands out no hidden states; load it with hidden_beside")
        head = with_cache(head, engine.options.kv)
        self.most, self.n_embd, self._n_pages = most, head.info.n_embd, sizes.n_pages
        # Tokens of the last draft that were right and are computed again, the one behind them, and the next draft.
        self.reach = 2 * most + 1
        self._spare = pages_for(self.reach)
        self.sizes = Capacity(
            sizes.n_rows, min(sizes.n_rows, sizes.n_slots), sizes.n_ctx, sizes.n_slots,
            sizes.n_pages + sizes.n_slots * self._spare,
        )  # fmt: skip
        parts = self._backend.plan(head.graph, self.sizes, self._model)
        self.plan = MemoryPlan(**parts, available=self._backend.memory_available)
        if engine.plan is not None:  # what the model has not touched yet counts as available
            self.plan = replace(engine.plan, **parts, snapshots=0, beside=engine.plan.total)
        if engine.options.check_memory:
            self.plan.check()
        self._lowered = self._backend.lower(
            head.graph,
            self.sizes,
            {b.name: head.raw(file, b.name) for b in head.graph.of_kind(BufferKind.WEIGHT)},
            Constants(head.constants, sizes.n_ctx),
            partial(head.release, file),
            beside=self._model,
        )
        self._prior = self._lowered.inputs[PRIOR].view(np.float32)

    def hidden(self, n_rows: int) -> F32:
        """The model's hidden states of its last step, f32[n_rows, n_embd], valid until its next one."""
        return self._model.outputs[HIDDEN][:n_rows].view(np.float32)

    def page_of(self, slot: int, position: int) -> int:
        """The page of a position that the sequence holds."""
        return int(self._model.inputs["page_table"][slot, pages_for(position + 1) - 1])

    def step(self, rows: Sequence[HeadRows], held: Sequence[int], sampling: Sequence[SamplingRequest] = ()) -> HeadStep:
        """Compute rows and keep their keys and values.

        Args:
            rows: at most `sizes.n_rows` in all, and one `HeadRows` for each sequence.
            held: for each, how many positions the engine's sequence holds. Those behind them lie in spare pages.
            sampling: how to choose the token of each wanted row, in order.

        Raises:
            EngineError: bad rows, or some more than `reach` positions behind what the sequence holds.
            BackendError: the device failed.
        """
        lowered, device = self._lowered, None
        if sampling and self._backend.features.samples:
            device = self._backend.sampling_for(lowered, sampling, self.sizes.n_ctx)
        self._backend.drain()
        asked = [Rows(r.slot, r.start, r.tokens, (len(r.tokens) - 1,) if r.wanted else ()) for r in rows]
        n_rows, n_wanted = write_rows(asked, lowered.inputs, self.sizes, lambda part: None)
        lowered.counts[0], lowered.counts[1] = n_rows, n_wanted
        at, last = 0, []
        for row, n in zip(rows, held, strict=True):
            if row.start + len(row.tokens) > n + self.reach:
                raise EngineError(f"sequence {row.slot} holds {n} positions, a draft has at most {self.reach} more")
            self._table(row.slot, n)
            self._prior[at : at + len(row.tokens)] = row.prior
            at += len(row.tokens)
            if row.wanted:
                last.append(at - 1)
        if device is not None:
            device.write(sampling)
        check_step(lowered)
        self._backend.wait(self._backend.submit(lowered, device))
        logits = lowered.outputs["logits"][:n_wanted].view(np.float32)
        likeliest = lowered.outputs["tokens"][:n_wanted].view(np.int32)
        hidden = lowered.outputs[HIDDEN].view(np.float32)[last]
        if device is None:
            return HeadStep(HostSampled(sampling, logits, likeliest), hidden)
        fetch = partial(self._backend.fetch_logits, lowered, device)
        return HeadStep(device.sampled(sampling, logits, likeliest, fetch), hidden)

    def _table(self, slot: int, held: int) -> None:
        """The sequence's pages, and behind them its spare ones."""
        table, n = self._lowered.inputs["page_table"][slot], pages_for(held)
        table[:n] = self._model.inputs["page_table"][slot, :n]
        first = self._n_pages + slot * self._spare
        spare = min(self._spare, len(table) - n)
        table[n : n + spare] = np.arange(first, first + spare)

"""`HeadDrafter`: drafts from a model's hidden states.

The drafting part is a block of the model itself (a head), or a small model in a second file (an assistant), which reads
the model's keys and values.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.engine.batch import SequenceChunk
from zinc_rt.engine.engine import Engine
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition, ModelInfo, architecture_of, define_assistant, define_draft_head
from zinc_rt.models.hidden import hidden_beside
from zinc_rt.models.renaming import as_own
from zinc_rt.numerics import PAGE_TOKENS
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import DegenerateLogits, Sampler
from zinc_rt.speculation.draft_head import Assistant, DraftHead, HeadRows, HeadStep
from zinc_rt.speculation.drafter import Drafter, DraftText
from zinc_rt.utils.checks import printable

F32 = npt.NDArray[np.float32]


_LEAST_ROWS: Final = 64
"""Rows that an array has room for."""


class HiddenRows:
    """f32[n, width] of consecutive positions, the first of which is `first`: an array that grows at its end and lets go
    of its beginning.
    """

    def __init__(self, first: int, width: int) -> None:
        self.first = first
        self._room: F32 = np.empty((0, width), np.float32)
        self._at = self._n = 0  # where in the room they begin, and how many there are

    def __getitem__(self, positions: slice) -> F32:
        """A view of the rows of positions from start to stop - 1, all of which are there."""
        begin = self._at - self.first
        return self._room[begin + positions.start : begin + positions.stop]

    def add(self, rows: F32) -> None:
        """The positions that follow."""
        end = self._at + self._n
        if end + len(rows) > len(self._room):
            room = np.empty((max(_LEAST_ROWS, 2 * (self._n + len(rows))), self._room.shape[1]), np.float32)
            room[: self._n] = self._room[self._at : end]
            self._room, self._at, end = room, 0, self._n
        self._room[end : end + len(rows)] = rows
        self._n += len(rows)

    def cut(self, n: int) -> None:
        """Only positions below n stay; the next that is added is n, or earlier, if there were less."""
        self._n = min(self._n, max(0, n - self.first))
        self.first = min(self.first, n)

    def drop(self, first: int) -> None:
        """Positions before `first` are not needed again."""
        n = min(self._n, first - self.first)
        if n > 0:
            self.first, self._at, self._n = self.first + n, self._at + n, self._n - n


@dataclass
class _Text:
    """The text of one sequence, as far as the drafter follows it.

    ids: the tokens of the positions that the engine has computed. held: how many of them its sequence holds; after a
    draft with a wrong token, right ones may have to be computed again. filled: how many positions the head's cache has.
    hidden: the hidden states of the last positions of `ids`.
    """

    ids: list[int]
    held: int
    filled: int
    hidden: HiddenRows

    def cut(self, n: int) -> None:
        """Only the first n positions stay."""
        del self.ids[n:]
        self.held, self.filled = min(self.held, n), min(self.filled, n)
        self.hidden.cut(n)


@dataclass
class _Draft:
    """A draft that grows. tokens: what it has."""

    text: DraftText
    tokens: list[int]

    @property
    def end(self) -> int:
        """Positions of the text with the draft."""
        return len(self.text.tokens) + len(self.tokens)

    def request(self, sampler: Sampler) -> SamplingRequest:
        """How the next token is chosen: as that of the text would be. sampler: of the text's parameters and seed."""
        ahead = sampler.ahead(0)
        ahead.step = self.text.step + len(self.tokens)
        history = [*self.text.tokens, *self.tokens] if sampler.params.has_penalties else self.text.tokens
        return SamplingRequest(ahead, history)

    def take(self, step: HeadStep, row: int) -> bool:
        """Add the token of a row; whether there is one."""
        try:
            self.tokens.append(step.chosen.token(row).token_id)
        except DegenerateLogits:
            return False
        return True

    def wants_more(self, head: DraftHead | Assistant) -> bool:
        """Whether another one may be had: its row is that of the last token."""
        return len(self.tokens) < min(self.text.draft_max, head.draft_max) and self.end <= head.sizes.n_ctx


class HeadDrafter(Drafter):
    """Drafts of one head, or of an assistant.

    A head has a KV cache of its own, which follows the text: the head computes the rows of several steps of the model
    in one step of its own. It does so when a page is full, at the end of a prompt, or when a draft is wanted, whichever
    comes first.
    """

    name = "mtp"

    def __init__(self, head: DraftHead | Assistant, draft_min: int = 0, file: GGUFFile | None = None) -> None:
        self._head, self._file = head, file
        self.draft_max, self.draft_min = head.draft_max, draft_min
        self._texts: dict[int, _Text] = {}  # by seq_id; also of sequences whose texts are over, which may go on
        self._samplers: dict[int, Sampler] = {}  # by the texts' numbers
        # The hidden states of the last positions of pages: what goes on there may be another text.
        self._edges = np.zeros((head.sizes.n_pages if head.own_cache else 0, head.n_embd), np.float32)

    # -- what the model computes

    def begin(self, text: DraftText, held: int) -> None:
        """See `Drafter.begin`: pages of a text that is there already have the head's keys and values, too."""
        if text.pictures:  # the head has read no rows of them, so it drafts nothing
            self._texts.pop(text.seq_id, None)
            return
        params = replace(text.sampler.params, stop_token_ids=(), logprobs=None, seed=text.sampler.seed)
        self._samplers[text.number] = Sampler(params, text.sampler.n_vocab)
        old, ids = self._texts.get(text.seq_id), [*text.tokens[:held]]
        if old is not None and old.ids[:held] == ids:
            old.cut(held)
            old.held = held
            return
        self._texts[text.seq_id] = _Text(ids, held, held, HiddenRows(held, self._head.n_embd))

    def stepped(self, rows: Sequence[SequenceChunk]) -> None:
        """See `Drafter.stepped`."""
        at, ready = 0, []
        hidden = self._head.hidden(sum(len(part.tokens) for part in rows))
        for part in rows:
            n = len(part.tokens)
            text = self._texts.get(part.seq_id)
            if text is not None:
                self._add(text, part, hidden[at : at + n])
                if text.held // PAGE_TOKENS > text.filled // PAGE_TOKENS:
                    ready.append((part.seq_id, text))
            at += n
        self._fill(ready)

    def _add(self, text: _Text, part: SequenceChunk, hidden: F32) -> None:
        text.cut(part.start)
        text.ids += map(int, part.tokens)
        text.hidden.add(hidden)
        text.held = end = len(text.ids)
        if not self._head.own_cache:
            self._seen(text, end)
            return
        for edge in range(-(-(part.start + 1) // PAGE_TOKENS) * PAGE_TOKENS, end + 1, PAGE_TOKENS):
            self._edges[self._head.page_of(part.seq_id, edge - 1)] = text.hidden[edge - 1 : edge]

    def kept(self, seq_id: int, n_tokens: int) -> None:
        """See `Drafter.kept`. The results behind it are kept for `draft`, which finds out which of them were right."""
        text = self._texts.get(seq_id)
        if text is not None:
            text.held = n_tokens
            text.filled = min(text.filled, n_tokens)

    def forget(self, number: int) -> None:
        """See `Drafter.forget`."""
        self._samplers.pop(number, None)

    def close(self) -> None:
        """See `Drafter.close`. What lies on the device goes with the engine."""
        self._texts.clear()
        if self._file is not None:
            self._file.close()

    def _fill(self, texts: Sequence[tuple[int, _Text]]) -> None:
        """Let the head compute the tokens of these texts that it lacks."""
        waiting = [(seq_id, text) for seq_id, text in texts if text.filled < text.held]
        while waiting:
            rows, room = [], self._head.sizes.n_rows
            for seq_id, text in waiting:
                if room:
                    end = min(text.held, text.filled + room)
                    rows.append(self._rows(seq_id, text, end))
                    room -= end - text.filled
            self._run(rows)
            waiting = [(seq_id, text) for seq_id, text in waiting if text.filled < text.held]

    def _rows(self, seq_id: int, text: _Text, end: int, following: Sequence[int] = ()) -> HeadRows:
        """The rows that the head lacks up to position `end`, and `following` tokens after that."""
        start = text.filled
        tokens = [*text.ids[start:end], *following]
        return HeadRows(seq_id, start, tokens, self._prior(seq_id, text, start, len(tokens)), wanted=bool(following))

    def _prior(self, seq_id: int, text: _Text, start: int, n: int) -> F32:
        """The hidden states before positions start, start + 1 ..: f32[n, n_embd].

        Before the text, and where another text computed what this one goes on after, there is none: zeros, which change
        what the head guesses and nothing else.
        """
        known = min(n, max(0, text.hidden.first + 1 - start))  # rows before whose states are not kept
        out = np.zeros((n, self._head.n_embd), np.float32)
        if known and start and start % PAGE_TOKENS == 0:
            out[0] = self._edges[self._head.page_of(seq_id, start - 1)]
        if n > known:
            out[known:] = text.hidden[start + known - 1 : start + n - 1]
        return out

    def _run(self, rows: list[HeadRows], sampling: Sequence[SamplingRequest] = ()) -> HeadStep:
        step = self._head.step(rows, [self._texts[row.seq_id].held for row in rows], sampling)
        for row in rows:
            self._seen(self._texts[row.seq_id], row.start + len(row.tokens))
        return step

    def _seen(self, text: _Text, filled: int) -> None:
        """The head has these positions; hidden states are needed as far before them as a rejected draft goes back."""
        text.filled = min(filled, text.held)
        text.hidden.drop(text.filled - self._head.reach)

    # -- drafts

    def draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        """See `Drafter.draft`."""
        drafts = [_Draft(text, []) for text in texts]
        ready = [draft for draft in drafts if self._follows(draft.text)]
        most = self._head.sizes.n_logits
        for start in range(0, len(ready), most):
            self._draft(ready[start : start + most])
        return [draft.tokens for draft in drafts]

    def _draft(self, drafts: Sequence[_Draft]) -> None:
        """Fill drafts, a token of each in a step."""
        known = [(draft.text.seq_id, self._texts[draft.text.seq_id]) for draft in drafts]
        if sum(len(text.ids) - text.filled + 1 for _, text in known) > self._head.sizes.n_rows:
            self._fill(known)
        rows = [
            self._rows(seq_id, text, len(text.ids), draft.text.tokens[-1:])
            for draft, (seq_id, text) in zip(drafts, known, strict=True)
        ]
        going = list(drafts)
        while True:
            step = self._run(rows, [draft.request(self._samplers[draft.text.number]) for draft in going])
            taken = [draft.take(step, row) for row, draft in enumerate(going)]
            more = [row for row, draft in enumerate(going) if taken[row] and draft.wants_more(self._head)]
            if not more:
                return
            going = [going[row] for row in more]
            rows = [
                HeadRows(
                    draft.text.seq_id, self._place(draft), draft.tokens[-1:], step.hidden[row : row + 1], wanted=True
                )
                for row, draft in zip(more, going, strict=True)
            ]

    def _place(self, draft: _Draft) -> int:
        """The position of a draft's last token. To an assistant all stand where the text's last one does."""
        return draft.end - 1 if self._head.own_cache else len(draft.text.tokens) - 1

    def _follows(self, text: DraftText) -> bool:
        """Whether all but the text's last token have been computed, and the draft is in reach. Wrong tokens of the last
        draft are forgotten.
        """
        known = self._texts.get(text.seq_id)
        if known is None:
            return False
        if not self._head.own_cache and not known.hidden.first < len(text.tokens) - 1 <= known.held:
            return False  # there is no row whose keys and values it could read, or no hidden state
        n = len(text.tokens) - 1
        for at in range(known.held, min(n, len(known.ids))):
            if known.ids[at] != text.tokens[at]:
                return False
        if len(known.ids) > n >= known.held:
            known.cut(n)
        return len(known.ids) == n and n + text.draft_max - known.held <= self._head.reach


def with_hidden(file: GGUFFile, definition: ModelDefinition, other: str | Path | None = None) -> ModelDefinition:
    """The model as what drafts needs it: its step hands out hidden states. other: the file of a head or an assistant.

    Raises `UsageError` where the model has no head, and what is wrong with the other file.
    """
    if other is None:
        _head_of(file)
    else:
        with GGUFFile.open(other) as own:
            _of_other(own, file, definition.info)
    return hidden_beside(definition)


def open_head(
    engine: Engine, file: GGUFFile, draft_max: int, draft_min: int, notify: Callable[[str], None] | None = None
) -> HeadDrafter:
    """The drafter of an engine that has loaded what `with_hidden` returned. Raises what `DraftHead` raises."""
    head = DraftHead(engine, file, _head_of(file), draft_max)
    if notify is not None:
        notify(f"drafts: a block of the model itself; {head.plan.summary}")
    return HeadDrafter(head, draft_min)


def open_other(
    engine: Engine,
    file: GGUFFile,
    info: ModelInfo,
    path: str | Path,
    draft_max: int,
    draft_min: int,
    notify: Callable[[str], None] | None = None,
) -> HeadDrafter:
    """The drafter of an engine, with the model of `file`, by the head or the assistant in the file `path`.

    Raises what `GGUFFile.open`, `models.define_assistant`, `DraftHead` and `Assistant` raise.
    """
    own = GGUFFile.open(path)
    try:
        definition = _of_other(own, file, info)
        is_head = definition.info.architecture == info.architecture
        graph = (
            DraftHead(engine, own, definition, draft_max)
            if is_head
            else Assistant(engine, file, own, definition, draft_max)
        )
    except BaseException:
        own.close()
        raise
    if notify is not None:
        notify(f"drafts: {own.path}; {graph.plan.summary}")
    return HeadDrafter(graph, draft_min, own)


def _of_other(own: GGUFFile, file: GGUFFile, info: ModelInfo) -> ModelDefinition:
    """The graph of what drafts in a file of its own: a head of the same architecture, or an assistant."""
    if architecture_of(own) != info.architecture:
        return define_assistant(own, file, info)
    head = _head_of(own)
    for what in ("n_embd", "n_vocab", "n_layers"):
        if getattr(head.info, what) != getattr(info, what):
            raise UsageError(
                f"{printable(own.path)} drafts for another model: {what} is {getattr(head.info, what)}, of this one"
                f" {getattr(info, what)}"
            )
    return as_own(head)


def _head_of(file: GGUFFile) -> ModelDefinition:
    head = define_draft_head(file)
    if head is None:
        raise UsageError(
            f"spec is 'mtp', but {printable(file.path)} of architecture {architecture_of(file)!r} has no block that"
            " drafts (nextn); use ngram, draft or off, or give the file of such a block or of an assistant (-md)"
        )
    return head

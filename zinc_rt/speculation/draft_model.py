"""`ModelDrafter`: a small model with the same vocabulary generates tokens, and the large one checks them.

The small model draws with the text's own random numbers. So where the probabilities of both models are close, they draw
the same tokens, also at a high temperature.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile
from typing import Final

from zinc_rt.engine.engine import Engine, SequenceChunk
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.sampling.request import SamplingRequest
from zinc_rt.sampling.sampler import NoToken, Sampler
from zinc_rt.speculation.drafter import Drafter, DraftText
from zinc_rt.text import Tokenizer

_PADDING: Final = 1024
"""Tokens that one vocabulary may have behind those of the other: sizes of one family differ by what fills up tiles."""


def check_vocabulary(draft: Tokenizer, target: Tokenizer) -> None:
    """Raise `UsageError`, with the first difference, unless all token ids that both have mean the same."""
    at = target.difference(draft)
    if at is not None:
        raise UsageError(
            f"the draft model has another vocabulary: token {at} is {draft.token_text(at)!r} there and"
            f" {target.token_text(at)!r} in the model; take a draft model of the same family"
        )
    if abs(draft.n_vocab - target.n_vocab) > _PADDING:
        raise UsageError(
            f"the draft model has another vocabulary: {draft.n_vocab} tokens, the model has {target.n_vocab}, and at"
            f" most {_PADDING} may be missing; take a draft model of the same family"
        )


@dataclass(slots=True)
class _Own:
    """A text in the draft model. seq_id: its sequence there. sampler: chooses its guesses. n_sure: how many of the
    text's tokens the sequence held first. guesses: what it held behind them, the last one not computed.
    """

    seq_id: int
    sampler: Sampler
    n_sure: int = 0
    guesses: list[int] = field(default_factory=list)

    def agreed(self, tokens: Sequence[int]) -> int:
        """How many of the text's tokens the sequence holds, all but the last one at most."""
        behind = zip(self.guesses[:-1], tokens[self.n_sure :], strict=False)
        right = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], behind))
        return min(self.n_sure + right, len(tokens) - 1)


class ModelDrafter(Drafter):
    """Drafts from another model.

    Args:
        engine: with the draft model, and as many sequences as the model's own engine has.
        file: of the draft model; closed with the drafter.
        n_vocab: token ids that both models know.
    """

    name = "draft"

    def __init__(self, engine: Engine, file: GGUFFile, n_vocab: int, draft_max: int, draft_min: int) -> None:
        assert engine.sizes is not None
        self._engine, self._file, self._n_vocab, self._sizes = engine, file, n_vocab, engine.sizes
        self.draft_max, self.draft_min = draft_max, draft_min
        self._own: dict[int, _Own] = {}

    def draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        """See `Drafter.draft`. Raises `FileChanged`, `BackendError`."""
        self._file.check_unwritten()
        try:
            return self._draft(texts)
        except BaseException:  # of a step that broke off nothing is known
            for number in list(self._own):
                self.forget(number)
            raise

    def _draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        found: dict[int, list[int]] = {}
        going = [text for text in texts if self._follow(text)]
        rows = self._last_rows(going)
        for deep in range(max((text.draft_max for text in going), default=0)):
            going = [text for text in going if text.draft_max > deep and text.number in rows]
            if not going:
                break
            rows = self._guess(going, rows, found, deep)
            if not deep:
                for text in going:
                    self._engine.cache.checkpoint(self._own[text.number].seq_id)  # where recurrent layers go back to
        for text in texts:
            if (own := self._own.get(text.number)) is not None and text.number in found:
                own.n_sure, own.guesses = len(text.tokens), list(found[text.number])
        return [found.get(text.number, []) for text in texts]

    def _follow(self, text: DraftText) -> bool:
        """Have the draft model's sequence agree with a text; whether it can go on there."""
        n = len(text.tokens) + text.draft_max
        own = self._own.get(text.number)
        if own is None:
            if n > self._sizes.n_ctx or max(text.tokens) >= self._n_vocab:
                return False
            own = self._own[text.number] = _Own(self._engine.open_sequence(None, text.salt), self._sampler(text))
            own.n_sure = self._engine.cache.attach_prefix(own.seq_id, text.tokens)
        else:
            own.n_sure = self._engine.truncate(own.seq_id, own.agreed(text.tokens))
        own.guesses = []
        return n <= self._sizes.n_ctx and self._engine.cache.can_grow(own.seq_id, n)

    def _sampler(self, text: DraftText) -> Sampler:
        """The text's way of choosing tokens, for the tokens that both models know."""
        given = text.sampler.params
        bias = {token: value for token, value in given.logit_bias.items() if token < self._n_vocab}
        params = replace(given, logit_bias=bias, stop_token_ids=(), logprobs=None, seed=text.sampler.seed)
        return Sampler(params, self._n_vocab)

    def _last_rows(self, texts: Sequence[DraftText]) -> dict[int, SequenceChunk]:
        """The rows behind which guesses begin, by the texts' numbers; all before them are computed here."""
        found: dict[int, SequenceChunk] = {}
        left = self._sizes.n_rows
        for text in texts:
            own, tokens = self._own[text.number], text.tokens
            at, n = own.n_sure, len(tokens)
            if any(token >= self._n_vocab for token in tokens[at:]):
                continue
            keep = max(1, min(n - at, left - len(texts)))  # a row is left for each of the others
            while at < n - keep:
                end = min(at + self._sizes.n_rows, n - keep)
                self._engine.step([SequenceChunk(own.seq_id, at, tokens[at:end])])
                at = end
            found[text.number] = SequenceChunk(own.seq_id, at, tokens[at:], (n - at - 1,))
            left -= n - at
        return found

    def _guess(
        self, texts: Sequence[DraftText], rows: dict[int, SequenceChunk], found: dict[int, list[int]], deep: int
    ) -> dict[int, SequenceChunk]:
        """One more guess of each text; returns the rows of the next."""
        asked = []
        for text in texts:
            sampler = self._own[text.number].sampler.ahead(0)
            sampler.step = text.step + deep
            guesses = found.setdefault(text.number, [])
            history = [*text.tokens, *guesses] if sampler.params.has_penalties else text.tokens
            asked.append(SamplingRequest(sampler, history))
        step = self._engine.step([rows[text.number] for text in texts], asked)
        following = {}
        for row, text in enumerate(texts):
            try:
                token = step.token(row).token_id
            except NoToken:
                continue
            guesses = found[text.number]
            guesses.append(token)
            at = len(text.tokens) + len(guesses) - 1
            following[text.number] = SequenceChunk(self._own[text.number].seq_id, at, [token], (0,))
        return following

    def forget(self, number: int) -> None:
        """See `Drafter.forget`."""
        own = self._own.pop(number, None)
        if own is not None:
            self._engine.close_sequence(own.seq_id)

    def close(self) -> None:
        """See `Drafter.close`."""
        self._own.clear()
        self._engine.close()
        self._file.close()

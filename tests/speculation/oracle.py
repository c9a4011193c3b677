"""A drafter that knows how texts go on, and is wrong where it is told to be; and drafts of lengths that are told."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from zinc_rt.engine.batch import SequenceChunk
from zinc_rt.speculation import Drafter, DraftText
from zinc_rt.speculation.pace import Pace, Wish


class Oracle(Drafter):
    """texts: whole ones, prompt and answer. wrong: whether the i-th guess that it ever makes is replaced by another
    token below `n_vocab`. It also looks whether it is told all that its interface promises.
    """

    name = "oracle"

    def __init__(
        self, texts: Sequence[Sequence[int]], wrong: Callable[[int], bool], n_vocab: int, *, free: bool
    ) -> None:
        self._texts, self._wrong, self._n_vocab, self.free = [list(text) for text in texts], wrong, n_vocab, free
        self._n = 0
        self._slots: dict[int, int] = {}
        self._lengths: dict[int, int] = {}

    def begin(self, text: DraftText, held: int) -> None:
        assert text.number not in self._slots
        assert text.seq_id not in self._slots.values()
        self._slots[text.number] = text.seq_id
        self._lengths[text.seq_id] = held

    def stepped(self, rows: Sequence[SequenceChunk]) -> None:
        for part in rows:
            assert part.start == self._lengths[part.seq_id]
            self._lengths[part.seq_id] += len(part.tokens)

    def kept(self, slot: int, n_tokens: int) -> None:
        assert n_tokens <= self._lengths[slot]
        self._lengths[slot] = n_tokens

    def forget(self, number: int) -> None:
        del self._lengths[self._slots.pop(number)]

    def draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        found = []
        for text in texts:
            assert self._slots[text.number] == text.seq_id
            assert text.draft_max >= 1
            known = list(text.tokens)
            whole = next((t for t in self._texts if t[: len(known)] == known), known)
            found.append([self._guess(token) for token in whole[len(known) : len(known) + text.draft_max]])
        return found

    def _guess(self, token: int) -> int:
        self._n += 1
        return (token + 1) % self._n_vocab if self._wrong(self._n) else token


def lengths(drawn: Sequence[int]) -> Callable[..., list[int]]:
    """In place of `Pace.lengths`: the drawn numbers of guesses, as far as they may be had."""
    turn = 0

    def chosen(_: Pace, wishes: Sequence[Wish], n_rows: int, most_rows: int, *, free: bool) -> list[int]:
        nonlocal turn
        found, left = [], most_rows - n_rows
        for wish in wishes:
            turn += 1
            found.append(min(wish.draft_max, left, drawn[turn % len(drawn)]))
            left -= found[-1]
        return found

    return chosen

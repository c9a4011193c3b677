"""`Drafter`: guesses the next tokens of texts. A wrong guess costs time and never changes a text.

`EngineCore` has at most one drafter. It calls the drafter between the steps of its engine, on its own thread:

1. `begin` when a text gets a sequence of the engine.
2. `draft` before a step, with the texts that may have drafts in it.
3. `stepped` after each step, while the step's result is still valid. The rows of a text with a draft are its last token
   and the tokens of the draft.
4. `kept` after a step, for each text that had a draft: how many positions stay. The others are computed again. It is
   also called after a step that broke off, for which `stepped` was not called.
5. `forget` when a text is over or gives up its sequence.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from zinc_rt.engine.batch import SequenceChunk
from zinc_rt.sampling.sampler import Sampler


@dataclass(frozen=True, slots=True)
class DraftText:
    """A text that is being generated.

    number: names it from `begin` to `forget`; no two texts ever have the same. seq_id: its sequence in the engine until
    `forget`. tokens: prompt and text so far, not to be changed; the same list at every call, which grows. The draft
    follows its last token. As a rule the sequence holds all tokens but the last; with recurrent layers it may hold
    fewer. sampler: how the text's tokens are chosen; do not call it, its `ahead` gives one to call. step: the number
    of the random number for the draft's first token. draft_max: the most tokens that the draft may have, 1 or more.
    salt: of the tenant's part of the prefix cache. pictures: whether the sequence has rows of pictures, too; `tokens`
    are words alone.
    """

    number: int
    seq_id: int
    tokens: Sequence[int]
    sampler: Sampler
    step: int
    draft_max: int
    salt: bytes = b""
    pictures: bool = False


class Drafter(ABC):
    """Guesses the next tokens of texts. Belongs to the thread of its engine."""

    name: str
    """For lines on the screen and for metrics."""
    free: bool = False
    """Whether a draft costs next to nothing. Such a drafter is asked for as many tokens as may be had, and of these as
    many are taken as pay. Another one is asked for those alone.
    """
    draft_max: int = 16
    """Tokens of a draft at the most; how many are asked for below that follows from what they gain."""
    draft_min: int = 0
    """A draft of fewer tokens is not used."""

    @abstractmethod
    def draft(self, texts: Sequence[DraftText]) -> list[Sequence[int]]:
        """Guess what follows each text: for each, in order, at most `draft_max` token ids, or none.

        Ids outside the vocabulary are the drafter's fault; the engine refuses them. What it raises is not caught, but
        for `BackendError`, as of the engine's own step.
        """

    def begin(self, text: DraftText, held: int) -> None:  # noqa: B027 - nothing to do is usual
        """A text has a sequence now, whose first `held` positions are there from an earlier text: no `stepped` tells of
        them.
        """

    def stepped(self, rows: Sequence[SequenceChunk]) -> None:  # noqa: B027
        """A step of the engine is over, that computed these rows; its outputs are valid until this returns."""

    def kept(self, seq_id: int, n_tokens: int) -> None:  # noqa: B027
        """The first `n_tokens` positions of a sequence stay, after a step in which it had a draft, or after a step that
        broke off.
        """

    def forget(self, number: int) -> None:  # noqa: B027
        """A text is over, or waits; its sequence will be another text's."""

    def close(self) -> None:  # noqa: B027
        """Give back what the drafter holds. Called before the engine is closed."""

"""`Matcher`: follows a text token by token and says which tokens may come next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.serving.messages import Grammar

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary

MAX_GRAMMAR_BYTES: Final = 1 << 20
"""Of a grammar's text, with all tools' schemas in it."""
STEP_LEXER_FUEL: Final = 20_000
"""Work of one mask at the most, about 1.4 ms; llguidance's own 200,000 would hold up a step of all requests."""
_INITIAL_LEXER_FUEL: Final = 500_000
_STEP_MAX_ITEMS: Final = 20_000
_MAX_LEXER_STATES: Final = 50_000
_MAX_GRAMMAR_SIZE: Final = 200_000

Mask = npt.NDArray[np.uint32]


class Matcher:
    """A grammar on its way through one text. Belongs to one thread at a time."""

    def __init__(self, native: Any, vocabulary: GrammarVocabulary, after: tuple[int, ...]) -> None:
        """Made by `compile_grammar`."""
        self._native = native
        self._vocabulary = vocabulary
        self._after = frozenset(after)
        self._free = bool(after)
        self._n_free = 0
        self._begun: list[int] = []

    @property
    def words(self) -> int:
        """Words of a mask."""
        return self._vocabulary.words

    @property
    def is_free(self) -> bool:
        """Whether the grammar has not begun: every token may come, and no mask is needed."""
        return self._free

    @property
    def is_accepting(self) -> bool:
        """Whether the text may end here."""
        return self._free or bool(self._native.is_accepting())

    @property
    def is_done(self) -> bool:
        """Whether nothing can follow but a stop token."""
        return not self._free and bool(self._native.is_stopped())

    def fill_mask(self, out: Mask) -> None:
        """Write which tokens may come next: u32[words], contiguous; bit i % 32 of word i // 32 is 1 for token i.

        Raises `GrammarError` where the grammar takes too much work here.
        """
        if self._free:
            out.fill(np.uint32(0xFFFFFFFF))
            return
        self._native.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        self._check()

    def consume(self, token_id: int) -> bool:
        """Go on by one token. False where it does not fit; the matcher cannot be used any more then.

        Raises `GrammarError` where the grammar takes too much work here.
        """
        if self._free:
            self._n_free += 1
            self._free = token_id not in self._after
            return True
        if token_id in self._vocabulary.stop_ids and self._native.is_stopped():
            return True
        return bool(self._native.consume_token(token_id))

    def rollback(self, n_tokens: int) -> None:
        """Take back the last tokens. Raises `ValueError` for more than were consumed."""
        raise NotImplementedError

    def _check(self) -> None:
        if self._native.is_error():
            raise GrammarError(f"the grammar cannot go on: {self._native.get_error()}; simplify it")


def compile_grammar(grammar: Grammar, vocabulary: GrammarVocabulary, where: str = "") -> Matcher:
    """A matcher at the beginning of a text. where: names the grammar's place in errors.

    Raises `GrammarError` for a text that llguidance does not take or that is too large. Takes 1 to 20 ms, and lets
    other threads run meanwhile.
    """
    raise NotImplementedError


def fill_masks(matchers: Sequence[Matcher], out: npt.NDArray[np.uint32]) -> None:
    """The masks of several texts at once, on all cores: out is u32[n, words], row i for matcher i.

    Raises `GrammarError` of the first that cannot go on; `Matcher.error` says which.
    """
    raise NotImplementedError

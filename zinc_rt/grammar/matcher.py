"""`LlguidanceMatcher`: follows a text token by token and says which tokens may come next."""

from __future__ import annotations

import re
from copy import copy
from itertools import takewhile
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.scheduler.messages import Grammar
from zinc_rt.utils.checks import printable

if TYPE_CHECKING:
    from zinc_rt.grammar.vocabulary import GrammarVocabulary

MAX_GRAMMAR_BYTES: Final = 1 << 20
"""Of a grammar's text, with all tools' schemas in it."""
STEP_LEXER_FUEL: Final = 20_000
"""Work of one mask at the most, about 1.4 ms; llguidance's own 200,000 would hold up a step of all requests."""
INITIAL_LEXER_FUEL: Final = 500_000
STEP_MAX_ITEMS: Final = 20_000
MAX_LEXER_STATES: Final = 50_000
MAX_GRAMMAR_SIZE: Final = 200_000

_PLACE: Final = re.compile(r"at \d+\(\d+\): |failed to compile JSON schema: ")
_ECHO: Final = re.compile(r"\d+ \| ")
_WORDS: Final = (
    (re.compile(r"Unimplemented keys: \[(.*)\]"), r"these keywords of JSON schemas are not supported: \1"),
    (re.compile("oneOf constraints"), "oneOf works only where its schemas exclude each other; use anyOf"),
    (re.compile("integer range|float range|number range"), "minimum and maximum leave no number, or are too far apart"),
)
"""Frequent refusals of llguidance, and what a user can do with them."""
_ALL: Final = np.uint32(0xFFFFFFFF)

Mask = npt.NDArray[np.uint32]


class LlguidanceMatcher:
    """A grammar on its way through one text. Belongs to one thread at a time."""

    def __init__(self, native: Any, vocabulary: GrammarVocabulary, after: tuple[int, ...]) -> None:
        """Made by `compile_grammar`."""
        self._native = native
        self._vocabulary = vocabulary
        self._after = frozenset(after)
        self._free = bool(after)
        self._n = 0  # tokens that the grammar consumed
        self._n_free = 0  # tokens before

    @property
    def words(self) -> int:
        """Words of a mask."""
        return self._vocabulary.words

    @property
    def is_free(self) -> bool:
        """Whether the grammar has not begun: every token may come, and no mask is needed."""
        return self._free

    @property
    def is_done(self) -> bool:
        """Whether nothing can follow but a stop token."""
        return not self._free and bool(self._native.is_stopped())

    def fill_mask(self, out: Mask) -> None:
        """Write which tokens may come next: u32[words], contiguous; bit i % 32 of word i // 32 is 1 for token i.

        Raises `GrammarError` where the grammar takes too much work here.
        """
        if self._free:
            out.fill(_ALL)
            return
        self._native.unsafe_compute_mask_ptr(out.ctypes.data, out.nbytes)
        self.check()

    def consume(self, token_id: int) -> bool:
        """Go on by one token. False where it does not fit, and then nothing has changed.

        Raises `GrammarError` where the grammar takes too much work here.
        """
        if self._free:
            self._free = token_id not in self._after
        elif self._native.try_consume_tokens([token_id]):
            self._n += 1
        else:
            self.check()
            return False
        self._n_free += self._free or not self._n
        return True

    def copy(self) -> LlguidanceMatcher:
        """Another one in the same state, which goes its own way. Takes microseconds."""
        other = copy(self)
        other._native = self._native.deep_copy()
        return other

    def rollback(self, n_tokens: int) -> None:
        """Take back the last tokens that were consumed. Raises `ValueError` for more than those."""
        if not 0 <= n_tokens <= self._n + self._n_free:
            raise ValueError(f"{n_tokens} tokens are to be taken back, {self._n + self._n_free} were consumed")
        inside = min(n_tokens, self._n)
        if inside and not self._native.rollback(inside):
            self.check()
        self._n -= inside
        if n_tokens > inside:
            self._n_free -= n_tokens - inside
            self._free = True

    def check(self) -> None:
        """Raises `GrammarError` where the matcher cannot go on."""
        if self._native.is_error():
            raise _refusal(self._native.get_error(), "")


def compile_grammar(grammar: Grammar, vocabulary: GrammarVocabulary, where: str = "") -> LlguidanceMatcher:
    """A matcher at the beginning of a text. where: names the grammar's place in errors.

    Raises `GrammarError` for a text that llguidance does not take or that is too large. Takes 1 to 20 ms, and lets
    other threads run meanwhile.
    """
    import llguidance

    size = len(grammar.text.encode(errors="replace"))
    if size > MAX_GRAMMAR_BYTES:
        raise GrammarError(f"the grammar has {size} bytes, the limit is {MAX_GRAMMAR_BYTES}", where)
    limits = llguidance.LLParserLimits(
        initial_lexer_fuel=INITIAL_LEXER_FUEL,
        step_lexer_fuel=STEP_LEXER_FUEL,
        step_max_items=STEP_MAX_ITEMS,
        max_lexer_states=MAX_LEXER_STATES,
        max_grammar_size=MAX_GRAMMAR_SIZE,
        verbose_errors=False,
    )
    native = llguidance.LLMatcher(vocabulary.native, grammar.text, log_level=0, limits=limits)
    if native.is_error():
        raise _refusal(native.get_error(), where)
    return LlguidanceMatcher(native, vocabulary, grammar.after)


def _refusal(message: str, where: str) -> GrammarError:
    """The message of llguidance in one line, without the internal text of the grammar and its line numbers."""
    lines = [line.strip() for line in _PLACE.sub("", message).splitlines()]
    shown = takewhile(lambda line: not _ECHO.match(line), (line for line in lines if line))
    text = printable(" ".join(shown))[:300] or "no reason given"
    for pattern, words in _WORDS:
        if (known := pattern.search(text)) is not None:
            return GrammarError(known.expand(words), where)
    if any(word in text.lower() for word in ("fuel", "too complex", "too many", "too large", "too big")):
        return GrammarError(f"the grammar takes too much work ({text}); make it simpler", where)
    return GrammarError(f"the grammar cannot be used: {text}", where)

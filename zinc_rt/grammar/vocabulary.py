"""`GrammarVocabulary`: a tokenizer's tokens as llguidance reads them."""

from __future__ import annotations

import re
import threading
from typing import TYPE_CHECKING, Any, Final

from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer

MARK: Final = re.compile(
    r"<\|.*>|<.*\|>|<\uff5c.*\uff5c>|<escape>|\[/?[A-Z_]+\]|</?(?:think|tool_calls?|tool_response|tools|arg_key|arg_value"
    r"|start_function_call|end_function_call)>|<(?:start|end)_function_call>|</?(?:seed|minimax):(?:think|tool_call)>|</?atem:function_calls>"
    r"|</?TOOLCALL>|</?\uff5cDSML\uff5c[a-z_]+>|\uff5cDSML\uff5c",
    re.DOTALL,
)
"""Names of tokens that are markup also where a file calls them user-defined, which are visible text otherwise."""


class GrammarVocabulary:
    """One model's tokens for grammars. Threads may share it; building takes about 0.5 s for 150,000 tokens, the first
    time that it is needed.
    """

    def __init__(self, tokenizer: Tokenizer, n_vocab: int | None = None) -> None:
        """n_vocab: bits of a mask that count, None for the tokenizer's tokens; more are tokens that nothing allows.

        Raises `UsageError` where it is fewer than the tokenizer has.
        """
        self.tokenizer = tokenizer
        self.n_vocab = tokenizer.n_vocab if n_vocab is None else n_vocab
        if self.n_vocab < tokenizer.n_vocab:
            raise UsageError(f"n_vocab is {n_vocab}, the tokenizer has {tokenizer.n_vocab} tokens; give at least those")
        self._built: Any = None
        self._lock = threading.Lock()

    @property
    def words(self) -> int:
        """Words of a mask: u32[words], bit i % 32 of word i // 32 for token i."""
        return (self.n_vocab + 31) // 32

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Tokens that end a text; a mask allows them where the grammar may end."""
        return tuple(sorted(self.tokenizer.stop_ids))

    def is_mark(self, token_id: int) -> bool:
        """Whether grammars see a token as markup: it matches where it is named, and never as text."""
        tokenizer = self.tokenizer
        return tokenizer.is_special(token_id) or MARK.fullmatch(tokenizer.token_text(token_id)) is not None

    def mark_id(self, mark: str) -> int | None:
        """The token that is a mark, None where the vocabulary has none and the mark is written in several tokens."""
        token = self.tokenizer.token_id(mark)
        return token if token is not None and self.is_mark(token) else None

    def prepare(self) -> None:
        """Build it on a second thread, so that no request waits for it."""
        threading.Thread(target=lambda: self.native, name="zinc-grammar", daemon=True).start()

    @property
    def native(self) -> Any:
        """The `llguidance.LLTokenizer`."""
        with self._lock:
            if self._built is None:
                self._built = self._build()
            return self._built

    def _build(self) -> Any:
        import llguidance

        source = _Tokens(self.tokenizer, self.n_vocab, [i for i in range(self.tokenizer.n_vocab) if self.is_mark(i)])
        eos = list(self.stop_ids) or [source.eos_token_id]
        return llguidance.LLTokenizer(llguidance.TokenizerWrapper(source), eos_token=eos)


class _Tokens:
    """The interface of a tokenizer that llguidance wants."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, n_vocab: int, marks: list[int]) -> None:
        self._tokenizer = tokenizer
        self.tokens = [tokenizer.token_bytes(i) for i in range(tokenizer.n_vocab)]
        self.tokens += [b""] * (n_vocab - tokenizer.n_vocab)  # tokens without bytes are never allowed
        self.special_token_ids = marks
        self.eos_token_id = next(iter(sorted(tokenizer.stop_ids)), tokenizer.n_vocab - 1)

    def __call__(self, text: bytes | str) -> list[int]:
        plain = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return self._tokenizer.encode(plain, add_special=False, parse_special=False)

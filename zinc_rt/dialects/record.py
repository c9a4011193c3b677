"""`Dialect`: how a family of models writes reasoning and tool calls. One record gives the grammar and the parser."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from zinc_rt.dialects.forms.base import CallForm
    from zinc_rt.text import Tokenizer
    from zinc_rt.text.harmony import MessageFormat

_ALPHABET: Final = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"


class ThinkingState(StrEnum):
    """The model's state at the end of a prompt."""

    opened = "opened"
    """In the middle of reasoning: the prompt ends with the mark that begins it."""
    possible = "possible"
    """It may begin to reason by itself."""
    off = "off"
    """Behind reasoning, or the family has none."""
    continued = "continued"
    """In the middle of the content of an answer, which is continued."""


@dataclass(frozen=True)
class Dialect:
    """A family's way of writing.

    calls: how it writes tool calls, None where it makes none. think: the marks around reasoning, None where there is
    none. messages: the answer consists of messages with headers (gpt-oss, Muse Glimmer), and a call is one of them,
    written as `calls` says or, for None, as JSON. parallel: whether it can make several calls in one answer. short_ids:
    ids of calls are nine letters and digits, which is what the family's templates take.
    """

    name: str
    calls: CallForm | None = None
    think: tuple[str, str] | None = None
    messages: MessageFormat | None = None
    parallel: bool = True
    short_ids: bool = False

    @property
    def takes_tools(self) -> bool:
        """Whether the family makes tool calls."""
        return self.messages is not None or self.calls is not None

    @property
    def reasons(self) -> bool:
        """Whether the family marks its reasoning."""
        return self.messages is not None or self.think is not None

    @property
    def marks(self) -> tuple[str, ...]:
        """Tokens' names that are parts of the format: the text for a parser must show them, special tokens or not."""
        calls = self.calls.marks if self.calls is not None else ()
        return (*calls, *(self.think or ()))

    def mark_ids(self, tokenizer: Tokenizer) -> frozenset[int]:
        """The tokens of `marks` that a vocabulary has."""
        return frozenset(i for mark in self.marks if (i := tokenizer.token_id(mark)) is not None)

    def thinking(self, prompt: str) -> ThinkingState:
        """Where a rendered prompt leaves the model, from its end."""
        if self.think is None:
            return ThinkingState.possible if self.messages is not None else ThinkingState.off
        begin, end = self.think
        opened, closed = prompt.rfind(begin), prompt.rfind(end)
        if opened > closed and not prompt[opened + len(begin) :].strip():
            return ThinkingState.opened
        if closed >= 0 and not prompt[closed + len(end) :].strip():
            return ThinkingState.off
        return ThinkingState.possible

    def call_id(self, salt: str, index: int) -> str:
        """The id of an answer's call: the same for the same salt, which belongs to one request alone."""
        digest = hashlib.blake2b(f"{index}:{salt}".encode(), digest_size=16).digest()
        if not self.short_ids:
            return f"call_{digest.hex()[:24]}"
        number = int.from_bytes(digest, "little")
        return "".join(_ALPHABET[number // 62**i % 62] for i in range(9))

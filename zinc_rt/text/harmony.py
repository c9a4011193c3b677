"""Answers in messages (Harmony of gpt-oss, ATEM of Muse Glimmer): a stream divided into reasoning, answer and calls.

A message is `<|start|>ROLE [to=RECIPIENT]<|channel|>CHANNEL [to=RECIPIENT] [<|constrain|>TYPE]<|message|>TEXT`,
ended by `<|end|>`, `<|return|>` or `<|call|>`. The prompt ends in `<|start|>assistant`, so an answer begins after that.
Channels: "analysis" is reasoning, "final" the answer; what has a recipient is a tool call; the rest counts as answer.
ATEM has no channels, but the recipients "self" and "user" in their place; `<|eom|>` and `<|eot|>` end a message.

A stream that breaks the format is text: words where none belong are part of the answer, and nothing raises.
"""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zinc_rt.text.tokenizer import Tokenizer

_HEADER = re.compile(  # of a message, as far as it goes
    r"\s*(?P<role>[\w.-]*)(?:\s+to=(?P<to>\S+?))?\s*"
    r"(?:<\|channel\|>\s*(?P<channel>[\w.-]*)(?:\s+to=(?P<recipient>[^\s<]+))?\s*(?:<\|constrain\|>)?\s*[\w./+-]*\s*)?"
)
_LONGEST_HEADER = 256
"""Characters before `<|message|>` from which on a header is taken for text."""


@dataclass(frozen=True)
class MessageFormat:
    """The marks of messages. ends: of a message; behind the first of them another message follows.

    thinks, answers: channels of reasoning and of the answer, or the recipients that stand for them. in_headers: marks
    within headers, that of the channel first.
    """

    ends: tuple[str, ...]
    thinks: str
    answers: str
    in_headers: tuple[str, ...] = ()

    @cached_property
    def marks(self) -> tuple[str, ...]:
        """All of them."""
        return ("<|start|>", *self.in_headers, "<|message|>", *self.ends)

    @cached_property
    def mark(self) -> re.Pattern[str]:
        """Any of the marks."""
        return re.compile("|".join(map(re.escape, self.marks)))

    def head(self, name: str) -> tuple[str, str]:
        """What stands before `<|message|>` for a channel, or a recipient in its place: a mark, maybe "", and text."""
        return (self.in_headers[0], name) if self.in_headers else ("", f" to={name}")

    def spoken(self, tokenizer: Tokenizer) -> bool:
        """Whether a model's vocabulary has the marks."""
        return all(tokenizer.token_id(mark) is not None for mark in self.marks)


HARMONY = MessageFormat(("<|end|>", "<|return|>", "<|call|>"), "analysis", "final", ("<|channel|>", "<|constrain|>"))
ATEM = MessageFormat(("<|eom|>", "<|eot|>"), "self", "user")


class Channel(enum.Enum):
    """The kind of a part of an answer."""

    REASONING = "reasoning"
    CONTENT = "content"
    TOOL_CALL = "tool_call"


@dataclass(frozen=True)
class Delta:
    """The next piece of a message. message: its number in the answer, from 0. to: the tool that a call is for.

    A tool call's first piece is empty, so that a call without arguments is seen.
    """

    channel: Channel
    text: str
    message: int
    to: str | None = None


class _State(enum.Enum):
    HEADER = 1  # between messages' start and their text
    BODY = 2
    BETWEEN = 3  # behind a message's end


class Harmony:
    """Divides one answer. The joined texts of its messages do not depend on how the stream is cut into pieces."""

    def __init__(self, format: MessageFormat = HARMONY) -> None:
        self._format = format
        self._held = ""  # not told yet
        self._state = _State.HEADER
        self._implied = True  # the header's role was in the prompt: it may begin with a mark or a recipient only
        self._next = 0
        self._now = Delta(Channel.CONTENT, "", 0)  # the message that the text belongs to
        self._told: list[Delta] = []

    def add(self, text: str) -> list[Delta]:
        """The pieces that this text completes, maybe none."""
        self._held += text
        return self._run(last=False)

    def finish(self) -> list[Delta]:
        """What was held back, at the end of the answer."""
        return self._run(last=True)

    def _run(self, last: bool) -> list[Delta]:
        step = {_State.HEADER: self._header, _State.BODY: self._body, _State.BETWEEN: self._between}
        while step[self._state](last):
            pass
        told, self._told = self._told, []
        return told

    # Each returns whether there is more to be done with what is held.

    def _header(self, last: bool) -> bool:
        held = self._held
        if self._implied and not self._may_begin(last):
            return self._open(Channel.CONTENT)
        end = next((mark for mark in self._format.mark.finditer(held) if mark[0] not in self._format.in_headers), None)
        if end is None and len(held) - self._begun() <= _LONGEST_HEADER and not last:
            return False
        header = held if end is None else held[: end.start()]
        words = _HEADER.fullmatch(header) if len(header) <= _LONGEST_HEADER else None
        if end is not None and end[0] == "<|message|>" and words is not None:
            self._held = held[end.end() :]
            to = words["recipient"] or words["to"]
            if to is not None and (self._format.in_headers or to not in (self._format.thinks, self._format.answers)):
                return self._open(Channel.TOOL_CALL, to)
            return self._open(Channel.REASONING if self._format.thinks in (words["channel"], to) else Channel.CONTENT)
        if words is not None:  # a header and no text: the answer was cut, or the next message begins
            self._held = held[len(header) :]
            self._state = _State.BETWEEN
            return bool(self._held)
        text = self._format.mark.sub(lambda mark: "" if mark[0] in self._format.in_headers else mark[0], header)
        self._held = text + held[len(header) :]
        return self._open(Channel.CONTENT)

    def _body(self, last: bool) -> bool:
        marks = self._format.mark.finditer(self._held)
        end = next((mark for mark in marks if mark[0] not in ("<|message|>", "<|constrain|>")), None)
        if end is None:
            keep = 0 if last else self._begun()
            self._tell(self._held[: len(self._held) - keep])
            self._held = self._held[len(self._held) - keep :]
            return False
        self._tell(self._held[: end.start()])
        self._held = self._held[end.start() :]
        self._state = _State.BETWEEN
        return True

    def _between(self, last: bool) -> bool:
        self._held = self._held.lstrip()
        mark = self._format.mark.match(self._held)
        if mark is None:
            if not self._held or (not last and len(self._held) == self._begun()):
                return False
            return self._open(Channel.CONTENT)
        if mark[0] != "<|channel|>":
            self._held = self._held[mark.end() :]
        self._implied = mark[0] == "<|channel|>"
        if mark[0] in ("<|start|>", "<|channel|>"):
            self._state = _State.HEADER
        return True

    def _open(self, channel: Channel, to: str | None = None) -> bool:
        self._now = Delta(channel, "", self._next, to)
        self._next += 1
        self._state = _State.BODY
        if to is not None:
            self._told.append(self._now)
        return True

    def _tell(self, text: str) -> None:
        if text:
            self._told.append(Delta(self._now.channel, text, self._now.message, self._now.to))

    def _may_begin(self, last: bool) -> bool:
        """Whether what is held is, or may yet become, the rest of a header behind its role."""
        held, of = self._held.lstrip(), self._format
        starts = (*of.in_headers[:1], "<|start|>", "<|message|>", of.ends[0], "to=")
        return any(held.startswith(start) or (not last and start.startswith(held)) for start in starts)

    def _begun(self) -> int:
        """Length of the longest tail of what is held that begins a mark."""
        held, marks = self._held, self._format.marks
        at = held.rfind("<", max(0, len(held) - max(map(len, marks)) + 1))
        return len(held) - at if at >= 0 and any(mark.startswith(held[at:]) for mark in marks) else 0

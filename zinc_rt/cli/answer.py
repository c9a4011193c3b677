"""`AnswerScreen`: what of a model's answer goes where."""

from __future__ import annotations

from typing import TYPE_CHECKING

from zinc_rt.cli.terminal import one_line, say, write
from zinc_rt.text.harmony import Channel, Harmony, speaks_harmony

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zinc_rt.text import Tokenizer
    from zinc_rt.text.harmony import Delta


class AnswerScreen:
    """Writes an answer to standard output while it comes. Of a model that marks its reasoning and its tool calls
    (`harmony`) that is the answer proper; reasoning is dimmed, on standard error, and a call is told in one line.
    """

    def __init__(self, tokenizer: Tokenizer | None, *, reasoning: bool, quiet: bool = False) -> None:
        """tokenizer: the model's; None for a text whose marks are part of it. reasoning: show it. quiet: show nothing
        at all, for callers that want the parts.
        """
        self.text = ""
        """The answer proper, for the conversation."""
        self.reasoning = ""
        """What the model marked as such."""
        self._harmony = Harmony() if tokenizer is not None and speaks_harmony(tokenizer) else None
        self._shows, self._shows_reasoning = not quiet, reasoning and not quiet
        self._thinking = False  # the last thing shown is reasoning, without a line end
        self._calls: dict[int, tuple[str, str]] = {}  # by message: tool, arguments

    def put(self, text: str) -> None:
        """The next piece of the stream."""
        if self._harmony is None:
            self._write(text)
        else:
            self._show(self._harmony.add(text))

    def finish(self) -> None:
        """The stream has ended."""
        if self._harmony is not None:
            self._show(self._harmony.finish())
        self._end_reasoning()
        for tool, arguments in self.calls if self._shows else ():
            say(
                f"zinc: the model calls {one_line(tool)}({one_line(arguments)}); there are no tools here",
                style="yellow",
            )

    @property
    def marked(self) -> bool:
        """Whether the model marks what is reasoning and what is a call."""
        return self._harmony is not None

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Tool and arguments of each call."""
        return list(self._calls.values())

    def _show(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if delta.channel is Channel.CONTENT:
                self._write(delta.text)
            elif delta.channel is Channel.TOOL_CALL:
                tool, arguments = self._calls.get(delta.message, (delta.to or "", ""))
                self._calls[delta.message] = tool, arguments + delta.text
            else:
                self.reasoning += delta.text
                if self._shows_reasoning:
                    say(delta.text, style="dim", end="")
                    self._thinking = True

    def _write(self, text: str) -> None:
        self._end_reasoning()
        self.text += text
        if self._shows:
            write(text)

    def _end_reasoning(self) -> None:
        if self._thinking:
            say("")
            self._thinking = False

"""`AnswerScreen`: sends the parts of a model's answer to the screen."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from zinc_rt.cli.terminal import harmless, is_terminal, one_line, say, write, write_styled
from zinc_rt.cli.wrap import Wrapper
from zinc_rt.dialects.deltas import ContentDelta, ReasoningDelta
from zinc_rt.sampling.stop import StopMatcher
from zinc_rt.text.harmony import Channel, Harmony

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from zinc_rt.dialects.record import Dialect
    from zinc_rt.llm.chat import ChatChunk
    from zinc_rt.text.harmony import Delta


class AnswerScreen:
    """Writes an answer to standard output while it comes. Reasoning goes to standard error, dimmed, if the model marks
    it. The command offers no tools, so a tool call is only mentioned in one line.
    """

    def __init__(
        self, dialect: Dialect, *, reasoning: bool, markdown: bool = False, shows: bool = True, stop: Sequence[str] = ()
    ) -> None:
        """dialect: how the model marks things. reasoning: show it. markdown: show emphasis, headings and code as a
        terminal can. shows: False for callers that want the parts alone. stop: strings that end the answer.
        """
        self.text = ""
        """The answer proper, for the conversation."""
        self.reasoning = ""
        """What the model marked as such."""
        self.marked = dialect.reasons
        """Whether the model marks what is reasoning."""
        # Calls that nobody offered are content to the dialect; here they are told.
        self._harmony = None if dialect.messages is None else Harmony(dialect.messages)
        self._stops = StopMatcher(stop)
        self._shows, self._shows_reasoning = shows, reasoning and shows
        self._thinking = False  # the last thing shown is reasoning, without a line end
        self._calls: dict[int, tuple[str, str]] = {}  # by message: tool, arguments
        self._markdown = None
        if markdown and shows:
            from zinc_rt.cli.markdown import Markdown

            self._markdown = Markdown(None)
        self._reasoning_lines = Wrapper(None) if is_terminal(sys.stderr) else None

    def put(self, chunk: ChatChunk) -> None:
        """The next piece of the stream."""
        if self._harmony is not None:
            self._show(self._harmony.add(chunk.chunk.text))
            return
        for delta in chunk.deltas:
            if isinstance(delta, ContentDelta):
                self._write(delta.text)
            elif isinstance(delta, ReasoningDelta):
                self._think(delta.text)

    def finish(self) -> None:
        """The stream has ended, or was stopped. The answer's last line gets an end where it has none."""
        if self._harmony is not None:
            self._show(self._harmony.finish())
            self._write(self._stops.flush())
        self._end_reasoning()
        if self._markdown is not None:
            write_styled(self._markdown.finish())
        if self._shows and not self.text.endswith("\n"):
            write("\n")
        for tool, arguments in self.calls if self._shows else ():
            say(
                f"zinc: the model calls {one_line(tool)}({one_line(arguments)}); there are no tools here",
                style="yellow",
            )

    @property
    def calls(self) -> list[tuple[str, str]]:
        """Tool and arguments of each call."""
        return list(self._calls.values())

    def _show(self, deltas: Iterable[Delta]) -> None:
        for delta in deltas:
            if delta.channel is Channel.CONTENT:
                self._write(self._stops.add(delta.text)[0])
            elif delta.channel is Channel.TOOL_CALL:
                tool, arguments = self._calls.get(delta.message, (delta.to or "", ""))
                self._calls[delta.message] = tool, arguments + delta.text
            else:
                self._think(delta.text)

    def _think(self, text: str) -> None:
        self.reasoning += text
        if self._shows_reasoning and text:
            if self._reasoning_lines is not None:
                self._reasoning_lines.add_lines(harmless(text))
                text = self._reasoning_lines.take()
            say(text, style="dim", end="")
            self._thinking = True

    def _write(self, text: str) -> None:
        if not text:
            return
        self._end_reasoning()
        self.text += text
        if self._markdown is not None:
            write_styled(self._markdown.add(harmless(text)))
        elif self._shows:
            write(text)

    def _end_reasoning(self) -> None:
        if self._thinking:
            if self._reasoning_lines is not None:
                self._reasoning_lines.finish()
                say(self._reasoning_lines.take(), style="dim", end="")
            say("")
            self._thinking = False

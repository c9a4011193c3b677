"""`Messages`: what is typed into a chat, pasted or piped in, message by message."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from typing import Final

from zinc_rt.cli.terminal import is_terminal, say

QUOTES: Final = '"""'


class Messages:
    """Lines of standard input as messages and commands.

    A line that ends in a backslash takes the next one along, and lines between two `QUOTES` are one message. So is what
    is pasted into a terminal that marks its pastes.
    """

    def __init__(self, interactive: bool, commands: Sequence[str] = ()) -> None:
        """interactive: a person types, so there is a prompt and line editing. commands: what the tab key completes."""
        self._interactive = interactive
        self._commands = sorted(commands)
        if interactive:
            self._edit()

    def __iter__(self) -> Iterator[str]:
        """The messages, to the end of the input. Raises KeyboardInterrupt, unless a person types."""
        while True:
            try:
                message = self._message()
            except EOFError:
                if self._interactive:
                    say("")
                return
            except KeyboardInterrupt:
                if not self._interactive:
                    raise
                say("\n(Ctrl-D or /exit leaves)", style="dim")
                continue
            yield message

    def _message(self) -> str:
        """The next message. Raises EOFError where there is none; what an end cuts off in a pipe is a message."""
        lines: list[str] = []
        quoted = False
        while True:
            try:
                line = self._read(". " if lines else "> ")
            except EOFError:
                if self._interactive or not lines:
                    raise
                return _whole(lines, quoted)
            if not lines and line.lstrip().startswith(QUOTES):
                quoted, line = True, line.lstrip().removeprefix(QUOTES)
                lines.append("")
                if not line.rstrip().endswith(QUOTES):
                    lines.append(line)
                    continue
            if quoted and line.rstrip().endswith(QUOTES):
                return _whole([*lines, line.rstrip().removesuffix(QUOTES)], quoted)
            if not quoted and not line.endswith("\\"):
                return _whole([*lines, line], quoted)
            lines.append(line if quoted else line[:-1])

    def _read(self, prompt: str) -> str:
        if not self._interactive:
            line = sys.stdin.readline()
            if not line:
                raise EOFError
            return line.rstrip("\r\n")
        if is_terminal(sys.stdout):
            return input(prompt)
        if sys.stderr is not None:  # answers go to a file: keep the prompt out of it
            print(prompt, end="", file=sys.stderr, flush=True)
        return input()

    def _edit(self) -> None:
        """Give `input` line editing and a history, where there is readline."""
        with contextlib.suppress(ImportError):
            import readline

            readline.parse_and_bind("set enable-bracketed-paste on")  # what is pasted comes as one line
            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims("")
            readline.set_completer(self._complete)

    def _complete(self, text: str, state: int) -> str | None:
        found = [name for name in self._commands if text.startswith("/") and name.startswith(text)]
        return found[state] if state < len(found) else None


def _whole(lines: Sequence[str], quoted: bool) -> str:
    """The message. A quoted one is never a command, which a space in front says."""
    text = "\n".join(lines)
    if not quoted:
        return text
    text = text.strip("\n")
    return f" {text}" if text.startswith("/") else text

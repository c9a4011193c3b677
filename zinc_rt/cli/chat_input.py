"""`ChatInput`: reads the messages that are typed into a chat, pasted or piped in."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.terminal import is_terminal, one_line, say
from zinc_rt.utils.atomic_write import whole_file

QUOTES: Final = '"""'
_HISTORY_LINES: Final = 1000
_LONGEST_LINE: Final = 4096
_LONGEST_MESSAGE: Final = 16 << 20  # characters of a line from a pipe, which may have no end


class ChatInput:
    """Lines of standard input as messages and commands.

    A line that ends in a backslash takes the next one along, and lines between two `QUOTES` are one message. So is what
    is pasted into a terminal that marks its pastes.
    """

    def __init__(self, interactive: bool, commands: Sequence[str] = (), history: Path | None = None) -> None:
        """interactive: a person types, so there is a prompt and line editing. commands: what the tab key completes.

        history: the file of what was typed in earlier sessions, None for none.
        """
        self._interactive = interactive
        self._commands = sorted(commands)
        self._history: Path | None = None
        self._earlier = 0  # lines of the history that were there before
        if interactive:
            self._edit(history)

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
            line = sys.stdin.readline(_LONGEST_MESSAGE)
            if not line:
                raise EOFError
            if len(line) == _LONGEST_MESSAGE and not line.endswith("\n"):
                raise CommandError(f"a line has more than {_LONGEST_MESSAGE >> 20} million characters; make it shorter")
            return line.rstrip("\r\n")
        if is_terminal(sys.stdout):
            return input(prompt)
        if sys.stderr is not None:  # answers go to a file: keep the prompt out of it
            print(prompt, end="", file=sys.stderr, flush=True)
        return input()

    def _edit(self, history: Path | None) -> None:
        """Give `input` line editing and a history, where there is readline."""
        with contextlib.suppress(ImportError):
            import readline

            readline.parse_and_bind("set enable-bracketed-paste on")  # what is pasted comes as one line
            readline.parse_and_bind("tab: complete")
            readline.set_completer_delims("")
            readline.set_completer(self._complete)
            readline.clear_history()
            for line in () if history is None else read_history(history):
                readline.add_history(line)
            self._earlier, self._history = readline.get_current_history_length(), history

    def close(self) -> None:
        """Keep what was typed for the next session; a folder that cannot be written to is told of once, here."""
        if self._history is None:
            return
        import readline

        last = readline.get_current_history_length()
        typed = [readline.get_history_item(number + 1) for number in range(self._earlier, last)]
        path, self._history = self._history, None
        try:
            keep_history(path, [line for line in typed if line])
        except OSError as error:
            say(f"zinc: the history cannot be kept in {one_line(str(path))}: {error.strerror}", style="yellow")

    def _complete(self, text: str, state: int) -> str | None:
        found = [name for name in self._commands if text.startswith("/") and name.startswith(text)]
        return found[state] if state < len(found) else None


def history_file() -> Path | None:
    """Where `zinc chat` keeps what is typed: zinc_rt/chat_history in $XDG_STATE_HOME or ~/.local/state; None without a
    home folder.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return Path(base) / "zinc_rt" / "chat_history" if os.path.isabs(base) else None


def read_history(path: Path) -> list[str]:
    """The lines of a history file, the newest ones where it is too long; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _HISTORY_LINES * _LONGEST_LINE))
            return file.read().decode(errors="replace").splitlines()[-_HISTORY_LINES:]
    except OSError:
        return []


def keep_history(path: Path, typed: Sequence[str]) -> None:
    """Add lines to a history file that its owner alone may read. Pasted texts and long lines are left out.

    Raises OSError.
    """
    lines = [line for line in typed if len(line) <= _LONGEST_LINE and line.isprintable()]
    if not lines:
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = [*read_history(path), *lines][-_HISTORY_LINES:]
    with whole_file(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("".join(f"{line}\n" for line in kept).encode(errors="replace"))


def _whole(lines: Sequence[str], quoted: bool) -> str:
    """The message. A quoted one is never a command, which a space in front says."""
    text = "\n".join(lines)
    if not quoted:
        return text
    text = text.strip("\n")
    return f" {text}" if text.startswith("/") else text

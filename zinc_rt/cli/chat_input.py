"""`ChatInput`: reads the messages that are typed into a chat, pasted or piped in."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from glob import escape, glob
from pathlib import Path
from typing import Final

from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.terminal import is_terminal, one_line, say
from zinc_rt.utils.atomic_write import whole_file

QUOTES: Final = '"""'
_HISTORY_MESSAGES: Final = 1000
_LONGEST_KEPT: Final = 4096
_LINE_END: Final = "\v"
"""A line end inside of a message, in the history's file: no key types it."""
_GNU_KEYS: Final = (
    "set enable-bracketed-paste on",  # what is pasted comes as one line
    "tab: complete",
    r'"\e\C-m": "\C-v\C-j"',  # Alt-Enter: the next character as it is, and that is a line end
)
LIBEDIT_KEYS: Final = ("bind ^I rl_complete", r"bind -s '\e\n' '\005\\\n'")
"""The same for the library that Python has in the place of GNU's on some systems. It marks no pastes, and takes a line
end as the end of the message; so Alt-Enter writes a backslash at the line's end there.
"""
_LONGEST_MESSAGE: Final = 16 << 20  # characters of a line from a pipe, which may have no end


class ChatInput:
    """Lines of standard input as messages and commands.

    A line that ends in a backslash takes the next one along, and lines between two `QUOTES` are one message. So is what
    is pasted into a terminal that marks its pastes.
    """

    def __init__(
        self,
        interactive: bool,
        commands: Mapping[str, Callable[[str], Sequence[str]] | None] | None = None,
        history: Path | None = None,
    ) -> None:
        """interactive: a person types, so there is a prompt and line editing. commands: what the tab key completes,
        each with what completes its argument. history: the file of what was typed in earlier sessions, None for none.
        """
        self._interactive = interactive
        self._commands = commands or {}
        self._history = history if interactive else None
        self._last = ""  # of the history
        self._add_history: Callable[[str], None] = lambda _: None  # to what the key up brings back
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
            if self._interactive:
                self._remember(message)
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

    def _edit(self) -> None:
        """Give `input` line editing and a history, where there is readline."""
        with contextlib.suppress(ImportError):
            import readline

            for key in LIBEDIT_KEYS if "libedit" in (readline.__doc__ or "") else _GNU_KEYS:
                readline.parse_and_bind(key)
            readline.set_completer_delims("")
            readline.set_completer(self._complete)
            readline.set_auto_history(False)  # a message may have several lines
            readline.clear_history()
            self._add_history = readline.add_history
            for message in () if self._history is None else read_history(self._history):
                self._add_history(message)
                self._last = message

    def _remember(self, message: str) -> None:
        """Put a message into the history, and into its file; one that cannot be written to is told of once."""
        if not message.strip() or message == self._last:
            return
        self._last = message
        self._add_history(message)
        if self._history is None:
            return
        try:
            keep_history(self._history, message)
        except OSError as error:
            path, self._history = self._history, None
            say(f"zinc: the history cannot be kept in {one_line(str(path))}: {error.strerror}", style="yellow")

    def _complete(self, text: str, state: int) -> str | None:
        command, space, begun = text.partition(" ")
        if space:
            values = self._commands.get(command)
            found = [] if values is None else [f"{command} {value}" for value in values(begun)]
        else:
            found = sorted(name for name in self._commands if text.startswith("/") and name.startswith(text))
        return found[state] if state < len(found) else None


def matching_paths(begun: str) -> list[str]:
    """Files and folders whose paths begin so; ~ is the home folder."""
    found = sorted(glob(escape(os.path.expanduser(begun)) + "*"))
    return [path + os.sep if os.path.isdir(path) else path for path in found]


def history_file() -> Path | None:
    """Where `zinc chat` keeps what is typed: zinc_rt/chat_history in $XDG_STATE_HOME or ~/.local/state; None without a
    home folder.
    """
    base = os.environ.get("XDG_STATE_HOME", "")
    if not os.path.isabs(base):
        base = os.path.expanduser("~/.local/state")
    return Path(base) / "zinc_rt" / "chat_history" if os.path.isabs(base) else None


def read_history(path: Path) -> list[str]:
    """The messages of a history file, the newest ones where it is too long; none where it cannot be read."""
    try:
        with open(path, "rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - _HISTORY_MESSAGES * _LONGEST_KEPT))
            lines = file.read().decode(errors="replace").split("\n")[:-1]
    except OSError:
        return []
    return [line.replace(_LINE_END, "\n") for line in lines[-_HISTORY_MESSAGES:]]


def keep_history(path: Path, message: str) -> None:
    """Add a message to a history file that its owner alone may read, at once: a window may be closed. Long ones are
    left out, and those with characters that no key types.

    Raises OSError.
    """
    if len(message) > _LONGEST_KEPT or not message.translate({10: " ", 9: " "}).isprintable():
        return
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    kept = [*read_history(path), message][-_HISTORY_MESSAGES:]
    with whole_file(path) as file:
        os.fchmod(file.fileno(), 0o600)
        file.write("".join(one.replace("\n", _LINE_END) + "\n" for one in kept).encode(errors="replace"))


def _whole(lines: Sequence[str], quoted: bool) -> str:
    """The message. A quoted one is never a command, which a space in front says."""
    text = "\n".join(lines)
    if not quoted:
        return text
    text = text.strip("\n")
    return f" {text}" if text.startswith("/") else text

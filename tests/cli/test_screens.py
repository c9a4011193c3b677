"""Whole screens of `zinc run` and `zinc chat` on a terminal: what a person sees, key by key."""

from __future__ import annotations

import codecs
import ctypes.util
import json
import os
import pty
import re
import select
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.test_process import ENVIRONMENT, ZINC
from zinc_rt.cli.chat_input import LIBEDIT_KEYS

RUN = """\
zinc-story Q8_0 on CPU (N threads), context 1024
Once upon a time there was a brave pig named Ella, who lived in a busy little town.
prompt 4 tokens, N tokens/s | text 16 tokens, N tokens/s | token limit (-n) | seed 3
"""

CHAT = """\
zinc-story Q8_0 on CPU (N threads), context 1024; /help lists the commands
> Tell me a story
of *a fox*.
Long, long ago there was a young fox whose
prompt 21 tokens, N tokens/s | text 10 tokens, N tokens/s | token limit (-n)
> /tokens
36 of 1024 tokens are taken, 988 are left
> /regenerate
Once upon a time there was a brave dragon named
prompt 21 tokens (20 from cache), N tokens/s | text 10 tokens, N tokens/s | token limit (-n)
> /system Be brief.
system prompt: Be brief.
> /nope
zinc: unknown command /nope; /help lists them (a message may begin with a space and /)
> a
b
Once upon a time there was a brave wizard named
prompt 22 tokens (1 from cache), N tokens/s | text 10 tokens, N tokens/s | token limit (-n)
> /save FILE
saved 2 messages: FILE
> /exit
"""


class Screen:
    """A terminal that is wide enough: the control sequences that the line editor and this program use, ECMA-48."""

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self._held = ""

    def feed(self, text: str) -> None:
        """Show the text. A sequence that is not whole waits."""
        self._held += text
        while found := re.match(r"\x1b\[\??([\d;]*)([A-Za-z])|([^\x1b])", self._held):
            self._held = self._held[found.end() :]
            number, final, character = found.groups()
            if character:
                self._show(character)
            else:
                self._control(final, number)

    def _show(self, character: str) -> None:
        if character == "\r":
            self.column = 0
        elif character == "\b":
            self.column -= 1
        elif character == "\n":
            self.row += 1
            self.lines += [""] * (self.row + 1 - len(self.lines))
        elif character >= " ":
            line = self.lines[self.row].ljust(self.column)
            self.lines[self.row] = line[: self.column] + character + line[self.column + 1 :]
            self.column += 1

    def _control(self, final: str, number: str) -> None:
        if final in "ACD":
            count = int(number or 1)
            self.row -= count * (final == "A")
            self.column += count * ((final == "C") - (final == "D"))
        elif final in "KJ":
            assert number in ("", "0")
            self.lines[self.row] = self.lines[self.row][: self.column]
            self.lines = self.lines[: self.row + 1] if final == "J" else self.lines
        else:
            assert final in "mhl", final

    @property
    def text(self) -> str:
        """What is there, without what another machine or the first run would show."""
        shown = "".join(f"{line.rstrip()}\n" for line in self.lines).rstrip("\n") + "\n"
        shown = re.sub(r"^zinc: (compiling|compiled|waiting) .*\n", "", shown, flags=re.MULTILINE)
        return re.sub(r"\d+ threads?\)", "N threads)", re.sub(r"[\d.]+ tokens/s", "N tokens/s", shown))


def screen(command: list[str], typed: list[str], state: Path = Path("/nonexistent"), columns: int = 200) -> str:
    """What a terminal shows at the end. typed: keys, each pressed when the prompt is there again.

    state: the folder of the user's state.
    """
    parent, child = pty.openpty()
    environment = ENVIRONMENT | {"COLUMNS": str(columns), "LINES": "50", "INPUTRC": "/dev/null"}
    environment |= {"XDG_STATE_HOME": str(state)}
    process = subprocess.Popen(
        command, stdin=child, stdout=child, stderr=child, env=environment, start_new_session=True
    )
    os.close(child)
    seen, keys, deadline = Screen(), list(typed), time.monotonic() + 60
    decoder = codecs.getincrementaldecoder("utf-8")()
    pressed = -1  # the row of the last prompt at which keys were pressed
    poll = select.poll()
    poll.register(parent, select.POLLIN)
    while time.monotonic() < deadline:
        if keys and seen.row > pressed and seen.lines[seen.row] in ("> ", ". "):
            pressed = seen.row
            os.write(parent, keys.pop(0).encode())
        if poll.poll(100):
            try:
                seen.feed(decoder.decode(os.read(parent, 65536)))
            except OSError:  # the other side has closed
                break
    process.wait(timeout=10)
    os.close(parent)
    return seen.text


def test_run() -> None:
    words = ("--seed", "3", "-n", "16", "--device", "cpu")
    assert screen([*ZINC, "run", "Once upon a time", *words], typed=[]) == RUN


def test_chat(tmp_path: Path) -> None:
    file = str(tmp_path / "talk.json")
    pasted = "\x1b[200~Tell me a story\rof *a fox*.\x1b[201~"
    commands = [
        "/tok\t\r",
        "/regenerate\r",
        "/system Be brief.\r",
        "/nope\r",
        "a\x1b\rb\r",  # Alt-Enter
        f"/save {file}\r",
        "/exit\r",
    ]
    words = ("--seed", "3", "-n", "10", "--device", "cpu")
    shown = screen([*ZINC, "chat", *words], typed=[f"{pasted}\r", *commands], state=tmp_path)
    assert shown.replace(file, "FILE") == CHAT
    saved = json.loads(Path(file).read_text())
    assert saved["system"] == "Be brief."
    assert saved["messages"][0]["content"] == "a\nb"
    kept = tmp_path / "zinc_rt" / "chat_history"
    assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().split("\n")[:2] == ["Tell me a story\vof *a fox*.", "/tokens"]
    # A model alone on a terminal begins a conversation, and the key up brings what was typed last.
    keys = ["\x1b[A" * 4 + "\r", "\x1b[A" * 4 + "\r", f"/save {file}\r", "/exit\r"]
    again = screen([*ZINC, "run", "-i", *words], typed=keys, state=tmp_path, columns=80)
    assert json.loads(Path(file).read_text())["messages"][0]["content"] == "a\nb"
    assert "> /nope\n" in again
    assert re.search(r"^zinc: unknown command /nope; .*\nand /\)$", again, re.MULTILINE)


LIBEDIT = """
import ctypes, sys
library, lines = ctypes.CDLL(sys.argv[1]), []
library.rl_initialize()
for key in sys.argv[2:]:
    library.rl_parse_and_bind(key.encode())
keep = ctypes.CFUNCTYPE(None, ctypes.c_char_p)(lines.append)
while b"/exit" not in lines:
    n = len(lines)
    library.rl_callback_handler_install(b"> ", keep)
    while len(lines) == n:
        library.rl_callback_read_char()
    library.rl_callback_handler_remove()
print("lines", b"|".join(lines).decode())
"""


@pytest.mark.slow
def test_alt_enter_where_python_has_libedit() -> None:
    """As Python's module `readline` calls it. A backslash makes `ChatInput` ask for the next line."""
    name = ctypes.util.find_library("edit")
    if name is None:
        pytest.skip("needs libedit")
    shown = screen([sys.executable, "-c", LIBEDIT, name, *LIBEDIT_KEYS], typed=["a\x1b\r", "b\r", "/exit\r"])
    assert shown.splitlines()[-1] == "lines a\\|b|/exit"

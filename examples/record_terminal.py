"""Record a command in a terminal of its own as an animated SVG, as the README's picture was made:

python examples/record_terminal.py --type "Give me three tips for a good night's sleep." --type /exit \
    docs/pictures/chat.svg zinc chat -m SmolLM2-135M-Instruct.Q4_1.gguf --seed 1 -n 170

Each --type is a line that is typed behind the command's prompt.
"""

from __future__ import annotations

import argparse
import fcntl
import os
import pty
import re
import select
import shlex
import struct
import termios
import time
from collections.abc import Sequence
from pathlib import Path

from zinc_rt.charts.recording import Written, recording

COLUMNS, LINES = 96, 40
TYPING = 0.04  # seconds a key
FRAME = 0.05  # what arrives within so many seconds is one piece
PROMPT = b"> "  # what a command writes that waits for a line


def record(command: list[str], lines: Sequence[str]) -> list[Written]:
    """Run a command and note what it writes, with the typing of its line before."""
    line = shlex.join([os.path.basename(command[0]), *command[1:]])
    writes = [Written(0.0, "$ ")]
    writes += [Written(0.5 + TYPING * i, key) for i, key in enumerate(line)]
    start = 0.8 + TYPING * len(line)
    writes.append(Written(start, "\r\n"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    keys: list[bytes] = []
    waiting = list(lines)
    began, pending, since, last = time.perf_counter(), b"", 0.0, b""
    while True:
        if select.select([terminal], [], [], TYPING)[0]:
            try:
                data = os.read(terminal, 1 << 16)
            except OSError:  # the command has ended
                data = b""
            now, last = time.perf_counter() - began, data
            if pending and (not data or now - since > FRAME):
                writes.append(Written(start + since, pending.decode(errors="replace")))
                pending = b""
            if not data:
                break
            since = now if not pending else since
            pending += data
        elif keys:
            os.write(terminal, keys.pop(0))
        elif waiting and re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", last).endswith(PROMPT):
            keys = [key.encode() for key in waiting.pop(0)] + [b"\r"]
    os.waitpid(pid, 0)
    return writes


def main() -> None:
    """Record what the arguments say."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("picture", type=Path)
    parser.add_argument("--type", action="append", default=[], metavar="LINE")
    parser.add_argument("command", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    if not options.command:
        parser.error("there is no command to record")
    options.picture.write_text(recording(record(options.command, options.type), COLUMNS), encoding="utf-8")


if __name__ == "__main__":
    main()

"""Record a command in a terminal of its own as an animated SVG, as the picture of the README was made:

python examples/record_terminal.py docs/pictures/run.svg zinc run "Once upon a time" --seed 3 -n 120
"""

from __future__ import annotations

import fcntl
import os
import pty
import shlex
import struct
import sys
import termios
import time
from pathlib import Path

from zinc_rt.pictures.recording import Written, recording

COLUMNS, LINES = 96, 40
TYPING = 0.04  # seconds a key
FRAME = 0.05  # what arrives within so many seconds is one piece


def record(command: list[str]) -> list[Written]:
    """Run a command and note what it writes, with the typing of its line before."""
    line = shlex.join(command)
    writes = [Written(0.0, "$ ")]
    writes += [Written(0.5 + TYPING * i, key) for i, key in enumerate(line)]
    start = 0.8 + TYPING * len(line)
    writes.append(Written(start, "\r\n"))
    pid, terminal = pty.fork()
    if pid == 0:
        os.environ["TERM"] = "xterm-256color"
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    began, pending, since = time.perf_counter(), b"", 0.0
    while True:
        try:
            data = os.read(terminal, 1 << 16)
        except OSError:  # the command has ended
            data = b""
        now = time.perf_counter() - began
        if pending and (not data or now - since > FRAME):
            writes.append(Written(start + since, pending.decode(errors="replace")))
            pending = b""
        if not data:
            break
        since = now if not pending else since
        pending += data
    os.waitpid(pid, 0)
    return writes


def main() -> int:
    """Record what the arguments say; exit code 2 without them."""
    if len(sys.argv) < 3:
        print(__doc__, file=sys.stderr)
        return 2
    Path(sys.argv[1]).write_text(recording(record(sys.argv[2:]), COLUMNS), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())

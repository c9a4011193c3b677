"""`zinc ps`: which models are running on this machine."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import say, write, write_table

_RUNNING: Final = ("run", "chat", "serve", "route", "bench", "embed", "rerank", "perplexity", "replay")
_PROC: Final = Path("/proc")
_STARTED: Final = 19  # the field of /proc/PID/stat behind the name


@dataclass(frozen=True)
class Running:
    """A `zinc` command that is running. seconds: for how long; bytes: of memory that it has of its own. pictures:
    whether it reads them.
    """

    pid: int
    verb: str
    model: str
    seconds: float
    bytes: int
    pictures: bool = False


def ps(as_json: o.Json = False, debug: o.Debug = False) -> int:
    """List your running `zinc` commands.

    Verb, model, memory and age of each `run`, `chat`, `serve` and other command of yours on this machine, and which of
    them read pictures.
    """
    found = [*running(_PROC)]
    if as_json:
        write(json.dumps([asdict(each) for each in found], ensure_ascii=False, indent=1) + "\n")
    elif found:
        from zinc_rt.mem.plan import format_bytes

        rows = [[str(r.pid), r.verb, format_bytes(r.bytes), _age(r.seconds), _shown(r)] for r in found]
        write_table(rows, ("pid", "verb", "memory", "for", "model"), right=(0, 2, 3))
    else:
        say("zinc: no zinc command of yours is running")
    return 0


def running(proc: Path) -> Iterator[Running]:
    """What `ps` lists, by process number, read from a proc file system."""
    numbers = sorted(int(path.name) for path in proc.iterdir() if path.name.isdecimal())
    for pid in numbers:
        with suppress(OSError, ValueError, IndexError):
            folder = proc / str(pid)
            if pid == os.getpid() or folder.stat().st_uid != os.getuid():
                continue
            words = (folder / "cmdline").read_bytes().decode(errors="replace").rstrip("\0").split("\0")
            arguments = _arguments(words)
            if not arguments or arguments[0] not in _RUNNING:
                continue
            stat = (folder / "stat").read_text().rpartition(")")[2].split()
            booted = float((proc / "uptime").read_text().split()[0])
            seconds = booted - int(stat[_STARTED]) / os.sysconf("SC_CLK_TCK")
            pages = int((folder / "statm").read_text().split()[1])
            model = _option(arguments, ("-m", "--model", "-hf", "--hf-repo")) or "the model in the package"
            bytes_ = pages * os.sysconf("SC_PAGE_SIZE")
            yield Running(pid, arguments[0], model, seconds, bytes_, _reads_pictures(folder, arguments))


def _shown(one: Running) -> str:
    return f"{one.model}, pictures" if one.pictures else one.model


def _reads_pictures(folder: Path, arguments: Sequence[str]) -> bool:
    """Whether a command was given a projector, or has found one: it, or its engine's process, has the file mapped."""
    if _option(arguments, ("--mmproj",)):
        return True
    with suppress(OSError):
        children = [word for task in (folder / "task").iterdir() for word in (task / "children").read_text().split()]
        for process in (folder, *(folder.parent / child for child in children)):
            if re.search(r"/[^/\n]*mmproj[^/\n]*\.gguf$", (process / "maps").read_text(), re.MULTILINE):
                return True
    return False


def _arguments(words: Sequence[str]) -> Sequence[str]:
    """What follows `zinc`, or `python -m zinc_rt`, in a command line; nothing for other programs."""
    names = [os.path.basename(word) for word in words[:2]]
    if names[0] == "zinc":
        return words[1:]
    if not names[0].startswith("python"):
        return ()
    if names[1:] == ["zinc"]:
        return words[2:]
    return words[3:] if list(words[1:3]) == ["-m", "zinc_rt"] else ()


def _option(arguments: Sequence[str], names: Sequence[str]) -> str:
    for i, word in enumerate(arguments):
        name, equals, value = word.partition("=")
        if name in names:
            return value if equals else (arguments[i + 1] if i + 1 < len(arguments) else "")
    return ""


def _age(seconds: float) -> str:
    return time.strftime("%H:%M:%S", time.gmtime(seconds)) if seconds < 86400 else f"{seconds / 86400:.1f} d"

"""Input texts: from the command line, a file, or standard input."""

from __future__ import annotations

import codecs
import os
import re
import select
import stat
import sys
from pathlib import Path
from typing import Final

from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.terminal import is_terminal, say
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}

LONGEST: Final = 256 << 20
"""Bytes of a text; more is no text that a model could read."""
NO_TEXT: Final = "no text given: pass it as an argument, with -p TEXT, -f FILE, or on standard input"
_UTF_16: Final = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_PATIENCE: Final = 2.0  # seconds


def prompt_text(
    words: list[str] | None, option: str | None, file: str | None, *, escape: bool = False, piped: bool = True
) -> str:
    """The prompt: an argument, -p or -f, else standard input.

    piped: what a pipe brings stands before an argument or -p. One line end at the end of a file or of standard input
    is dropped. Raises `CommandError`, and `UsageError` for no prompt, an empty one or several.
    """
    words = words or []
    if len(words) > 1:
        raise UsageError(f"the prompt came in {len(words)} pieces ({' | '.join(words[:4])}); put it in quotes")
    given = [*words, *([option] if option is not None else [])]
    if len(given) + (file is not None) > 1:
        raise UsageError("the prompt is given more than once; use one of: an argument, -p, -f")
    if not given:
        text, where = read_text(file), "standard input" if file in (None, "-") else str(file)
        if not text:
            raise UsageError(f"{where} is empty: there is no prompt")
        return unescape(text) if escape else text
    if not given[0]:
        raise UsageError("the prompt is empty; give a text")
    prompt = unescape(given[0]) if escape else given[0]
    before = _piped_text() if piped else ""
    return f"{before}\n\n{prompt}" if before else prompt


def _piped_text() -> str:
    """What a pipe or a file brings on standard input; empty where it is a terminal or nothing comes.

    A pipe that brings nothing for a while and stays open is told of: it may be one that nobody meant.
    """
    if sys.stdin is None or is_terminal(sys.stdin):
        return ""
    try:
        handle = sys.stdin.fileno()
    except (OSError, ValueError):  # a stream of this process without a file behind it
        return read_text("-")
    kind = os.fstat(handle).st_mode
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
        return ""
    arrivals = select.poll()
    arrivals.register(handle, select.POLLIN)
    if not arrivals.poll(1000 * _PATIENCE):
        say("zinc: standard input is open: what comes there is put before the prompt; < /dev/null leaves it out")
    return read_text("-")


def refuse_model(words: list[str] | None, verb: str) -> None:
    """Raises `UsageError` where the first of some words is a model, which other programs take there."""
    if not words:
        return
    model, rest = words[0], " ".join(f'"{word}"' for word in words[1:])
    if len(words) > 1:
        from zinc_rt.hub.reference import is_known

        found = model.endswith(".gguf") or is_known(model)
    else:
        found = model.endswith(".gguf") and Path(model).exists()
    if found:
        raise UsageError(f"{model} is a model, not a prompt: zinc {verb} -m {model} {rest}".rstrip())


def read_bytes(file: str | None, limit: int | None = None) -> bytes:
    """What is in a file, or on standard input for None and "-". Devices and pipes may have no end.

    Raises OSError, and `CommandError` for more than `limit` bytes (None: `LONGEST`).
    """
    limit = LONGEST if limit is None else limit
    if file is None or file == "-":
        data = sys.stdin.buffer.read(limit + 1)
    else:
        with open(file, "rb") as source:
            data = source.read(limit + 1)
    if len(data) > limit:
        shown = "standard input" if file in (None, "-") else show(str(file))
        raise CommandError(f"{shown} has more than {limit >> 20} MiB, which is the limit; give a part of it")
    return data


def read_text(file: str | None, limit: int | None = None) -> str:
    """The text of a file, or of standard input for None and "-", without its last line end.

    It is UTF-8, or UTF-16 where it begins with a mark that says so. Raises `UsageError` when a person would have to
    type it, `CommandError` when it cannot be read or has more than `limit` bytes (None: `LONGEST`).
    """
    if file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        raise UsageError(NO_TEXT)
    shown = "standard input" if file in (None, "-") else show(str(file))
    try:
        data = read_bytes(file, limit)
        text = data.decode("utf-16" if data.startswith(_UTF_16) else "utf-8-sig")
    except OSError as error:
        raise CommandError(f"cannot read {shown}: {error.strerror or error}") from None
    except UnicodeDecodeError as error:
        raise CommandError(f"{shown} is not {error.encoding.upper()} text (byte {error.start}); convert it") from None
    if "\0" in text:
        raise CommandError(
            f"{shown} has NUL characters (the first is number {text.index(chr(0)) + 1}): it is no text, or UTF-16"
            " without a mark; convert it to UTF-8"
        )
    return text.removesuffix("\n").removesuffix("\r")


def unescape(text: str) -> str:
    r"""`\n \t \r \\ \" \'` as the characters they stand for; anything else stays."""
    return re.sub(r"\\([ntr\\\"'])", lambda m: _ESCAPES[m[1]], text)

"""Input texts: from the command line, a file, or standard input."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Final

from zinc_rt.cli.terminal import is_terminal
from zinc_rt.errors import UsageError, ZincError

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", '"': '"', "'": "'"}


class InputError(ZincError):
    """A text cannot be read: the file is missing, forbidden, or not UTF-8."""


def prompt_text(words: list[str] | None, option: str | None, file: str | None, *, escape: bool = False) -> str:
    """The prompt from exactly one place; from standard input when none is named and it is no terminal.

    One line end at the end of a file or of standard input is dropped. Raises `InputError`, and `UsageError`
    for no prompt, an empty one or several.
    """
    words = words or []
    if len(words) > 1:
        raise UsageError(f"the prompt came in {len(words)} pieces ({' | '.join(words[:4])}); put it in quotes")
    given = [*words, *([option] if option is not None else [])]
    if len(given) + (file is not None) > 1:
        raise UsageError("the prompt is given more than once; use one of: an argument, -p, -f")
    if given:
        text, where = given[0], "the prompt"
    else:
        text, where = read_text(file), "standard input" if file in (None, "-") else str(file)
    if not text:
        raise UsageError(f"{where} is empty: there is no prompt")
    return unescape(text) if escape else text


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


def read_text(file: str | None) -> str:
    """The text of a file, or of standard input for None and "-", without its last line end.

    Raises `UsageError` when a person would have to type it, `InputError` when it cannot be read.
    """
    if file is None and (sys.stdin is None or is_terminal(sys.stdin)):
        raise UsageError("no text given: pass it as an argument, with -p TEXT, -f FILE, or on standard input")
    shown = "standard input" if file in (None, "-") else str(file)
    try:
        if file is None or file == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(file, "rb") as source:
                data = source.read()
        text = data.decode("utf-8")
    except OSError as error:
        raise InputError(f"cannot read {shown}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{shown} is not UTF-8 text (byte {error.start}); convert it first") from None
    return text.removesuffix("\n").removesuffix("\r")


def unescape(text: str) -> str:
    r"""`\n \t \r \\ \" \'` as the characters they stand for; anything else stays."""
    return re.sub(r"\\([ntr\\\"'])", lambda m: _ESCAPES[m[1]], text)

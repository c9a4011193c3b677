"""All errors of this package."""

from __future__ import annotations

from zinc_rt.errors import ZincError

_SHOWN = 80  # characters of a value that a message may carry
_MESSAGE = 300  # characters of a message that comes from a file


class TokenizerError(ZincError):
    """A tokenizer cannot be built from a file's metadata, or got arguments that it does not take.

    `key` is the metadata key at fault (or None when the fault lies in an argument), `value` what was seen
    there.
    """

    def __init__(self, message: str, *, key: str | None = None, value: object = None) -> None:
        super().__init__(message if key is None else f"{printable(key)}: {message}")
        self.key = key
        self.value = value


class ChatTemplateMissing(ZincError):
    """The file carries no chat template (of the asked name). None is guessed."""


class ChatTemplateError(ZincError):
    """A chat template cannot be compiled or rendered. `line` is the line in the template, if it is known.

    The message may hold what the template says: it is cut, put on one line, and made printable.
    """

    def __init__(self, message: str, *, line: int | None = None) -> None:
        super().__init__(f"chat template{f', line {line}' if line else ''}: {printable(message)}")
        self.line = line


def shown(value: object) -> str:
    """`repr` of a value, on one line and cut to a length fit for a message."""
    if isinstance(value, (str, bytes, list, tuple)):
        value = value[: _SHOWN + 1]
    text = " ".join(repr(value).split()) if not isinstance(value, str) else repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def printable(text: str) -> str:
    """A text of a file as part of a message: on one line, no longer than 300 characters, and with what a terminal
    would act on (control characters, marks that turn the direction of writing) written as escape sequences.
    """
    words = " ".join(text[: 4 * _MESSAGE].split())
    line = "".join(c if c.isprintable() else c.encode("unicode_escape", "backslashreplace").decode() for c in words)
    return line if len(line) <= _MESSAGE else line[: _MESSAGE - 3] + "..."

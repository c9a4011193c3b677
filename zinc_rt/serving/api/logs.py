"""Logs on standard error: a JSON object a line, or text for a person. What a prompt says is never in it unless its
tenant allows that.
"""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

from zinc_rt.utils.checks import printable

NAME: Final = "zinc_rt.serving"
Level = Literal["debug", "info", "warning", "error"]


class _Lines(logging.Formatter):
    """A record as JSON; what `extra={"facts": ...}` holds is beside the message."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "event": record.getMessage(),
            **getattr(record, "facts", {}),
        }
        if record.exc_info:
            line["trace"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line, enc_hook=str).decode()


class _Text(logging.Formatter):
    """A record as a line for a person: time of day, what happened, and the facts; control characters are escaped."""

    def format(self, record: logging.LogRecord) -> str:
        level = "" if record.levelno <= logging.INFO else f" {record.levelname}:"
        facts = getattr(record, "facts", {}).items()
        shown = "".join(
            f"  {_shown(value)}" if name == "message" else f"  {name} {_shown(value)}"
            for name, value in facts
            if value is not None
        )
        line = f"{datetime.fromtimestamp(record.created):%H:%M:%S}{level} {printable(record.getMessage())}{shown}"
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


def _shown(value: Any) -> str:
    return printable(value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=str).decode())


def make_logger(
    stream: TextIO | None = None, form: Literal["json", "text"] | None = None, level: Level = "info"
) -> logging.Logger:
    """The server's logger, writing to a stream (None: standard error) and nowhere else.

    form: None is text where the stream is a terminal, else JSON.
    """
    stream = stream or sys.stderr
    logger = logging.Logger(NAME, level.upper())
    handler = logging.StreamHandler(stream)
    handler.setFormatter(_Text() if form == "text" or (form is None and stream.isatty()) else _Lines())
    logger.addHandler(handler)
    return logger


def tell(logger: logging.Logger, event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write a line."""
    logger.log(level, event, extra={"facts": facts})

"""Logs: one JSON object a line on standard error. What a prompt says is never in it unless its tenant allows that."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime
from typing import Any, Final, Literal, TextIO

import msgspec

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


def make_logger(stream: TextIO | None = None, level: Level = "info") -> logging.Logger:
    """The server's logger, writing to a stream (None: standard error) and nowhere else."""
    logger = logging.Logger(NAME, level.upper())
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(_Lines())
    logger.addHandler(handler)
    return logger


def tell(logger: logging.Logger, event: str, level: int = logging.INFO, **facts: Any) -> None:
    """Write a line."""
    logger.log(level, event, extra={"facts": facts})

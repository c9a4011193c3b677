"""Model files as arguments, and writing result files whole or not at all."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.errors import ZincError


class FileWriteError(ZincError):
    """A result file cannot be written."""


ModelArgument = Annotated[
    Path | None,
    typer.Argument(
        metavar="[FILE]",
        help="GGUF file. Default: the small story model inside the package.",
        show_default=False,
    ),
]


def path_or_built_in(path: Path | None) -> Path:
    """The file itself, or the one in the package."""
    if path is not None:
        return path
    from zinc_rt.model import built_in_model

    return built_in_model()


def write_file(path: Path, text: str) -> None:
    """Write a file beside its place and move it there. Raises `FileWriteError`; nothing half-written stays."""
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        part.write_text(text, encoding="utf-8")
        part.replace(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            part.unlink()
        raise FileWriteError(f"{path} cannot be written: {error.strerror}; choose another file or make room") from None

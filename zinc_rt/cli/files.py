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
    from zinc_rt.loading import built_in_model

    return built_in_model()


def write_file(path: Path, text: str) -> None:
    """Write a file beside its place and move it there; a device or pipe is written to as it is, a link stays one.

    Raises `FileWriteError`; nothing half-written stays.
    """
    try:
        if path.exists() and not path.is_file():
            path.write_text(text, encoding="utf-8")
            return
        final = Path(os.path.realpath(path))
        part = final.with_name(f".{final.name}.{os.getpid()}.part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(final)
        except BaseException:
            with contextlib.suppress(OSError):
                part.unlink()
            raise
    except OSError as error:
        raise FileWriteError(f"{path} cannot be written: {error.strerror}; choose another file or make room") from None

"""Model files as arguments, and writing result files whole or not at all."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli.terminal import one_line, write
from zinc_rt.cli.verbosity import Verbosity
from zinc_rt.errors import UsageError, ZincError
from zinc_rt.utils.atomic_write import whole_file


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


def model_file(path: Path | None, hub: str | None = None, verbosity: Verbosity = Verbosity.VERBOSE) -> Path | None:
    """The file that the options name, None for the model in the package.

    path: a file, or a downloaded model by any of its names; hub: a model of the hub, which is downloaded if it is not
    there; verbosity: how much is said then. Raises `UsageError` for both at once, `UnknownModel`, `HubError`.
    """
    if hub is not None:
        if path is not None:
            raise UsageError(f"two models given (-m {path} and -hf {hub}); pass only one")
        from zinc_rt.cli.pull import fetch
        from zinc_rt.hub.reference import parse

        return fetch(parse(hub), verbosity=verbosity)
    from zinc_rt.hub.resolve import model_path

    return None if path is None else Path(model_path(str(path)))


def path_or_built_in(path: Path | None) -> Path:
    """The file that an argument names, or the one in the package. Raises as `model_file`."""
    found = model_file(path)
    if found is not None:
        return found
    from zinc_rt.llm.load import built_in_model

    return built_in_model()


def write_file(path: str | Path, text: str) -> None:
    """Write a file beside its place and move it there; a device or pipe is written to as it is, a link stays one, and
    "-" is standard output.

    Raises `FileWriteError`; nothing half-written stays. For standard output: what `write` raises.
    """
    if str(path) == "-":
        write(text)
    else:
        write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: str | Path, data: bytes) -> None:
    """The same for bytes and no standard output."""
    try:
        with whole_file(path) as out:
            out.write(data)
    except (OSError, ValueError) as error:  # ValueError: a NUL character in the path
        raise _unwritable(path, getattr(error, "strerror", None) or str(error)) from None


def check_writable(path: Path) -> None:
    """Raise `FileWriteError` where a file cannot be written, before hours of work for it. It is not touched."""
    folder = path.parent
    if path.is_dir():
        raise _unwritable(path, "Is a directory")
    if not folder.is_dir():
        raise _unwritable(path, "No such file or directory" if not folder.exists() else "Not a directory")
    there = path if path.exists() and not path.is_file() else folder
    if not os.access(there, os.W_OK):
        raise _unwritable(path, "Permission denied")


def _unwritable(path: str | Path, reason: str) -> FileWriteError:
    return FileWriteError(f"{one_line(str(path))} cannot be written: {reason}; choose another file or make room")

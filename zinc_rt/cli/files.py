"""Options of the verbs that look into a file without running it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

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

"""`--save-state` and `--load-state`: what was computed of a text, kept in a file for the next command."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o

if TYPE_CHECKING:
    from zinc_rt.cli.voice import Voice
    from zinc_rt.llm.model import Model

SaveState = Annotated[
    Path | None,
    typer.Option(
        "--save-state",
        metavar="FILE",
        help="Keep what was computed of prompt and text in FILE: a later prompt that begins alike goes on from there.",
        rich_help_panel=o.MODEL,
        show_default=False,
        dir_okay=False,
    ),
]
LoadState = Annotated[
    Path | None,
    typer.Option(
        "--load-state",
        metavar="FILE",
        help="Take what --save-state kept: the tokens with which the prompt begins alike are not computed again.",
        rich_help_panel=o.MODEL,
        show_default=False,
        dir_okay=False,
    ),
]


def load_state(model: Model, path: Path | None, voice: Voice) -> None:
    """Read a file if one is named. Raises `EngineError`."""
    if path is not None:
        voice.tell(f"zinc: {path}: {len(model.load_state(path))} tokens that need not be computed", style="dim")


def save_state(model: Model, path: Path | None, ids: list[int], voice: Voice) -> None:
    """Write a file if one is named. ids: prompt and text. Raises `EngineError`."""
    if path is not None:
        voice.tell(f"zinc: wrote {path}: {model.save_state(path, ids)} tokens", style="dim")

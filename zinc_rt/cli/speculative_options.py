"""Options of speculation: the drafter, and the length of drafts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli.options import MODEL, completes


def _spec_kinds() -> list[str]:
    from zinc_rt.speculation.options import SpecKind

    return [kind.value for kind in SpecKind]


SpecName = Annotated[
    str | None,
    typer.Option(
        "--spec",
        metavar="off|ngram|draft|mtp",
        autocompletion=completes(_spec_kinds),
        help="Guess the next tokens and compute them at once, which changes no text and may be faster: ngram guesses"
        " from prompt and text, draft by the model of -md, mtp by heads in the file. Default: draft with -md, else"
        " off.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
DraftModel = Annotated[
    Path | None,
    typer.Option(
        "-md",
        "--model-draft",
        metavar="FILE",
        help="GGUF file of a small model with the same vocabulary, which guesses for --spec draft; or of the"
        " model's own block or assistant, for --spec mtp.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
DraftMax = Annotated[
    int | None,
    typer.Option(
        "--draft-max",
        "--draft",
        "--draft-n",
        metavar="N",
        help="Most tokens to guess at once; the speed of steps decides how many are guessed. Default: 16.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]
DraftMin = Annotated[
    int | None,
    typer.Option(
        "--draft-min",
        "--draft-n-min",
        metavar="N",
        help="Fewest tokens to guess at once. Default: 0.",
        rich_help_panel=MODEL,
        show_default=False,
    ),
]

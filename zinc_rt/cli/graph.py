"""`zinc graph`: the operations of one step of a model, as a drawing or as data."""

from __future__ import annotations

import shutil
import subprocess
from enum import StrEnum
from pathlib import PurePath
from typing import Annotated, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.files import ModelArgument, path_or_built_in, write_bytes, write_file
from zinc_rt.cli.terminal import one_line
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

_PICTURES: Final = (".svg", ".png", ".pdf")


class GraphFormat(StrEnum):
    """The formats of a graph."""

    dot = "dot"
    json = "json"


FormatOption = Annotated[
    GraphFormat | None,
    o.option(
        o.OUTPUT,
        "--format",
        metavar="dot|json",
        help="DOT for Graphviz, or JSON. Default: by the name of -o, else DOT.",
    ),
]
OutputFile = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where to write; - is standard output. Graphviz, if it is installed, draws a name in .svg, .png or .pdf.",
        rich_help_panel=o.OUTPUT,
    ),
]
Rows = Annotated[
    int,
    typer.Option(
        "--rows",
        metavar="N",
        help="Rows (tokens) of the step that costs are given for.",
        rich_help_panel=o.MODEL,
    ),
]
Context = Annotated[
    int,
    typer.Option(
        "--context",
        metavar="N",
        help="Tokens that each row attends to, for the costs.",
        rich_help_panel=o.MODEL,
    ),
]

AllLayers = Annotated[
    bool,
    o.option(
        o.OUTPUT,
        "--all-layers",
        help="Draw every layer, equal ones too; otherwise those that follow each other are drawn once.",
    ),
]


def graph(
    *,
    file: ModelArgument = None,
    model: o.ModelFile = None,
    rows: Rows = 1,
    context: Context = 512,
    all_layers: AllLayers = False,
    form: FormatOption = None,
    output: OutputFile = "-",
    debug: o.Debug = False,
) -> int:
    """Write a model's graph: the operations of one step.

    With the bytes and operations of each; equal layers are drawn once, with the costs of all of them. JSON has every
    layer. To see it, with Graphviz installed: zinc graph -o graph.svg
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.ir.drawing import to_dot
    from zinc_rt.ir.export import to_json
    from zinc_rt.ir.sizes import CostSizes
    from zinc_rt.models import define

    ending = PurePath(output).suffix.lower()
    painter = _graphviz(output) if ending in _PICTURES and form is None else None
    sizes = CostSizes(n_rows=rows, n_logits=1, context=context)
    with GGUFFile.open(path_or_built_in(o.choose_file(file, model))) as opened:
        made = define(opened).graph
    if form is GraphFormat.json or (form is None and ending == ".json"):
        write_file(output, to_json(made, sizes))
        return 0
    drawing = to_dot(made, sizes, fold=not all_layers)
    if painter is None:
        write_file(output, drawing)
    else:
        write_bytes(output, _picture(painter, ending[1:], drawing))
    return 0


def _graphviz(output: str) -> str:
    """The path of Graphviz's `dot`. Raises `UsageError` where it is not installed."""
    if (found := shutil.which("dot")) is None:
        raise UsageError(
            f"{show(output)} would be a picture; Graphviz draws it and is not installed (its command is dot): install"
            f" it, or write {show(str(PurePath(output).with_suffix('.dot')))}"
        )
    return found


def _picture(painter: str, kind: str, drawing: str) -> bytes:
    done = subprocess.run([painter, f"-T{kind}"], input=drawing.encode(), capture_output=True, check=False)
    if done.returncode:
        raise CommandError(f"{painter} -T{kind} failed: {one_line(done.stderr.decode(errors='replace'))}")
    return done.stdout

"""`zinc graph`: the operations of one step of a model, as a drawing or as data."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import ModelArgument, path_or_built_in
from zinc_rt.cli.terminal import write_file


class GraphFormat(StrEnum):
    """The formats of a graph."""

    dot = "dot"
    json = "json"


FormatOption = Annotated[
    GraphFormat,
    typer.Option("--format", metavar="dot|json", help="DOT for Graphviz, or JSON.", rich_help_panel=o.OUTPUT),
]
OutputFile = Annotated[
    str,
    typer.Option(
        "-o",
        "--output",
        metavar="FILE",
        help="Where to write; - is standard output.",
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
    typer.Option(
        "--all-layers",
        help="Draw every layer, equal ones too; otherwise those that follow each other are drawn once.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]


def graph(
    *,
    file: ModelArgument = None,
    model: o.ModelFile = None,
    rows: Rows = 1,
    context: Context = 512,
    all_layers: AllLayers = False,
    form: FormatOption = GraphFormat.dot,
    output: OutputFile = "-",
    debug: o.Debug = False,
) -> int:
    """Write a model's graph: the operations of one step.

    With the bytes and operations of each; equal layers are drawn once, with the costs of all of them. JSON has every
    layer. To see it: zinc graph | dot -Tsvg > graph.svg
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.ir.drawing import to_dot
    from zinc_rt.ir.export import to_json
    from zinc_rt.ir.sizes import CostSizes
    from zinc_rt.models import define

    sizes = CostSizes(n_rows=rows, n_logits=1, context=context)
    with GGUFFile.open(path_or_built_in(o.choose_file(file, model))) as opened:
        made = define(opened).graph
    write_file(output, to_dot(made, sizes, fold=not all_layers) if form is GraphFormat.dot else to_json(made, sizes))
    return 0

"""`zinc convert`: a Hugging Face folder as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.quantize import DryRun, Force, Kept, Target, Workers, check_threads, summarize, types, write_and_report
from zinc_rt.cli.terminal import say

Directory = Annotated[
    Path,
    typer.Argument(
        metavar="FOLDER",
        help="Folder with config.json, *.safetensors and a tokenizer, as `save_pretrained` writes it.",
        show_default=False,
    ),
]
Type = Annotated[
    str | None,
    typer.Argument(
        metavar="[TYPE]",
        help="The format, as of `zinc quantize`: BF16, Q8_0, Q4_K_M and so on. Default: that of the weights.",
        autocompletion=types,
        show_default=False,
    ),
]


def convert(
    folder: Directory,
    out: Target,
    type: Type = None,
    keep: Kept = None,
    force: Force = False,
    dry_run: DryRun = False,
    threads: Workers = None,
    debug: o.Debug = False,
) -> int:
    """Write a Hugging Face folder as a GGUF file.

    Weights, configuration, tokenizer and chat template of a model that was trained elsewhere become one file that runs
    here. Weights are read as they are written, so the model need not fit memory. Unsupported parts are refused by
    name before anything is written; the file is moved to its place when it is complete.
    """
    from zinc_rt.converting.model import ConvertedModel
    from zinc_rt.mem.plan import format_bytes
    from zinc_rt.quantizing.convert import Conversion
    from zinc_rt.quantizing.plan import Planner, parse_keep
    from zinc_rt.quantizing.presets import preset_of

    check_threads(threads)
    preset, keeps = preset_of(type) if type is not None else None, [parse_keep(text) for text in keep or ()]
    with ConvertedModel(folder) as model:
        preset = preset or preset_of(model.usual_type)
        work = Conversion(model, out, preset, Planner(model, preset, keeps, leave_blocks=True).choices())
        work.check_target(force=force or dry_run)
        architecture = model.metadata["general.architecture"]
        say(
            f"zinc: {model.path} ({architecture}, {format_bytes(model.nbytes)}) as {preset.name}:"
            f" {format_bytes(work.size)}, {work.bits:.2f} bits a weight",
            style="dim",
        )
        for note in model.notes:
            say(f"zinc: {note}")
        if dry_run:
            summarize(work)
        else:
            write_and_report(work, threads, "converting")
    return 0

"""`zinc convert`: a Hugging Face folder as a GGUF file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.quantize import DryRun, Force, Kept, Target, Workers, check_threads, summarize, types, write_and_report
from zinc_rt.cli.terminal import say, write
from zinc_rt.errors import UsageError

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


Base = Annotated[
    Path | None,
    o.option(
        o.OTHER,
        "--base",
        metavar="FOLDER",
        help="With an adapter: the folder of its model, of which config.json is read.",
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
    base: Base = None,
    debug: o.Debug = False,
) -> int:
    """Write a Hugging Face folder as a GGUF file.

    A folder of PEFT with a LoRA adapter becomes a GGUF adapter; TYPE is F32, F16 or BF16 then, and --base names the
    model's folder where adapter_config.json does not.

    Weights, configuration, tokenizer and chat template of a model that was trained elsewhere become one file that runs
    here. Weights are read as they are written, so the model need not fit memory. Unsupported parts are refused by
    name before anything is written; the file is moved to its place when it is complete.
    """
    from zinc_rt.converting.model import ConvertedModel
    from zinc_rt.converting.peft import is_peft
    from zinc_rt.mem.plan import format_bytes
    from zinc_rt.quantizing.convert import Conversion
    from zinc_rt.quantizing.plan import Planner, parse_keep
    from zinc_rt.quantizing.presets import preset_of

    check_threads(threads)
    if is_peft(folder):
        return _convert_adapter(folder, out, type, base, keep, force=force, dry_run=dry_run)
    if base is not None:
        raise UsageError(f"--base is {base}, but {folder} holds no adapter; leave it out")
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


def _convert_adapter(
    folder: Path,
    out: Path,
    wanted: str | None,
    base: Path | None,
    keep: list[str] | None,
    *,
    force: bool,
    dry_run: bool,
) -> int:
    """Write a PEFT folder as a GGUF adapter. Raises `ConvertError`, `UsageError`."""
    from zinc_rt.converting.peft import PeftAdapter
    from zinc_rt.gguf import GGMLType

    kinds = {kind.name: kind for kind in (GGMLType.F32, GGMLType.F16, GGMLType.BF16)}
    if wanted is not None and wanted.upper() not in kinds:
        raise UsageError(f"TYPE is {wanted!r}; an adapter is written as {', '.join(kinds)}")
    if keep:
        raise UsageError("--keep chooses formats of a model's tensors; leave it out for an adapter")
    adapter = PeftAdapter(folder, base)
    if out.exists() and not (force or dry_run):
        raise UsageError(f"{out} is there already; give another name, or --force to replace it")
    ranks = sorted({pair.b.shape[-1] for pair in adapter.pairs})
    said = f"{len(adapter.pairs)} pairs of matrices of rank {', '.join(map(str, ranks))}, for {adapter.architecture}"
    if not dry_run:
        adapter.write(out, None if wanted is None else kinds[wanted.upper()])
    write(f"{out}: {said}, alpha {adapter.alpha:g}\n")
    return 0

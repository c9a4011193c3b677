"""`zinc quantize`: a model of floats in a smaller format."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import path_or_built_in
from zinc_rt.cli.stopping import stopping_on_sigterm
from zinc_rt.cli.terminal import LoadingBar, is_terminal, say, write, write_table
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.quantizing.convert import Conversion


def types(incomplete: str) -> list[str]:
    """Shell completion of TYPE."""
    from zinc_rt.quantizing.presets import PRESETS

    return [name for name in PRESETS if name.startswith(incomplete.upper())]


Source = Annotated[
    Path,
    typer.Argument(
        metavar="IN",
        help="GGUF file in F32, F16, BF16 or Q8_0, the first part of a split one, or the name of a downloaded model.",
        show_default=False,
    ),
]
Target = Annotated[Path, typer.Argument(metavar="OUT", help="The file to write.", show_default=False)]
Type = Annotated[
    str,
    typer.Argument(
        metavar="TYPE",
        help="F32, F16, BF16, Q8_0, Q6_K, Q5_K_M, Q5_K_S, Q5_1, Q5_0, Q4_K_M, Q4_K_S, Q4_1, Q4_0, IQ4_NL, IQ4_XS,"
        " MXFP4_MOE, MXFP4, NVFP4, Q3_K_L, Q3_K_M, Q3_K_S, Q2_K, Q2_0, TQ2_0, TQ1_0 or Q1_0.",
        autocompletion=types,
        show_default=False,
    ),
]
Kept = Annotated[
    list[str] | None,
    o.option(
        o.MODEL,
        "--keep",
        metavar="PATTERN=TYPE",
        help="Another format for the matrices with such names, as 'blk.*.attn_v.weight=Q8_0'. May be repeated; the"
        " first that fits decides.",
    ),
]
Workers = Annotated[
    int | None,
    o.option(
        o.OTHER,
        "-t",
        "--threads",
        metavar="N",
        help="Threads; the file does not depend on it. Default: the physical cores within the control group's limit.",
    ),
]
Again = Annotated[
    bool,
    o.option(
        o.MODEL,
        "--requantize",
        help="Take tensors that are quantised already, which lose once more. Q8_0 is always taken.",
    ),
]
Force = Annotated[bool, o.option(o.OUTPUT, "--force", help="Replace OUT if it is there.")]
DryRun = Annotated[
    bool, o.option(o.OUTPUT, "--dry-run", help="Say what would be written and how large it would be; write nothing.")
]


def quantize(
    source: Source,
    out: Target,
    type: Type,
    keep: Kept = None,
    requantize: Again = False,
    force: Force = False,
    dry_run: DryRun = False,
    threads: Workers = None,
    debug: o.Debug = False,
) -> int:
    """Write a model in a smaller format.

    TYPE is a mixture under its usual name: Q4_K_M is a good size for most, Q8_0 is next to lossless. Norms, biases and
    routers stay as they are, and so do metadata. The file is written beside its place and moved there when it is
    complete. At the end the loss of each kind of tensor is printed: the root of the mean squared error, as a share of
    that of the weights.
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.mem.plan import format_bytes
    from zinc_rt.quantizing.convert import Conversion
    from zinc_rt.quantizing.plan import Planner, parse_keep
    from zinc_rt.quantizing.presets import preset_of

    check_threads(threads)
    preset, keeps = preset_of(type), [parse_keep(text) for text in keep or ()]
    with GGUFFile.open(path_or_built_in(source)) as file:
        choices = Planner(file, preset, keeps, requantize=requantize).choices()
        work = Conversion(file, out, preset, choices)
        work.check_target(force=force or dry_run)
        before = 8 * sum(c.tensor.nbytes for c in choices) / max(1, sum(c.tensor.n_elements for c in choices))
        say(
            f"zinc: {file.path} ({format_bytes(file.file_size)}, {before:.2f} bits a weight) as {preset.name}:"
            f" {format_bytes(work.size)}, {work.bits:.2f} bits a weight",
            style="dim",
        )
        if dry_run:
            summarize(work)
            return 0
        write_and_report(work, threads, "quantizing")
    return 0


def check_threads(threads: int | None) -> None:
    """Raise `UsageError` for a number that makes no sense."""
    if threads is not None and not 1 <= threads <= 1024:
        raise UsageError(f"--threads is {threads}; it must be 1 to 1024")


def write_and_report(work: Conversion, threads: int | None, doing: str) -> None:
    """Write the file with a bar, then say what has become of each kind of tensor. doing: the word before the bar."""
    from zinc_rt.backends.cpu.cores import default_threads
    from zinc_rt.mem.plan import format_bytes

    started = time.perf_counter()
    with stopping_on_sigterm(), LoadingBar(doing) as bar:
        size = work.write(threads=threads or default_threads(), progress=bar.show if is_terminal(sys.stderr) else None)
    seconds = time.perf_counter() - started
    summarize(work)
    write(f"{work.out}: {format_bytes(size)}, {work.bits:.2f} bits a weight, {seconds:.1f} s\n")


def summarize(work: Conversion) -> None:
    """The new format of each kind of tensor, and its loss."""
    from zinc_rt.mem.plan import format_bytes
    from zinc_rt.quantizing.plan import notes

    kinds: dict[tuple[str, str], list[int]] = {}
    for choice in work.choices:
        if len(choice.tensor.shape) > 1:
            kinds.setdefault((choice.kind, choice.type.name), []).append(choice.nbytes)
    rows = []
    for (kind, name), sizes in kinds.items():
        loss = work.losses.get((kind, name))
        rows.append([kind, name, str(len(sizes)), format_bytes(sum(sizes)), f"{loss.relative:.2%}" if loss else "-"])
    rest = [c for c in work.choices if len(c.tensor.shape) < 2]
    if rest:
        names = "/".join(sorted({c.type.name for c in rest}))
        rows.append(["vectors", names, str(len(rest)), format_bytes(sum(c.nbytes for c in rest)), "-"])
    write_table(rows, ("tensor", "format", "count", "size", "loss"), right=(2, 3, 4))
    for line in notes(work.choices):
        write(f"{line}\n")

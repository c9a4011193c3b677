"""`zinc bench`: prefill and decode speed, with their spread."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.constants import card_intervals, constants_table
from zinc_rt.cli.engine_options import GeneratingOptions
from zinc_rt.cli.files import check_writable, write_file
from zinc_rt.cli.model_session import open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.profiling import ProfileOptions, profiled
from zinc_rt.cli.terminal import advance, progress, say, write
from zinc_rt.cli.verbosity import VerbosityOptions
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError
from zinc_rt.mem.plan import available_memory

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model

PROMPT, TEXT = "prompt", "text"
_DECODE_PROMPT: Final = 1  # tokens before the first decode step


class TableFormat(StrEnum):
    """The output formats of `zinc bench`."""

    md = "md"
    json = "json"
    csv = "csv"


PromptLengths = Annotated[
    str,
    typer.Option(
        "-p",
        "--n-prompt",
        metavar="N,N,...",
        help="Prompt lengths to time, in tokens; 0: none.",
        rich_help_panel="What to time",
    ),
]
TextLengths = Annotated[
    str,
    typer.Option(
        "-n",
        "--n-gen",
        metavar="N,N,...",
        help="Text lengths to time, in tokens; 0: none.",
        rich_help_panel="What to time",
    ),
]
Depths = Annotated[
    str,
    typer.Option(
        "-d",
        "--depth",
        metavar="N,N,...",
        help="Tokens before a timed text.",
        rich_help_panel="What to time",
    ),
]
Repetitions = Annotated[
    int,
    typer.Option(
        "-r",
        "--repetitions",
        metavar="N",
        help="How often to time each, after one round to warm up.",
        rich_help_panel="What to time",
    ),
]
Predict = Annotated[
    str | None,
    o.option(
        "What to time",
        "--predict",
        metavar="GPU",
        autocompletion=o.completes(o.predicted_gpus),
        help="Predict the speed on this GPU and whether the model fits, without running it: prompts of -p, the next"
        " token behind -d others. Of GPUs that are not AMD's (t4, a100, rtx3060, rtx3090, rtx4090, rtx5090, h100, a770,"
        " b580) only the token, from their bandwidth.",
    ),
]
OutputOption = Annotated[
    TableFormat,
    typer.Option("-o", "--output", metavar="md|json|csv", help="Table, JSON or CSV.", rich_help_panel=o.OUTPUT),
]

Plot = Annotated[
    Path | None,
    o.option(
        o.OUTPUT,
        "--plot",
        metavar="FILE.svg",
        help="Also draw the speeds into this file, with the spread of the rounds.",
        dir_okay=False,
    ),
]


@dataclass(frozen=True)
class Measurement:
    """Tokens per second of one test over its repetitions."""

    test: str  # "prompt" or "text"
    tokens: int
    depth: int  # tokens before them
    samples: tuple[float, ...]
    step_bytes: int | None = None  # of weights and cache that a step of a text reads, on average
    read_gb_per_s: float | None = None  # memory bandwidth, measured in this run

    @property
    def median(self) -> float:
        """The middle sample."""
        import statistics

        return statistics.median(self.samples)

    @property
    def gb_per_s(self) -> float | None:
        """10^9 bytes a second that the steps of a text read; None for prompts."""
        return self.step_bytes * self.median / 1e9 if self.step_bytes else None

    @property
    def share(self) -> float | None:
        """`gb_per_s` as a share of the memory bandwidth."""
        return self.gb_per_s / self.read_gb_per_s if self.gb_per_s and self.read_gb_per_s else None

    @property
    def deviation(self) -> float:
        """Standard deviation of the samples; 0 for a single one."""
        import statistics

        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0


@takes_records
def bench(
    *,
    n_prompt: PromptLengths = "128,512",
    n_gen: TextLengths = "64",
    depth: Depths = "0",
    repetitions: Repetitions = 5,
    engine: GeneratingOptions,
    batch_size: o.BatchSize = None,
    predict: Predict = None,
    output: OutputOption = TableFormat.md,
    plot: Plot = None,
    profile: ProfileOptions,
    verbosity: VerbosityOptions,
    debug: o.Debug = False,
) -> int:
    """Measure how fast a model reads prompts and generates text.

    Prompts (prefill) and texts (decode) of given lengths are timed; the result is the median of tokens per second
    with its spread. For texts also the bytes of weights and cache that were read per second, and their share of the
    memory bandwidth measured in the same run. Ctrl-C ends it with the results so far. On a GPU its own constants are
    measured, too. --predict runs nothing: it predicts the model's speed on a GPU that this machine does not have,
    and with --profile the time of each kind of phase.
    """
    depths = _lengths("-d", depth, keep_zero=True)
    if predict is not None:
        from zinc_rt.cli.forecast import predicted

        lengths = _lengths("-p", n_prompt)
        write(predicted(predict, engine, lengths, depths, batch_size, output.value, phases=profile.profile))
        return 0
    tests = [(PROMPT, n, 0) for n in _lengths("-p", n_prompt)]
    tests += [(TEXT, n, d) for d in depths for n in _lengths("-n", n_gen)]
    if not tests:
        raise UsageError("there is nothing to time: -p and -n are both 0")
    if plot is not None and plot.suffix != ".svg":
        raise UsageError(f"--plot is {plot}; the picture is SVG, so the name must end in .svg")
    if plot is not None:
        check_writable(plot)
    if repetitions < 1:
        raise UsageError(f"-r is {repetitions}; it must be at least 1")
    n_ctx = 1 + _DECODE_PROMPT + max(n + d for _, n, d in tests)
    done: list[Measurement] = []
    interrupted = False
    with open_model(engine, n_ctx=n_ctx, n_batch=batch_size, verbosity=verbosity.chosen()) as opened:
        try:
            with (
                profiled(opened.engine, profile),
                progress("rounds", len(tests) * (repetitions + 1)) as bar,
            ):
                for test, n, before in tests:
                    bandwidth = _bandwidth(opened) if test == TEXT and not profile.profile else None
                    result = measure(opened, test, n, before, repetitions, lambda bar=bar: advance(bar))  # type: ignore[misc]
                    done.append(replace(result, read_gb_per_s=bandwidth))
        except KeyboardInterrupt:
            interrupted = True
        facts = {
            "model": opened.name,
            "parameters": sum(t.n_elements for t in opened.file.tensors.values()),
            "file_bytes": opened.file.file_size,
            "device": opened.device.value,
            "kernels": opened.engine.features.kernels,
            "isa": opened.engine.features.isa,
            "threads": opened.engine.features.threads,
            "kv": opened.engine.options.kv.value,
        }
        constants = {} if interrupted else opened.engine.card_constants()
    intervals = card_intervals(str(facts["isa"])) if constants else {}
    if output is TableFormat.json:
        facts["constants"] = {name: {"measured": x, **intervals[name]} for name, x in constants.items()}
    write(_FORMATS[output](facts, done))
    if output is TableFormat.md:
        write(constants_table(constants, intervals, emulated=facts["device"] == "emu"))
    if plot is not None and done:
        write_file(plot, _picture(facts, done))
        say(f"zinc: wrote {plot}", style="dim")
    if interrupted:
        say(f"zinc: interrupted; {len(done)} of {len(tests)} tests done", style="yellow")
    return EXIT_INTERRUPTED if interrupted else 0


def measure(model: Model, test: str, n: int, depth: int, repetitions: int, tick: Callable[[], None]) -> Measurement:
    """One test: a round to warm up, then `repetitions` that count. `tick` is called after each round."""
    samples = []
    for number in range(repetitions + 1):
        # Behind a depth every round has the same prompt, which is computed once and kept.
        length = n if test == PROMPT else depth + _DECODE_PROMPT
        tokens = _prompt(model.n_vocab, length, 0 if depth else number)
        made = 1 if test == PROMPT else n + 1  # the first token comes from the prompt's own step
        stats = model.generate(tokens, temperature=0.0, max_tokens=made, ignore_eos=True).stats
        samples.append(stats.prefill_tokens_per_second if test == PROMPT else stats.decode_tokens_per_second)
        tick()
    read = None if test == PROMPT else model.engine.step_bytes(depth + _DECODE_PROMPT + n // 2)
    return Measurement(test, n, depth, tuple(samples[1:]), read)


def _bandwidth(model: Model) -> float | None:
    """Read bandwidth over a buffer of the model's size; None for kernels that do not measure it."""
    engine = model.engine
    available = available_memory()
    size = model.file.file_size if available is None else min(model.file.file_size, available // 2)
    return engine.read_bandwidth(size) if engine.features.measures_bandwidth else None


def _prompt(n_vocab: int, n: int, number: int) -> list[int]:
    """Token ids that differ from the first on between rounds, so that no cached prompt is met again."""
    return [(number + 7919 * i) % n_vocab for i in range(n)]


def _lengths(flag: str, text: str, *, keep_zero: bool = False) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = [-1]
    if any(n < 0 for n in lengths):
        raise UsageError(f"{flag} is {text!r}; it must be lengths in tokens like 128 or 128,512")
    return [n for n in lengths if n or keep_zero]


def _markdown(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    rows = [["test", "tokens", "depth", "median tokens/s", "std. dev.", "slowest", "fastest", "GB/s", "of memory's"]]
    for r in results:
        figures = (r.median, r.deviation, min(r.samples), max(r.samples))
        read = ["" if r.gb_per_s is None else f"{r.gb_per_s:.1f}", "" if r.share is None else f"{r.share:.0%}"]
        rows.append([r.test, str(r.tokens), str(r.depth), *(f"{x:.2f}" for x in figures), *read])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(_cell(c, w, i) for i, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    head = f"{facts['model']}, {facts['parameters'] / 1e6:.1f} M parameters, device {facts['device']}"
    repetitions = len(results[0].samples) if results else 0
    return "\n".join([f"{head}, {repetitions} repetitions", "", lines[0], rule, *lines[1:]]) + "\n"


def _picture(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    """A panel for prompts by their lengths, one for texts by their depths."""
    from zinc_rt.charts.speeds import SpeedPanel, SpeedPoint, speed_chart

    def panel(test: str, title: str, axis: str, at: Callable[[Measurement], str]) -> SpeedPanel:
        points = [SpeedPoint(at(r), r.median, min(r.samples), max(r.samples)) for r in results if r.test == test]
        return SpeedPanel(title, axis, points)

    panels = [
        panel(PROMPT, "prompt: tokens per second", "tokens of the prompt", lambda r: str(r.tokens)),
        panel(
            TEXT,
            "text: tokens per second",
            "tokens before it + of it",
            lambda r: f"{r.depth} + {r.tokens}",
        ),
    ]
    title = f"{facts['model']}, {facts['device']}, {facts['threads']} threads"
    return speed_chart(title, [p for p in panels if p.points])


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def _json(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    tests = [
        {**asdict(r), "median": r.median, "deviation": r.deviation, "gb_per_s": r.gb_per_s, "share": r.share}
        for r in results
    ]
    return json.dumps({**facts, "unit": "tokens per second", "results": tests}, ensure_ascii=False, indent=1) + "\n"


def _csv(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = [
        "test",
        "tokens",
        "depth",
        "median",
        "deviation",
        "slowest",
        "fastest",
        "gb_per_s",
        "share",
        "repetitions",
    ]
    writer.writerow([*facts, *figures])
    for r in results:
        values = [r.test, r.tokens, r.depth, r.median, r.deviation, min(r.samples), max(r.samples)]
        writer.writerow([*facts.values(), *values, r.gb_per_s, r.share, len(r.samples)])
    return out.getvalue()


_FORMATS: Final = {TableFormat.md: _markdown, TableFormat.json: _json, TableFormat.csv: _csv}

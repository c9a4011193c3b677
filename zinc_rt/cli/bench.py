"""`zinc bench`: prefill and decode speed, with their spread."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.session import EXIT_INTERRUPTED, open_model
from zinc_rt.cli.terminal import advance, progress, say, write
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.model import Model

PROMPT, TEXT = "prompt", "text"
_DECODE_PROMPT: Final = 1  # tokens before the first decode step


class Output(StrEnum):
    """How results are written."""

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
OutputOption = Annotated[
    Output,
    typer.Option("-o", "--output", metavar="md|json|csv", help="Table, JSON or CSV.", rich_help_panel=o.OUTPUT),
]


@dataclass(frozen=True)
class Measurement:
    """Tokens per second of one test over its repetitions."""

    test: str  # "prompt" or "text"
    tokens: int
    samples: tuple[float, ...]

    @property
    def median(self) -> float:
        """The middle sample."""
        import statistics

        return statistics.median(self.samples)

    @property
    def deviation(self) -> float:
        """Standard deviation of the samples; 0 for a single one."""
        import statistics

        return statistics.stdev(self.samples) if len(self.samples) > 1 else 0.0


def bench(
    *,
    n_prompt: PromptLengths = "128,512",
    n_gen: TextLengths = "64",
    repetitions: Repetitions = 5,
    model: o.ModelFile = None,
    threads: o.Threads = None,
    batch_size: o.BatchSize = None,
    tier: o.TierName = None,
    kernels: o.KernelSet = None,
    isa: o.Isa = None,
    cache_dir: o.CacheDir = None,
    output: OutputOption = Output.md,
    debug: o.Debug = False,
) -> int:
    """Measure prompt and text speed.

    Prompts (prefill) and texts (decode) of given lengths are timed; the result is the median of tokens per second
    with its spread. Ctrl-C ends it with the results so far.
    """
    tests = [(PROMPT, n) for n in _lengths("-p", n_prompt)] + [(TEXT, n) for n in _lengths("-n", n_gen)]
    if not tests:
        raise UsageError("there is nothing to time: -p and -n are both 0")
    if repetitions < 1:
        raise UsageError(f"-r is {repetitions}; it must be at least 1")
    n_ctx = 1 + _DECODE_PROMPT + max(n for _, n in tests)
    done: list[Measurement] = []
    interrupted = False
    with open_model(
        model,
        tier=tier,
        n_ctx=n_ctx,
        threads=threads,
        n_batch=batch_size,
        kernels=kernels,
        isa=isa,
        cache_dir=cache_dir,
    ) as opened:
        try:
            with progress("rounds", len(tests) * (repetitions + 1)) as bar:
                for test, n in tests:
                    done.append(measure(opened, test, n, repetitions, lambda bar=bar: advance(bar)))  # type: ignore[misc]
        except KeyboardInterrupt:
            interrupted = True
        facts = {
            "model": opened.name,
            "parameters": sum(t.n_elements for t in opened.file.tensors.values()),
            "file_bytes": opened.file.file_size,
            "tier": opened.tier.value,
            "kernels": opened.engine.kernels,
            "isa": opened.engine.isa,
            "threads": opened.engine.threads,
        }
    write(_FORMATS[output](facts, done))
    if interrupted:
        say(f"zinc: interrupted; {len(done)} of {len(tests)} tests done", style="yellow")
    return EXIT_INTERRUPTED if interrupted else 0


def measure(model: Model, test: str, n: int, repetitions: int, tick: Callable[[], None]) -> Measurement:
    """One test: a round to warm up, then `repetitions` that count. `tick` is called after each round."""
    samples = []
    for number in range(repetitions + 1):
        tokens = _prompt(model.n_vocab, n if test == PROMPT else _DECODE_PROMPT, number)
        made = 1 if test == PROMPT else n + 1  # the first token comes from the prompt's own step
        stats = model.generate(tokens, temperature=0.0, max_tokens=made, ignore_eos=True).stats
        samples.append(stats.prefill_tokens_per_second if test == PROMPT else stats.decode_tokens_per_second)
        tick()
    return Measurement(test, n, tuple(samples[1:]))


def _prompt(n_vocab: int, n: int, number: int) -> list[int]:
    """Token ids that differ from the first on between rounds, so that no cached prompt is met again."""
    return [(number + 7919 * i) % n_vocab for i in range(n)]


def _lengths(flag: str, text: str) -> list[int]:
    try:
        lengths = [int(part) for part in text.split(",")]
    except ValueError:
        lengths = [-1]
    if any(n < 0 for n in lengths):
        raise UsageError(f"{flag} is {text!r}; it must be lengths in tokens like 128 or 128,512")
    return [n for n in lengths if n]


def _markdown(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    rows = [["test", "tokens", "median tokens/s", "std. dev.", "slowest", "fastest"]]
    for r in results:
        figures = (r.median, r.deviation, min(r.samples), max(r.samples))
        rows.append([r.test, str(r.tokens), *(f"{x:.2f}" for x in figures)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "| " + " | ".join(_cell(c, w, i) for i, (c, w) in enumerate(zip(row, widths, strict=True))) + " |"
        for row in rows
    ]
    rule = "|" + "|".join("-" * (w + 2) if i == 0 else "-" * (w + 1) + ":" for i, w in enumerate(widths)) + "|"
    head = f"{facts['model']}, {facts['parameters'] / 1e6:.1f} M parameters, tier {facts['tier']}"
    repetitions = len(results[0].samples) if results else 0
    return "\n".join([f"{head}, {repetitions} repetitions", "", lines[0], rule, *lines[1:]]) + "\n"


def _cell(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column == 0 else text.rjust(width)


def _json(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    tests = [{**asdict(r), "median": r.median, "deviation": r.deviation} for r in results]
    return json.dumps({**facts, "unit": "tokens per second", "results": tests}, ensure_ascii=False, indent=1) + "\n"


def _csv(facts: dict[str, Any], results: Sequence[Measurement]) -> str:
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    figures = ["test", "tokens", "median", "deviation", "slowest", "fastest", "repetitions"]
    writer.writerow([*facts, *figures])
    for r in results:
        values = [r.test, r.tokens, r.median, r.deviation, min(r.samples), max(r.samples), len(r.samples)]
        writer.writerow([*facts.values(), *values])
    return out.getvalue()


_FORMATS: Final = {Output.md: _markdown, Output.json: _json, Output.csv: _csv}

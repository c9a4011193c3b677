"""`zinc perplexity`: how well a model predicts a text."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.engine_options import EngineOptions
from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.model_session import open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import advance, progress, say, write
from zinc_rt.cli.verbosity import VerbosityOptions
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model

TextFile = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "-f",
        "--file",
        metavar="FILE",
        help="Text to predict; - is standard input, which is also read when no file is given.",
    ),
]
Window = Annotated[
    int,
    typer.Option(
        "-c",
        "--ctx-size",
        metavar="N",
        help="Tokens of a window, at least 4; the second half of each is predicted.",
        rich_help_panel=o.MODEL,
    ),
]


@dataclass(frozen=True)
class Result:
    """Perplexity over `tokens` predictions, with its standard error (None for a single prediction)."""

    perplexity: float
    error: float | None
    tokens: int
    windows: int


@takes_records
def perplexity(
    *,
    file: TextFile = None,
    window: Window = 512,
    engine: EngineOptions,
    batch_size: o.BatchSize = None,
    verbosity: VerbosityOptions,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """Measure how well a model predicts a text.

    The result is the perplexity (lower is better) with its standard error. The text is cut into windows of -c
    tokens; in each, the second half is predicted from what comes before it, as llama.cpp does. A rest shorter
    than a window is skipped, except in a text that is shorter itself.
    """
    if window < 4:
        raise UsageError(f"-c is {window}; a window needs at least 4 tokens")
    text = read_text(file)
    with open_model(engine, n_ctx=window, n_batch=batch_size, verbosity=verbosity.chosen()) as opened:
        windows = cut(opened.tokenize(text, parse_special=False), window)
        losses: list[float] = []
        done, started = 0, time.perf_counter()
        try:
            with progress("windows", len(windows)) as bar:
                for ids in windows:
                    losses += list(window_losses(opened, ids))  # a window counts as a whole
                    done += 1
                    advance(bar)
        except KeyboardInterrupt:
            if not losses:
                return EXIT_INTERRUPTED
        seconds = time.perf_counter() - started
    result = summarize(losses, done)
    if as_json:
        write(
            json.dumps(
                {
                    "perplexity": result.perplexity,
                    "standard_error": result.error,
                    "tokens": result.tokens,
                    "windows": result.windows,
                    "window_tokens": window,
                    "seconds": seconds,
                }
            )
            + "\n"
        )
    else:
        spread = f" +/- {result.error:.4f}" if result.error is not None else ""
        scope = f"{result.tokens} tokens, {done} windows of {window}"
        write(f"perplexity {result.perplexity:.4f}{spread} ({scope})\n")
    say(f"{done} of {len(windows)} windows in {seconds:.1f} s", style="dim")
    return 0 if done == len(windows) else EXIT_INTERRUPTED


def cut(ids: Sequence[int], window: int) -> list[Sequence[int]]:
    """Cut the tokens into whole windows, or all of them as one shorter window. Raises `CommandError` below 4."""
    if len(ids) < 4:
        raise CommandError(f"the text has {len(ids)} tokens, at least 4 are needed")
    if len(ids) < window:
        return [ids]
    return [ids[i : i + window] for i in range(0, len(ids) - window + 1, window)]


def window_losses(model: Model, ids: Sequence[int]) -> Iterator[float]:
    """-log p of each token of the window's second half, given all tokens before it (natural logarithm)."""
    from zinc_rt.sampling.sampler import logprobs

    first = len(ids) // 2
    bos = model.tokenizer.bos_id
    if model.tokenizer.add_bos and bos is not None:
        ids = [bos, *ids[1:]]  # every window starts the way a text starts
    for start, part in model.logits_in_parts(ids):
        for position, row in enumerate(part, start=start):
            if first <= position < len(ids) - 1:
                yield -logprobs(row.astype("float64"), ids[position + 1], 0)[0]


def summarize(losses: Sequence[float], windows: int) -> Result:
    """exp of the mean loss; its standard error is that of the mean, carried through the exponential."""
    n = len(losses)
    mean = math.fsum(losses) / n
    value = math.exp(mean) if mean < 700 else math.inf
    if n < 2:
        return Result(value, None, n, windows)
    variance = math.fsum((x - mean) ** 2 for x in losses) / (n - 1)
    return Result(value, value * math.sqrt(variance / n), n, windows)

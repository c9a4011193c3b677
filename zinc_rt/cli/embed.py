"""`zinc embed`: vectors of texts."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.engine_options import EngineOptions
from zinc_rt.cli.model_session import open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import advance, progress, say, write
from zinc_rt.cli.verbosity import VerbosityOptions
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]...", help="The texts, each in quotes.", show_default=False),
]
TextFile = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "-f",
        "--file",
        metavar="FILE",
        help="Read the texts from FILE, one a line; - is standard input, which is also read when no text is given.",
    ),
]
PoolingName = Annotated[
    str | None,
    o.option(
        o.MODEL,
        "--pooling",
        metavar="mean|cls|last",
        help="How a text's rows become one vector. Default: as the file says, else the last token's row.",
    ),
]
Dimensions = Annotated[
    int | None,
    o.option(
        o.OUTPUT,
        "--dimensions",
        metavar="N",
        help="Keep the first N elements, for models trained for it. Default: all.",
    ),
]
Raw = Annotated[bool, o.option(o.OUTPUT, "--raw", help="Do not scale vectors to length 1.")]
Similarity = Annotated[
    bool,
    o.option(o.OUTPUT, "--similarity", help="Print the cosine of each pair of texts instead, a line for each text."),
]
BatchSize = Annotated[
    int | None,
    o.option(
        o.MODEL,
        "-b",
        "--batch-size",
        metavar="N",
        help="Tokens computed at once, of several texts; the vectors do not depend on it. Default: 512, or the"
        " context for models whose tokens see the whole text.",
    ),
]
_AT_ONCE = 256
"""Texts between two looks at the progress bar and at Ctrl-C."""


@takes_records
def embed(
    *,
    texts: Texts = None,
    file: TextFile = None,
    similarity: Similarity = False,
    dimensions: Dimensions = None,
    raw: Raw = False,
    pooling: PoolingName = None,
    engine: EngineOptions,
    ctx_size: o.CtxSize = None,
    batch_size: BatchSize = None,
    verbosity: VerbosityOptions,
    debug: o.Debug = False,
) -> int:
    """Print the vectors of texts.

    A vector a line, as a JSON list, in the order of the texts. A text's vector does not depend on the others.
    """
    if texts and file is not None:
        raise UsageError("texts are given twice; use arguments or -f")
    given = texts or read_text(file).splitlines()
    for i, text in enumerate(given):
        if not text.strip():
            raise UsageError(f"text {i + 1} is empty; each {'argument' if texts else 'line'} must hold a text")
    if not given:
        raise UsageError("there are no texts; give some as arguments or as the lines of a file (-f)")
    if similarity and raw:
        raise UsageError("--similarity compares vectors of length 1; leave out --raw")
    with open_model(
        engine,
        n_ctx=ctx_size,
        n_batch=batch_size,
        embeddings=True,
        pooling=pooling,
        verbosity=verbosity.chosen(),
    ) as opened:
        import numpy as np

        vectors = []
        started = time.perf_counter()
        try:
            with progress("texts", len(given)) as bar:
                for at in range(0, len(given), _AT_ONCE):
                    part = opened.embed(given[at : at + _AT_ONCE], normalize=not raw, dimensions=dimensions)
                    vectors.append(part)
                    if not similarity:
                        for vector in part:
                            write(json.dumps([float(x) for x in vector]) + "\n")
                    for _ in part:
                        advance(bar)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        seconds = time.perf_counter() - started
        if similarity:
            rows = np.concatenate(vectors).astype(np.float64)
            for line in rows @ rows.T:
                write(" ".join(f"{x:7.4f}" for x in line) + "\n")
    counted = f"{len(given)} {'text' if len(given) == 1 else 'texts'}"
    say(f"{counted}, {vectors[0].shape[1]} elements each, in {seconds:.1f} s", style="dim")
    return 0

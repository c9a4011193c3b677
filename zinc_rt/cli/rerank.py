"""`zinc rerank`: texts in order of how well they answer a query."""

from __future__ import annotations

import json
import time
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.embed import TextFile
from zinc_rt.cli.engine_options import EngineOptions
from zinc_rt.cli.files import path_or_built_in
from zinc_rt.cli.model_session import located, open_model
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import advance, one_line, progress, say, write
from zinc_rt.cli.verbosity import VerbosityOptions
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

Query = Annotated[
    str,
    typer.Argument(metavar="QUERY", help="A question, or what is looked for, in quotes.", show_default=False),
]
Texts = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]...", help="The texts, each in quotes.", show_default=False),
]
TopN = Annotated[int | None, o.option(o.OUTPUT, "--top-n", metavar="N", min=1, help="Print the best N only.")]
JsonLines = Annotated[
    bool, o.option(o.OUTPUT, "--json", help="Print an object a line: index (from 0), relevance_score, text.")
]
_AT_ONCE = 32
"""Texts between two looks at the progress bar and at Ctrl-C."""


@takes_records
def rerank(
    *,
    query: Query,
    texts: Texts = None,
    file: TextFile = None,
    top_n: TopN = None,
    as_json: JsonLines = False,
    engine: EngineOptions,
    ctx_size: o.CtxSize = None,
    verbosity: VerbosityOptions,
    debug: o.Debug = False,
) -> int:
    """Print texts in order of how well they answer a query, the best first.

    A line for each: its score and the text. Scores are what the model computes, without a sigmoid; those of different
    models do not compare. The model must be made for it, as Qwen3-Reranker and bge-reranker are.
    """
    if texts and file is not None:
        raise UsageError("texts are given twice; use arguments or -f")
    if not query.strip():
        raise UsageError("the query is empty; give a text")
    chosen = verbosity.chosen()
    engine = located(engine, chosen)
    _refuse_others(engine)
    given = texts or [line for line in read_text(file).splitlines() if line.strip()]
    if not given:
        raise UsageError("there are no texts; give some as arguments or as the lines of a file (-f)")
    with open_model(engine, n_ctx=ctx_size, embeddings=None, verbosity=chosen) as opened:
        import numpy as np

        from zinc_rt.llm.ranking import ranked

        assert opened.ranker is not None
        started = time.perf_counter()
        scores = []
        try:
            with progress("texts", len(given)) as bar:
                for at in range(0, len(given), _AT_ONCE):
                    part = opened.ranker.scores(opened.ranker.pairs(query, given[at : at + _AT_ONCE]))
                    scores.append(part)
                    for _ in part:
                        advance(bar)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        seconds = time.perf_counter() - started
        for found in ranked(given, np.concatenate(scores), top_n):
            if as_json:
                entry = {"index": found.index, "relevance_score": found.score, "text": found.text}
                write(json.dumps(entry, ensure_ascii=False) + "\n")
            else:
                write(f"{found.score:9.4f}  {one_line(found.text)}\n")
    say(f"{len(given)} {'text' if len(given) == 1 else 'texts'} in {seconds:.1f} s", style="dim")
    return 0


def _refuse_others(engine: EngineOptions) -> None:
    """Refuse a model that does not rank, before its weights are read. Raises `UsageError`, `GGUFError`."""
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.llm.ranking import NO_RANKER
    from zinc_rt.models.ranking import ranks

    with GGUFFile.open(path_or_built_in(engine.model)) as file:
        if not ranks(file.metadata):
            raise UsageError(f"{file.path} {NO_RANKER}")

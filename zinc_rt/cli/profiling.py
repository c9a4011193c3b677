"""`--profile`: recording the steps of a command, the table at its end and the trace file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import check_writable, write_file
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.cli.terminal import say

if TYPE_CHECKING:
    from zinc_rt.engine.engine import Engine

DEFAULT_TRACE = "zinc-trace.json"

ProfileFlag = Annotated[
    bool,
    o.option(
        o.OUTPUT,
        "--profile",
        help="Show the time of each operation, and write a trace for chrome://tracing or Perfetto, or a picture.",
    ),
]
TraceFile = Annotated[
    Path,
    typer.Option(
        "--trace-file",
        metavar="FILE",
        help="Where --profile writes its trace; a name that ends in .svg gets a picture of the operations.",
        rich_help_panel=o.OUTPUT,
        dir_okay=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class ProfileOptions(OptionRecord):
    """Whether steps are recorded, and where the trace goes."""

    profile: ProfileFlag = False
    trace_file: TraceFile = Path(DEFAULT_TRACE)


@contextmanager
def profiled(engine: Engine, options: ProfileOptions) -> Iterator[None]:
    """Record what runs inside, then print the tables and write the trace or picture.

    Raises `BackendError`, `CommandError`.
    """
    if not options.profile:
        yield
        return
    trace = options.trace_file
    check_writable(trace)
    engine.start_profile()
    try:
        yield
    finally:
        profile = engine.finish_profile()
        for line in profile.lines():
            say(line)
        text = profile.chrome_trace()
        if trace.suffix == ".svg":
            from zinc_rt.charts.timeline import timeline

            text = timeline(text, engine.description)
        write_file(trace, text)
        say(f"zinc: wrote {trace}: {profile.n_events} spans", style="dim")

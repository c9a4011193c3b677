"""`--profile`: recording the steps of a command, the table at its end and the trace file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import write_file
from zinc_rt.cli.terminal import say

if TYPE_CHECKING:
    from zinc_rt.engine import Engine
    from zinc_rt.ring.native.profile import Profile, Table

DEFAULT_TRACE = "zinc-trace.json"

ProfileFlag = Annotated[
    bool,
    typer.Option(
        "--profile",
        help="Show where the time of the steps went, and write a trace for chrome://tracing or Perfetto.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
TraceFile = Annotated[
    Path,
    typer.Option(
        "--trace-file",
        metavar="FILE",
        help="Where --profile writes its trace.",
        rich_help_panel=o.OUTPUT,
        dir_okay=False,
    ),
]


@contextmanager
def profiled(engine: Engine, wanted: bool, trace: Path) -> Iterator[None]:
    """Record what runs inside, then print the tables and write the trace. Raises `RingError`, `FileError`."""
    if not wanted:
        yield
        return
    engine.start_profile()
    try:
        yield
    finally:
        profile = engine.finish_profile()
        for line in lines(profile):
            say(line)
        write_file(trace, profile.chrome_trace())
        say(f"zinc: wrote {trace}: {len(profile.events)} spans", style="dim")


def lines(profile: Profile) -> Iterator[str]:
    """The tables, as lines."""
    for sort, table in profile.tables.items():
        steps = "step" if table.steps == 1 else "steps"
        yield f"{sort}: {table.steps} {steps}, {table.seconds / table.steps * 1e3:.3f} ms each, {table.threads} threads"
        yield from _rows(table)
    if profile.dropped:
        yield f"{profile.dropped} events of long steps did not fit and are missing above; use a shorter -b or prompt"
    if profile.untraced:
        yield f"the trace ends early: {profile.untraced} spans more would make it too large to look at"


def _rows(table: Table) -> Iterator[str]:
    whole = table.seconds * table.threads
    yield f"  {'operation':<11}{'ms a step':>11}{'share':>8}{'calls':>8}{'MB a step':>12}{'GB/s':>8}"
    for row in table.rows:
        mb, speed = "", ""
        if row.bytes:
            mb, speed = f"{row.bytes / table.steps / 1e6:.1f}", f"{row.gb_per_s * table.threads:.1f}"
        milliseconds = row.seconds / table.threads / table.steps * 1e3
        share = row.seconds / whole
        calls = f"{row.calls / table.steps:.4g}"
        yield f"  {row.kind:<11}{milliseconds:>11.4f}{share:>8.1%}{calls:>8}{mb:>12}{speed:>8}"
    milliseconds = table.waiting / table.threads / table.steps * 1e3
    threads = ", ".join(f"{1 - busy / table.seconds:.1%}" for busy in table.busy.values())
    each = f"   of the threads {threads}" if table.threads > 1 else ""
    yield f"  {'(waiting)':<11}{milliseconds:>11.4f}{table.waiting / whole:>8.1%}{each}"

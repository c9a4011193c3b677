"""`zinc pull`: a model from the Hugging Face hub into its cache."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.stopping import stopping_on_sigterm
from zinc_rt.cli.terminal import LoadingBar, is_terminal, say, write
from zinc_rt.cli.verbosity import Verbosity
from zinc_rt.errors import ZincError
from zinc_rt.utils.notices import Detail

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from zinc_rt.cli.summary import Summary
    from zinc_rt.hub.choose import RemoteFile
    from zinc_rt.hub.reference import HubModel
    from zinc_rt.hub.remote import Repository


_FIT_POSITIONS: Final = 4096
_BESIDE: Final = 100 << 20
"""Bytes beside weights and cache: the process, its tables and temporaries."""
_MEASURED: Final = 256 << 20
"""Bytes that are read to measure the memory's bandwidth."""

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:QUANT]",
        help="A name that `zinc list --known` shows, or owner/repo of the hub, or an address there; behind a colon the"
        " format, as Q4_K_M.",
        show_default=False,
    ),
]


def pull(
    name: ModelName,
    dry_run: Annotated[
        bool,
        o.option(
            o.OUTPUT,
            "--dry-run",
            help="Say what would be downloaded, whether it fits and how fast it will be; download nothing.",
        ),
    ] = False,
    force: Annotated[
        bool, o.option(o.OUTPUT, "--force", help="Download a model also if this version cannot run it.")
    ] = False,
    no_mmproj: Annotated[
        bool, o.option(o.OUTPUT, "--no-mmproj", help="Leave out the projector with which the model reads pictures.")
    ] = False,
    debug: o.Debug = False,
) -> int:
    """Download a model from the Hugging Face hub, and its projector where it reads pictures.

    The file lands in the hub's own cache, which other programs share. A download that was interrupted goes on where it
    stopped, and what arrives is compared with its checksum. HF_TOKEN, HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE and
    HTTPS_PROXY mean what they mean to the hub's library. Prints the path of the file.
    """
    from zinc_rt.hub.reference import parse

    path = fetch(parse(name), dry_run=dry_run, force=force, mmproj=not no_mmproj)
    if path is not None:
        write(f"{path}\n")
    return 0


def fetch(
    wanted: HubModel,
    *,
    dry_run: bool = False,
    force: bool = False,
    mmproj: bool = True,
    verbosity: Verbosity = Verbosity.VERBOSE,
) -> Path | None:
    """Download a model, with a bar, unless it is there; says first what it takes. None of a dry run.

    force: also if it cannot run here; without it a person is asked. mmproj: its projector, too. verbosity: how much to
    say; that a model is there is a detail. Raises `HubError`.
    """
    from zinc_rt.hub.pull import already, bring

    here = already(wanted)
    if here is not None and (wanted.quant or not dry_run):
        verbosity.notice(Detail(f"{wanted} is there already"))
        return here.path
    shows = is_terminal(sys.stderr) and verbosity is not Verbosity.QUIET

    with stopping_on_sigterm(), LoadingBar("pulling", download=True) as bar:

        def approve(
            repository: Repository, files: Sequence[RemoteFile], projector: RemoteFile | None, head: Path | None
        ) -> bool:
            bar.pause()
            return _approve(repository, files, projector, head, force or dry_run, verbosity) and not dry_run

        try:
            return bring(
                wanted,
                approve,
                mmproj=mmproj,
                waiting=bar.wait if shows else lambda host: verbosity.notice(f"waiting for {host}"),
                progress=bar.show if shows else bar.count,
            )
        except (KeyboardInterrupt, SystemExit):
            bar.pause()
            if bar.done:
                from zinc_rt.mem.plan import format_bytes

                kept = f"{format_bytes(bar.done)} of {format_bytes(bar.total)}"
                verbosity.tell(f"zinc: stopped; {kept} are kept, and `zinc pull {wanted}` goes on there")
            raise


def _approve(
    repository: Repository,
    files: Sequence[RemoteFile],
    projector: RemoteFile | None,
    head: Path | None,
    force: bool,
    verbosity: Verbosity,
) -> bool:
    """Say what would be downloaded and what it takes here; whether to go on. Raises `HubError`."""
    from zinc_rt.cli.summary import summarize
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.hub.errors import HubError
    from zinc_rt.hub.pull import offer

    verbosity.notice(offer(repository, files, projector))
    summary = None
    if head is not None:
        with GGUFFile.open(head) as file:
            summary = summarize(file)
    if summary is None or summary.runs:
        for line in estimate_fit(sum(file.size for file in files), summary):
            verbosity.notice(line)
        return True
    cannot = f"this version cannot run it: {summary.reason}"
    if force:
        verbosity.notice(cannot)
        return True
    if not is_terminal(sys.stdin):
        raise HubError(f"{cannot}; `zinc pull --force` downloads it all the same")
    say(f"zinc: {cannot}")
    return asked("download it all the same")


def asked(question: str) -> bool:
    """Whether a person at the terminal says yes."""
    say(f"zinc: {question}? [y/N] ", end="")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def estimate_fit(size: int, summary: Summary | None) -> Iterator[str]:
    """Lines about a model of `size` bytes that can run, as far as its summary is known."""
    yield from _memory_line(size, summary)
    yield from _speed_line(size, summary)


def _memory_line(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.mem.plan import available_memory, format_bytes

    needs = summary.needs if summary else None
    cache = needs.position * _FIT_POSITIONS + needs.sequence if needs else 0
    there = available_memory()
    takes = f"takes about {format_bytes(size + cache + _BESIDE)} of memory with {_FIT_POSITIONS} positions"
    if there is None:
        yield takes
    elif size + cache + _BESIDE > there:
        yield f"{takes}, and {format_bytes(there)} are free: it will be refused here unless more is"
    else:
        yield f"{takes}, of {format_bytes(there)} that are free"


def _speed_line(size: int, summary: Summary | None) -> Iterator[str]:
    from zinc_rt.backends.cpu.backend import CpuBackend

    step = summary.needs.step if summary and summary.needs else size
    try:
        with CpuBackend() as backend:
            bandwidth = backend.read_bandwidth(_MEASURED)
    except ZincError:
        return
    yield (
        f"memory reads at {bandwidth:.0f} GB/s and a token reads {step / 1e9:.2f} GB: at most"
        f" {bandwidth * 1e9 / step:.0f} tokens/s on this CPU"
    )

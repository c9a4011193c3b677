"""`zinc pull`: a model from the Hugging Face hub into its cache."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import LoadingBar, is_terminal, write
from zinc_rt.cli.voice import Voice
from zinc_rt.notices import Detail

if TYPE_CHECKING:
    from pathlib import Path

    from zinc_rt.hub.reference import Wanted

ModelName = Annotated[
    str,
    typer.Argument(
        metavar="NAME[:QUANT]",
        help="A name that `zinc list --known` shows, or owner/repo of the hub; behind a colon the format, as Q4_K_M.",
        show_default=False,
    ),
]


def pull(
    name: ModelName,
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Say what would be downloaded, whether it fits and how fast it will be; download nothing.",
            rich_help_panel=o.OUTPUT,
            show_default=False,
        ),
    ] = False,
    debug: o.Debug = False,
) -> int:
    """Download a model from the Hugging Face hub.

    The file lands in the hub's own cache, which other programs share. A download that was interrupted goes on where it
    stopped, and what arrives is compared with its checksum. HF_TOKEN, HF_ENDPOINT, HF_HUB_CACHE, HF_HUB_OFFLINE and
    HTTPS_PROXY mean what they mean to the hub's library. Prints the path of the file.
    """
    from zinc_rt.hub.reference import parse

    path = fetch(parse(name), dry_run=dry_run)
    if path is not None:
        write(f"{path}\n")
    return 0


def fetch(wanted: Wanted, *, dry_run: bool = False, voice: Voice = Voice.VERBOSE) -> Path | None:
    """Download a model, with a bar, unless it is there; says first what it takes. None of a dry run.

    voice: how much to say; that a model is there is a detail. Raises `HubError`.
    """
    from zinc_rt.cli.outlook import outlook
    from zinc_rt.hub.cached import find
    from zinc_rt.hub.choose import choose
    from zinc_rt.hub.download import download
    from zinc_rt.hub.errors import HubError
    from zinc_rt.hub.remote import look_up
    from zinc_rt.mem.plan import format_bytes

    here = find(wanted)
    if here is not None and (wanted.quant or not dry_run):
        voice.notice(Detail(f"{wanted} is there already"))
        return here.path
    repository = look_up(wanted.repo)
    files = choose(wanted, repository.files)
    size = sum(file.size for file in files)
    parts = f" in {len(files)} parts" if len(files) > 1 else ""
    license_ = f", license {repository.license}" if repository.license else ""
    voice.notice(f"{repository.repo}: {files[0].path}, {format_bytes(size)}{parts}{license_}")
    with suppress(HubError):  # a look at the file's beginning that fails keeps nobody from downloading it
        for line in outlook(repository, files):
            voice.notice(line)
    if dry_run:
        return None
    with LoadingBar("pulling") as bar:
        return download(repository, files, bar.show if is_terminal(sys.stderr) and voice is not Voice.QUIET else None)

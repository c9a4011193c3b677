"""`zinc keys`: keys of tenants for `zinc serve`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import say, write
from zinc_rt.errors import UsageError

Action = Annotated[str, typer.Argument(metavar="new", help="What to do; new makes a key.", show_default=False)]
TenantName = Annotated[
    str,
    typer.Argument(metavar="TENANT", help="The tenant of the key: 1 to 32 of a-z, 0-9 and -.", show_default=False),
]
KeyFile = Annotated[
    Path,
    typer.Option(
        "--file",
        metavar="FILE",
        help="The file of keys, which `zinc serve --api-key-file` reads; it is made where it is missing.",
        rich_help_panel=o.OUTPUT,
    ),
]


def keys(*, action: Action, tenant: TenantName, file: KeyFile = Path("zinc-keys.txt"), debug: o.Debug = False) -> int:
    """Make a key for a tenant of the server and print it.

    The file gets the key's SHA-256 alone: the key is shown this once.
    """
    from zinc_rt.serving.api.keys import add_key

    if action != "new":
        raise UsageError(f"zinc keys {action}: there is only `zinc keys new TENANT`")
    write(add_key(file, tenant) + "\n")
    say(f"zinc: {file} knows the key of {tenant} now; zinc serve --api-key-file {file} takes it", style="dim")
    return 0

"""`zinc rm`: delete downloaded models."""

from __future__ import annotations

import sys
from typing import Annotated

from zinc_rt.cli import options as o
from zinc_rt.cli.pull import ModelName, asked
from zinc_rt.cli.terminal import is_terminal, say, write
from zinc_rt.errors import UsageError


def rm(
    name: ModelName,
    yes: Annotated[bool, o.option(o.OUTPUT, "-y", "--yes", help="Do not ask.")] = False,
    debug: o.Debug = False,
) -> int:
    """Delete a downloaded model.

    Its files go from the Hugging Face hub's cache, where other programs find them, too.
    """
    from zinc_rt.hub.cached import find_one, remove
    from zinc_rt.hub.reference import parse
    from zinc_rt.mem.plan import format_bytes

    model = find_one(parse(name))
    if not yes:
        if not is_terminal(sys.stdin):
            raise UsageError(f"{model.name} is not deleted without a question: give --yes")
        if not asked(f"delete {model.name} ({format_bytes(model.size)})"):
            say("zinc: kept")
            return 0
    write(f"{model.name} deleted, {format_bytes(remove(model))}\n")
    return 0

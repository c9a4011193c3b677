"""`zinc env`: what is installed, which environment variables are set, where files lie."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import printable_line, write, write_heading, write_table
from zinc_rt.utils.environment import OPTION_PREFIXES, SECRET_OPTIONS, VARIABLES

_HIDDEN: Final = "(set)"


def env(as_json: o.Json = False, cache_dir: o.CacheDir = None, debug: o.Debug = False) -> None:
    """Show versions, environment variables and folders.

    For a report of an error, and to see what a command would read. The values of tokens and proxies are not shown.
    """
    from zinc_rt.models.architectures import status_of_plug_ins
    from zinc_rt.utils.installation import software

    installed, given, places = software(), variables(), [*_places(cache_dir)]
    plug_ins = status_of_plug_ins()
    if as_json:
        keys = ("architecture", "package", "status")
        tree = {"software": installed, "plug_ins": [dict(zip(keys, row)) for row in plug_ins]}
        tree |= {"variables": given, "places": places}
        write(json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
        return
    write_heading("Installed")
    write_table([[name, "unknown" if value is None else str(value)] for name, value in installed.items()])
    if plug_ins:
        write_heading("\nArchitectures from other packages")
        write_table([[printable_line(cell) for cell in row] for row in plug_ins])
    write_heading("\nEnvironment variables (unset ones are not listed; docs/use/environment.md has them all)")
    write_table([[name, printable_line(value)] for name, value in given.items()] or [["none", ""]])
    write_heading("\nFiles")
    write_table([[place["what"], place["path"] or "none", _size(place)] for place in places])


def variables() -> dict[str, str]:
    """The variables that are set, by name, in the order of the table; those of options of servers behind them."""
    found = {v.name: v.secret for v in VARIABLES if v.name in os.environ}
    options = sorted(name for name in os.environ if name.startswith(tuple(OPTION_PREFIXES.values())))
    found |= {name: name.endswith(SECRET_OPTIONS) for name in options}
    return {name: _HIDDEN if secret else os.environ[name] for name, secret in found.items()}


def _places(cache_dir: Path | None) -> Iterator[dict[str, Any]]:
    """Folders and files of the runtime, with the bytes in them; None where there are none."""
    from zinc_rt.hub.cached import cache_folder
    from zinc_rt.lang.cache import default_cache_dir
    from zinc_rt.llm.load import built_in_model

    kernels = cache_dir if cache_dir is not None else default_cache_dir()
    for what, path in (
        ("compiled kernels", kernels),
        ("downloaded models", cache_folder()),
        ("bundled model", built_in_model()),
    ):
        yield {"what": what, "path": None if path is None else str(path), "bytes": _bytes(path)}


def _bytes(path: Path | None) -> int | None:
    """What a file or folder holds, links not counted twice; None where it is not there or not readable."""
    if path is None or not path.exists():
        return None
    files = [path] if path.is_file() else (f for f in path.rglob("*") if f.is_file() and not f.is_symlink())
    try:
        return sum(f.stat().st_size for f in files)
    except OSError:
        return None


def _size(place: dict[str, Any]) -> str:
    from zinc_rt.mem.plan import format_bytes

    return "not there" if place["bytes"] is None else format_bytes(place["bytes"])

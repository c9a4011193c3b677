"""`zinc cache`: the folder of compiled kernels."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import write, write_table


def cache(
    clear: Annotated[
        bool,
        typer.Option("--clear", help="Remove all compiled kernels.", rich_help_panel=o.OUTPUT, show_default=False),
    ] = False,
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Show or clear the compiled kernels on disk.

    Kernels are compiled for this machine when they are first needed and kept in a folder that is yours alone, and so
    are the errors of kernels that cannot be compiled. Clearing it is always safe: what is missing is compiled again.
    """
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.mem.plan import format_bytes

    folder = cache_dir if cache_dir is not None else default_cache_dir()
    store = CompileCache(folder)
    entries = store.entries()
    size = sum(e.size for e in entries)
    removed = store.clear() if clear else None
    if as_json:
        tree = {
            "folder": None if folder is None else str(folder),
            "entries": 0 if clear else len(entries),
            "bytes": 0 if clear else size,
            "max_bytes": store.max_bytes,
            **({"removed": removed, "removed_bytes": size} if clear else {}),
        }
        write(json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
    elif clear:
        write(f"objects removed from {folder}: {removed}, {format_bytes(size)}\n")
    else:
        where = "none: there is no home folder; name one with --cache-dir" if folder is None else str(folder)
        rows = [["folder", where], ["objects", str(len(entries))]]
        write_table([*rows, ["size", f"{format_bytes(size)} of at most {format_bytes(store.max_bytes)}"]])

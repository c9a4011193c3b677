"""`zinc cache`: the folder of compiled kernels, and of the weights of models larger than memory."""

from __future__ import annotations

import json
from typing import Annotated

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import write, write_table


def cache(
    clear: Annotated[bool, o.option(o.OUTPUT, "--clear", help="Remove all compiled kernels and weights.")] = False,
    as_json: o.Json = False,
    cache_dir: o.CacheDir = None,
    debug: o.Debug = False,
) -> None:
    """Show or clear what is kept on disk: compiled kernels, and the weights of models larger than memory.

    Kernels are compiled for this machine when first needed and kept in a folder that only you can access, together with
    the errors of kernels that cannot be compiled. Weights are there once --memory was less than a model needs. Clearing
    is always safe: what is missing is made again.
    """
    from zinc_rt.backends.cpu.tile_file import TileFolder
    from zinc_rt.lang.cache import CompileCache, default_cache_dir
    from zinc_rt.mem.plan import format_bytes

    folder = cache_dir if cache_dir is not None else default_cache_dir()
    store = CompileCache(folder)
    entries = store.entries()
    size = sum(e.size for e in entries)
    removed = store.clear() if clear else None
    tiles = None if folder is None else TileFolder.beside(folder)
    weights = [] if tiles is None else tiles.entries()
    weights_size = sum(n_bytes for _, n_bytes, _ in weights)
    if clear and tiles is not None:
        tiles.clear()
    if as_json:
        tree = {
            "folder": None if folder is None else str(folder),
            "entries": 0 if clear else len(entries),
            "bytes": 0 if clear else size,
            "max_bytes": store.max_bytes,
            "weights_files": 0 if clear else len(weights),
            "weights_bytes": 0 if clear else weights_size,
            **({"removed": removed, "removed_bytes": size} if clear else {}),
        }
        write(json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
    elif clear:
        write(f"objects removed from {folder}: {removed}, {format_bytes(size)}\n")
        if weights:
            write(f"files of weights removed: {len(weights)}, {format_bytes(weights_size)}\n")
    else:
        where = "none: there is no home folder; name one with --cache-dir" if folder is None else str(folder)
        rows = [["folder", where], ["objects", str(len(entries))]]
        rows += [["size", f"{format_bytes(size)} of at most {format_bytes(store.max_bytes)}"]]
        if weights:
            rows += [["files of weights", f"{len(weights)}, {format_bytes(weights_size)}"]]
        write_table(rows)

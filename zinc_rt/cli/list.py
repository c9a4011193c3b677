"""`zinc list`: the models that were downloaded, or those that have a short name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

from zinc_rt.cli import options as o
from zinc_rt.cli.terminal import say, write, write_table

if TYPE_CHECKING:
    from zinc_rt.hub.cached import CachedModel


def list(
    known: Annotated[
        bool,
        o.option(o.OUTPUT, "--known", help="Instead: models with a short name, with size, license and repository."),
    ] = False,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> int:
    """List downloaded models.

    These are the GGUF files in the Hugging Face hub's cache, whoever downloaded them; `-m` takes their names.
    """
    if known:
        return _known(as_json)
    from zinc_rt.hub.cached import cached_models
    from zinc_rt.mem.plan import format_bytes

    models = cached_models()
    if as_json:
        write(json.dumps([_tree(model) for model in models], ensure_ascii=False, indent=1) + "\n")
    elif models:
        reads = ["" if model.projector is None else "pictures" for model in models]
        rows = [[m.name, format_bytes(m.size), what, str(m.path)] for m, what in zip(models, reads, strict=True)]
        write_table(rows, ("name", "size", "reads", "file"), right=(1,), spare=(3,))
    else:
        say("zinc: no model was downloaded yet; `zinc list --known` shows some, `zinc pull NAME` downloads one")
    return 0


def _tree(model: CachedModel) -> dict[str, object]:
    return {
        "name": model.name,
        "repo": model.repo,
        "quant": model.quant,
        "bytes": model.size,
        "paths": [str(path) for path in model.paths],
        "mmproj": None if model.projector is None else str(model.projector),
    }


def _known(as_json: bool) -> int:
    from zinc_rt.hub.known import KNOWN
    from zinc_rt.mem.plan import format_bytes

    if as_json:
        write(json.dumps({name: vars(model) for name, model in KNOWN.items()}, ensure_ascii=False, indent=1) + "\n")
        return 0
    rows = [
        [name, m.quant, format_bytes(int(m.gigabytes * 1e9)), m.what, m.license, m.repo] for name, m in KNOWN.items()
    ]
    write_table(rows, ("name", "format", "size", "for", "license", "repository"), right=(2,), spare=(5, 1, 4))
    return 0

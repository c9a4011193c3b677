"""`zinc show`: the contents of a GGUF file, also of one that this version cannot run."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Annotated, Any, Final

from zinc_rt.cli import options as o
from zinc_rt.cli.files import ModelArgument, path_or_built_in
from zinc_rt.cli.terminal import write, write_heading, write_table

if TYPE_CHECKING:
    from zinc_rt.gguf import GGUFFile

_VALUE_WIDTH: Final = 72  # characters of a metadata value that are shown
_ARRAY_ITEMS: Final = 6  # items of an array that are shown
_JSON_ARRAY_ITEMS: Final = 1024  # longer arrays (vocabularies) are given by type and length in JSON

Tensors = Annotated[bool, o.option(o.OUTPUT, "--tensors", help="List every tensor.")]
MetadataWanted = Annotated[bool, o.option(o.OUTPUT, "--metadata", help="List every metadata key.")]
JsonAll = Annotated[
    bool, o.option(o.OUTPUT, "--json", help="Print JSON; --tensors and --metadata add to it. Sizes are in bytes.")
]


def show(
    *,
    file: ModelArgument = None,
    model: o.ModelFile = None,
    tensors: Tensors = False,
    metadata: MetadataWanted = False,
    kv: o.CacheType = None,
    as_json: JsonAll = False,
    debug: o.Debug = False,
) -> int:
    """Show what is in a GGUF file.

    Architecture, sizes, formats, context and tokenizer of any valid file, whether this version can run it,
    and how much memory that takes; `--kv` sets the format of the KV cache.
    """
    from zinc_rt.cli.summary import summarize
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.models.cache_format import CacheFormat, parse_cache_format

    wanted = CacheFormat.F16 if kv is None else parse_cache_format(kv)
    with GGUFFile.open(path_or_built_in(o.choose_file(file, model))) as opened:
        summary = summarize(opened, wanted)
        if as_json:
            tree: dict[str, Any] = summary.as_dict()
            if tensors:
                tree["tensors"] = _tensor_dicts(opened)
            if metadata:
                tree["metadata"] = {key: _json_value(opened, key) for key in opened.metadata}
            write(json.dumps(tree, ensure_ascii=False, indent=1) + "\n")
            return 0
        write_table(summary.rows())
        if tensors:
            write_heading(f"\n{len(opened.tensors)} tensors")
            rows = [
                [t.name, t.type.name, "x".join(map(str, t.shape)), f"{t.nbytes:,}"] for t in opened.tensors.values()
            ]
            write_table([[_safe(c) for c in row] for row in rows], ("name", "type", "shape", "bytes"), right=(3,))
        if metadata:
            write_heading(f"\n{len(opened.metadata)} metadata keys")
            rows = [[_safe(k), str(opened.metadata.info(k)), _shown_value(opened, k)] for k in opened.metadata]
            write_table(rows, ("key", "type", "value"))
    return 0


def _tensor_dicts(file: GGUFFile) -> list[dict[str, Any]]:
    return [
        {"name": t.name, "type": t.type.name, "shape": list(t.shape), "bytes": t.nbytes, "offset": t.offset}
        for t in file.tensors.values()
    ]


def _safe(text: str) -> str:

    from zinc_rt.utils.checks import printable

    return printable(text)


def _shown_value(file: GGUFFile, key: str) -> str:
    """A value on one short line; of a long array only its beginning."""
    from zinc_rt.gguf import GGUFError, ValueType

    try:
        value = file.metadata[key]
    except GGUFError as error:
        return f"({error.problem})"
    if file.metadata.info(key).item is not None:
        items = list(value[:_ARRAY_ITEMS])
        shown = ", ".join(repr(v) if isinstance(v, str) else str(v) for v in items)
        text = f"[{shown}{', ...' if len(value) > len(items) else ''}]"
    else:
        text = _shortest(value) if file.metadata.info(key).type is ValueType.FLOAT32 else str(value)
    text = _safe(text)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 3] + "..."


def _shortest(value: float) -> str:
    """The shortest text that means the same float32: 1e-06, where the stored value is 9.99999997e-07."""
    import numpy as np

    return str(np.float32(value))


def _json_value(file: GGUFFile, key: str) -> Any:
    from zinc_rt.gguf import GGUFError

    info = file.metadata.info(key)
    if info.item is not None and info.count > _JSON_ARRAY_ITEMS:
        return {"type": str(info), "count": info.count}
    try:
        return _plain(file.metadata[key])
    except GGUFError as error:
        return {"type": str(info), "error": error.problem}


def _plain(value: Any) -> Any:
    """NumPy's values as JSON's; a number JSON does not have as text."""
    if hasattr(value, "tolist"):
        value = value.tolist()
    if isinstance(value, list):
        return [_plain(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value

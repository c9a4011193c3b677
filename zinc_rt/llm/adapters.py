"""Adapters as callers of `load` and `Model` name them, and a model with a choice of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from zinc_rt.adapters.file import MAX_RANK
from zinc_rt.adapters.slots import MAX_SLOTS, AdapterRequest, AdapterSlots
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition
from zinc_rt.models.hidden import ends_hidden
from zinc_rt.utils.checks import path_text, show, whole_between

LoraFile = str | Path | tuple[str | Path, float] | tuple[str | Path, float, str | None]
"""A file, alone, with the scale of what it adds, or with that and a name."""
Lora = LoraFile | Sequence[LoraFile] | Mapping[str, str | Path] | None
"""Adapters for all texts; or, by name, adapters that act where they are named."""
Adapters = str | Sequence[str] | Mapping[str, float] | None
"""Adapters of a text by name; as a mapping with their scales. None for no adapter."""


def adapter_slots(definition: ModelDefinition, file: GGUFFile, given: Mapping[str, Any]) -> AdapterSlots | None:
    """The room that `lora`, `lora_slots` and `max_lora_rank` of `load` ask for, with the adapters in it; None for none.

    Raises `UsageError`, `AdapterError`, `GGUFError`.
    """
    requests, free, rank = list(lora_requests(given.get("lora"))), given.get("lora_slots"), given.get("max_lora_rank")
    free = 0 if free is None else whole_between("lora_slots", free, 0, MAX_SLOTS)
    if rank is not None:
        rank = whole_between("max_lora_rank", rank, 1, MAX_RANK)
    if not requests and not free:
        return None
    if ends_hidden(definition.graph):
        raise UsageError("adapters (lora) are for models that generate text; this one is loaded to embed")
    return AdapterSlots.make(definition, file, requests, free=free, max_rank=rank)


def lora_requests(lora: Lora) -> Iterator[AdapterRequest]:
    """The adapters of a `lora` argument. Raises `UsageError`."""
    if lora is None:
        return
    if isinstance(lora, Mapping):
        for name, path in lora.items():
            if not isinstance(name, str) or not name:
                raise UsageError(f"lora has the name {show(name)}; names are texts")
            yield AdapterRequest(Path(path_text("lora", path)), name, 0.0)
        return
    alone = isinstance(lora, str | Path) or (isinstance(lora, tuple) and len(lora) > 1 and _is_number(lora[1]))
    every: Any = [lora] if alone else lora
    if not isinstance(every, list | tuple):
        raise UsageError(f"lora is {show(lora)}; give a file, a list of files, or files by name")
    for one in every:
        path, scale, name = (
            (*one, None)[:3] if isinstance(one, list | tuple) and len(one) in (2, 3) else (one, 1.0, None)
        )
        if not _is_number(scale):
            raise UsageError(f"the scale of {show(path)} is {show(scale)}, a number is needed")
        yield AdapterRequest(Path(path_text("lora", path)), name, float(scale))


def chosen(adapters: Adapters, scale: float = 1.0) -> tuple[tuple[str, float], ...]:
    """Names and scales of a text's adapters. scale: of those that come without. Raises `UsageError`."""
    if adapters is None:
        return ()
    if isinstance(adapters, str):
        adapters = [adapters]
    if not isinstance(adapters, Mapping | list | tuple):
        raise UsageError(f"adapters is {show(adapters)}; give a name, a list of names, or scales by name")
    pairs = adapters.items() if isinstance(adapters, Mapping) else [(name, scale) for name in adapters]
    for name, each in pairs:
        if not isinstance(name, str) or not _is_number(each):
            raise UsageError(f"adapter {show(name)} with scale {show(each)}; a name and a number are needed")
    return tuple((name, float(each)) for name, each in pairs)


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)

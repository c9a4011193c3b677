"""`Opening`: the options that every verb takes that runs a model, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, get_type_hints

from zinc_rt.cli import guessing as g
from zinc_rt.cli import options as o
from zinc_rt.cli.files import model_file

PARAMETER: Final = "opening"


@dataclass(frozen=True, kw_only=True)
class Opening:
    """Which model to run, and what runs it. The context and the batch mean something else to each verb."""

    model: o.ModelFile = None
    hub: o.HubModel = None
    threads: o.Threads = None
    kv: o.CacheType = None
    device: o.DeviceName = None
    gpu: o.GpuName = None
    gpu_layers: o.GpuLayers = None
    kernels: o.KernelSet = None
    isa: o.Isa = None
    cache_dir: o.CacheDir = None

    @property
    def guesses(self) -> dict[str, Any]:
        """How tokens are guessed, as `zinc_rt.load` takes it."""
        return {}


@dataclass(frozen=True, kw_only=True)
class Generating(Opening):
    """The same for verbs that generate text."""

    spec: g.SpecName = None
    model_draft: g.DraftModel = None
    draft_max: g.DraftMax = None
    draft_min: g.DraftMin = None

    @property
    def guesses(self) -> dict[str, Any]:
        """See `Opening.guesses`."""
        return guesses(self.spec, self.model_draft, self.draft_max, self.draft_min)


def guesses(spec: str | None, model: Path | None, most: int | None, least: int | None) -> dict[str, Any]:
    """Options of the command line as `zinc_rt.load` takes them; those that are not given are left out."""
    draft = None if model is None else str(model_file(model, None))
    given = {"spec": spec, "draft_model": draft, "draft_max": most, "draft_min": least}
    return {name: value for name, value in given.items() if value is not None}


def opens_model(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb with the fields of its parameter `opening`, an `Opening`, as options in the place of that."""
    hints = get_type_hints(verb, include_extras=True)
    kind: type[Opening] = hints[PARAMETER]
    shared = get_type_hints(kind, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name == PARAMETER:
            parameters += [
                inspect.Parameter(f.name, parameter.kind, default=f.default, annotation=shared[f.name])
                for f in fields(kind)
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(verb)
    def command(**given: Any) -> int:
        opening = kind(**{name: given.pop(name) for name in shared})
        return verb(**{PARAMETER: opening}, **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command

"""`Opening`: the options that every verb takes that runs a model, declared once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final, get_type_hints

from zinc_rt.cli import options as o

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
    resident: o.Resident = None
    kernels: o.KernelSet = None
    isa: o.Isa = None
    cache_dir: o.CacheDir = None


def opens_model(verb: Callable[..., int]) -> Callable[..., int]:
    """The verb with the fields of `Opening` as options, in the place of its parameter `opening`."""
    hints = get_type_hints(verb, include_extras=True)
    shared = get_type_hints(Opening, include_extras=True)
    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(verb).parameters.values():
        if parameter.name == PARAMETER:
            parameters += [
                inspect.Parameter(f.name, parameter.kind, default=f.default, annotation=shared[f.name])
                for f in fields(Opening)
            ]
        else:
            parameters.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(verb)
    def command(**given: Any) -> int:
        opening = Opening(**{name: given.pop(name) for name in shared})
        return verb(**{PARAMETER: opening}, **given)

    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {p.name: p.annotation for p in parameters}
    return command

"""GGUF architectures: a file in, its configuration and the graph of its decode step out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile, get
from zinc_rt.ir.graph import Graph
from zinc_rt.models import llama, qwen2, qwen3
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.dense import ROPE_TABLE, rope_factors
from zinc_rt.models.errors import InvalidKey, MissingKey, UnsupportedArchitecture, UnsupportedFeature

_MODULES = {module.NAME: module for module in (llama, qwen2, qwen3)}

SUPPORTED = tuple(_MODULES)


@dataclass(frozen=True)
class ModelDefinition:
    """What a ring needs to run a model.

    constants: by buffer name, a function of n_ctx that computes the table.
    """

    config: DenseConfig
    graph: Graph
    constants: dict[str, Callable[[int], npt.NDArray[np.float32]]]


def architecture_of(file: GGUFFile) -> str:
    """The file's `general.architecture`. Raises `MissingKey`, `InvalidKey`."""
    name = file.metadata.get("general.architecture")
    if name is None:
        raise MissingKey(f"{file.path} has no general.architecture; it is no model file (a vocabulary or an adapter?)")
    if not isinstance(name, str):
        raise InvalidKey(f"general.architecture is {name!r}, a string is needed")
    return name


def define(file: GGUFFile) -> ModelDefinition:
    """Read the configuration and build the graph.

    Raises `UnsupportedArchitecture` (naming what is supported) and the other errors of `models.errors`.
    """
    name = architecture_of(file)
    module = _MODULES.get(name)
    if module is None:
        raise UnsupportedArchitecture(f"architecture {name!r} is not supported; supported are {', '.join(SUPPORTED)}")
    parts = get(file.metadata, "split.count", int, 1)
    if parts > 1:
        raise UnsupportedFeature(f"{file.path} is one of {parts} parts of a split model; join the parts into one file")
    config = module.config(file)
    factors = rope_factors(file, config)
    return ModelDefinition(
        config, module.graph(file, config), {ROPE_TABLE: lambda n_ctx: config.rope.table(n_ctx, factors)}
    )

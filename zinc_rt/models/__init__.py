"""GGUF architectures: a file in, its configuration and the graph of its decode step out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile, get
from zinc_rt.ir.graph import BufferKind, Graph
from zinc_rt.models import llama, qwen2, qwen3
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.dense import ROPE_TABLE, rope_factors
from zinc_rt.models.errors import InvalidKey, MissingModelKey, UnsupportedArchitecture, UnsupportedFeature

_MODULES = {module.NAME: module for module in (llama, qwen2, qwen3)}

SUPPORTED = tuple(_MODULES)

# Tables that some converters store although they follow from the metadata, and the factors that RopeConfig reads.
_NO_WEIGHTS = ("rope_freqs.weight", ".attn_rot_embd", ".rotary_emb.inv_freq")


@dataclass(frozen=True)
class ModelDefinition:
    """What a ring needs to run a model.

    constants: by buffer name, a function of n_ctx that computes the table.
    """

    config: DenseConfig
    graph: Graph
    constants: dict[str, Callable[[int], npt.NDArray[np.float32]]]


def architecture_of(file: GGUFFile) -> str:
    """The file's `general.architecture`. Raises `MissingModelKey`, `InvalidKey`."""
    name = file.metadata.get("general.architecture")
    if name is None:
        raise MissingModelKey(
            f"{file.path} has no general.architecture; it is no model file (a vocabulary or an adapter?)"
        )
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
    graph = module.graph(file, config)
    _refuse_unused(file, graph)
    return ModelDefinition(config, graph, {ROPE_TABLE: lambda n_ctx: config.rope.table(n_ctx, factors)})


def _refuse_unused(file: GGUFFile, graph: Graph) -> None:
    """A tensor that no node reads means a model that is not quite this architecture: its answers would be wrong."""
    used = {buffer.name for buffer in graph.of_kind(BufferKind.WEIGHT)}
    unused = [name for name in file.tensors if name not in used and not name.endswith(_NO_WEIGHTS)]
    if unused:
        raise UnsupportedFeature(
            f"{file.path} has {len(unused)} tensors that architecture {graph.name!r} does not use here, the first"
            f" {unused[0]}: it is a variant that is not supported"
        )

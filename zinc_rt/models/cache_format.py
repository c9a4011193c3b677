"""The element type of the KV cache of a finished definition: float16 as architectures declare it, or Q8_0 blocks."""

from __future__ import annotations

import enum
from collections.abc import Mapping
from dataclasses import replace

from zinc_rt.errors import UsageError
from zinc_rt.ir.builder import rewritten
from zinc_rt.ir.graph import Buffer, BufferKind, DType, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.ir.ops import attributes
from zinc_rt.ir.ops.kv_cache import ALONE
from zinc_rt.models.definition import ModelDefinition, StateKind, StateSpec
from zinc_rt.models.errors import ModelError
from zinc_rt.utils.checks import show


class CacheFormat(enum.StrEnum):
    """How keys and values are kept."""

    F16 = "f16"
    Q8_0 = "q8_0"

    @property
    def dtype(self) -> DType:
        """The element type of the cache's buffers."""
        return DType(self.value)


def parse_cache_format(name: object) -> CacheFormat:
    """The format of a name. Raises `UsageError`."""
    try:
        return CacheFormat(str(name))
    except ValueError:
        raise UsageError(f"kv is {show(name)}, it must be {' or '.join(CacheFormat)}") from None


def with_cache(definition: ModelDefinition, wanted: CacheFormat) -> ModelDefinition:
    """The definition with its KV caches in another format. Those of indexers, and keys that are their own
    values, stay as they are.

    Raises:
        ModelError: a layer's heads are no whole number of the format's blocks.
    """
    dtype, graph = wanted.dtype, definition.graph
    cached = {b for n in _writes(graph) for b in n.outputs}
    if all(graph.buffer(b).dtype is dtype for b in cached):
        return definition
    _check_widths(graph, dtype)
    made = rewritten(graph, graph.nodes, lambda b: replace(b, dtype=dtype) if b.id in cached else b)
    before, after = ({b.name: b for b in each.buffers} for each in (graph, made))
    return replace(definition, graph=made, states=tuple(_resized(state, before, after) for state in definition.states))


def with_states_of(definition: ModelDefinition, dtypes: Mapping[str, DType]) -> ModelDefinition:
    """The definition with the states of these names in other element types, as the graph keeps them that it shares them
    with.
    """
    graph = definition.graph
    states = {b.id for b in graph.of_kind(BufferKind.STATE) if b.name in dtypes}
    made = rewritten(graph, graph.nodes, lambda b: replace(b, dtype=dtypes[b.name]) if b.id in states else b)
    before, after = ({b.name: b for b in each.buffers} for each in (graph, made))
    return replace(definition, graph=made, states=tuple(_resized(state, before, after) for state in definition.states))


def _check_widths(graph: Graph, dtype: DType) -> None:
    for node in _writes(graph):
        attrs = attributes(node)
        parts = ("latent_dim", "rope_dim") if "latent_dim" in attrs else ("head_dim", "value_dim")
        for part in parts:
            if int(attrs[part]) % dtype.block_size:
                raise ModelError(
                    f"node {node.name}: {part} is {attrs[part]}; a KV cache of {dtype} takes heads of multiples of"
                    f" {dtype.block_size} elements; use the KV cache of {DType.F16}"
                )


def _writes(graph: Graph) -> list[Node]:
    """The nodes whose caches may be of another format: not an indexer's, nor keys that are their own values."""
    return [n for n in graph.nodes if n.op is Op.KV_WRITE and not n.attrs.keys() & ALONE]


def _resized(state: StateSpec, before: dict[str, Buffer], after: dict[str, Buffer]) -> StateSpec:
    """The state with the bytes of its buffers' new element type."""
    if state.kind is StateKind.SEQUENCE or not state.buffers:
        return state
    old, new = (sum(_position_bytes(buffers[name]) for name in state.buffers) for buffers in (before, after))
    return replace(state, position_bytes=state.position_bytes * new // old, read_bytes=state.read_bytes * new // old)


def _position_bytes(buffer: Buffer) -> int:
    n_kv_heads, width = (int(dim) for dim in buffer.shape[-2:])
    return n_kv_heads * buffer.dtype.row_bytes(width)

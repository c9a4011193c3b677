"""The format of the caches that a node reads or writes, as kernels need it."""

from __future__ import annotations

from zinc_rt.errors import BackendError
from zinc_rt.ir.dtype import BLOCKS
from zinc_rt.ir.graph import Graph, Node
from zinc_rt.ir.ops import attributes


def quantized_caches(graph: Graph, node: Node, *caches: int) -> bool:
    """Whether the caches of a node hold Q8_0 blocks.

    Raises `BackendError` where they are of several formats, or where a block would belong to both parts of a key.
    """
    found = {graph.buffer(b).dtype for b in caches}
    if len(found) > 1:
        raise BackendError(
            f"node {node.name}: keys and values are {' and '.join(sorted(found))}; kernels take one type"
        )
    (dtype,) = found
    attrs = attributes(node)
    if "latent_dim" in attrs and int(attrs["latent_dim"]) % dtype.block_size:
        raise BackendError(
            f"node {node.name}: latent_dim is {attrs['latent_dim']}; a cache of {dtype} takes multiples of"
            f" {dtype.block_size}"
        )
    return dtype is BLOCKS

"""`llama4`: Llama 4 Scout and Maverick. Chunks of positions on three layers of four, experts that weigh what they read.

Every fourth layer sees all positions, does not rotate, and scales its queries by their position. The others rotate, and
in Scout norm queries and keys behind the rotation, without a weight.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing, expert_width
from zinc_rt.models.temperature import Temperature
from zinc_rt.models.windows import windowed_layers

NAMES = ("llama4",)

CHUNK: Final = 8192
"""Positions of a chunk, and those after which queries of the other layers grow. Files do not say it."""
SLOPE: Final = 0.1
PERIOD: Final = 4
WITHOUT_NORMS: Final = 128
"""Experts of Maverick, which has no norms of queries and keys."""


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=True, experts=True)
    if keys.has("attention.sliding_window") and not keys.integer("attention.sliding_window", minimum=0):
        raise ModelError(f"{keys.name('attention.sliding_window')} is 0: models without chunks are not supported")
    parts = GraphParts(file, info, info.eps)
    local = windowed_layers(keys, info.n_layers, PERIOD)
    # A table that no layer reads has no place in a graph: short models have layers of one kind.
    rotation = parts.rotation(info.rope, factors="rope_freqs.weight") if any(local) else None
    routing = Routing.from_keys(keys, gating="sigmoid_chosen", normalise=False)
    near = AttentionSpec(
        info.heads,
        rotation,
        qk_norm=routing.n_experts != WITHOUT_NORMS,
        plain_norm=True,
        norm_after_rope=True,
        chunk=CHUNK,
    )
    factors = None if all(local) else Temperature(SLOPE, CHUNK, offset=1).declare(parts)
    full = replace(near, rotation=None, qk_norm=False, chunk=None, q_factors=factors)
    width = expert_width(keys, routing.n_used)
    shared = FeedForwardSpec(width, suffix="_shexp")
    routed = RoutedSpec(replace(routing, scale=1.0), width, shared=shared, weigh_inputs=True)
    dense = FeedForwardSpec(info.n_ff)
    step = keys.integer("interleave_moe_layer_step", maximum=info.n_layers)
    blocks = [
        pre_norm_block(near if here else full, dense if (layer + 1) % step else routed)
        for layer, here in enumerate(local)
    ]
    return decoder(parts, blocks)

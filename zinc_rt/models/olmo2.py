"""`olmo2`: OLMo 2 and OLMo 3. Norms behind the branches alone, and of all heads of q and of k together."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import decoder, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.windows import windowed_layers

NAMES = ("olmo2",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, info.eps)
    full = AttentionSpec(info.heads, parts.rotation(info.rope), qk_norm=True, whole_norm=True)
    feed_forward = FeedForwardSpec(info.n_ff)
    block = sandwich_block(full, feed_forward, before=False)
    if not keys.has("attention.sliding_window"):
        return decoder(parts, [block] * info.n_layers, tied=False)
    # OLMo 3: windowed layers turn without the context's extension.
    rotation = parts.rotation(info.rope.unscaled(), name="rope_local")
    local = replace(full, rotation=rotation, window=keys.integer("attention.sliding_window"))
    windowed = sandwich_block(local, feed_forward, before=False)
    return decoder(parts, [windowed if w else block for w in windowed_layers(keys, info.n_layers, 4)], tied=False)

"""`falcon-h1`: layers with attention and a state space side by side (Falcon-H1). Its factors are in the weights."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Residual, decoder
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.state_space import Mamba2Spec, ScanSizes

NAMES = ("falcon-h1",)


@dataclass(frozen=True)
class TwoMixers:
    """x = x + attention(h) + mamba(h), h = norm(x); then a feed-forward behind a norm."""

    attention: AttentionSpec
    mamba: Mamba2Spec
    feed_forward: FeedForwardSpec

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Layer.emit`."""
        p = f"blk.{layer}"
        h = x.norm(f"{p}.attn_norm")
        x.add(self.attention.emit(parts, h, layer), f"{p}.attn_sum")
        x.add(self.mamba.emit(parts, h, layer), f"{p}.ssm_sum")
        f = parts.norm(x.value(), f"{p}.ffn_normed", tensor=f"{p}.ffn_norm")  # its files leave `.weight` out
        x.add(self.feed_forward.emit(parts, f, layer), f"{p}.ffn_sum")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys, info = Keys(file.metadata, name), DenseInfo.from_file(file, name, interleaved_rope=False)
    parts = GraphParts(file, info, keys.number("attention.layer_norm_rms_epsilon"))
    attention = AttentionSpec(info.heads, parts.rotation(info.rope), scale=info.attention_scale)
    block = TwoMixers(attention, Mamba2Spec(ScanSizes.from_keys(keys), norm=None), FeedForwardSpec(info.n_ff))
    return decoder(parts, [block] * info.n_layers)

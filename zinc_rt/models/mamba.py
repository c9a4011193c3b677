"""`mamba`, `mamba2`: state space layers alone; `jamba`: with attention between, and feed-forwards behind each."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, decoder, pre_norm_block
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing
from zinc_rt.models.state_space import Mamba2Spec, MambaSpec, ScanSizes

NAMES = ("mamba", "mamba2", "jamba")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info, eps = read_info(file, keys), keys.number("attention.layer_norm_rms_epsilon")
    if name != "jamba":
        mixer: BranchBody = (
            MambaSpec.from_keys(keys) if name == "mamba" else Mamba2Spec(ScanSizes.from_keys(keys), conv_bias=True)
        )
        alone = BlockSpec((Branch("attn", mixer, "attn_norm"),))
        return decoder(GraphParts(file, info, eps, paged=False), [alone] * info.n_layers)
    heads = HeadSizes.of_hybrid(keys, info.n_embd, info.n_layers)
    parts, mamba = GraphParts(file, info, eps, paged=any(heads)), MambaSpec.from_keys(keys, norm=True)
    dense = FeedForwardSpec(keys.integer("feed_forward_length"))
    routed: BranchBody = dense
    if keys.integer("expert_count", 0, minimum=0):
        routed = RoutedSpec(Routing.from_keys(keys, gating="softmax", normalise=False), dense.n_ff)
    blocks = [
        pre_norm_block(
            mamba if sizes is None else AttentionSpec(sizes, None),
            routed if parts.has(f"blk.{layer}.ffn_gate_inp.weight") else dense,
        )
        for layer, sizes in enumerate(heads)
    ]
    return decoder(parts, blocks)

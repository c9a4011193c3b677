"""`mamba2`: state space layers alone, without attention and feed-forward."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.blocks import BlockSpec, Branch, decoder
from zinc_rt.models.config import read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.state_space import Mamba2Spec, ScanSizes

NAMES = ("mamba2",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    parts = GraphParts(file, read_info(file, keys), keys.number("attention.layer_norm_rms_epsilon"), paged=False)
    block = BlockSpec((Branch("attn", Mamba2Spec(ScanSizes.from_keys(keys)), "attn_norm"),))
    return decoder(parts, [block] * parts.info.n_layers)

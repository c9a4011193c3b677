"""`llama`: Llama 1-3, Mistral and kin. Neighbouring RoPE pairs, biases only where the file has them."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.dense import DenseBuilder

NAME = "llama"


def config(file: GGUFFile) -> DenseConfig:
    """Sizes from the `llama.*` keys."""
    return DenseConfig.from_file(file, NAME, interleaved_rope=True)


def graph(file: GGUFFile, config: DenseConfig) -> Graph:
    """The decode step."""
    return DenseBuilder(file, config).decoder(qkv_bias=None, out_bias=None, mlp_bias=None)

"""`qwen2`: Qwen 1.5, 2 and 2.5 dense models. RoPE over halves, biases on q, k and v."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.dense import DenseBuilder

NAME = "qwen2"


def config(file: GGUFFile) -> DenseConfig:
    """Sizes from the `qwen2.*` keys."""
    return DenseConfig.from_file(file, NAME, interleaved_rope=False)


def graph(file: GGUFFile, config: DenseConfig) -> Graph:
    """The decode step."""
    return DenseBuilder(file, config).decoder(qkv_bias=True)

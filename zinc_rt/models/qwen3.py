"""`qwen3`: Qwen 3 dense models and the model in this package. RoPE over halves, RMS norm on each q and k head."""

from __future__ import annotations

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import Graph
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.dense import DenseBuilder

NAME = "qwen3"


def config(file: GGUFFile) -> DenseConfig:
    """Sizes from the `qwen3.*` keys."""
    return DenseConfig.from_file(file, NAME, interleaved_rope=False)


def graph(file: GGUFFile, config: DenseConfig) -> Graph:
    """The decode step."""
    return DenseBuilder(file, config).decoder(qk_norm=True)

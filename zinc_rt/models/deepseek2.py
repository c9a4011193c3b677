"""`deepseek2`, `mistral4`, `deepseek32`, `glm-dsa`: latent attention, routed feed-forwards behind dense ones.

DeepSeek-V2-Lite, GLM-4.7-Flash and kin; Mistral Small 4, whose queries grow with their position; with an indexer
DeepSeek-V3.2 and GLM-5.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.kernels.reference import nearest
from zinc_rt.models.blocks import Layer, decoder, pre_norm_block
from zinc_rt.models.config import read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo
from zinc_rt.models.drafts import DRAFT_LATENT, count_drafts, draft_head, leave_drafts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.indexer import IndexerSpec, sources
from zinc_rt.models.keys import Keys
from zinc_rt.models.latent import LatentAttentionSpec
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing
from zinc_rt.models.temperature import Temperature

NAMES = ("deepseek2", "mistral4", "deepseek32", "glm-dsa")
_INDEXED = ("deepseek32", "glm-dsa")

_SHARED_CHOICES = (True, True, *(True, False, False, False) * 19)
"""Which layers of GLM-5 with a context of a million choose positions, where the file does not say it."""
_LONG_CONTEXT = 1 << 20

_GLM_FLASH = ((47, 48), 154_880)
"""Layers and vocabulary of the model whose first files do not say that its gating is a sigmoid."""


@dataclass(frozen=True)
class DeepSeek2Info(ModelInfo):
    """Sizes of the family. n_drafts: blocks behind the others that draft further tokens, which no step needs."""

    n_drafts: int
    n_dense: int
    n_ff: int
    n_ff_expert: int
    n_shared: int
    rms_eps: float
    rope: RopeConfig
    scale: float
    routing: Routing
    temperature: Temperature

    @classmethod
    def from_file(cls, file: GGUFFile, architecture: str) -> DeepSeek2Info:
        """Raises `ModelError`."""
        keys = Keys(file.metadata, architecture)
        info = read_info(file, keys)
        head_dim = keys.integer("attention.key_length_mla", maximum=4096)
        rope = RopeConfig.from_keys(keys, head_dim, info.n_ctx_train, interleaved=True)
        n_drafts = count_drafts(keys, info.n_layers)
        layers, vocabulary = _GLM_FLASH
        sigmoid = architecture != "deepseek2" or (info.n_layers in layers and info.n_vocab == vocabulary)
        return cls(
            **{**vars(info), "n_layers": info.n_layers - n_drafts},
            n_drafts=n_drafts,
            n_dense=keys.integer("leading_dense_block_count", 0, minimum=0, maximum=info.n_layers - n_drafts),
            n_ff=keys.integer("feed_forward_length"),
            n_ff_expert=keys.integer("expert_feed_forward_length"),
            n_shared=keys.integer("expert_shared_count", 0, minimum=0),
            rms_eps=keys.number("attention.layer_norm_rms_epsilon"),
            # YaRN's magnitude is in the scores' scale here, not in the table.
            rope=replace(rope, log_multiplier=1.0),
            scale=_yarn_share(rope) / math.sqrt(head_dim),
            routing=Routing.from_keys(keys, default="sigmoid" if sigmoid else "softmax"),
            temperature=Temperature.from_keys(keys, rope.original_context),
        )


def _yarn_share(rope: RopeConfig) -> float:
    """The square of (1 + 0.1 m ln factor), where the file's multiplier is 0.1 m."""
    if rope.scaling != "yarn":
        return 1.0
    return (1.0 + rope.log_multiplier * nearest.log(rope.factor)) ** 2


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    info, parts, dense, routed = _read(file, name, indexed=name in _INDEXED)
    leave_drafts(parts, info.n_drafts, others=DRAFT_LATENT, biases=("exp_probs_b", "indexer.k_norm"))
    return decoder(parts, [dense] * info.n_dense + [routed] * (info.n_layers - info.n_dense))


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`. A block that drafts sees all positions, also where an indexer chooses some."""
    info, parts, _, routed = _read(file, name, indexed=False)
    return draft_head(parts, routed) if info.n_drafts else None


def _read(file: GGUFFile, name: str, *, indexed: bool) -> tuple[DeepSeek2Info, GraphParts, Layer, Layer]:
    """The figures, an empty graph, and the two kinds of block: dense, and of experts."""
    info = DeepSeek2Info.from_file(file, name)
    parts = GraphParts(file, info, info.rms_eps)
    rotation = parts.rotation(info.rope)
    keys = Keys(file.metadata, name)
    attention = LatentAttentionSpec.from_keys(keys, rotation, scale=info.scale)
    if indexed and attention.q_rank is None:
        raise ModelError(f"{keys.name('attention.q_lora_rank')} is missing, which the indexer needs")
    indexer = _indexer(info, keys, rotation) if indexed else None
    attention = replace(attention, q_factors=info.temperature.declare(parts), indexer=indexer)
    shared = FeedForwardSpec(info.n_shared * info.n_ff_expert, suffix="_shexp") if info.n_shared else None
    routed = RoutedSpec(info.routing, info.n_ff_expert, selection_bias=None, shared=shared)
    dense = pre_norm_block(attention, FeedForwardSpec(info.n_ff))
    return info, parts, dense, pre_norm_block(attention, routed)


def _indexer(info: DeepSeek2Info, keys: Keys, rotation: Rotation) -> IndexerSpec:
    """What chooses positions. Raises `ModelError` for sizes that contradict each other."""
    head_dim = keys.integer("attention.indexer.key_length", maximum=4096)
    if head_dim < info.rope.dim:
        raise ModelError(
            f"{keys.name('attention.indexer.key_length')} is {head_dim}, less than"
            f" {keys.name('rope.dimension_count')}, which is {info.rope.dim}"
        )
    types: Sequence[bool] = [True] * info.n_layers
    if keys.architecture == "glm-dsa":
        if keys.has("attention.indexer.types"):
            types = keys.flags("attention.indexer.types", info.n_layers + info.n_drafts)[: info.n_layers]
        elif info.n_ctx_train >= _LONG_CONTEXT:
            types = (_SHARED_CHOICES + (False,) * info.n_layers)[: info.n_layers]
    return IndexerSpec(
        keys.integer("attention.indexer.head_count"),
        head_dim,
        keys.integer("attention.indexer.top_k"),
        replace(rotation, interleaved=keys.architecture == "glm-dsa"),
        sources(keys, types),
    )

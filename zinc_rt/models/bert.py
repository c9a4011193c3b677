"""BERT and its relatives: encoders that embed texts, or rank them. Every row sees all others of its text.

bert (MiniLM, bge, mxbai, arctic): learned positions, GELU, biases, norms behind sums. jina-bert-v2: ALiBi in place of
positions, a gate, and for code norms of queries and keys. jina-bert-v3: a rotation in place of positions. nomic-bert
(v1, v1.5): a rotation, SwiGLU; nomic-bert-moe (v2): GELU, and experts without a gate on every other layer. modern-bert:
norms before branches and without biases, windows on two layers of three with a rotation of their own, a gate with GELU.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BranchBody
from zinc_rt.models.config import HeadSizes, NormKind, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo, Ranking
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.hidden import HIDDEN
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts, Rotation
from zinc_rt.models.ranking import ranks, score_head
from zinc_rt.models.rope_config import RopeConfig
from zinc_rt.models.routed import RoutedSpec, Routing
from zinc_rt.models.windows import windowed_layers

F32 = npt.NDArray[np.float32]

NAMES = ("bert", "nomic-bert", "nomic-bert-moe", "jina-bert-v2", "jina-bert-v3", "modern-bert")
_PERIOD = 3
"""Layers of modern-bert of which the first sees everything, where the file does not say."""


@dataclass(frozen=True)
class EncoderInfo(ModelInfo):
    """Sizes of an encoder."""

    n_ff: int
    heads: HeadSizes
    eps: float

    @classmethod
    def from_file(cls, file: GGUFFile, keys: Keys) -> EncoderInfo:
        """Raises `ModelError`."""
        if keys.flag("attention.causal", False):
            raise ModelError(f"{keys.name('attention.causal')} is true; encoders are supported where it is false")
        info = read_info(file, keys)
        return cls(
            **vars(info),
            n_ff=keys.integer("feed_forward_length"),
            heads=HeadSizes.from_keys(keys, info.n_embd),
            eps=keys.number("attention.layer_norm_epsilon"),
        )


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = EncoderInfo.from_file(file, keys)
    norms = NormKind.LAYER_WITHOUT_BIAS if name == "modern-bert" else NormKind.LAYER
    parts = GraphParts(file, info, info.eps, causal=False, norms=norms)
    make = {
        "nomic-bert": _nomic,
        "nomic-bert-moe": _nomic,
        "jina-bert-v2": _jina_v2,
        "jina-bert-v3": _jina_v3,
        "modern-bert": _modern,
    }.get(name, _bert)
    layers = make(parts, info, keys)
    x = _embed(parts, info, positions=name == "bert")
    for layer, block in enumerate(layers):
        x = block.emit(parts, x, layer, last=layer == info.n_layers - 1)
    if ranks(file.metadata) and name in RANKINGS:
        first = name != "modern-bert" or keys.integer("classifier.pooling_type", 1) == _FIRST
        score_head(parts, Ranking("cls" if first else "mean"), activation=RANKINGS[name], eps=info.eps)
    return parts.finish()


RANKINGS = {"bert": "tanh", "jina-bert-v2": "tanh", "modern-bert": "gelu_erf"}
"""The activation of the first layer that makes scores, of architectures that may rank."""
_FIRST = 2
"""`modern-bert.classifier.pooling_type` where scores are made of the first row; without the key it is the mean."""


@dataclass(frozen=True)
class EncoderBlock:
    """A layer of an encoder, with norms behind the sums, or before the branches."""

    attention: BranchBody
    feed_forward: BranchBody
    before: bool = False

    def emit(self, parts: GraphParts, x: BufferId, layer: int, *, last: bool) -> BufferId:
        """The stream behind block `layer`. last: the model's output is made of it."""
        p = f"blk.{layer}"
        if self.before:
            h = _norm(parts, x, f"{p}.attn_norm") if layer or parts.has(f"{p}.attn_norm.weight") else x
            x = parts.add(x, self.attention.emit(parts, h, layer), f"{p}.attn_sum")
            h = _norm(parts, x, f"{p}.ffn_norm")
            x = parts.add(x, self.feed_forward.emit(parts, h, layer), f"{p}.ffn_sum")
            return _norm(parts, x, "output_norm", last=True) if last else x
        total = parts.add(x, self.attention.emit(parts, x, layer), f"{p}.attn_sum")
        y = _norm(parts, total, f"{p}.attn_output_norm")
        if parts.has(f"{p}.attn_norm_2.weight"):
            y = _norm(parts, parts.add(y, x, f"{p}.attn_again_sum"), f"{p}.attn_norm_2")
        x = y
        total = parts.add(x, self.feed_forward.emit(parts, x, layer), f"{p}.ffn_sum")
        return _norm(parts, total, f"{p}.layer_output_norm", last=last)


def _ungated(info: EncoderInfo) -> FeedForwardSpec:
    return FeedForwardSpec(info.n_ff, bias=True, activation="gelu", gated=False)


def _bert(parts: GraphParts, info: EncoderInfo, keys: Keys) -> list[EncoderBlock]:
    attention = AttentionSpec(info.heads, None, q_bias=True, k_bias=True, v_bias=True, out_bias=True)
    return [EncoderBlock(attention, _ungated(info))] * info.n_layers


def _rotation(parts: GraphParts, info: EncoderInfo, keys: Keys) -> Rotation:
    return parts.rotation(RopeConfig.from_keys(keys, info.heads.head_dim, info.n_ctx_train, interleaved=False))


def _jina_v2(parts: GraphParts, info: EncoderInfo, keys: Keys) -> list[EncoderBlock]:
    n = info.heads.n_heads
    slopes = parts.constant("alibi_slopes", (n,), lambda n_ctx: _slopes(n))
    normed = parts.has("blk.0.attn_q_norm.weight")
    attention = AttentionSpec(info.heads, None, qk_norm=normed, whole_norm=normed, out_bias=None, slopes=slopes)
    return [EncoderBlock(attention, FeedForwardSpec(info.n_ff, bias=None, activation="gelu"))] * info.n_layers


def _slopes(n_heads: int) -> F32:
    """Of ALiBi (Press 2021): 2^(-8 h / n) for h = 1 .. n of n heads; where n is no power of two, those of the greatest
    below it, then every other one of the next.
    """
    power = 1 << (n_heads.bit_length() - 1)
    first = [2.0 ** (-8.0 * h / power) for h in range(1, power + 1)]
    more = [2.0 ** (-4.0 * h / power) for h in range(1, 2 * power, 2)]
    return np.array([*first, *more][:n_heads], np.float32)


def _jina_v3(parts: GraphParts, info: EncoderInfo, keys: Keys) -> list[EncoderBlock]:
    rotation = _rotation(parts, info, keys)
    attention = AttentionSpec(info.heads, rotation, q_bias=True, k_bias=True, v_bias=True, out_bias=True)
    return [EncoderBlock(attention, _ungated(info))] * info.n_layers


def _nomic(parts: GraphParts, info: EncoderInfo, keys: Keys) -> list[EncoderBlock]:
    every = keys.integer("moe_every_n_layers", 0, minimum=0)
    attention = AttentionSpec(info.heads, _rotation(parts, info, keys), out_bias=None)
    if not every:
        return [EncoderBlock(attention, FeedForwardSpec(info.n_ff))] * info.n_layers
    routing = Routing.from_keys(keys, gating="softmax", normalise=False)
    routed = RoutedSpec(routing, info.n_ff, activation="gelu_alone", gated=False)
    plain = EncoderBlock(attention, _ungated(info))
    return [replace(plain, feed_forward=routed) if i % every == 1 else plain for i in range(info.n_layers)]


def _modern(parts: GraphParts, info: EncoderInfo, keys: Keys) -> list[EncoderBlock]:
    rope = RopeConfig.from_keys(keys, info.heads.head_dim, info.n_ctx_train, interleaved=False)
    base = keys.number("rope.freq_base_swa", 10000.0, minimum=1.0, above=True)
    everywhere = AttentionSpec(info.heads, parts.rotation(rope))
    near = replace(
        everywhere,
        rotation=parts.rotation(rope.unscaled(base), name="rope_local"),
        window=keys.integer("attention.sliding_window"),
    )
    feed_forward = FeedForwardSpec(info.n_ff, activation="gelu_erf")
    return [
        EncoderBlock(near if windowed else everywhere, feed_forward, before=True)
        for windowed in windowed_layers(keys, info.n_layers, _PERIOD, first=True)
    ]


def _embed(parts: GraphParts, info: EncoderInfo, *, positions: bool) -> BufferId:
    """Token, type 0 and position together, normed."""
    x, n = parts.embed(), info.n_embd
    if parts.has("token_types.weight"):
        row = parts.table("token_types.weight", n)[0]
        typed = parts.temp("embd_typed", n)
        parts.g.node(Op.BIAS_ADD, [x, parts.constant("token_type", (n,), lambda n_ctx: row)], [typed], "embd.bias_add")
        x = typed
    if positions:
        table = parts.table("position_embd.weight", n)
        if len(table) < info.n_ctx_train:
            raise ModelError(
                f"{info.architecture}.context_length is {info.n_ctx_train}, position_embd.weight has {len(table)} rows"
            )
        rows = parts.constant("position_embd", ("n_ctx", n), lambda n_ctx: _first(table, n_ctx))
        placed = parts.temp("embd_placed", n)
        parts.g.node(Op.ADD_POSITION, [x, parts.step["positions"], rows], [placed], "embd.add_position")
        x = placed
    return _norm(parts, x, "token_embd_norm")


def _first(table: F32, n_ctx: int) -> F32:
    """The rows of the first positions."""
    if n_ctx > len(table):
        raise UsageError(
            f"a context of {n_ctx} tokens is wanted, the model has learned {len(table)} positions; give a"
            f" context (n_ctx, -c) of {len(table)} at the most, or none"
        )
    return np.ascontiguousarray(table[:n_ctx])


def _norm(parts: GraphParts, x: BufferId, name: str, *, last: bool = False) -> BufferId:
    """The layer norm by `name`, in modern-bert without a bias; the last one is the model's output."""
    y = parts.output(HIDDEN, parts.width(x)) if last else None
    return parts.layer_norm(x, name, y)

"""`bert` and `nomic-bert`: encoders that embed texts. Every row sees all others of its text, norms stand behind sums.

bert (MiniLM, bge, mxbai, arctic): learned positions, GELU, biases. nomic-bert (v1, v1.5): a rotation, SwiGLU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BranchBody
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo, Ranking
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.hidden import HIDDEN
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.ranking import ranks, score_head
from zinc_rt.models.rope_config import RopeConfig

F32 = npt.NDArray[np.float32]

NAMES = ("bert", "nomic-bert")


@dataclass(frozen=True)
class EncoderInfo(ModelInfo):
    """Sizes of an encoder."""

    n_ff: int
    heads: HeadSizes
    eps: float

    @classmethod
    def from_keys(cls, file: GGUFFile, keys: Keys) -> EncoderInfo:
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


@dataclass(frozen=True)
class PlainFeedForward:
    """Up, GELU, down, all with biases."""

    n_ff: int

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p = f"blk.{layer}"
        up = parts.project(h, f"{p}.ffn_up", self.n_ff, bias=True)
        act = parts.gelu(up, f"{p}.gelu")
        return parts.project(act, f"{p}.ffn_down", parts.info.n_embd, bias=True)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = EncoderInfo.from_keys(file, keys)
    parts = GraphParts(file, info, info.eps, causal=False)
    attention, feed_forward = (_bert if name == "bert" else _nomic)(parts, info, keys)
    x = _embed(parts, info, positions=name == "bert")
    for layer in range(info.n_layers):
        p = f"blk.{layer}"
        total = parts.add(x, attention.emit(parts, x, layer), f"{p}.attn_sum")
        x = _norm(parts, total, f"{p}.attn_output_norm")
        total = parts.add(x, feed_forward.emit(parts, x, layer), f"{p}.ffn_sum")
        x = _norm(parts, total, f"{p}.layer_output_norm", last=layer == info.n_layers - 1)
    if name == "bert" and ranks(file.metadata):
        score_head(parts, Ranking("cls"))
    return parts.finish()


def _bert(parts: GraphParts, info: EncoderInfo, keys: Keys) -> tuple[BranchBody, BranchBody]:
    attention = AttentionSpec(info.heads, None, q_bias=True, k_bias=True, v_bias=True, out_bias=True)
    return attention, PlainFeedForward(info.n_ff)


def _nomic(parts: GraphParts, info: EncoderInfo, keys: Keys) -> tuple[BranchBody, BranchBody]:
    if keys.integer("moe_every_n_layers", 0, minimum=0):
        raise ModelError(f"{keys.name('moe_every_n_layers')} is set: nomic-embed-text-v2-moe is not supported, v1.5 is")
    rope = RopeConfig.from_keys(keys, info.heads.head_dim, info.n_ctx_train, interleaved=False)
    return AttentionSpec(info.heads, parts.rotation(rope), out_bias=None), FeedForwardSpec(info.n_ff)


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
    """The layer norm by `name`; the last one is the model's output."""
    return parts.layer_norm(x, name, parts.output(HIDDEN, parts.width(x)) if last else None)

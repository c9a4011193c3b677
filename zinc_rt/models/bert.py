"""`bert` and `nomic-bert`: encoders that embed texts. Every row sees all others of its text, norms stand behind sums.

bert (MiniLM, bge, mxbai, arctic): learned positions, GELU, biases. nomic-bert (v1, v1.5): a rotation, SwiGLU.
"""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Part
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition, ModelInfo
from zinc_rt.models.errors import InvalidKey, TensorShapeMismatch, UnsupportedFeature
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.hidden import HIDDEN
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.rope_config import RopeConfig

NAMES = ("bert", "nomic-bert")


@dataclass(frozen=True)
class EncoderInfo(ModelInfo):
    """Sizes of an encoder."""

    n_ff: int
    heads: HeadSizes
    eps: float

    @classmethod
    def from_keys(cls, file: GGUFFile, keys: Keys) -> EncoderInfo:
        """Raises `MissingModelKey`, `InvalidKey`, `MissingWeight`, `UnsupportedFeature`."""
        if keys.flag("attention.causal", False):
            raise UnsupportedFeature(
                f"{keys.name('attention.causal')} is true; encoders are supported where it is false"
            )
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
        """See `Part.emit`."""
        p = f"blk.{layer}"
        up = parts.project(h, f"{p}.ffn_up", self.n_ff, bias=True)
        act = parts.temp(f"{p}.ffn_act", self.n_ff)
        parts.g.node(Op.GELU, [up], [act], f"{p}.gelu")
        return parts.project(act, f"{p}.ffn_down", parts.info.n_embd, bias=True)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    keys = Keys(file.metadata, name)
    info = EncoderInfo.from_keys(file, keys)
    parts = GraphParts(file, info, info.eps)
    feed_forward: Part
    if name == "bert":
        attention = AttentionSpec(
            info.heads, None, q_bias=True, k_bias=True, v_bias=True, out_bias=True, causal=False
        )  # fmt: skip
        feed_forward = PlainFeedForward(info.n_ff)
    else:
        if keys.integer("moe_every_n_layers", 0, least=0):
            raise UnsupportedFeature(
                f"{keys.name('moe_every_n_layers')} is set: nomic-embed-text-v2-moe is not supported; v1.5 is"
            )
        rope = RopeConfig.from_keys(keys, info.heads.head_dim, info.n_ctx_train, interleaved=False)
        attention = AttentionSpec(info.heads, parts.rotation(rope), causal=False)
        feed_forward = FeedForwardSpec(info.n_ff)
    x = _embed(parts, info, positions=name == "bert")
    for layer in range(info.n_layers):
        p = f"blk.{layer}"
        total = parts.add(x, attention.emit(parts, x, layer), f"{p}.attn_sum")
        x = _norm(parts, total, f"{p}.attn_output_norm", info.eps)
        total = parts.add(x, feed_forward.emit(parts, x, layer), f"{p}.ffn_sum")
        x = _norm(parts, total, f"{p}.layer_output_norm", info.eps, last=layer == info.n_layers - 1)
    return parts.finish()


def _embed(parts: GraphParts, info: EncoderInfo, *, positions: bool) -> BufferId:
    """Token, type 0 and position together, normed."""
    x = parts.embed()
    if parts.has("token_types.weight"):
        first = _first_row(parts, "token_types.weight", info.n_embd)
        typed = parts.temp("embd_typed", info.n_embd)
        parts.g.node(Op.BIAS_ADD, [x, first], [typed], "token_types.bias_add")
        x = typed
    if positions:
        n = (
            parts.file.tensors["position_embd.weight"].shape[0]
            if parts.has("position_embd.weight")
            else info.n_ctx_train
        )
        if n < info.n_ctx_train:
            raise InvalidKey(
                f"{info.architecture}.context_length is {info.n_ctx_train}, position_embd.weight has {n} positions"
            )
        table = parts.weight("position_embd.weight", n, info.n_embd)
        placed = parts.temp("position_embd", info.n_embd)
        parts.g.node(Op.EMBED, [parts.step["positions"], table], [placed], "position_embd.embed", by_position=True)
        x = parts.add(x, placed, "embd_placed")
    return _norm(parts, x, "token_embd_norm", info.eps)


def _first_row(parts: GraphParts, name: str, n: int) -> BufferId:
    """Row 0 of a table as a constant: texts are not made of two parts here."""
    tensor = parts.file.tensors[name]
    if len(tensor.shape) != 2 or tensor.shape[1] != n:
        raise TensorShapeMismatch(f"tensor {name} has shape {list(tensor.shape)}, rows of {n} elements are needed")
    parts.read_on_host(name)
    row = dequantize(tensor.type, parts.file.raw(name)[:1]).reshape(n)
    return parts.constant("token_type", (n,), lambda n_ctx: row)


def _norm(parts: GraphParts, x: BufferId, name: str, eps: float, *, last: bool = False) -> BufferId:
    """The layer norm by `name`.weight and `name`.bias; the last one is the model's output."""
    n = parts.width(x)
    y = parts.g.buffer(HIDDEN, BufferKind.OUTPUT, DType.F32, ("n_rows", n)) if last else parts.temp(name, n)
    operands = [x, parts.weight(f"{name}.weight", n), parts.weight(f"{name}.bias", n)]
    parts.g.node(Op.LAYER_NORM, operands, [y], f"{name}.layer_norm", eps=eps)
    return y

"""The nodes of a dense decoder, one method a part. An architecture file composes them.

All activations are f32[n_rows, width]; heads are views. A row of a step is one (sequence, position) pair, whether it
belongs to a prompt or is being generated: there is no other difference between prefill and decode.
"""

from __future__ import annotations

import math

from zinc_rt.gguf import SUPPORTED, GGMLType, GGUFFile
from zinc_rt.gguf.errors import UnsupportedTensorType
from zinc_rt.ir.graph import BufferKind, DType, Graph, GraphBuilder
from zinc_rt.ir.op import Op
from zinc_rt.models.config import DenseConfig
from zinc_rt.models.errors import MissingWeight, TensorShapeMismatch
from zinc_rt.numerics import PAGE_TOKENS

ROPE_TABLE = "rope_table"
_STEP_INPUTS = {
    "token_ids": ("n_rows",),
    "positions": ("n_rows",),
    "slots": ("n_rows",),
    "page_table": ("n_slots", "max_pages"),
    "logit_rows": ("n_logits",),
}


class DenseBuilder:
    """A graph under construction over the tensors of one file."""

    def __init__(self, file: GGUFFile, config: DenseConfig) -> None:
        self.file = file
        self.config = config
        self.g = GraphBuilder(config.architecture)
        self.g.meta.update(
            architecture=config.architecture,
            n_layers=config.n_layers,
            n_embd=config.n_embd,
            n_vocab=config.n_vocab,
        )
        self.step = {
            name: self.g.buffer(name, BufferKind.INPUT, DType.I32, shape) for name, shape in _STEP_INPUTS.items()
        }
        self.rope_table = self.g.buffer(ROPE_TABLE, BufferKind.CONSTANT, DType.F32, ("n_ctx", config.rope.dim // 2, 2))
        self._weights: dict[str, int] = {}

    def has(self, name: str) -> bool:
        """Whether the file has the tensor."""
        return name in self.file.tensors

    def weight(self, name: str, *shape: int) -> int:
        """The buffer of a tensor of this shape. Raises `MissingWeight`, `TensorShapeMismatch`."""
        if name in self._weights:
            return self._weights[name]
        info = self.file.tensors.get(name)
        if info is None:
            raise MissingWeight(
                f"tensor {name} of shape {list(shape)} is missing, which architecture"
                f" {self.config.architecture!r} needs; the file may be incomplete or from another converter"
            )
        if info.shape != shape:
            raise TensorShapeMismatch(
                f"tensor {name} has shape {list(info.shape)}, the metadata calls for {list(shape)}"
            )
        allowed = SUPPORTED if len(shape) > 1 else (GGMLType.F32,)
        if info.type not in allowed:
            wanted = ", ".join(kind.name for kind in allowed)
            raise UnsupportedTensorType(
                f"tensor {name} is of type {info.type.name}, which is not supported here yet; supported: {wanted}"
            )
        self._weights[name] = self.g.buffer(name, BufferKind.WEIGHT, DType.of(info.type), shape)
        return self._weights[name]

    def temp(self, name: str, width: int) -> int:
        """A fresh activation f32[n_rows, width]."""
        return self.g.buffer(name, BufferKind.TEMP, DType.F32, ("n_rows", width))

    def embed(self) -> int:
        """x f32[n_rows, n_embd] from the token ids."""
        c = self.config
        x = self.temp("embd", c.n_embd)
        self.g.node(
            Op.EMBED,
            [self.step["token_ids"], self.weight("token_embd.weight", c.n_vocab, c.n_embd)],
            [x],
            "embed",
        )
        return x

    def norm(self, x: int, name: str) -> int:
        """RMS norm of whole rows by the tensor `name`.weight."""
        y = self.temp(name, self.config.n_embd)
        weight = self.weight(f"{name}.weight", self.config.n_embd)
        self.g.node(Op.RMS_NORM, [x, weight], [y], f"{name}.rms_norm", eps=self.config.rms_eps)
        return y

    def add_norm(self, x: int, residual: int, name: str, sum_name: str) -> tuple[int, int]:
        """x + residual and its RMS norm by `name`.weight."""
        total, y = self.temp(sum_name, self.config.n_embd), self.temp(name, self.config.n_embd)
        weight = self.weight(f"{name}.weight", self.config.n_embd)
        self.g.node(
            Op.RESIDUAL_RMS_NORM,
            [x, residual, weight],
            [total, y],
            f"{name}.residual_rms_norm",
            eps=self.config.rms_eps,
        )
        return total, y

    def add(self, a: int, b: int, name: str) -> int:
        """a + b, where no norm follows that could do it."""
        y = self.temp(name, self.config.n_embd)
        self.g.node(Op.RESIDUAL_ADD, [a, b], [y], f"{name}.residual_add")
        return y

    def project(self, x: int, name: str, n_in: int, n_out: int, *, bias: bool | None = False) -> int:
        """W x with the tensor `name`.weight; `bias` True needs `name`.bias, None takes it where the file has it."""
        y = self.temp(name, n_out)
        self.g.node(Op.MATMUL, [x, self.weight(f"{name}.weight", n_out, n_in)], [y], f"{name}.matmul")
        if bias or (bias is None and self.has(f"{name}.bias")):
            biased = self.temp(f"{name}.biased", n_out)
            self.g.node(Op.BIAS_ADD, [y, self.weight(f"{name}.bias", n_out)], [biased], f"{name}.bias_add")
            return biased
        return y

    def head_norm(self, x: int, name: str, n_heads: int) -> int:
        """RMS norm of each head (QK-norm) by `name`.weight."""
        c = self.config
        y = self.temp(name, n_heads * c.head_dim)
        self.g.node(
            Op.RMS_NORM, [x, self.weight(f"{name}.weight", c.head_dim)], [y], f"{name}.rms_norm",
            eps=c.rms_eps, n_heads=n_heads, head_dim=c.head_dim,
        )  # fmt: skip
        return y

    def rope(self, x: int, name: str, n_heads: int) -> int:
        """Rotate each head by its row's position."""
        c = self.config
        y = self.temp(name, n_heads * c.head_dim)
        self.g.node(
            Op.ROPE, [x, self.step["positions"], self.rope_table], [y], name,
            interleaved=c.rope.interleaved, n_heads=n_heads, head_dim=c.head_dim,
        )  # fmt: skip
        return y

    def attention(self, h: int, p: str, *, qkv_bias: bool | None, qk_norm: bool, out_bias: bool | None) -> int:
        """The attention block behind its norm: projections, optional QK-norm, RoPE, cache, attention, output."""
        c = self.config
        q = self.project(h, f"{p}.attn_q", c.n_embd, c.q_width, bias=qkv_bias)
        k = self.project(h, f"{p}.attn_k", c.n_embd, c.kv_width, bias=qkv_bias)
        v = self.project(h, f"{p}.attn_v", c.n_embd, c.kv_width, bias=qkv_bias)
        if qk_norm:
            q = self.head_norm(q, f"{p}.attn_q_norm", c.n_heads)
            k = self.head_norm(k, f"{p}.attn_k_norm", c.n_kv_heads)
        q = self.rope(q, f"{p}.rope_q", c.n_heads)
        k = self.rope(k, f"{p}.rope_k", c.n_kv_heads)
        page = ("n_pages", PAGE_TOKENS, c.n_kv_heads, c.head_dim)
        caches = [self.g.buffer(f"{p}.{side}_cache", BufferKind.STATE, DType.F16, page) for side in "kv"]
        where = [self.step["positions"], self.step["slots"], self.step["page_table"]]
        self.g.node(Op.KV_WRITE, [k, v, *where], caches, f"{p}.kv_write", n_kv_heads=c.n_kv_heads, head_dim=c.head_dim)
        out = self.temp(f"{p}.attn", c.q_width)
        self.g.node(
            Op.FLASH_ATTN, [q, *caches, *where], [out], f"{p}.flash_attn", scale=1.0 / math.sqrt(c.head_dim),
            n_heads=c.n_heads, n_kv_heads=c.n_kv_heads, head_dim=c.head_dim,
        )  # fmt: skip
        return self.project(out, f"{p}.attn_output", c.q_width, c.n_embd, bias=out_bias)

    def mlp(self, h: int, p: str, *, bias: bool | None = False) -> int:
        """The feed-forward block behind its norm: gate, up, SwiGLU, down."""
        c = self.config
        gate = self.project(h, f"{p}.ffn_gate", c.n_embd, c.n_ff, bias=bias)
        up = self.project(h, f"{p}.ffn_up", c.n_embd, c.n_ff, bias=bias)
        act = self.temp(f"{p}.ffn_act", c.n_ff)
        self.g.node(Op.SWIGLU, [gate, up], [act], f"{p}.swiglu")
        return self.project(act, f"{p}.ffn_down", c.n_ff, c.n_embd, bias=bias)

    def decoder(
        self, *, qkv_bias: bool | None = False, qk_norm: bool = False, out_bias: bool | None = False,
        mlp_bias: bool | None = False,
    ) -> Graph:  # fmt: skip
        """The whole decode step. Bias arguments: True needed, False none, None where the file has it."""
        c = self.config
        x = self.embed()
        h = self.norm(x, "blk.0.attn_norm")
        for layer in range(c.n_layers):
            p = f"blk.{layer}"
            attn = self.attention(h, p, qkv_bias=qkv_bias, qk_norm=qk_norm, out_bias=out_bias)
            x, h = self.add_norm(x, attn, f"{p}.ffn_norm", f"{p}.attn_sum")
            down = self.mlp(h, p, bias=mlp_bias)
            if layer + 1 < c.n_layers:
                x, h = self.add_norm(x, down, f"blk.{layer + 1}.attn_norm", f"{p}.ffn_sum")
            else:
                h = self.norm(self.add(x, down, f"{p}.ffn_sum"), "output_norm")
        return self.head(h)

    def head(self, h: int) -> Graph:
        """Logits of the wanted rows and their argmax; the embedding serves where there is no output tensor."""
        c = self.config
        name = "output.weight" if self.has("output.weight") else "token_embd.weight"
        logits = self.g.buffer("logits", BufferKind.OUTPUT, DType.F32, ("n_logits", c.n_vocab))
        weight = self.weight(name, c.n_vocab, c.n_embd)
        self.g.node(Op.LM_HEAD, [h, weight, self.step["logit_rows"]], [logits], "lm_head")
        tokens = self.g.buffer("tokens", BufferKind.OUTPUT, DType.I32, ("n_logits",))
        self.g.node(Op.ARGMAX, [logits], [tokens], "argmax")
        return self.g.build()


def rope_factors(file: GGUFFile, config: DenseConfig) -> list[float] | None:
    """The llama-3 frequency factors f32[rope dim / 2] when the file has them. Raises `TensorShapeMismatch`."""
    info = file.tensors.get("rope_freqs.weight")
    if info is None:
        return None
    pairs = config.rope.dim // 2
    if info.type is not GGMLType.F32 or info.shape != (pairs,):
        raise TensorShapeMismatch(
            f"tensor rope_freqs.weight is {info.type.name}{list(info.shape)}, F32[{pairs}] is needed"
        )
    values = file.raw("rope_freqs.weight").reshape(-1).view("<f4")
    if not (values > 0).all():
        raise TensorShapeMismatch("tensor rope_freqs.weight has factors that are not positive")
    return [float(v) for v in values]

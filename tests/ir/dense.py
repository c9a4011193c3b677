"""A dense decoder in IR, small and with every executable operation, for the tests to build and to break."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import Buffer, BufferKind, DType, Graph
from zinc_rt.ir.op import Op

WEIGHT, CONSTANT, INPUT = BufferKind.WEIGHT, BufferKind.CONSTANT, BufferKind.INPUT
STATE, TEMP, OUTPUT = BufferKind.STATE, BufferKind.TEMP, BufferKind.OUTPUT
F32, F16, I32 = DType.F32, DType.F16, DType.I32


@dataclass(frozen=True)
class Dims:
    layers: int = 2
    n_embd: int = 64
    heads: int = 4
    kv_heads: int = 2
    head_dim: int = 32
    n_ff: int = 96
    n_vocab: int = 50
    weights: DType = DType.Q8_0
    biases: bool = True
    qk_norm: bool = True
    tied: bool = False


class _Dense:
    def __init__(self, dims: Dims) -> None:
        self.d = dims
        self.b = GraphBuilder("dense", {"architecture": "test", "n_layer": dims.layers, "rope_base": 1e6})
        b = self.b
        self.token_ids = b.buffer("token_ids", INPUT, I32, ["n_rows"])
        self.positions = b.buffer("positions", INPUT, I32, ["n_rows"])
        self.slots = b.buffer("slots", INPUT, I32, ["n_rows"])
        self.page_table = b.buffer("page_table", INPUT, I32, ["n_slots", "max_pages"])
        self.logit_rows = b.buffer("logit_rows", INPUT, I32, ["n_logits"])
        self.rope_table = b.buffer("rope_table", CONSTANT, F32, ["n_ctx", dims.head_dim // 2, 2])

    def weight(self, name: str, *shape: int) -> int:
        return self.b.buffer(f"{name}.weight", WEIGHT, self.d.weights if len(shape) == 2 else F32, shape)

    def temp(self, name: str, width: int) -> int:
        return self.b.buffer(name, TEMP, F32, ["n_rows", width])

    def project(self, name: str, x: int, n_in: int, n_out: int, bias: bool = False) -> int:
        y = self.temp(f"{name}.out", n_out)
        self.b.node(Op.MATMUL, [x, self.weight(name, n_out, n_in)], [y], name)
        if not bias:
            return y
        z = self.temp(f"{name}.biased", n_out)
        self.b.node(Op.BIAS_ADD, [y, self.b.buffer(f"{name}.bias", WEIGHT, F32, [n_out])], [z], f"{name}_bias")
        return z

    def heads(self, name: str, x: int, count: int) -> int:
        d = self.d
        if d.qk_norm:
            y = self.temp(f"{name}_norm.out", count * d.head_dim)
            self.b.node(
                Op.RMS_NORM,
                [x, self.weight(f"{name}_norm", d.head_dim)],
                [y],
                f"{name}_norm",
                eps=1e-6,
                n_heads=count,
                head_dim=d.head_dim,
            )
            x = y
        y = self.temp(f"{name}_rope.out", count * d.head_dim)
        self.b.node(
            Op.ROPE,
            [x, self.positions, self.rope_table],
            [y],
            f"{name}_rope",
            interleaved=False,
            n_heads=count,
            head_dim=d.head_dim,
        )
        return y

    def attention(self, p: str, x: int) -> int:
        d, b = self.d, self.b
        q_width, kv_width = d.heads * d.head_dim, d.kv_heads * d.head_dim
        q = self.heads(f"{p}attn_q", self.project(f"{p}attn_q", x, d.n_embd, q_width, d.biases), d.heads)
        k = self.heads(f"{p}attn_k", self.project(f"{p}attn_k", x, d.n_embd, kv_width, d.biases), d.kv_heads)
        v = self.project(f"{p}attn_v", x, d.n_embd, kv_width, d.biases)
        caches = [b.buffer(f"{p}{which}_cache", STATE, F16, ["n_pages", 16, d.kv_heads, d.head_dim]) for which in "kv"]
        where = [self.positions, self.slots, self.page_table]
        b.node(Op.KV_WRITE, [k, v, *where], caches, f"{p}kv", n_kv_heads=d.kv_heads, head_dim=d.head_dim)
        out = self.temp(f"{p}attn.out", q_width)
        b.node(
            Op.FLASH_ATTN,
            [q, *caches, *where],
            [out],
            f"{p}attn",
            scale=d.head_dim**-0.5,
            n_heads=d.heads,
            n_kv_heads=d.kv_heads,
            head_dim=d.head_dim,
        )
        return self.project(f"{p}attn_output", out, q_width, d.n_embd)

    def add_norm(self, p: str, x: int, residual: int, norm: str) -> tuple[int, int]:
        total, normed = self.temp(f"{p}.sum", self.d.n_embd), self.temp(f"{p}.normed", self.d.n_embd)
        weight = self.weight(norm, self.d.n_embd)
        self.b.node(Op.RESIDUAL_RMS_NORM, [x, residual, weight], [total, normed], p, eps=1e-6)
        return total, normed

    def build(self) -> GraphBuilder:
        d, b = self.d, self.b
        embd = self.weight("token_embd", d.n_vocab, d.n_embd)
        x = self.temp("embedded", d.n_embd)
        b.node(Op.EMBED, [self.token_ids, embd], [x], "embed")
        normed = self.temp("blk.0.attn_norm.out", d.n_embd)
        b.node(Op.RMS_NORM, [x, self.weight("blk.0.attn_norm", d.n_embd)], [normed], "blk.0.attn_norm", eps=1e-6)
        for layer in range(d.layers):
            p = f"blk.{layer}."
            x, normed = self.add_norm(f"{p}ffn_norm", self.attention(p, normed), x, f"{p}ffn_norm")
            gate = self.project(f"{p}ffn_gate", normed, d.n_embd, d.n_ff)
            up = self.project(f"{p}ffn_up", normed, d.n_embd, d.n_ff)
            act = self.temp(f"{p}ffn_act.out", d.n_ff)
            b.node(Op.SWIGLU, [gate, up], [act], f"{p}ffn_act")
            down = self.project(f"{p}ffn_down", act, d.n_ff, d.n_embd)
            if layer + 1 < d.layers:
                x, normed = self.add_norm(f"blk.{layer + 1}.in", down, x, f"blk.{layer + 1}.attn_norm")
            else:
                total, normed = self.temp("last.sum", d.n_embd), self.temp("last.normed", d.n_embd)
                b.node(Op.RESIDUAL_ADD, [down, x], [total], "last")
                b.node(Op.RMS_NORM, [total, self.weight("output_norm", d.n_embd)], [normed], "out_norm", eps=1e-6)
        head = embd if d.tied else self.weight("output", d.n_vocab, d.n_embd)
        logits = b.buffer("logits", OUTPUT, F32, ["n_logits", d.n_vocab])
        tokens = b.buffer("tokens", OUTPUT, I32, ["n_logits"])
        b.node(Op.LM_HEAD, [normed, head, self.logit_rows], [logits], "lm_head")
        b.node(Op.ARGMAX, [logits], [tokens], "argmax")
        return b


def dense(dims: Dims | None = None) -> Graph:
    return _Dense(dims or Dims()).build().build()


def named(graph: Graph, name: str) -> Buffer:
    """The buffer with this name."""
    return next(b for b in graph.buffers if b.name == name)

"""The story model in PyTorch: a dense qwen3 decoder, written to be exported name for name to GGUF."""

from __future__ import annotations

from dataclasses import asdict, dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

EMBEDDING_STD = 0.1
OUTPUT_SCALE = 0.3  # of the last norm: logits of a few units at the start, although the embeddings are large
ATTENTION_SCALE = 1.4  # of the query and key norms: attention can be sharp from the start
COPY_SCALE = 1.0


@dataclass(frozen=True)
class Config:
    """Shapes of the model. Every matrix row length is a multiple of 32, the Q8_0 block."""

    vocab: int = 2048
    hidden: int = 192
    layers: int = 6
    heads: int = 6
    kv_heads: int = 2
    head_dim: int = 32
    ffn: int = 512
    context: int = 1024
    rope_base: float = 10000.0
    eps: float = 1e-6

    def to_dict(self) -> dict[str, int | float]:
        """The fields as a dictionary, for a checkpoint."""
        return asdict(self)


class RMSNorm(nn.Module):
    """RMS normalisation with a learned weight."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the last dimension."""
        return F.rms_norm(x, (x.shape[-1],), self.weight, self.eps)


def rope_table(cfg: Config) -> tuple[Tensor, Tensor]:
    """cos, sin: f32[context, head_dim], the half-split (NeoX) layout."""
    half = cfg.head_dim // 2
    freq = cfg.rope_base ** (-torch.arange(half, dtype=torch.float64) / half)
    angle = torch.arange(cfg.context, dtype=torch.float64)[:, None] * freq[None, :]
    angle = torch.cat([angle, angle], dim=1)
    return angle.cos().float(), angle.sin().float()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotate pairs of dimensions. x: f32[batch, heads, seq, head_dim]."""
    a, b = x.chunk(2, dim=-1)
    return x * cos + torch.cat([-b, a], dim=-1) * sin


class Block(nn.Module):
    """A decoder block: attention and feed-forward, each after a norm."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.cfg = cfg
        q, kv = cfg.heads * cfg.head_dim, cfg.kv_heads * cfg.head_dim
        self.attn_norm = RMSNorm(cfg.hidden, cfg.eps)
        self.attn_q = nn.Linear(cfg.hidden, q, bias=False)
        self.attn_k = nn.Linear(cfg.hidden, kv, bias=False)
        self.attn_v = nn.Linear(cfg.hidden, kv, bias=False)
        self.attn_output = nn.Linear(q, cfg.hidden, bias=False)
        self.attn_q_norm = RMSNorm(cfg.head_dim, cfg.eps)
        self.attn_k_norm = RMSNorm(cfg.head_dim, cfg.eps)
        self.ffn_norm = RMSNorm(cfg.hidden, cfg.eps)
        self.ffn_gate = nn.Linear(cfg.hidden, cfg.ffn, bias=False)
        self.ffn_up = nn.Linear(cfg.hidden, cfg.ffn, bias=False)
        self.ffn_down = nn.Linear(cfg.ffn, cfg.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        """Add attention and feed-forward to x; cos, sin: the rotation."""
        cfg = self.cfg
        b, t, _ = x.shape
        h = self.attn_norm(x)
        q = self.attn_q_norm(self.attn_q(h).view(b, t, cfg.heads, cfg.head_dim)).transpose(1, 2)
        k = self.attn_k_norm(self.attn_k(h).view(b, t, cfg.kv_heads, cfg.head_dim)).transpose(1, 2)
        v = self.attn_v(h).view(b, t, cfg.kv_heads, cfg.head_dim).transpose(1, 2)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        a = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        x = x + self.attn_output(a.transpose(1, 2).reshape(b, t, -1))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class StoryModel(nn.Module):
    """Token ids i64[batch, seq] -> logits f32[batch, seq, vocab]; the output head is the embedding."""

    def __init__(self, cfg: Config) -> None:
        super().__init__()
        self.cfg = cfg
        self.token_embd = nn.Embedding(cfg.vocab, cfg.hidden)
        self.blk = nn.ModuleList(Block(cfg) for _ in range(cfg.layers))
        self.output_norm = RMSNorm(cfg.hidden, cfg.eps)
        cos, sin = rope_table(cfg)
        self.register_buffer("cos", cos, persistent=False)
        self.register_buffer("sin", sin, persistent=False)
        self.reset()

    def reset(self) -> None:
        """Initial weights that make copying easy: a story has to keep its names.

        The output matrix of each head is the transpose of its value matrix, so that attending to a token at
        once favours this token, and learning where to look is all that is missing. Embeddings start large
        beside what the blocks add, so that the identity of a token survives to the last layer.
        """
        cfg = self.cfg
        nn.init.normal_(self.token_embd.weight, std=EMBEDDING_STD)
        nn.init.constant_(self.output_norm.weight, OUTPUT_SCALE)
        for block in self.blk:
            for name in ("attn_q", "attn_k", "attn_v", "ffn_gate", "ffn_up"):
                nn.init.normal_(getattr(block, name).weight, std=0.8 * cfg.hidden**-0.5)
            nn.init.normal_(block.ffn_down.weight, std=0.02 * cfg.ffn**-0.5)
            nn.init.constant_(block.attn_q_norm.weight, ATTENTION_SCALE)
            nn.init.constant_(block.attn_k_norm.weight, ATTENTION_SCALE)
            group = block.attn_v.weight.detach().view(cfg.kv_heads, cfg.head_dim, cfg.hidden)
            heads = group.repeat_interleave(cfg.heads // cfg.kv_heads, dim=0).flatten(0, 1)
            block.attn_output.weight.data.copy_(heads.T * (COPY_SCALE * EMBEDDING_STD / cfg.layers))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits of every position."""
        t = ids.shape[1]
        cos, sin = self.cos[:t], self.sin[:t]
        x = self.token_embd(ids)
        for block in self.blk:
            x = block(x, cos, sin)
        return F.linear(self.output_norm(x), self.token_embd.weight)

    def parameter_count(self) -> int:
        """Number of parameters."""
        return sum(p.numel() for p in self.parameters())

"""A dense transformer in float64, from the architectures' papers: nothing here knows of graphs, pages or steps.

Llama (Touvron 2023, Grattafiori 2024), Qwen 2 and 3 (technical reports 2024, 2025): pre-norm decoder, RMS norm (Zhang
2019), rotary embedding (Su 2021), grouped-query attention (Ainslie 2023), SwiGLU (Shazeer 2020), YaRN (Peng 2023).
"""

from __future__ import annotations

import math

import numpy as np

from tests.helpers import Spec, Tiny


def rms(x: np.ndarray, w: np.ndarray, eps: float) -> np.ndarray:
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * w


def int8(x: np.ndarray) -> np.ndarray:
    """What quantised weights see: groups of 32 rounded to whole multiples of a 127th of their largest."""
    groups = x.reshape(*x.shape[:-1], -1, 32)
    step = np.abs(groups).max(axis=-1, keepdims=True) / 127
    steps = np.rint(groups / np.where(step == 0, 1, step))
    return (steps * step).reshape(x.shape)


def yarn_frequency(i: int, dim: int, base: float, factor: float, original: int, fast: float, slow: float) -> float:
    """Frequency of pair i: interpolated where it turns less than `slow` times in the original context, its own where
    it turns more than `fast` times, a linear mixture by index between (sections 3.2 and 3.3).
    """
    frequency = base ** (-2 * i / dim)

    def index_of(turns: float) -> float:
        # original * base^(-2 i / dim) / (2 pi) = turns, solved for i
        return dim * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = max(math.floor(index_of(fast)), 0), min(math.ceil(index_of(slow)), dim - 1)
    interpolated = min(max((i - first) / max(last - first, 0.001), 0.0), 1.0)
    return frequency / factor * interpolated + frequency * (1 - interpolated)


def frequencies(spec: Spec, factors: np.ndarray | None) -> tuple[list[float], float]:
    """Radians per position of every pair, and the magnitude of cos and sin."""
    dim, keys = spec.rope_dim or spec.head_dim, spec.keys
    factor, kind = float(keys.get("rope.scaling.factor", 1.0)), keys.get("rope.scaling.type", "none")
    out = []
    for i in range(dim // 2):
        if kind == "yarn":
            original = keys.get("rope.scaling.original_context_length", spec.n_ctx)
            frequency = yarn_frequency(i, dim, spec.rope_base, factor, original, 32.0, 1.0)
        else:
            frequency = spec.rope_base ** (-2 * i / dim) / (factor if kind == "linear" else 1.0)
        out.append(frequency if factors is None else frequency / factors[i])
    return out, 1 + 0.1 * math.log(factor) if kind == "yarn" else 1.0


class Truth:
    """The model as formulas. Each argument undoes one thing, so that tests can see that it matters."""

    def __init__(self, tiny: Tiny, *, quantize_activations: bool = True, **wrong: object) -> None:
        self.spec, self.t = tiny.spec, tiny.tensors
        self.quantize = quantize_activations
        self.interleaved = tiny.spec.architecture == "llama"
        self.qk_norm, self.biases, self.factors, self.scaling, self.shared = True, True, True, True, True
        self.causal = True
        for name, value in wrong.items():
            assert hasattr(self, name)
            setattr(self, name, value)
        given = self.t.get("rope_freqs.weight") if self.factors else None
        self.frequencies, self.magnitude = frequencies(self.spec, given)
        if not self.scaling:
            plain = Spec(**{**vars(self.spec), "keys": {}})
            self.frequencies, self.magnitude = frequencies(plain, given)

    def product(self, x: np.ndarray, name: str) -> np.ndarray:
        """x W^T; int8 activations where the weights are blocks."""
        w = self.t[f"{name}.weight"]
        blocks = self.spec.format_of(f"{name}.weight", w.shape).quantized
        y = (int8(x) if blocks and self.quantize else x) @ w.T
        bias = self.t.get(f"{name}.bias") if self.biases else None
        return y if bias is None else y + bias

    def rotate(self, x: np.ndarray) -> np.ndarray:
        """x: f64[n, heads, head_dim], row i at position i."""
        angles = np.arange(len(x))[:, None] * np.array(self.frequencies)
        turn = self.magnitude * np.exp(1j * angles)[:, None, :]
        pairs, out = len(self.frequencies), x.copy()
        a = slice(0, 2 * pairs, 2) if self.interleaved else slice(0, pairs)
        b = slice(1, 2 * pairs, 2) if self.interleaved else slice(pairs, 2 * pairs)
        turned = (x[..., a] + 1j * x[..., b]) * turn
        out[..., a], out[..., b] = turned.real, turned.imag
        return out

    def attention(self, h: np.ndarray, p: str) -> np.ndarray:
        s, n = self.spec, len(h)
        q = self.product(h, f"{p}attn_q").reshape(n, s.n_heads, s.head_dim)
        k = self.product(h, f"{p}attn_k").reshape(n, s.n_kv_heads, s.head_dim)
        v = self.product(h, f"{p}attn_v").reshape(n, s.n_kv_heads, s.head_dim)
        if s.qk_norm and self.qk_norm:
            q = rms(q, self.t[f"{p}attn_q_norm.weight"], s.eps)
            k = rms(k, self.t[f"{p}attn_k_norm.weight"], s.eps)
        q = self.rotate(q)
        # The cache holds float16: part of the runtime's definition, not an error of it.
        k, v = (np.float64(np.float16(x)) for x in (self.rotate(k), v))
        out = np.empty_like(q)
        for head in range(s.n_heads):
            shared = head // (s.n_heads // s.n_kv_heads) if self.shared else head % s.n_kv_heads
            scores = q[:, head] @ k[:, shared].T / math.sqrt(s.head_dim)
            if self.causal:
                scores[np.triu_indices(n, 1)] = -np.inf
            weights = np.exp(scores - scores.max(axis=1, keepdims=True))
            out[:, head] = weights / weights.sum(axis=1, keepdims=True) @ v[:, shared]
        return self.product(out.reshape(n, -1), f"{p}attn_output")

    def feed_forward(self, h: np.ndarray, p: str) -> np.ndarray:
        gate, up = self.product(h, f"{p}ffn_gate"), self.product(h, f"{p}ffn_up")
        return self.product(gate / (1 + np.exp(-gate)) * up, f"{p}ffn_down")

    def logits(self, tokens: list[int]) -> np.ndarray:
        """f64[n, n_vocab], after each token of one sequence."""
        x = self.t["token_embd.weight"][tokens]
        for layer in range(self.spec.n_layers):
            p = f"blk.{layer}."
            x = x + self.attention(rms(x, self.t[f"{p}attn_norm.weight"], self.spec.eps), p)
            x = x + self.feed_forward(rms(x, self.t[f"{p}ffn_norm.weight"], self.spec.eps), p)
        h = rms(x, self.t["output_norm.weight"], self.spec.eps)
        return self.product(h, "token_embd" if self.spec.tied else "output")


def error(got: np.ndarray, want: np.ndarray) -> float:
    """Root mean square of the difference as a share of the logits' own."""
    return float(np.sqrt(np.mean((got - want) ** 2) / np.mean(want**2)))

"""The arithmetic that families share, in float64: norms, rotations, attention with windows, experts.

Written from the papers and model cards: RMS norm (Zhang 2019), rotary embedding (Su 2021), YaRN (Peng 2023), grouped
queries (Ainslie 2023), gated units (Shazeer 2020), mixture of experts (Fedus 2021, DeepSeek-V3 2024).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

import numpy as np

from tests.models.families.build import N_VOCAB, Made
from tests.models.truth import int8, rms, yarn_frequency

Array = np.ndarray
Gated = Callable[[Array, Array], Array]


def sigmoid(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


def softmax(x: Array) -> Array:
    e = np.exp(x - x.max(axis=-1, keepdims=True))
    return e / e.sum(axis=-1, keepdims=True)


def softplus(x: Array) -> Array:
    return np.logaddexp(0, x)


def silu(x: Array) -> Array:
    return x * sigmoid(x)


def swiglu(gate: Array, up: Array) -> Array:
    return silu(gate) * up


def gelu(x: Array) -> Array:
    """The form with tanh."""
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


@dataclass
class Rope:
    """A rotation: radians per position of every pair, a magnitude, and which elements are a pair."""

    frequencies: Array
    halves: bool  # pairs are (i, i + n/2), as GPT-NeoX has them, instead of neighbours
    magnitude: float = 1.0


def half(x: Array) -> Array:
    """x as float16 holds it."""
    return x.astype(np.float32).astype(np.float16).astype(np.float64)


class Net:
    """A made-up model that runs as formulas.

    wrong: names of things that are done wrongly on purpose. int8: activations are rounded where the weights are blocks.
    kv16: the cache holds float16. gelu16: GELU rounds its argument and result to float16, as a table of it would.
    """

    def __init__(
        self, made: Made, *, wrong: Collection[str] = (), int8: bool = True, kv16: bool = True, gelu16: bool = False
    ) -> None:
        self.made, self.keys, self.t = made, made.case.keys, made.tensors
        self.wrong, self.int8, self.kv16, self.gelu16 = frozenset(wrong), int8, kv16, gelu16
        self.asked: set[str] = set()
        self.closest: dict[int, float] = {}
        self.chosen = np.ones((0, 0), bool)  # positions that the last indexer chose
        self.eps = float(np.float32(self.keys.get("attention.layer_norm_rms_epsilon", 0.0)))

    def logits(self, tokens: Sequence[int]) -> Array:
        """f64[n, n_vocab], after each token of one sequence."""
        return self.made.case.forward(self, list(tokens))

    def does(self, what: str) -> bool:
        """Whether the thing is done right; a name that no formula asks for is seen by `unasked`."""
        self.asked.add(what)
        return what not in self.wrong

    def unasked(self) -> frozenset[str]:
        return self.wrong - self.asked

    # -- metadata, weights --------------------------------------------------------------------------------------------

    def number(self, key: str) -> int:
        value = self.keys[key]
        assert isinstance(value, int)
        return value

    def has(self, name: str) -> bool:
        return name in self.t

    def __getitem__(self, name: str) -> Array:
        return self.t[name]

    # -- products and norms -------------------------------------------------------------------------------------------

    def seen(self, x: Array, name: str) -> Array:
        """What a product with the tensor sees of x."""
        return int8(x) if self.int8 and self.made.is_blocks(name) else x

    def product(self, x: Array, name: str, rows: slice = slice(None)) -> Array:
        """W x (+ bias) with the tensor `name`.weight."""
        y = self.seen(x, f"{name}.weight") @ self.t[f"{name}.weight"][rows].T
        bias = self.t.get(f"{name}.bias")
        return y if bias is None or not self.does("biases") else y + bias[rows]

    def norm(self, x: Array, name: str) -> Array:
        return rms(x, self.t[f"{name}.weight"], self.eps)

    def qkv(self, h: Array, p: str, sizes: tuple[int, int, int]) -> list[Array]:
        """Queries, keys, values of rows: from three tensors or from one that holds the rows of all."""
        if not self.has(f"{p}attn_qkv.weight"):
            return [self.product(h, f"{p}attn_{part}") for part in "qkv"]
        all_three = self.product(h, f"{p}attn_qkv")
        parts = np.split(all_three, np.cumsum(sizes)[:2], axis=-1)
        for i, part in enumerate("qkv"):  # biases may be separate even so
            bias = self.t.get(f"{p}attn_{part}.bias")
            if bias is not None and self.does("biases"):
                parts[i] = parts[i] + bias
        return parts

    def head(self, h: Array) -> Array:
        return self.product(h, "output" if self.has("output.weight") else "token_embd")

    def gelu(self, x: Array) -> Array:
        """With gelu16 as a table of float16 gives it, which stands for -10 .. 10."""
        if not self.gelu16:
            return gelu(x)
        table = half(gelu(half(x)))
        return np.where(x <= -10, 0, np.where(x >= 10, x, table))

    def geglu(self, gate: Array, up: Array) -> Array:
        return self.gelu(gate) * up

    def ffn(self, x: Array, p: str, act: Gated = swiglu, suffix: str = "") -> Array:
        """Gate, up, down; an `up` of double width holds the gate's rows first."""
        gate_name, up_name = f"{p}ffn_gate{suffix}", f"{p}ffn_up{suffix}"
        if self.has(f"{gate_name}.weight"):
            gate, up = self.product(x, gate_name), self.product(x, up_name)
        else:
            gate, up = np.split(self.product(x, up_name), 2, axis=-1)
            if not self.does("gate first"):
                gate, up = up, gate
        return self.product(act(gate, up), f"{p}ffn_down{suffix}")

    # -- rotations ----------------------------------------------------------------------------------------------------

    def rope(
        self,
        dim: int,
        *,
        halves: bool,
        base: float | None = None,
        factors: Array | None = None,
        scaled: bool = True,
        magnitude: float | None = None,
    ) -> Rope:
        """The rotation that `rope.*` describes. scaled: False leaves the file's scaling out."""
        k = self.keys
        base = float(np.float32(k.get("rope.freq_base", 10000.0))) if base is None else base
        kind = k.get("rope.scaling.type", "linear") if scaled and self.does("rope scaling") else "none"
        factor = float(k.get("rope.scaling.factor", 1.0))
        pairs = np.arange(dim // 2)
        own = base ** (-2.0 * pairs / dim)
        mag = 1.0
        if kind == "yarn":
            original = k.get("rope.scaling.original_context_length", k["context_length"])
            fast, slow = k.get("rope.scaling.yarn_beta_fast", 32.0), k.get("rope.scaling.yarn_beta_slow", 1.0)
            own = np.array([yarn_frequency(i, dim, base, factor, original, fast, slow) for i in pairs])
            log = 0.1 * math.log(factor)
            multiplier = k.get("rope.scaling.yarn_log_multiplier", 0.0)
            mag = (1 + log) / (1 + multiplier * log) if multiplier else 1 + log
        elif kind == "linear":
            own = own / factor
        if kind != "none":
            mag *= k.get("rope.scaling.attn_factor", 1.0)
        if factors is not None and self.does("factors"):
            own = own / factors
        if not self.does("rope pairs"):
            halves = not halves
        return Rope(own, halves, mag if magnitude is None else magnitude)

    def places(self, n: int, pairs: int) -> Array:
        """The position by which each pair of a row turns, [n, pairs] or [n, 1]."""
        return np.arange(n)[:, None]

    def behind(self, layer: int, x: Array) -> Array:
        """The stream behind a layer."""
        return x

    def turn(self, x: Array, rope: Rope) -> Array:
        """x: f64[n, heads, head_dim], row i at position i; elements past the rotated ones stay."""
        angles = self.places(len(x), len(rope.frequencies)) * rope.frequencies
        pairs, out = len(rope.frequencies), x.copy()
        a = slice(0, pairs) if rope.halves else slice(0, 2 * pairs, 2)
        b = slice(pairs, 2 * pairs) if rope.halves else slice(1, 2 * pairs, 2)
        turned = (x[..., a] + 1j * x[..., b]) * (rope.magnitude * np.exp(1j * angles)[:, None, :])
        out[..., a], out[..., b] = turned.real, turned.imag
        return out

    # -- attention ----------------------------------------------------------------------------------------------------

    def cached(self, x: Array) -> Array:
        return half(x) if self.kv16 else x

    def visible(self, n: int, window: int | None, *, causal: bool = True) -> Array:
        """bool[n, n]: whether query i sees key j. A window of w: j from i - w + 1 on."""
        i, j = np.arange(n)[:, None], np.arange(n)
        seen = (j <= i) if causal and self.does("causal") else np.ones((n, n), bool)
        if window is not None:
            seen = seen & (i - j < window + (not self.does("window")))
        return seen

    def attend(
        self,
        q: Array,
        k: Array,
        v: Array,
        scale: float,
        seen: Array,
        sinks: Array | None = None,
        cap: float | None = None,
        bias: Array | None = None,
    ) -> Array:
        """f64[n, heads * value_dim] from q f64[n, heads, d], k f64[n, kv_heads, d], v f64[n, kv_heads, value_dim].

        cap: what scores are held under. bias: f64[heads, n, n], added to scores.
        """
        n, heads = q.shape[:2]
        kv_heads = k.shape[1]
        k, v = self.cached(k), self.cached(v)
        out = np.empty((n, heads, v.shape[2]))
        for head in range(heads):
            shared = head // (heads // kv_heads) if self.does("shared heads") else head % kv_heads
            scores = q[:, head] @ k[:, shared].T * scale + (0 if bias is None else bias[head])
            scores = np.where(seen, scores if cap is None else cap * np.tanh(scores / cap), -np.inf)
            if sinks is not None and self.does("sinks"):
                scores = np.concatenate([scores, np.full((n, 1), sinks[head])], axis=1)
            out[:, head] = softmax(scores)[:, :n] @ v[:, shared]
        return out.reshape(n, -1)

    # -- experts ------------------------------------------------------------------------------------------------------

    def moe(
        self, x: Array, p: str, *, gating: str = "softmax", normalise: bool = True, scale: float = 1.0,
        act: Gated = swiglu, logits: Array | None = None, groups: tuple[int, int] = (1, 1),
    ) -> Array:  # fmt: skip
        """The chosen experts' sum. gating: "softmax" or "sigmoid" over all, "chosen" softmax over the chosen ones.
        groups: how many there are, and how many of them a row may choose from.
        """
        logits = self.product(x, f"{p}ffn_gate_inp") if logits is None else logits
        probs = {"softmax": softmax, "sigmoid": sigmoid, "chosen": lambda z: z}[gating](logits)
        bias = self.t.get(f"{p}exp_probs_b.bias")
        selection = probs if bias is None or not self.does("selection bias") else probs + bias
        out = np.zeros((len(x), self.t[f"{p}ffn_down_exps.weight"].shape[1]))
        for row in range(len(x)):
            chosen = self.choose(selection[row], groups, row)
            w = probs[row, chosen]
            if gating == "chosen":
                w = softmax(w)
            if normalise == self.does("router normalised"):
                w = w / max(w.sum(), 2.0**-14)
            if self.does("router scaled"):
                w = w * scale
            for expert, weight in zip(chosen, w, strict=True):
                out[row] += weight * self.expert(x[row], p, int(expert), act)
        return out

    def choose(self, selection: Array, groups: tuple[int, int], row: int = 0) -> Array:
        n_groups, used = groups
        selection = selection.copy()
        if n_groups > 1 and self.does("groups"):
            best_two = np.sort(selection.reshape(n_groups, -1), axis=1)[:, -2:].sum(axis=1)
            order = np.argsort(-best_two, kind="stable")
            self.note_choice(best_two[order], used, row)
            selection.reshape(n_groups, -1)[order[used:]] = -np.inf
        order = np.argsort(-selection, kind="stable")
        k = self.number("expert_used_count")
        self.note_choice(selection[order], k, row)
        return np.sort(order[:k])

    def note_choice(self, falling: Array, k: int, row: int = 0) -> None:
        """How near the last chosen one is to the first left out: nearer than rounding, a test would decide nothing."""
        if k < len(falling):
            self.closest[row] = min(self.closest.get(row, math.inf), float(falling[k - 1] - falling[k]))

    @property
    def closest_choice(self) -> float:
        """The nearest of all."""
        return min(self.closest.values(), default=math.inf)

    def expert(self, x: Array, p: str, e: int, act: Gated) -> Array:
        def part(v: Array, name: str) -> Array:
            y = self.t[f"{p}{name}.weight"][e] @ self.seen(v, f"{p}{name}.weight")
            bias = self.t.get(f"{p}{name}.bias")
            return y if bias is None or not self.does("expert biases") else y + bias[e]

        if self.has(f"{p}ffn_gate_up_exps.weight"):
            gate, up = np.split(part(x, "ffn_gate_up_exps"), 2)
            if not self.does("gate first"):
                gate, up = up, gate
        else:
            up = part(x, "ffn_up_exps")
            gate = part(x, "ffn_gate_exps") if self.has(f"{p}ffn_gate_exps.weight") else up
        y = part(act(gate, up), "ffn_down_exps")
        scale = self.t.get(f"{p}ffn_down_exps.scale")
        return y if scale is None or not self.does("expert scales") else y * scale[e]


def without_ties(made: Made, tokens: Sequence[int], least: float = 5e-4) -> list[int]:
    """The text with other tokens where a choice would hang on rounding.

    A row's choice depends on its token and on rows before it, so what was settled stays.
    """
    text = list(tokens)
    while True:
        net = Net(made)
        net.logits(text)
        near = [row for row, gap in net.closest.items() if gap < least]
        if not near:
            return text
        text[min(near)] = (text[min(near)] + 1) % (N_VOCAB - 2)

"""Gated delta nets (Yang 2024) and Kimi delta attention (2025) as records, and the nodes that they emit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import MAX_TAPS
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

MAX_STATE_DIM: Final = 256
"""Elements of a head's key and value: beyond, a head's state leaves the caches of a core."""
MAX_HEADS: Final = 1024

LAYERS: Final = "delta net"
"""The kind of layer, in messages."""


@dataclass(frozen=True)
class DeltaNetSizes:
    """Sizes of a layer. Key and value heads have `head_dim` elements; taps: of the convolution, the present included.

    Raises `ModelError` with the numbers.
    """

    n_k_heads: int
    n_v_heads: int
    head_dim: int
    taps: int

    def __post_init__(self) -> None:
        if self.n_v_heads % self.n_k_heads:
            raise ModelError(f"{self.n_v_heads} value heads are no multiple of {self.n_k_heads} key heads")
        for value, least, most, what in (
            (self.head_dim, 1, MAX_STATE_DIM, "elements of a delta net's head"),
            (self.n_v_heads, 1, MAX_HEADS, "value heads of a delta net"),
            (self.taps, 2, MAX_TAPS, "taps of a delta net's convolution"),
        ):
            if not least <= value <= most:
                raise ModelError(f"{value} {what} are not supported; {least} to {most} are")

    @classmethod
    def from_keys(cls, keys: Keys) -> DeltaNetSizes:
        """Read `ssm.*`. Raises `ModelError`."""
        dim, inner = keys.integer("ssm.state_size"), keys.integer("ssm.inner_size")
        n_k, n_v = keys.integer("ssm.group_count"), keys.integer("ssm.time_step_rank")
        if inner != dim * n_v:
            raise ModelError(
                f"{keys.name('ssm.inner_size')} is {inner}; {n_v} value heads ({keys.name('ssm.time_step_rank')}) of"
                f" {dim} elements ({keys.name('ssm.state_size')}) are {dim * n_v}"
            )
        return cls(n_k, n_v, dim, keys.integer("ssm.conv_kernel"))

    @property
    def key_width(self) -> int:
        """Elements of all key heads of a row."""
        return self.n_k_heads * self.head_dim

    @property
    def value_width(self) -> int:
        """Elements of all value heads of a row."""
        return self.n_v_heads * self.head_dim

    @property
    def channels(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_width + self.value_width


@dataclass(frozen=True)
class DeltaNetSpec:
    """A gated delta net: projections, a convolution of each channel, the delta rule, a gated norm, the output.

    pairing: which key head a value head uses, as `ssm_delta_net` has it. Decay and strength come from `ssm_alpha` and
    `ssm_beta`, or from `ssm_ba`, whose rows hold, for each key head, the strengths of its value heads and then their
    decays. Queries, keys, values and the gate of the output come from `attn_qkv` and `attn_gate`, or from `ssm_in`,
    whose rows hold them for each key head in turn, as the first converters left them. gate: what the gate of the output
    goes through, "silu" or "sigmoid".
    """

    sizes: DeltaNetSizes
    pairing: str
    gate: str = "silu"

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, s = f"blk.{layer}", self.sizes
        x, z = self._inputs(parts, h, p)
        alpha, beta = self._rates(parts, h, p)
        rows = parts.in_order()
        kept = parts.states.of_sequence(LAYERS, layer, "conv_state", (s.taps - 1, s.channels))
        taps = parts.weight(f"{p}.ssm_conv1d.weight", s.channels, s.taps, plain=True)
        u = parts.temp(f"{p}.ssm_conv1d", s.channels)
        parts.g.node(Op.SSM_CONV1D, [x, taps, kept, *rows], [u, kept], f"{p}.ssm_conv1d.conv")
        state = parts.states.of_sequence(LAYERS, layer, "delta_state", (s.n_v_heads, s.head_dim, s.head_dim))
        factors = [parts.weight(f"{p}.{name}", s.n_v_heads) for name in ("ssm_a", "ssm_dt.bias")]
        o = parts.temp(f"{p}.delta_net", s.value_width)
        parts.g.node(
            Op.SSM_DELTA_NET, [u, alpha, beta, *factors, state, *rows], [o, state], f"{p}.ssm_delta_net",
            n_k_heads=s.n_k_heads, n_v_heads=s.n_v_heads, head_dim=s.head_dim, eps=parts.eps, pairing=self.pairing,
        )  # fmt: skip
        return parts.project(_gated_norm(parts, o, z, p, s, self.gate), f"{p}.ssm_out", parts.info.n_embd)

    def _inputs(self, parts: GraphParts, h: BufferId, p: str) -> tuple[BufferId, BufferId]:
        """What the convolution reads, f32[n_rows, channels], and the gate of the output, f32[n_rows, value_width]."""
        s, whole = self.sizes, f"{p}.ssm_in.weight"
        if not parts.has(whole):
            return (
                parts.project(h, f"{p}.attn_qkv", s.channels),
                parts.project(h, f"{p}.attn_gate", s.value_width),
            )
        d = s.head_dim
        values = s.n_v_heads // s.n_k_heads * d  # of a key head
        period = 2 * d + 2 * values
        shape = (s.n_k_heads * period, parts.width(h))
        qkv = parts.gathered_rows(whole, shape, period, [(0, d), (d, 2 * d), (2 * d, 2 * d + values)])
        z = parts.weight_rows(whole, shape, 2 * d + values, period, period=period)
        return parts.product(h, qkv, f"{p}.attn_qkv"), parts.product(h, z, f"{p}.attn_gate")

    def _rates(self, parts: GraphParts, h: BufferId, p: str) -> tuple[BufferId, BufferId]:
        """What decay and strength come from, f32[n_rows, n_v_heads] each."""
        n_k, n_v = self.sizes.n_k_heads, self.sizes.n_v_heads
        both = f"{p}.ssm_ba.weight"
        if not parts.has(both):
            return parts.project(h, f"{p}.ssm_alpha", n_v), parts.project(h, f"{p}.ssm_beta", n_v)
        share, shape = n_v // n_k, (2 * n_v, parts.width(h))
        beta, alpha = (
            parts.product(
                h, parts.weight_rows(both, shape, i * share, (i + 1) * share, period=2 * share), f"{p}.ssm_ba.{i}"
            )
            for i in range(2)
        )
        return alpha, beta


@dataclass(frozen=True)
class KimiDeltaSpec:
    """Kimi delta attention: a delta net with a decay for each key channel, whose queries, keys and values are made, and
    go through convolutions, each by themselves; the output's gate is a sigmoid.

    sizes: of as many key heads as value heads. lower_bound: of the logarithm of decays, which are a sigmoid's then;
    None for a softplus. What decays and the gate come from are projections `ssm_f_a` and `ssm_g_a`, or products of two
    of low rank, where the file has `ssm_f_b` and `ssm_g_b`.
    """

    sizes: DeltaNetSizes
    lower_bound: float | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, s = f"blk.{layer}", self.sizes
        # All products with h first: what nothing stands between, a backend computes together.
        qkv = self._projections(parts, h, p)
        rates, gate = (self._narrow(parts, h, f"{p}.ssm_{part}") for part in "fg")
        beta = parts.project(h, f"{p}.ssm_beta", s.n_v_heads)
        u = self._convolved(parts, qkv, p, layer)
        alpha, z = (self._widened(parts, x, f"{p}.ssm_{part}") for part, x in (("f", rates), ("g", gate)))
        factors = [parts.weight(f"{p}.ssm_a", s.n_v_heads, plain=True), parts.weight(f"{p}.ssm_dt.bias", s.value_width)]
        state = parts.states.of_sequence(LAYERS, layer, "delta_state", (s.n_v_heads, s.head_dim, s.head_dim))
        o = parts.temp(f"{p}.delta_net", s.value_width)
        bound = {} if self.lower_bound is None else {"lower_bound": self.lower_bound}
        parts.g.node(
            Op.SSM_DELTA_NET, [u, alpha, beta, *factors, state, *parts.in_order()], [o, state], f"{p}.ssm_delta_net",
            n_k_heads=s.n_k_heads, n_v_heads=s.n_v_heads, head_dim=s.head_dim, eps=parts.eps, pairing="block",
            decay="channel", **bound,
        )  # fmt: skip
        return parts.project(_gated_norm(parts, o, z, p, s, "sigmoid"), f"{p}.attn_output", parts.info.n_embd)

    def _projections(self, parts: GraphParts, h: BufferId, p: str) -> list[BufferId]:
        """What queries, keys and values are made from, f32[n_rows, key_width] each."""
        n, whole = self.sizes.key_width, f"{p}.attn_qkv"
        if parts.has(f"{whole}.weight"):
            return parts.split_project(h, whole, (n, n, n))
        return [parts.project(h, f"{p}.attn_{part}", n) for part in "qkv"]

    def _convolved(self, parts: GraphParts, qkv: list[BufferId], p: str, layer: int) -> BufferId:
        """Queries, keys and values, f32[n_rows, channels]."""
        s, names = self.sizes, [f"{p}.ssm_conv1d_{part}.weight" for part in "qkv"]
        kept = parts.states.of_sequence(LAYERS, layer, "conv_state", (s.taps - 1, s.channels))
        taps = parts.stacked(f"{p}.ssm_conv1d.weight", names, s.key_width, s.taps)
        u = parts.temp(f"{p}.ssm_conv1d", s.channels)
        parts.g.node(
            Op.SSM_CONV1D, [*qkv, taps, kept, *parts.in_order()], [u, kept], f"{p}.ssm_conv1d.conv", apart=True
        )
        return u

    def _narrow(self, parts: GraphParts, h: BufferId, name: str) -> BufferId:
        """The product with `name`_a, of low rank if another follows."""
        s = self.sizes
        return parts.project(h, f"{name}_a", s.head_dim if parts.has(f"{name}_b.weight") else s.value_width)

    def _widened(self, parts: GraphParts, x: BufferId, name: str) -> BufferId:
        """The product with `name`_b, where the file has it: f32[n_rows, value_width]."""
        return parts.project(x, f"{name}_b", self.sizes.value_width) if parts.has(f"{name}_b.weight") else x


def _gated_norm(parts: GraphParts, o: BufferId, z: BufferId, p: str, sizes: DeltaNetSizes, gate: str) -> BufferId:
    """The norm of each head of o by `ssm_norm`, times the gate's activation of z."""
    y, weight = parts.temp(f"{p}.ssm_norm", sizes.value_width), parts.weight(f"{p}.ssm_norm.weight", sizes.head_dim)
    parts.g.node(
        Op.SSM_GATED_NORM, [o, z, weight], [y], f"{p}.ssm_gated_norm", eps=parts.eps, n_heads=sizes.n_v_heads,
        head_dim=sizes.head_dim, activation=gate,
    )  # fmt: skip
    return y

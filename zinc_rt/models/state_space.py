"""Layers of selective state space models, Mamba (Gu 2023) and Mamba 2 (Dao 2024), as records, and what they emit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.config import MAX_TAPS
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

MAX_STATE_SIZE: Final = 256
"""Elements of the state of a channel: kernels are compiled for their number."""
MAX_HEADS: Final = 1024

LAYERS: Final = "state space"
"""The kind of layer, in messages."""


@dataclass(frozen=True)
class ScanSizes:
    """Sizes of a layer. inner: channels, all heads together; a group of heads shares what is written and read of a
    state of `state_size` elements for each channel. taps: of the convolution, the present included.

    Raises `ModelError` with the numbers.
    """

    inner: int
    n_heads: int
    n_groups: int
    state_size: int
    taps: int

    def __post_init__(self) -> None:
        for what, parts in (("heads", self.n_heads), ("groups", self.n_groups)):
            if self.inner % parts:
                raise ModelError(f"{self.inner} channels of a state space layer are no multiple of {parts} {what}")
        if self.n_heads % self.n_groups:
            raise ModelError(f"{self.n_heads} heads of a state space layer are no multiple of {self.n_groups} groups")
        if self.n_heads > MAX_HEADS:
            raise ModelError(f"{self.n_heads} heads of a state space layer are not supported; at most {MAX_HEADS} are")
        check_state(self.state_size, self.taps)

    @classmethod
    def from_keys(cls, keys: Keys) -> ScanSizes:
        """Read `ssm.*`. Raises `ModelError`."""
        names = ("inner_size", "time_step_rank", "group_count", "state_size", "conv_kernel")
        return cls(*(keys.integer(f"ssm.{name}") for name in names))

    @property
    def channels(self) -> int:
        """Channels of the convolution: inputs, and what each group writes and reads."""
        return self.inner + 2 * self.n_groups * self.state_size


@dataclass(frozen=True)
class Mamba2Spec:
    """Mamba 2: a projection to gate, inputs and step sizes; a convolution of each channel; the scan; the gate, then the
    norm of groups; the output. norm, conv_bias: True needs `ssm_norm`, the convolution's bias; None takes it where the
    file has it.
    """

    sizes: ScanSizes
    norm: bool | None = True
    conv_bias: bool | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, s = f"blk.{layer}", self.sizes
        z, entered, dt = parts.split_project(h, f"{p}.ssm_in", (s.inner, s.channels, s.n_heads))
        u = convolution(parts, entered, layer, s.taps, bias=self.conv_bias)
        state = parts.states.of_sequence(LAYERS, layer, "scan_state", (s.n_heads, s.state_size, s.inner // s.n_heads))
        factors = [
            parts.weight(f"{p}.ssm_a", s.n_heads, 1, plain=True),
            parts.weight(f"{p}.ssm_dt.bias", s.n_heads),
            parts.weight(f"{p}.ssm_d", s.n_heads, 1, plain=True),
        ]
        y = parts.temp(f"{p}.ssm_scan", s.inner)
        parts.g.node(
            Op.SSM_SCAN, [u, dt, *factors, state, *parts.in_order()], [y, state], f"{p}.ssm_scan.scan",
            n_heads=s.n_heads, head_dim=s.inner // s.n_heads, n_groups=s.n_groups, state_size=s.state_size,
        )  # fmt: skip
        return parts.project(self._gated(parts, y, z, p), f"{p}.ssm_out", parts.info.n_embd)

    def _gated(self, parts: GraphParts, y: BufferId, z: BufferId, p: str) -> BufferId:
        s, name = self.sizes, f"{p}.ssm_norm.weight"
        if not self.norm and not parts.has(name):
            return parts.gate(z, y, f"{p}.ssm_gated")
        sizes = {"n_heads": s.n_groups, "head_dim": s.inner // s.n_groups}
        out = parts.temp(f"{p}.ssm_norm", s.inner)
        inputs = [y, z, parts.weight(name, *sizes.values(), plain=True)]
        parts.g.node(Op.SSM_GATED_NORM, inputs, [out], f"{p}.ssm_gated_norm", eps=parts.eps, gate_first=True, **sizes)
        return out


@dataclass(frozen=True)
class MambaSpec:
    """Mamba 1: each of `inner` channels has a step size, and a decay for each of `state_size` elements of its state.

    rank: elements that step sizes are projected from. taps: of the convolution, the present included. norm: whether
    these elements, and what is written and read, are normed. norm_weights: whether these norms have weights.

    Raises `ModelError` with the numbers.
    """

    inner: int
    rank: int
    state_size: int
    taps: int
    norm: bool = False
    norm_weights: bool = False

    def __post_init__(self) -> None:
        check_state(self.state_size, self.taps)

    @classmethod
    def from_keys(cls, keys: Keys, *, norm: bool = False) -> MambaSpec:
        """Read `ssm.*`. norm: whether files have norms with weights, and do not say so. Raises `ModelError`."""
        names = ("inner_size", "time_step_rank", "state_size", "conv_kernel")
        inner, rank, state_size, taps = (keys.integer(f"ssm.{name}") for name in names)
        return cls(inner, rank, state_size, taps, norm or keys.flag("ssm.dt_b_c_rms", False), norm)

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, n, size = f"blk.{layer}", self.inner, self.state_size
        entered, z = parts.split_project(h, f"{p}.ssm_in", (n, n))
        x = convolution(parts, entered, layer, self.taps, bias=True)
        given = parts.split_project(x, f"{p}.ssm_x", (self.rank, size, size))
        if self.norm:
            names = (f"{p}.ssm_{of}_norm" for of in ("dt", "b", "c"))
            given = [
                parts.head_norm(v, name, 1, parts.width(v), weight=self.norm_weights)
                for v, name in zip(given, names, strict=True)
            ]
        low, b, c = given
        dt = parts.project(low, f"{p}.ssm_dt", n, bias=True)
        decays, skip = parts.table(f"{p}.ssm_a", size), parts.vector(f"{p}.ssm_d", n)
        if skip is None or len(decays) != n:
            raise ModelError(f"{p} needs tensors ssm_a and ssm_d with a row for each of {n} channels")
        rates = np.ascontiguousarray(np.vstack([decays.T, skip]))
        factors = parts.constant(f"{p}.ssm_rates", rates.shape, lambda n_ctx: rates)
        state = parts.states.of_sequence(LAYERS, layer, "scan_state", (size, n))
        y = parts.temp(f"{p}.ssm_scan", n)
        parts.g.node(
            Op.SSM_SCAN, [x, b, c, dt, factors, state, *parts.in_order()], [y, state], f"{p}.ssm_scan.scan",
            head_dim=n, state_size=size, per_channel=True,
        )  # fmt: skip
        return parts.project(parts.gate(z, y, f"{p}.ssm_gated"), f"{p}.ssm_out", parts.info.n_embd)


def check_state(state_size: int, taps: int) -> None:
    """Raise `ModelError` for sizes that kernels are not compiled for."""
    for value, least, most, what in (
        (state_size, 1, MAX_STATE_SIZE, "elements of a channel's state"),
        (taps, 2, MAX_TAPS, "taps of a state space layer's convolution"),
    ):
        if not least <= value <= most:
            raise ModelError(f"{value} {what} are not supported; {least} to {most} are")


def convolution(parts: GraphParts, x: BufferId, layer: int, n_taps: int, *, bias: bool | None) -> BufferId:
    """The causal convolution of each channel of x by `ssm_conv1d`, then silu. bias: True needs it, None takes the
    file's.
    """
    p, n = f"blk.{layer}", parts.width(x)
    kept = parts.states.of_sequence(LAYERS, layer, "conv_state", (n_taps - 1, n))
    taps, tensor = parts.weight(f"{p}.ssm_conv1d.weight", n, n_taps, plain=True), f"{p}.ssm_conv1d.bias"
    biases = [parts.weight(tensor, n)] if bias or parts.has(tensor) else []
    y = parts.temp(f"{p}.ssm_conv1d", n)
    parts.g.node(Op.SSM_CONV1D, [x, taps, kept, *parts.in_order(), *biases], [y, kept], f"{p}.ssm_conv1d.conv")
    return y

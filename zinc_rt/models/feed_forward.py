"""Feed-forward parts as records, and the nodes that they emit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zinc_rt.ir.graph import BufferId
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class FeedForwardSpec:
    """A dense feed-forward: gate, up, the activation of both, down; or up, its activation, down.

    n_ff: elements between. bias: of all products; True needs them, False has none, None takes those that the file has.
    activation: of the gate, one of `numerics.ACTIVATIONS`. limit: of "silu_clamped". gate_up: a tensor with the rows of
    the gate and then those of up, for files without two tensors; the default is `ffn_up`, if it has rows for both.
    suffix: ends the names of the tensors. gated: False for one without a gate, whose activation is one of
    `numerics.UNGATED`. numbers: what that takes.
    """

    n_ff: int
    bias: bool | None = False
    activation: str = "silu"
    gate_up: str | None = None
    suffix: str = ""
    gated: bool = True
    numbers: Mapping[str, float] = field(default_factory=dict)
    limit: float | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, end = f"blk.{layer}", self.suffix
        act = f"{p}.ffn_act{end}"
        if not self.gated:
            up = parts.project(h, f"{p}.ffn_up{end}", self.n_ff, bias=self.bias)
            inner = parts.activate(up, act, self.activation, **self.numbers)
        else:
            gate_up = self._gate_up(parts, p)
            if gate_up is not None:
                gate, up = parts.split_project(h, f"{p}.{gate_up}", (self.n_ff, self.n_ff), bias=self.bias)
            else:
                gate = parts.project(h, f"{p}.ffn_gate{end}", self.n_ff, bias=self.bias)
                up = parts.project(h, f"{p}.ffn_up{end}", self.n_ff, bias=self.bias)
            inner = parts.gate(gate, up, act, activation=self.activation, limit=self.limit)
        return parts.project(inner, f"{p}.ffn_down{end}", parts.info.n_embd, bias=self.bias)

    def _gate_up(self, parts: GraphParts, p: str) -> str | None:
        """The tensor that holds gate and up; None where there are two."""
        if self.gate_up is not None:
            return self.gate_up
        up = f"ffn_up{self.suffix}"
        both = parts.file.tensors.get(f"{p}.{up}.weight")
        alone = both is not None and not parts.has(f"{p}.ffn_gate{self.suffix}.weight")
        return up if alone and both is not None and both.shape[0] == 2 * self.n_ff else None

"""Feed-forward parts as records, and the nodes that they emit."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class FeedForwardSpec:
    """A dense gated feed-forward: gate, up, the activation of both, down.

    n_ff: elements between. bias: of all three; True needs them, False has none, None takes those that the file has.
    activation: of the gate, one of `numerics.ACTIVATIONS`. limit: of "silu_clamped". gate_up: a tensor with the rows of
    the gate and then those of up, for files without two tensors; the default is `ffn_up`, if it has rows for both.
    suffix: ends the names of the three tensors.
    """

    n_ff: int
    bias: bool | None = False
    activation: str = "silu"
    gate_up: str | None = None
    suffix: str = ""
    limit: float | None = None

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p, end = f"blk.{layer}", self.suffix
        gate_up = self._gate_up(parts, p)
        if gate_up is not None:
            gate, up = parts.split_project(h, f"{p}.{gate_up}", (self.n_ff, self.n_ff), bias=self.bias)
        else:
            gate = parts.project(h, f"{p}.ffn_gate{end}", self.n_ff, bias=self.bias)
            up = parts.project(h, f"{p}.ffn_up{end}", self.n_ff, bias=self.bias)
        act = parts.gate(gate, up, f"{p}.ffn_act{end}", activation=self.activation, limit=self.limit)
        return parts.project(act, f"{p}.ffn_down{end}", parts.info.n_embd, bias=self.bias)

    def _gate_up(self, parts: GraphParts, p: str) -> str | None:
        """The tensor that holds gate and up; None where there are two."""
        if self.gate_up is not None:
            return self.gate_up
        up = f"ffn_up{self.suffix}"
        both = parts.file.tensors.get(f"{p}.{up}.weight")
        alone = both is not None and not parts.has(f"{p}.ffn_gate{self.suffix}.weight")
        return up if alone and both is not None and both.shape[0] == 2 * self.n_ff else None

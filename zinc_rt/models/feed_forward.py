"""Feed-forward parts as records, and the nodes that they emit."""

from __future__ import annotations

from dataclasses import dataclass

from zinc_rt.ir.graph import BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.parts import GraphParts


@dataclass(frozen=True)
class FeedForwardSpec:
    """A dense gated feed-forward: gate, up, the activation of both, down.

    n_ff: elements between. bias: of all three; True needs them, False has none, None takes those that the file has.
    activation: an operation of gate and up. gate_up: a tensor that holds the rows of the gate and then those of up
    (without biases), where the file has no two tensors. suffix: of the names of the three tensors.
    """

    n_ff: int
    bias: bool | None = False
    activation: Op = Op.SWIGLU
    gate_up: str | None = None
    suffix: str = ""

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `Part.emit`."""
        p = f"blk.{layer}"
        if self.gate_up is not None:
            gate, up = parts.split_project(h, f"{p}.{self.gate_up}", (self.n_ff, self.n_ff))
        else:
            gate = parts.project(h, f"{p}.ffn_gate{self.suffix}", self.n_ff, bias=self.bias)
            up = parts.project(h, f"{p}.ffn_up{self.suffix}", self.n_ff, bias=self.bias)
        act = parts.temp(f"{p}.ffn_act{self.suffix}", self.n_ff)
        parts.g.node(self.activation, [gate, up], [act], f"{p}.{self.activation.name.lower()}{self.suffix}")
        return parts.project(act, f"{p}.ffn_down{self.suffix}", parts.info.n_embd, bias=self.bias)

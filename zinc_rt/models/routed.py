"""Mixture-of-experts parts as records, the nodes that they emit, and the metadata keys that say their sizes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Final, TypeVar

import numpy as np

from zinc_rt.ir.graph import Attr, BufferId
from zinc_rt.ir.op import Op
from zinc_rt.models.blocks import BranchBody
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

MAX_EXPERTS: Final = 1024
"""Experts of a layer."""
MAX_USED: Final = 64
"""Experts that a row uses."""

GATING_FUNCTIONS: Final = {1: "softmax", 2: "sigmoid", 3: "softmax_chosen", 4: "sqrt_softplus"}
"""The values of `expert_gating_func` and the operation's names."""


@dataclass(frozen=True)
class Routing:
    """How many experts there are, how a row's are chosen and weighed; see "Mixture of experts" in docs/how/numerics.md.

    n_experts, n_used: of the layer, of a row. gating: one of `ir.ops.experts.GATINGS`. normalise: the chosen
    weights are made to sum to 1. scale: a factor of all weights. n_groups, n_groups_used: experts come from the best
    groups alone.

    Raises `ModelError` for counts that contradict each other, or are beyond `MAX_EXPERTS`, `MAX_USED`.
    """

    n_experts: int
    n_used: int
    gating: str = "softmax"
    normalise: bool = False
    scale: float = 1.0
    n_groups: int = 1
    n_groups_used: int = 1

    def __post_init__(self) -> None:
        e, k, groups, used = self.n_experts, self.n_used, self.n_groups, self.n_groups_used
        if e < 1 or not 1 <= k <= e:
            raise ModelError(f"expert_used_count is {k}, it must be between 1 and expert_count, which is {e}")
        if groups < 1 or e % groups:
            raise ModelError(f"expert_group_count is {groups}, it must divide expert_count, which is {e}")
        if not 1 <= used <= groups or k > e // groups * used:
            raise ModelError(
                f"expert_group_used_count is {used}, {k} experts cannot come from {used} of {groups} groups of"
                f" {e // groups}"
            )
        if e > MAX_EXPERTS or k > MAX_USED:
            raise ModelError(
                f"{k} of {e} experts for each row are not supported; at most {MAX_USED} of {MAX_EXPERTS} are"
            )

    @classmethod
    def from_keys(
        cls, keys: Keys, *, gating: str | None = None, normalise: bool | None = None, default: str = "softmax",
        n_used: int | None = None,
    ) -> Routing:  # fmt: skip
        """Read `expert_count`, `expert_used_count` and the rest.

        gating, normalise: what the architecture fixes; None for what the file says. default: the gating of files that
        say none. n_used: where layers differ in it. Raises `ModelError`.
        """
        function = keys.integer("expert_gating_func", 0, minimum=0, maximum=1 << 16)
        if gating is None and function and function not in GATING_FUNCTIONS:
            known = ", ".join(f"{number} ({name})" for number, name in GATING_FUNCTIONS.items())
            raise ModelError(
                f"{keys.name('expert_gating_func')} is {function}, which is not supported; supported are {known}"
            )
        scale = keys.number("expert_weights_scale", 0.0)
        groups = keys.integer("expert_group_count", 0, minimum=0) or 1
        used = keys.integer("expert_group_used_count", 0, minimum=0)
        return cls(
            n_experts=keys.integer("expert_count", minimum=0),
            n_used=keys.integer("expert_used_count", minimum=0) if n_used is None else n_used,
            gating=gating or GATING_FUNCTIONS.get(function, default),
            normalise=keys.flag("expert_weights_norm", False) if normalise is None else normalise,
            scale=scale or 1.0,
            n_groups=groups,
            n_groups_used=1 if groups == 1 and not used else used,
        )


@dataclass(frozen=True)
class RoutedSpec:
    """A feed-forward of experts: each row uses some of them, and all rows use the shared one, if there is one.

    n_ff: elements between gate and down of an expert. bias: of the experts' gate, up and down; router_bias: of the
    router; True needs it, False has none, None takes the file's. selection_bias (`exp_probs_b`) and expert_scale (a
    factor for each expert, `ffn_down_exps.scale`) are chosen in the same way. Gate and up are read from
    `ffn_gate_up_exps` if the file has it. shared: the shared expert, a feed-forward whose tensors end in `_shexp`.
    shared_gate: whether a gate for each row multiplies it, `ffn_gate_inp_shexp`; True, False or None as for bias.
    activation, limit: as of `FeedForwardSpec`. gated: False for experts without a gate: up stands for it, so that the
    activation "relu" squares, and "gelu_alone" is one of up. weigh_inputs: the weight of a row's expert, of which it
    uses one, multiplies what the expert reads instead of what it gives. by_token: a row's experts are those that the
    table `ffn_gate_tid2eid` has for its token; the router says their weights alone.
    """

    routing: Routing
    n_ff: int
    bias: bool | None = False
    router_bias: bool | None = False
    selection_bias: bool | None = False
    expert_scale: bool | None = False
    shared: BranchBody | None = None
    shared_gate: bool | None = False
    activation: str = "silu"
    gated: bool = True
    limit: float | None = None
    weigh_inputs: bool = False
    by_token: bool = False

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`. The router and the experts read the same rows."""
        return self.emit_routed(parts, h, self.logits(parts, h, layer), layer)

    def logits(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """The router's logits of rows, f32[n_rows, n_experts]."""
        return parts.project(h, f"blk.{layer}.ffn_gate_inp", self.routing.n_experts, bias=self.router_bias)

    def emit_routed(self, parts: GraphParts, h: BufferId, logits: BufferId, layer: int) -> BufferId:
        """The experts that the logits choose, over h, and the shared one: f32[n_rows, n_embd]."""
        p = f"blk.{layer}"
        ids, weights = self._choose(parts, logits, p)
        read = h
        if self.weigh_inputs:
            n, used = parts.width(h), self.routing.n_used
            if used != 1:
                raise ModelError(f"expert_used_count is {used}; of experts that weigh what they read, a row uses one")
            read, one = parts.temp(f"{p}.ffn_moe_in", n), parts.temp(f"{p}.ffn_moe_one", 1)
            parts.g.node(Op.MUL, [h, weights], [read], f"{p}.ffn_moe_in.mul", n_heads=1, head_dim=n)
            parts.g.node(Op.CLAMP, [weights], [one], f"{p}.ffn_moe_one.clamp", low=1.0, high=1.0)
            weights = one
        routed = self._experts(parts, read, ids, weights, p)
        if self.shared is None:
            return routed
        inputs = [routed, self.shared.emit(parts, h, layer)]
        gate = f"{p}.ffn_gate_inp_shexp.weight"
        if self._has(parts, gate, self.shared_gate):
            opened = parts.temp(f"{p}.ffn_gate_inp_shexp", 1)
            parts.g.node(Op.MATMUL, [h, parts.row(gate, parts.width(h))], [opened], f"{p}.ffn_gate_inp_shexp.matmul")
            inputs.append(opened)
        y = parts.temp(f"{p}.ffn_moe", parts.info.n_embd)
        parts.g.node(Op.SHARED_EXPERT, inputs, [y], f"{p}.shared_expert")
        return y

    @staticmethod
    def _has(parts: GraphParts, name: str, wanted: bool | None) -> bool:
        return bool(wanted) or (wanted is None and parts.has(name))

    def _choose(self, parts: GraphParts, logits: BufferId, p: str) -> tuple[BufferId, BufferId]:
        r, n = self.routing, self.routing.n_experts
        inputs, bias, scale = [logits], f"{p}.exp_probs_b.bias", f"{p}.ffn_down_exps.scale"
        scaled = self._has(parts, scale, self.expert_scale)
        more: dict[str, Attr] = {"by_token": True} if self.by_token else {}
        if self.by_token:
            inputs += [parts.step["token_ids"], self._experts_of_tokens(parts, p)]
        elif self._has(parts, bias, self.selection_bias):
            inputs.append(parts.weight(bias, n))
        elif scaled:  # the operation's inputs stand in order: a bias of zero changes no choice
            inputs.append(parts.constant(f"{p}.no_selection_bias", (n,), _zeros(n)))
        if scaled:
            inputs.append(parts.weight(scale, n))
        ids, weights = parts.places(f"{p}.ffn_moe_ids", r.n_used), parts.temp(f"{p}.ffn_moe_weights", r.n_used)
        parts.g.node(
            Op.MOE_GATE_TOPK, inputs, [ids, weights], f"{p}.moe_gate_topk", k=r.n_used, gating=r.gating,
            normalise=r.normalise, scale=r.scale, n_groups=r.n_groups, n_groups_used=r.n_groups_used, **more,
        )  # fmt: skip
        return ids, weights

    def _experts_of_tokens(self, parts: GraphParts, p: str) -> BufferId:
        """The table of experts by token as a constant, f32[n_vocab, n_used]. Raises `ModelError`."""
        name, n_used = f"{p}.ffn_gate_tid2eid.weight", self.routing.n_used
        ids = np.sort(parts.integers(name, parts.info.n_vocab, n_used), axis=1)
        if ids.min() < 0 or ids.max() >= self.routing.n_experts or (ids[:, 1:] == ids[:, :-1]).any():
            raise ModelError(
                f"tensor {name} does not name {n_used} different experts of {self.routing.n_experts} for each token"
            )
        return parts.constant(f"{p}.ffn_experts_of_tokens", ids.shape, lambda n_ctx: ids.astype(np.float32))

    def _experts(self, parts: GraphParts, h: BufferId, ids: BufferId, weights: BufferId, p: str) -> BufferId:
        n_embd, width = parts.width(h), self.routing.n_used * self.n_ff
        gate, up, act = (parts.temp(f"{p}.ffn_moe_{name}", width) for name in ("gate", "up", "act"))
        parts.g.node(Op.MOE_GATE_UP, [h, ids, *self._gate_up(parts, parts.width(h), p)], [gate, up], f"{p}.moe_gate_up")
        attrs: dict[str, Attr] = {} if self.activation == "silu" else {"activation": self.activation}
        if self.limit is not None:
            attrs["limit"] = self.limit
        parts.g.node(Op.MOE_SWIGLU, [gate, up], [act], f"{p}.moe_swiglu", **attrs)
        down = [parts.weight(f"{p}.ffn_down_exps.weight", self.routing.n_experts, n_embd, self.n_ff)]
        down += self._biases(parts, p, "ffn_down_exps", n_embd)
        y = parts.temp(f"{p}.ffn_moe_out", n_embd)
        parts.g.node(Op.MOE_DOWN_ACC, [act, ids, weights, *down], [y], f"{p}.moe_down_acc")
        return y

    def _gate_up(self, parts: GraphParts, n_in: int, p: str) -> list[BufferId]:
        """The matrices of gate and up, then their biases."""
        e, f, fused = self.routing.n_experts, self.n_ff, f"{p}.ffn_gate_up_exps"
        if not parts.has(f"{fused}.weight"):
            names = [f"{p}.ffn_{'gate' if self.gated else 'up'}_exps", f"{p}.ffn_up_exps"]
            matrices = [parts.weight(f"{name}.weight", e, f, n_in) for name in names]
            biases = [bias for name in names for bias in self._biases(parts, "", name, f)]
            if len(biases) == 1:
                raise ModelError(f"{p} has a bias of one of ffn_gate_exps and ffn_up_exps alone")
            return matrices + biases
        matrices = [parts.weight_rows(f"{fused}.weight", (e, 2 * f, n_in), i * f, (i + 1) * f) for i in range(2)]
        if self._has(parts, f"{fused}.bias", self.bias):
            raise ModelError(f"tensor {fused}.bias is not supported; the biases of gate and up apart are")
        return matrices

    def _biases(self, parts: GraphParts, p: str, name: str, n: int) -> list[BufferId]:
        full = f"{p}.{name}.bias" if p else f"{name}.bias"
        return [parts.weight(full, self.routing.n_experts, n, plain=True)] if self._has(parts, full, self.bias) else []


def _zeros(n: int) -> Callable[[int], np.ndarray[tuple[int], np.dtype[np.float32]]]:
    return lambda n_ctx: np.zeros(n, np.float32)


def expert_width(keys: Keys, n_used: int) -> int:
    """Elements between of an expert; files without the key give those of a row's experts together.

    Raises `ModelError`.
    """
    if keys.has("expert_feed_forward_length"):
        return keys.integer("expert_feed_forward_length")
    n_ff = keys.integer("feed_forward_length")
    if n_ff % n_used:
        raise ModelError(
            f"{keys.name('feed_forward_length')} is {n_ff}, not a multiple of the {n_used} experts of a row"
        )
    return n_ff // n_used


LEAST_LIMIT: Final = 1e-6
"""A limit of an activation that is not above it is none."""

Part = TypeVar("Part", FeedForwardSpec, RoutedSpec)


def clamp_limits(keys: Keys, key: str, n_layers: int, n_blocks: int | None = None) -> tuple[float, ...]:
    """The limit of the activation of each block, 0 for none. n_blocks: those that draft included, which the file may
    leave out; None where there are none. Raises `ModelError`.
    """
    n_blocks = n_layers if n_blocks is None else n_blocks
    if not keys.has(key):
        return (0.0,) * n_blocks
    if not keys.is_list(key):
        return (keys.number(key),) * n_blocks
    given = n_blocks if keys.length(key) == n_blocks else n_layers
    return keys.numbers(key, given) + (0.0,) * (n_blocks - given)


def clamped(part: Part, limit: float, activation: str = "silu_clamped") -> Part:
    """The part with its activation held under a limit; as it is where the limit is none."""
    return part if limit <= LEAST_LIMIT else replace(part, activation=activation, limit=limit)

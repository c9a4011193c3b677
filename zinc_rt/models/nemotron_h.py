"""`nemotron_h`, `nemotron_h_moe`: Nemotron-H and Nemotron 3. A layer has one mixer: a state space, attention without a
rotation, or a feed-forward of squared rectifiers, with experts in the second name.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.graph import BufferId
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import BlockSpec, Branch, BranchBody, Layer, decoder, pre_norm_block
from zinc_rt.models.config import HeadSizes, read_info
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.routed import RoutedSpec, Routing
from zinc_rt.models.state_space import Mamba2Spec, ScanSizes

NAMES = ("nemotron_h", "nemotron_h_moe")


def _squared(n_ff: int, suffix: str = "") -> FeedForwardSpec:
    """down max(up h, 0)^2, with the biases that the file has."""
    return FeedForwardSpec(n_ff, bias=None, activation="relu2", gated=False, suffix=suffix)


@dataclass(frozen=True)
class LatentExperts:
    """Experts over rows that a projection made narrower. The router and the shared expert read the rows as they are.

    width: of the latent rows.
    """

    routed: RoutedSpec
    shared: BranchBody
    width: int

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """See `BranchBody.emit`."""
        p = f"blk.{layer}"
        latent = parts.project(h, f"{p}.ffn_latent_down", self.width)
        y = self.routed.emit_routed(parts, latent, self.routed.logits(parts, h, layer), layer)
        y = parts.project(y, f"{p}.ffn_latent_up", parts.info.n_embd)
        return parts.add(y, self.shared.emit(parts, h, layer), f"{p}.ffn_moe")


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    parts, n_drafts, block = _read(file, name)
    leave_drafts(parts, n_drafts)
    return decoder(parts, [block(layer) for layer in range(parts.info.n_layers)])


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`. Blocks without experts are not known."""
    if name != "nemotron_h_moe":
        return None
    parts, n_drafts, block = _read(file, name)
    eps = Keys(file.metadata, name).number("attention.layer_norm_epsilon", parts.eps)
    return draft_head(parts, block(parts.info.n_layers), layer_norm_eps=eps) if n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Callable[[int], Layer]]:
    """An empty graph, how many blocks draft, and what a block is by its number."""
    keys = Keys(file.metadata, name)
    info = read_info(file, keys)
    n_blocks, n_drafts = info.n_layers, count_drafts(keys, info.n_layers)
    n_layers = n_blocks - n_drafts
    heads = HeadSizes.of_hybrid(keys, info.n_embd, n_blocks)
    widths = keys.integers("feed_forward_length", n_blocks, minimum=0)
    rms = "attention.layer_norm_rms_epsilon"
    eps = keys.number(rms if keys.has(rms) else "attention.layer_norm_epsilon")
    attends = [sizes is not None and not n_ff for sizes, n_ff in zip(heads, widths, strict=True)]
    paged = any(attends[:n_layers]) or n_drafts > 0
    parts = GraphParts(file, replace(info, n_layers=n_layers), eps, paged=paged)
    mamba, scale = Mamba2Spec(ScanSizes.from_keys(keys)), keys.number("attention.scale", 0.0) or None
    experts = _experts(keys, n_blocks, widths) if name == "nemotron_h_moe" else None

    def attention(layer: int) -> BranchBody:
        sizes = heads[layer]
        return mamba if sizes is None else AttentionSpec(sizes, None, out_bias=None, scale=scale)

    def feed_forward(layer: int) -> BranchBody:
        return _squared(widths[layer]) if experts is None else experts[layer]

    def block(layer: int) -> Layer:
        if layer >= n_layers:  # one that drafts has both
            return pre_norm_block(attention(layer), feed_forward(layer), ffn_norm="post_attention_norm")
        mixer = feed_forward(layer) if widths[layer] else attention(layer)
        return BlockSpec((Branch("attn", mixer, "attn_norm"),))

    return parts, n_drafts, block


def _experts(keys: Keys, n_layers: int, n_ff: tuple[int, ...]) -> list[BranchBody]:
    """The routed feed-forward of each layer. n_ff: of all experts of a row, where the file does not say it of one."""
    used = keys.integers("expert_used_count", n_layers, minimum=0)
    of_one = "expert_feed_forward_length"
    widths = keys.integers(of_one, n_layers, minimum=0) if keys.has(of_one) else None
    shared = keys.integers("expert_shared_feed_forward_length", n_layers, minimum=0)
    latent = keys.integer("moe_latent_size", 0, minimum=0)

    def layer(i: int) -> BranchBody:
        if widths is None and n_ff[i] % used[i]:
            raise ModelError(
                f"{keys.name('feed_forward_length')} is {n_ff[i]} in layer {i}, not a multiple of the {used[i]} experts"
                " of a row"
            )
        routing = Routing.from_keys(keys, gating="sigmoid", n_used=used[i])
        width = n_ff[i] // used[i] if widths is None else widths[i]
        always = _squared(shared[i], suffix="_shexp")
        spec = RoutedSpec(
            routing, width, selection_bias=True, shared=None if latent else always, activation="relu", gated=False
        )
        return LatentExperts(spec, always, latent) if latent else spec

    nothing = _squared(0)
    return [layer(i) if n_ff[i] else nothing for i in range(n_layers)]

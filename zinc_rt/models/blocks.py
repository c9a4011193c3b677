"""A decoder as data: records of a block's parts, and the one function that emits a list of blocks.

    block = pre_norm_block(AttentionSpec(heads, rotation), FeedForwardSpec(n_ff))
    definition = decoder(parts, [block] * n_layers)

If these records do not suffice, the architecture's file has a class with the same `emit`: a `BranchBody` (h in, a
branch out), or a whole `Layer` over the residual stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from zinc_rt.ir.graph import BufferId
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.parts import GraphParts


class Residual:
    """The stream that blocks read and add to. A sum is emitted with the norm that follows it, where one does."""

    def __init__(self, parts: GraphParts, x: BufferId) -> None:
        self._parts, self._x = parts, x
        self._branch: tuple[BufferId, str] | None = None

    def add(self, branch: BufferId, sum_name: str) -> None:
        """x = x + branch; the sum is called `sum_name`."""
        self._x, self._branch = self.value(), (branch, sum_name)

    def norm(self, name: str) -> BufferId:
        """The norm of x by the tensor `name`.weight."""
        if self._branch is None:
            return self._parts.norm(self._x, name)
        branch, sum_name = self._branch
        self._x, y = self._parts.add_norm(self._x, branch, name, sum_name)
        self._branch = None
        return y

    def value(self) -> BufferId:
        """x as it is."""
        if self._branch is not None:
            self._x, self._branch = self._parts.add(self._x, *self._branch), None
        return self._x

    def replace(self, x: BufferId) -> None:
        """Go on with another x: a norm of the sum, or the sum scaled."""
        self._x, self._branch = x, None


class BranchBody(Protocol):
    """The computation of a branch."""

    def emit(self, parts: GraphParts, h: BufferId, layer: int) -> BufferId:
        """f32[n_rows, n_embd] from h, by the tensors blk.`layer`.*."""


class Layer(Protocol):
    """One layer."""

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """Read the stream and add to it, by the tensors blk.`layer`.*."""


@dataclass(frozen=True)
class Branch:
    """x = x + post_norm(part(norm(x))).

    name: of the sum, `blk.N.<name>_sum`. norm, post_norm: tensors without `blk.N.` and `.weight`; None for no norm.
    scale: a factor of what is added. post_eps: of the norm behind, None for the model's.
    """

    name: str
    part: BranchBody
    norm: str | None
    post_norm: str | None = None
    scale: float | None = None
    post_eps: float | None = None

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """The branch of block `layer`, added to the stream."""
        p = f"blk.{layer}"
        h = x.value() if self.norm is None else x.norm(f"{p}.{self.norm}")
        y = self.part.emit(parts, h, layer)
        if self.post_norm is not None:
            y = parts.norm(y, f"{p}.{self.post_norm}", eps=self.post_eps)
        if self.scale is not None:
            y = parts.scale(y, self.scale, f"{p}.{self.name}_scaled")
        x.add(y, f"{p}.{self.name}_sum")


@dataclass(frozen=True)
class BlockSpec:
    """A layer as branches, one after another."""

    branches: tuple[Branch, ...]

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Layer.emit`."""
        for branch in self.branches:
            branch.emit(parts, x, layer)


def pre_norm_block(
    attention: BranchBody, feed_forward: BranchBody, *, scale: float | None = None, ffn_norm: str = "ffn_norm"
) -> BlockSpec:
    """The usual block: a norm before each of the two branches, none behind. scale: of what both add. ffn_norm: the
    second norm's tensor.
    """
    return BlockSpec(
        (Branch("attn", attention, "attn_norm", scale=scale), Branch("ffn", feed_forward, ffn_norm, scale=scale))
    )


@dataclass(frozen=True)
class ParallelBlock:
    """x = x + attention(norm(x)) + feed_forward(norm(x)).

    attn_norm, ffn_norm: tensors without `blk.N.` and `.weight`; one for both, or one for each.
    """

    attention: BranchBody
    feed_forward: BranchBody
    attn_norm: str
    ffn_norm: str

    def emit(self, parts: GraphParts, x: Residual, layer: int) -> None:
        """See `Layer.emit`."""
        p = f"blk.{layer}"
        h = x.norm(f"{p}.{self.attn_norm}")
        f = h if self.ffn_norm == self.attn_norm else x.norm(f"{p}.{self.ffn_norm}")
        branches = self.attention.emit(parts, h, layer), self.feed_forward.emit(parts, f, layer)
        for branch, name in zip(branches, ("attn", "ffn"), strict=True):
            x.add(branch, f"{p}.{name}_sum")


def sandwich_block(
    attention: BranchBody, feed_forward: BranchBody, *, before: bool = True, post_eps: float | None = None
) -> BlockSpec:
    """Two branches with a norm behind each, and one before where `before`. post_eps: see `Branch`."""
    return BlockSpec(
        (
            Branch("attn", attention, "attn_norm" if before else None, "post_attention_norm", post_eps=post_eps),
            Branch("ffn", feed_forward, "ffn_norm" if before else None, "post_ffw_norm", post_eps=post_eps),
        )
    )


def decoder(
    parts: GraphParts,
    blocks: Sequence[Layer],
    *,
    output_norm: str = "output_norm",
    tied: bool | None = None,
    embedding_scale: float | None = None,
    embedding_norm: bool = False,
    logit_scale: float | None = None,
    logit_softcap: float | None = None,
    head_bias: bool = False,
) -> ModelDefinition:
    """The whole decode step: embedding, blocks, a last norm, head. An architecture with more writes these lines itself.

    Args:
        parts: with the architecture's constants declared.
        blocks: one for each layer; several may be one object.
        output_norm: the last norm's tensor without `.weight`.
        tied, logit_scale, logit_softcap, head_bias: see `GraphParts.head`.
        embedding_scale: a factor of the embedding's rows.
        embedding_norm: whether they are normed, without a weight.

    Raises:
        ModelError, UnsupportedTensorType: a tensor is missing, or is not as the metadata has it.
    """
    x = _stream(parts, blocks, embedding_scale, embedding_norm)
    h = parts.norm(x.value(), output_norm)
    parts.head(h, tied=tied, scale=logit_scale, softcap=logit_softcap, bias=head_bias)
    return parts.finish()


def encoder(
    parts: GraphParts,
    blocks: Sequence[Layer],
    *,
    output_norm: str = "output_norm",
    embedding_scale: float | None = None,
) -> ModelDefinition:
    """As `decoder`, but the rows after the last norm are the output: hidden states, from which vectors are made."""
    parts.hidden(_stream(parts, blocks, embedding_scale).value(), output_norm)
    return parts.finish()


def _stream(
    parts: GraphParts, blocks: Sequence[Layer], embedding_scale: float | None, embedding_norm: bool = False
) -> Residual:
    """The embedding and all blocks."""
    embedded = parts.embed()
    if embedding_norm:
        embedded = parts.norm(embedded, "embd_norm", weight=False)
    if embedding_scale is not None:
        embedded = parts.scale(embedded, embedding_scale, "embd_scaled")
    x = Residual(parts, embedded)
    for layer, block in enumerate(blocks):
        block.emit(parts, x, layer)
    return x

"""`glm4`: GLM-4-0414, GLM-Z1 and GLM-OCR's text. Norms before and behind both branches; a part of a head turns."""

from __future__ import annotations

from dataclasses import replace

from zinc_rt.gguf import GGUFFile
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Layer, decoder, sandwich_block
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.definition import ModelDefinition
from zinc_rt.models.drafts import count_drafts, draft_head, leave_drafts
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.keys import Keys
from zinc_rt.models.parts import GraphParts

NAMES = ("glm4",)


def define(file: GGUFFile, name: str) -> ModelDefinition:
    """See `Architecture.define`."""
    parts, n_drafts, block = _read(file, name)
    leave_drafts(parts, n_drafts)
    return decoder(parts, [block] * parts.info.n_layers)


def define_draft_head(file: GGUFFile, name: str) -> ModelDefinition | None:
    """See `models.define_draft_head`."""
    parts, n_drafts, block = _read(file, name)
    return draft_head(parts, block) if n_drafts else None


def _read(file: GGUFFile, name: str) -> tuple[GraphParts, int, Layer]:
    """An empty graph, how many blocks draft, and what a block is."""
    # Files with sections of positions for images have their pairs in halves.
    sections = f"{name}.rope.dimension_sections" in file.metadata
    info = DenseInfo.from_file(file, name, interleaved_rope=not sections)
    n_drafts = count_drafts(Keys(file.metadata, name), info.n_layers)
    parts = GraphParts(file, replace(info, n_layers=info.n_layers - n_drafts), info.eps)
    return (
        parts,
        n_drafts,
        sandwich_block(AttentionSpec(info.heads, parts.rotation(info.rope)), FeedForwardSpec(info.n_ff)),
    )

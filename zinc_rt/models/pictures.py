"""A decoder whose texts have pictures in them: rows that the caller brings stand in place of looked up embeddings.

`with_pictures` changes the graph that an architecture's file has made, so that no such file knows of pictures:

- `GIVEN_ROWS` follows the embedding, and with deepstack it follows the first layers, too.
- Where positions have sections (Qwen), rows turn by angles that the engine looks up: `ROTATE` in place of `ROPE`.
- Where the rows of a picture see each other both ways (Gemma), attention gets the last position that a row sees.

Rows of a text have the same bits as in the graph without pictures.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.builder import GraphBuilder
from zinc_rt.ir.graph import Attr, Buffer, BufferId, BufferKind, DType, Graph, Node
from zinc_rt.ir.op import Op
from zinc_rt.models.definition import BothWays, ModelDefinition, PictureInputs, Sections
from zinc_rt.models.errors import ModelError
from zinc_rt.models.hidden import IS_GIVEN, LAST_POSITIONS
from zinc_rt.models.keys import Keys

GIVEN: Final = "given"
"""A step input: f32[n_rows, n_embd * (1 + deepstack layers)], the rows of pictures."""
ROW_ANGLES: Final = "row_angles"
"""A step input of models whose positions have sections: f32[n_rows, 2 * pairs], cosine and sine of each pair."""


def with_pictures(definition: ModelDefinition, file: GGUFFile, n_deepstack: int) -> ModelDefinition:
    """The definition of a model that generates, for texts with pictures in them.

    Args:
        definition: the model's.
        file: its file.
        n_deepstack: layers behind which rows of a picture are added, of the projector.

    Raises:
        ModelError: the model takes another number of such layers, or its file does not say how positions turn.
    """
    n_embd, style = definition.info.n_embd, definition.picture_style
    keys = Keys(file.metadata, definition.info.architecture)
    wanted = keys.integer("n_deepstack_layers", 0, minimum=0)
    if wanted != n_deepstack:
        raise ModelError(
            f"the model adds rows of pictures behind {wanted} layers, the projector has rows for {n_deepstack}: it is"
            " the projector of another model"
        )
    rewriting = _Rewriting(definition.graph, n_embd * (1 + n_deepstack))
    constants, rotations, axes, table = dict(definition.constants), None, None, None
    if style.sections is not None:
        rotations = rewriting.rotations()
        axes = _axes(keys, int(rotations.shape[1]), style.sections)
        table = constants.pop(rotations.name)
    graph = rewriting.rewrite(n_embd, n_deepstack, rotations, style.both_ways)
    windows = [int(node.attrs["window"]) for node in definition.graph.nodes if "window" in node.attrs]
    inputs = PictureInputs(
        table=table,
        axes=axes,
        both_ways=style.both_ways is not None,
        max_rows=min(windows) if style.both_ways is not None and windows else None,
    )
    return replace(definition, graph=graph, constants=constants, pictures=inputs)


def _axes(keys: Keys, n_pairs: int, kind: Sections) -> npt.NDArray[np.int64]:
    """By what each pair of a head turns: 0 the time, 1 the line, 2 the column. i64[n_pairs].

    Pairs beyond the sections turn by the time, as for a text. Raises `ModelError`.
    """
    sections = [int(n) for n in keys.numbers("rope.dimension_sections", 4)]
    if sum(sections) > n_pairs:
        raise ModelError(f"{keys.name('rope.dimension_sections')} is {sections}, a head has {n_pairs} pairs")
    axes = np.zeros(n_pairs, np.int64)
    if kind is Sections.ALTERNATING:
        for axis in (1, 2):
            axes[axis : 3 * sections[axis] : 3] = axis
    else:
        first, second = sections[0], sections[0] + sections[1]
        axes[first:second], axes[second : second + sections[2]] = 1, 2
    return axes


@dataclass
class _Rewriting:
    """The graph of a decoder, and what is changed in it. n_given: elements of a given row."""

    graph: Graph
    n_given: int

    def rotations(self) -> Buffer:
        """The table of rotations, f32[n_ctx, pairs, 2]. Raises `ModelError` where layers have different ones."""
        tables = {node.inputs[2] for node in self.graph.nodes if node.op is Op.ROPE}
        if len(tables) != 1:
            raise ModelError(f"the graph has {len(tables)} rotations; with sections of positions one is needed")
        return self.graph.buffers[tables.pop()]

    def rewrite(self, n_embd: int, n_deepstack: int, rotations: Buffer | None, both_ways: BothWays | None) -> Graph:
        """The graph with pictures. rotations: the table in whose place rows bring their angles; None for no table."""
        g = GraphBuilder(self.graph.name, self.graph.meta)
        ids = {b.id: g.buffer(b.name, b.kind, b.dtype, b.shape) for b in self.graph.buffers if b is not rotations}
        given = g.buffer(GIVEN, BufferKind.INPUT, DType.F32, ("n_rows", self.n_given))
        is_given = g.buffer(IS_GIVEN, BufferKind.INPUT, DType.I32, ("n_rows",))
        embedded = self._embedded()
        angles = last = -1
        if rotations is not None:
            angles = g.buffer(ROW_ANGLES, BufferKind.INPUT, DType.F32, ("n_rows", 2 * int(rotations.shape[1])))
        if both_ways is not None:
            last = g.buffer(LAST_POSITIONS, BufferKind.INPUT, DType.I32, ("n_rows",))
        sums = {f"blk.{n}.ffn_sum": n + 1 for n in range(n_deepstack)}

        def place(x: BufferId, name: str, part: int) -> BufferId:
            """x with the given rows' part of that number in their places, or added to it."""
            y = g.buffer(name, BufferKind.TEMP, DType.F32, ("n_rows", n_embd))
            more = {"start": part * n_embd, "add": True} if part else {}
            g.node(Op.GIVEN_ROWS, [x, given, is_given], [y], name, **more)
            return y

        for node in self.graph.nodes:
            inputs, attrs, op = [ids.get(b, -1) for b in node.inputs], dict(node.attrs), node.op
            if rotations is not None and op is Op.ROPE:
                op, inputs = Op.ROTATE, [inputs[0], angles]
            if op is Op.FLASH_ATTN and (both_ways is BothWays.ALL or (both_ways is not None and "window" in attrs)):
                inputs, attrs = _seen(inputs, attrs, last)
            added = [sums.pop(b.name) for b in self._outputs(node) if b.name in sums]
            if added:  # to what the layer adds to the stream
                inputs[1] = place(inputs[1], f"{self.graph.buffers[node.outputs[0]].name}.given", added[0])
            outputs = [ids[b] for b in node.outputs]
            g.node(op, inputs, outputs, node.name, **attrs)
            if embedded in node.outputs:
                ids[embedded] = place(ids[embedded], "embd_given", 0)
        if sums:
            raise ModelError(f"the graph has no {min(sums)}, behind which rows of pictures are added")
        return g.build()

    def _outputs(self, node: Node) -> Iterator[Buffer]:
        return (self.graph.buffers[b] for b in node.outputs)

    def _embedded(self) -> BufferId:
        """The rows of token ids that enter the first layer, behind their scale where they have one."""
        (found,) = (n.outputs[0] for n in self.graph.nodes if n.op is Op.EMBED and n.name == "embed")
        readers = [node for node in self.graph.nodes if found in node.inputs]
        return readers[0].outputs[0] if len(readers) == 1 and readers[0].op is Op.SCALE else found


def _seen(inputs: list[BufferId], attrs: dict[str, Attr], last: BufferId) -> tuple[list[BufferId], dict[str, Attr]]:
    """Attention's inputs and attributes where rows see up to a last position beyond their own.

    A window then reaches as far behind a row as before it: farther than any picture, whose rows are bounded by it.
    """
    positions = inputs[3]
    window = attrs.pop("window", None)
    if window is None:
        return [*inputs[:3], last, *inputs[4:]], {**attrs, "whole": True}
    return [*inputs[:3], last, *inputs[4:6], positions], {**attrs, "reach": int(window) - 1}

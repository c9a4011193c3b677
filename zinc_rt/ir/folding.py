"""Equal layers of a graph: which runs of layers repeat, so that a drawing can show one of each run.

A layer is what has a name that starts with `blk.N.`. Two layers are equal when their nodes have the same operations,
attributes and names, and read alike: the same of their own layer, arrays of the same shape from before it. The types of
weights may differ, as they do in files of mixed formats.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from zinc_rt.ir.graph import Buffer, BufferKind, Graph, Node, frozen_items

LAYER: Final = re.compile(r"blk\.(\d+)\.")
_LONGEST: Final = 16
"""Layers that a repeated pattern may have at most."""


@dataclass(frozen=True)
class Run:
    """Layers that repeat: `period` of them from `first` on, `times` times."""

    first: int
    period: int
    times: int

    @property
    def layers(self) -> range:
        """All of them."""
        return range(self.first, self.first + self.period * self.times)

    def shown(self, layer: int) -> int:
        """The layer of the first repetition that this one equals."""
        return self.first + (layer - self.first) % self.period


def layer_of(name: str) -> int | None:
    """The layer of a node's or buffer's name; None for one outside of the layers."""
    found = LAYER.match(name)
    return int(found[1]) if found else None


def _layers(graph: Graph) -> dict[int, list[Node]]:
    """The nodes of each layer."""
    layers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        if (number := layer_of(node.name)) is not None:
            layers.setdefault(number, []).append(node)
    return layers


def equal_layers(graph: Graph) -> list[Run]:
    """Runs of layers, in order, that cover all of them; a layer that equals no neighbour is a run of its own."""
    layers = _layers(graph)
    writers = {out: node.id for node in graph.nodes for out in node.outputs}
    numbers = sorted(layers)
    signs = [_sign(graph, layers[number], number, writers) for number in numbers]
    runs, at = [], 0
    while at < len(numbers):
        run = max(
            (_repeats(signs, numbers, at, period) for period in range(1, _LONGEST + 1)),
            key=lambda run: (run.period * run.times if run.times > 1 else 1, -run.period),
        )
        run = run if run.times > 1 else Run(numbers[at], 1, 1)
        runs.append(run)
        at += run.period * run.times
    return runs


def _repeats(signs: list[object], numbers: list[int], at: int, period: int) -> Run:
    """How often the `period` layers at `at` follow each other; gaps in the numbers end it."""
    times = 1
    while True:
        end = at + period * (times + 1)
        if end > len(signs) or numbers[end - 1] - numbers[at] != end - 1 - at:
            return Run(numbers[at], period, times)
        if signs[end - period : end] != signs[at : at + period]:
            return Run(numbers[at], period, times)
        times += 1


def _sign(graph: Graph, nodes: list[Node], layer: int, writers: dict[int, int]) -> object:
    """What makes a layer equal to another."""
    index = {node.id: i for i, node in enumerate(nodes)}

    def read(buffer: Buffer) -> object:
        writer = writers.get(buffer.id)
        if writer in index:
            return index[writer], graph.nodes[writer].outputs.index(buffer.id)
        if writer is not None:  # by the layer before, or for the first one by what stands before the layers
            return buffer.dtype, buffer.shape
        kind = "" if buffer.kind is BufferKind.WEIGHT else buffer.dtype
        return buffer.kind, _relative(buffer.name, layer), kind, buffer.shape

    return [
        (
            node.op,
            _relative(node.name, layer),
            frozen_items(node.attrs),
            [read(graph.buffer(i)) for i in node.inputs],
            [(b.kind, b.dtype, b.shape) for b in map(graph.buffer, node.outputs)],
        )
        for node in nodes
    ]


def _relative(name: str, layer: int) -> str:
    """A name with its layer counted from this one."""
    return LAYER.sub(lambda found: f"blk.{int(found[1]) - layer:+d}.", name, count=1)


def representatives(graph: Graph, runs: Iterable[Run]) -> tuple[dict[int, int], dict[int, int]]:
    """For each node, and each buffer of a layer, the id of the one that a drawing shows in its place."""
    run_of = {layer: run for run in runs for layer in run.layers}
    layers = _layers(graph)
    nodes = {node.id: node.id for node in graph.nodes}
    buffers = {buffer.id: buffer.id for buffer in graph.buffers}
    for number, own in layers.items():
        shown = run_of[number].shown(number)
        for node, other in zip(own, layers[shown], strict=True):
            nodes[node.id] = other.id
            for side, other_side in ((node.inputs, other.inputs), (node.outputs, other.outputs)):
                for mine, its in zip(side, other_side, strict=True):
                    if layer_of(graph.buffer(mine).name) == number:
                        buffers[mine] = its
    return nodes, buffers

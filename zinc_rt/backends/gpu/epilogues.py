"""Epilogues: norms and sums behind a product, or behind the chosen experts, done by the last workgroup of the dispatch.

Example: the norm on a branch, the sum with the residual stream, and the norm before the next branch.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import FusedGraph, NormRows, Single
from zinc_rt.ir.graph import Node
from zinc_rt.ir.op import Op


class Epilogue(NamedTuple):
    """The norms and sums on the rows of a buffer y.

    before: at most two norms before the last step; the second one first adds another buffer. last: a sum and its norm,
    or a sum alone, or (if `before` is empty) a norm alone.
    """

    y: int
    before: tuple[NormRows, ...]
    last: NormRows | Single

    @property
    def node(self) -> Node:
        """The graph's node that names the last step."""
        return self.last.node

    @property
    def steps(self) -> tuple[NormRows | Single, ...]:
        """All of them, in order."""
        return (*self.before, self.last)

    @property
    def added(self) -> tuple[int | None, ...]:
        """The buffer that each step adds to its input; None for none."""
        found, gets = [], self.y
        for step in self.steps:
            operands = step.node.inputs if isinstance(step, Single) else step.sources
            found.append(next((b for b in operands if b != gets), None))
            gets = _result(step)
        return tuple(found)

    @property
    def result(self) -> int:
        """What the last step makes."""
        return _result(self.last)


class Epilogues:
    """The epilogues among nodes. Each norm or sum is part of at most one: that of the buffer which is made last."""

    def __init__(self, fused: FusedGraph, nodes: Sequence[Any]) -> None:
        self._fused = fused
        self._steps: dict[int, NormRows | Single] = {}  # by what they read
        self._taken: set[int] = set()
        for node in nodes:
            if isinstance(node, NormRows) and node.weight is not None and node.logit_rows is None:
                self._steps.update(dict.fromkeys(node.sources, node))
            elif isinstance(node, Single) and node.node.op is Op.RESIDUAL_ADD:
                self._steps.update(dict.fromkeys(node.node.inputs, node))

    def of(self, buffers: Sequence[int]) -> Mapping[int, Epilogue]:
        """The chains behind buffers, which are given in the order in which they are made."""
        found: dict[int, Epilogue] = {}
        for y in reversed(buffers):
            chain = self._chain(y)
            if chain is not None:
                found[y] = chain
                self._taken |= {id(step) for step in chain.steps}
        return found

    def _chain(self, y: int) -> Epilogue | None:
        steps = list(self._follow(y))
        before: list[NormRows] = []
        for step in steps[:-1][:2]:
            summed = isinstance(step, NormRows) and step.residual is not None
            if not isinstance(step, NormRows) or summed != bool(before) or step.total_read or _scaled(step):
                break
            before.append(step)
        if not steps:
            return None
        chain = Epilogue(y, tuple(before), steps[len(before)])
        return chain if self._fits(chain) else None

    def _fits(self, chain: Epilogue) -> bool:
        """Whether the last step may stand behind the others."""
        last = chain.last
        if len({step.eps for step in chain.steps if isinstance(step, NormRows)}) > 1:
            return False  # the kernel has one
        if isinstance(last, Single):
            return bool(chain.before)  # an addition alone needs no workgroup that sees whole rows
        if last.residual is None:
            return not chain.before
        return last.residual_scale is None or last.residual != chain.added[-1]

    def _follow(self, buffer: int) -> Iterator[NormRows | Single]:
        """Steps that are each the only reader of what the one before makes."""
        while self._fused.read_once(buffer) and buffer in self._steps:
            step = self._steps[buffer]
            if id(step) in self._taken:
                return
            yield step
            if isinstance(step, Single):
                return
            buffer = _result(step)


def _result(step: NormRows | Single) -> int:
    return step.y if isinstance(step, NormRows) else step.node.outputs[0]


def _scaled(step: NormRows) -> bool:
    return (step.residual_scale, step.total_scale) != (None, None)

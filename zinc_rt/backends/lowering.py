"""Shared by the lowerings of all compiled backends: the walk over a fused graph, and the table of functions that lower
operations.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
from collections.abc import Callable, Iterable
from typing import Any, Generic, Literal, TypeVar

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.fusion import STANDS_FOR, Single, fuse
from zinc_rt.errors import BackendError
from zinc_rt.ir.graph import Graph
from zinc_rt.ir.op import Op, name

Counted = Literal["n_rows", "n_logits"]
"""What a step has as many of as a buffer has rows."""

_Lowering = TypeVar("_Lowering", bound="Lowering")
_Function = TypeVar("_Function", bound=Callable[..., None])


class LoweringTable(Generic[_Lowering]):
    """The functions of one backend that lower operations.

    package: the folder whose modules register their functions with `lowers`; all of its modules are imported at the
    first use, so there is no list of them. kernels, elsewhere: for messages: the name of the backend's kernels, and
    what else runs an operation without one.
    """

    def __init__(self, package: str, kernels: str, elsewhere: str = "") -> None:
        self._package, self._kernels, self._elsewhere = package, kernels, elsewhere
        self._known: dict[Op | type[Any], Callable[[_Lowering, Any], None]] = {}
        self._collected = False
        self.stands_for: dict[Any, tuple[Op, ...]] = dict(STANDS_FOR)

    def lowers(self, *keys: Op | type[Any]) -> Callable[[_Function], _Function]:
        """Mark a function (lowering, node) as the one for these: a kind of fused nodes, one of the backend's own, or
        operations that stand alone.

        Raises ValueError for one that has a function already.
        """

        def register(function: _Function) -> _Function:
            for key in keys:
                if key in self._known:
                    raise ValueError(f"{key} has a lowering in {self._package} already")
                self._known[key] = function
            return function

        return register

    def find(self, node: Any) -> Callable[[_Lowering, Any], None]:
        """The function that lowers a node. Raises `BackendError`."""
        if not self._collected:
            self.collect()
        key = node.node.op if type(node) is Single else type(node)
        if key not in self._known:
            supported = ", ".join(map(name, self.operations()))
            end = f"; {self._elsewhere}" if self._elsewhere else ""
            raise BackendError(
                f"node {node.node.name}: the {self._kernels} kernels have none for {name(node.node.op)}; they have"
                f" {supported}{end}"
            )
        return self._known[key]

    def operations(self) -> list[Op]:
        """The operations that this backend has kernels for, by number."""
        ops = {op for key in self._known for op in ((key,) if isinstance(key, Op) else self.stands_for[key])}
        return sorted(ops)

    def collect(self) -> None:
        """Import the modules of the folder, which register their functions."""
        self._collected = True
        package = importlib.import_module(self._package)
        for module in pkgutil.iter_modules(package.__path__):
            importlib.import_module(f"{self._package}.{module.name}")


class Lowering:
    """A walk over a graph's fused nodes. Touches no memory: memory gets its place when all lifetimes are known.

    sizes: the most that a step may have.
    """

    table: LoweringTable[Any]

    def __init__(self, graph: Graph, sizes: Capacity) -> None:
        self.graph, self.sizes = graph, sizes
        self.fused = fuse(graph)

    def walk(self) -> None:
        """Lower all nodes in order. Raises `BackendError`."""
        for node in self.nodes():
            self.table.find(node)(self, node)

    def nodes(self) -> Iterable[Any]:
        """What is lowered, in order."""
        return self.fused.nodes

    def at(self, buffer: int) -> Any:
        """A buffer as an argument."""
        raise NotImplementedError

    def optional(self, buffer: int | None) -> Any:
        """A buffer as an argument; null for none."""
        return 0 if buffer is None else self.at(buffer)

    def width(self, buffer: int) -> int:
        """Elements of a row."""
        return math.prod(self.sizes.shape(self.graph.buffer(buffer).shape[1:]))

    def counted(self, buffer: int) -> Counted:
        """What a step has as many of as the buffer has rows."""
        return "n_logits" if self.graph.buffer(buffer).shape[0] == "n_logits" else "n_rows"

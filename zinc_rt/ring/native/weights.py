"""Matrices from the file's rows into tiles, all threads at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout
from zinc_rt.kernels.cpu.structs import CopyArgs
from zinc_rt.lang.library import Library
from zinc_rt.ring.native.choice import Choice
from zinc_rt.ring.native.memory import huge_bytes
from zinc_rt.ring.native.program import Operation, Program, Runner, Scale, plain_step

Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Matrix:
    """A matrix of a graph: its format and sizes."""

    name: str
    kind: GGMLType
    n_out: int
    n_in: int

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile."""
        return layout.tile_bytes(self.kind, self.n_in)

    @property
    def n_bytes(self) -> int:
        """Bytes in tiles."""
        return layout.matrix_bytes(self.kind, self.n_out, self.n_in)


def repack(
    matrices: list[Matrix],
    raw: Mapping[str, Bytes],
    choice: Choice,
    library: Library,
    runner: Runner,
    released: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> dict[str, Bytes]:
    """Tiles by matrix name, in one stretch of memory.

    released: called with a name when its raw bytes have been read for the last time. progress: called with bytes done
    and bytes in all.
    """
    total = sum(m.n_bytes for m in matrices)
    memory = huge_bytes(total)
    out: dict[str, Bytes] = {}
    at = 0
    library.load(choice.repack(kind) for kind in {m.kind for m in matrices})
    for m in matrices:
        out[m.name] = memory[at : at + m.n_bytes]
        source = raw[m.name]
        arguments = {
            "source": source, "row_bytes": source.shape[1], "tiles": out[m.name], "tile_bytes": m.tile_bytes,
            "n_rows": m.n_out, "n_groups": layout.n_groups(m.n_in), "n": m.n_in,
        }  # fmt: skip
        op = Operation(
            m.name, "repack", choice.repack(m.kind), CopyArgs, arguments, layout.n_tiles(m.n_out), Scale.ONCE, phase=0
        )
        runner.run(Program.build([op], plain_step(), library, runner.threads))
        at += m.n_bytes
        if released is not None:
            released(m.name)
        if progress is not None:
            progress(at, total)
    return out

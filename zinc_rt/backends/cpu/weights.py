"""Matrices from the file's rows into tiles, all threads at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.cpu.choice import TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, CpuProgram, Runner, UnitsPer, plain_step
from zinc_rt.backends.host_memory import huge_bytes
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import layout
from zinc_rt.kernels.cpu.structs import CopyArgs
from zinc_rt.lang.library import Library

Bytes = npt.NDArray[np.uint8]
PART = 96 << 20
"""Bytes of tiles after which the file's pages are let go and progress is shown."""


@dataclass(frozen=True)
class Matrix:
    """A matrix of a graph, or several of one shape, one after another: format and sizes."""

    name: str
    kind: GGMLType
    n_out: int
    n_in: int
    count: int = 1

    @property
    def n_tiles(self) -> int:
        """Tiles of one of them."""
        return layout.n_tiles(self.n_out)

    @property
    def tile_bytes(self) -> int:
        """Bytes of a tile."""
        return layout.tile_bytes(self.kind, self.n_in)

    @property
    def n_bytes(self) -> int:
        """Bytes in tiles."""
        return self.count * layout.matrix_bytes(self.kind, self.n_out, self.n_in)


_Piece = tuple[Matrix, Bytes, Bytes]
"""A matrix or a part of one, its rows in the file, its room in tiles."""


def in_tiles(
    matrices: Iterable[Matrix], memory: Bytes | None = None, places: Mapping[str, range] | None = None
) -> dict[str, Bytes]:
    """Room for each matrix in tiles, by name, in one stretch of memory. Raises `MemoryPlanError`.

    memory, places: the stretch, and where each lies in it; None for one after the other in memory of their own.
    """
    wanted = list(matrices)
    if memory is None or places is None:
        ends = list(accumulate(m.n_bytes for m in wanted))
        memory = huge_bytes(ends[-1] if ends else 0)
        places = {m.name: range(end - m.n_bytes, end) for m, end in zip(wanted, ends, strict=True)}
    return {m.name: memory[places[m.name].start :][: m.n_bytes] for m in wanted}


def repack(
    matrices: list[Matrix],
    raw: Mapping[str, Bytes],
    tiles: Mapping[str, Bytes],
    choice: TargetTuning,
    library: Library,
    runner: Runner,
    released: Callable[[str], None] | None = None,
    progress: Callable[[int, int], None] | None = None,
    written: Callable[[Sequence[Bytes]], None] | None = None,
    part_bytes: int | None = None,
) -> None:
    """Fill `tiles` (see `in_tiles`) from the file's rows.

    released: called with a name when its raw bytes, or a piece of them, have been read for the last time. progress:
    called with bytes done and bytes in all, first with 0. written: called with tiles that are ready, in their order.
    part_bytes: of tiles after which that is done, None for `PART`.
    """
    total, done = sum(m.n_bytes for m in matrices), 0
    if progress is not None:
        progress(0, total)
    for part in _parts(matrices, raw, tiles, part_bytes or PART):
        operations = [
            CpuOperation(
                m.name, "repack", choice.repack(m.kind), CopyArgs,
                {
                    **_source(rows), "tiles": room, "tile_bytes": m.tile_bytes, "n_tiles": m.n_tiles,
                    "n_rows": m.n_out, "n_groups": layout.n_groups(m.n_in), "n": m.n_in,
                },
                m.count * m.n_tiles, UnitsPer.ONCE, phase=0,
            )
            for m, rows, room in part
        ]  # fmt: skip
        runner.run(CpuProgram.build(operations, plain_step(), library, runner.threads))
        done += sum(m.n_bytes for m, _, _ in part)
        if written is not None:
            written([room for _, _, room in part])
        if released is not None:
            for m, _, _ in part:
                released(m.name)
        if progress is not None:
            progress(done, total)


def _source(raw: Bytes) -> dict[str, Any]:
    """Where a kernel finds rows u8[n_rows, row_bytes], or with a period u8[periods, rows, row_bytes]."""
    apart = raw.reshape(1, *raw.shape) if raw.ndim == 2 else raw
    return {
        "source": raw,
        "stretch": apart.shape[1],
        "period_bytes": apart.strides[0],
        "row_bytes": apart.shape[2],
    }


def _parts(
    matrices: list[Matrix], raw: Mapping[str, Bytes], tiles: Mapping[str, Bytes], part_bytes: int
) -> Iterator[list[_Piece]]:
    """Pieces of matrices in order, some at a time: until they have so many bytes."""
    part: list[_Piece] = []
    size = 0
    for m in matrices:
        for piece in _pieces(m, raw[m.name], tiles[m.name], part_bytes):
            part.append(piece)
            size += piece[0].n_bytes
            if size >= part_bytes:
                yield part
                part, size = [], 0
    if part:
        yield part


def _pieces(m: Matrix, raw: Bytes, tiles: Bytes, part_bytes: int) -> Iterator[_Piece]:
    """A matrix in pieces of so many bytes at most, if that can be: some of several, or some tiles of a single one."""
    n, rows, n_bytes = m.n_tiles, layout.TILE_ROWS, m.tile_bytes
    if m.count > 1:
        n, rows, n_bytes = m.count, m.n_out, m.n_bytes // m.count
    step = max(1, part_bytes // n_bytes)
    if step >= n or raw.ndim == 3:
        yield m, raw, tiles
        return
    for start in range(0, n, step):
        stop = min(n, start + step)
        part = raw[start * rows : stop * rows]
        piece = replace(m, count=stop - start) if m.count > 1 else replace(m, n_out=len(part))
        yield piece, part, tiles[start * n_bytes : stop * n_bytes]

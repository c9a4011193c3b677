"""A model's file written anew in other formats: rows in parallel, tensors in order, whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf import GGUFWriter, ValueType
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.tensors import TensorInfo
from zinc_rt.gguf.types import GGMLType
from zinc_rt.mem.plan import format_bytes
from zinc_rt.quantizing.errors import QuantizeError
from zinc_rt.quantizing.plan import Choice
from zinc_rt.quantizing.presets import Preset
from zinc_rt.quantizing.rows import CHUNK, quantize_rows
from zinc_rt.quantizing.source import Source
from zinc_rt.utils.checks import printable, show

U8 = NDArray[np.uint8]
Progress = Callable[[int, int], None]
"""Is told the bytes that were read, and all that there are."""

_COPIED: Final = 16 << 20
"""Bytes of a tensor that are copied at once."""
_VERSION: Final = 2
"""`general.quantization_version`: of the layout of blocks."""
_OWN: Final = ("general.file_type", "general.quantization_version", "general.alignment")


class _Piece(NamedTuple):
    raw: U8
    lost: float
    squares: float


@dataclass
class Loss:
    """The loss of the tensors of a kind: squares of errors and of values."""

    lost: float = 0.0
    squares: float = 0.0

    @property
    def relative(self) -> float:
        """The root of the mean square of errors, as a share of that of the values."""
        return float((self.lost / self.squares) ** 0.5) if self.squares else 0.0


@dataclass
class Conversion:
    """A model to be written anew. size: bytes of the new file. losses: by the kind of tensor and the
    name of its format, once it is written."""

    file: Source
    out: Path
    preset: Preset
    choices: Sequence[Choice]
    losses: dict[tuple[str, str], Loss] = field(default_factory=dict)
    _done: int = 0

    @property
    def size(self) -> int:
        """Bytes of the new file."""
        return self._writer(lambda choice: iter(())).size

    @property
    def bits(self) -> float:
        """Bits of a weight in the new file, of all tensors together."""
        return 8 * sum(c.nbytes for c in self.choices) / max(1, sum(c.tensor.n_elements for c in self.choices))

    def check_target(self, *, force: bool = False) -> None:
        """Raise `QuantizeError` where the new file cannot be written: it is the model itself, or there already
        (unless force), or the disk has too little room.
        """
        out, shown = self.out, printable(str(self.out))
        if any(out.exists() and os.path.samefile(out, path) for path in self.file.paths):
            raise QuantizeError(f"{shown} is the model itself; give the new file another name")
        if out.exists() and not out.is_file():
            raise QuantizeError(f"{shown} is no file; name the file that is to be written")
        if out.exists() and not force:
            raise QuantizeError(f"{shown} is there already; give another name, or --force to replace it")
        folder = Path(os.path.realpath(out)).parent
        if not folder.is_dir():
            raise QuantizeError(f"there is no folder {printable(str(folder))}; make it, or name another")
        free, needed = shutil.disk_usage(folder).free, self.size
        if free < needed:
            raise QuantizeError(
                f"{shown} takes {format_bytes(needed)}, and {printable(str(folder))} has {format_bytes(free)} of room"
                " left; make room or name a file on another disk"
            )

    def write(self, *, threads: int, progress: Progress | None = None) -> int:
        """Write the file; returns its size. After any failure, and after Ctrl-C, nothing is left of it.

        Raises `GGUFError`, `FileChanged`, InvalidBlocks for values that are not finite.
        """
        self.losses, self._done = {}, 0
        total = sum(c.tensor.nbytes for c in self.choices)

        def advance(nbytes: int) -> None:
            self._done += nbytes
            if progress is not None:
                progress(self._done, total)

        pool = ThreadPoolExecutor(threads, thread_name_prefix="quantize")
        try:
            return self._writer(lambda choice: self._parts(choice, pool, threads, advance)).write()
        finally:
            pool.shutdown(cancel_futures=True)

    def _writer(self, parts: Callable[[Choice], Iterator[U8]]) -> GGUFWriter:
        file = self.file
        writer = GGUFWriter(self.out, alignment=file.alignment)
        for key in file.metadata:
            if key not in _OWN and not key.startswith("split."):
                writer.add_stored(key, file.metadata.stored(key))
        writer.add("general.quantization_version", _VERSION, ValueType.UINT32)
        writer.add("general.file_type", self.preset.file_type, ValueType.UINT32)
        for choice in self.choices:
            tensor = choice.tensor
            writer.add_parts(tensor.name, lambda choice=choice: parts(choice), choice.type, tensor.shape)  # type: ignore[misc]
        return writer

    def _parts(
        self, choice: Choice, pool: ThreadPoolExecutor, threads: int, advance: Callable[[int], None]
    ) -> Iterator[U8]:
        """The bytes of a tensor in order, made by all threads."""
        try:
            yield from self._copied(choice, advance) if choice.copied else self._made(choice, pool, threads, advance)
        except InvalidBlocks as error:
            raise InvalidBlocks(
                f"tensor {show(choice.tensor.name)}: {error.problem}", path=printable(self.file.path), hint=error.hint
            ) from error
        self.file.release(choice.tensor.name)

    def _copied(self, choice: Choice, advance: Callable[[int], None]) -> Iterator[U8]:
        tensor = choice.tensor
        step = max(1, _COPIED // tensor.row_bytes)
        for start in range(0, tensor.n_rows, step):
            rows = self.file.rows(tensor.name, start, min(start + step, tensor.n_rows))
            yield rows.reshape(-1)
            advance(rows.size)

    def _made(
        self, choice: Choice, pool: ThreadPoolExecutor, threads: int, advance: Callable[[int], None]
    ) -> Iterator[U8]:
        tensor, n_rows = choice.tensor, choice.tensor.n_rows
        step = max(1, CHUNK // tensor.shape[-1])
        starts, ahead = iter(range(0, n_rows, step)), deque[tuple[int, Future[_Piece]]]()
        loss = self.losses.setdefault((choice.kind, choice.type.name), Loss())
        while True:
            for start in islice(starts, 2 * threads - len(ahead)):
                stop = min(start + step, n_rows)
                size = (stop - start) * tensor.row_bytes
                ahead.append((size, pool.submit(_convert, self.file, tensor, choice.type, start, stop)))
            if not ahead:
                break
            size, future = ahead.popleft()
            piece = future.result()
            self.file.check_unwritten()
            loss.lost += piece.lost
            loss.squares += piece.squares
            yield piece.raw
            advance(size)


def _convert(file: Source, tensor: TensorInfo, target: GGMLType, start: int, stop: int) -> _Piece:
    """Rows in another format, with the squares of what was lost and of the values."""
    x = dequantize(tensor.type, file.rows(tensor.name, start, stop))
    made = quantize_rows(target, x, start)
    gap = dequantize(target, made)
    np.subtract(gap, x, out=gap)
    return _Piece(made, _squares(gap), _squares(x))


def _squares(x: NDArray[np.float32]) -> float:
    """The sum of squares, exact enough: of rows in float32 where they fit, of rows together in float64."""
    with np.errstate(over="ignore", invalid="ignore"):
        rows = np.einsum("ij,ij->i", x, x)
        if not np.isfinite(rows).all():
            rows = np.einsum("ij,ij->i", x, x, dtype=np.float64)
        return float(rows.sum(dtype=np.float64))

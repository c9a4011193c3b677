"""What all towers have in common: sizes from the file, how pictures are fitted, the parts of the graphs."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import numpy.typing as npt

from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.blocks import dequantize
from zinc_rt.ir.graph import BufferId, BufferKind, DType
from zinc_rt.ir.op import Op
from zinc_rt.kernels.reference.nearest import turns
from zinc_rt.models.definition import F32, ModelDefinition, ModelInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.row_parts import RowParts
from zinc_rt.models.towers.resize import fit

PATCHES: Final = "patches"
"""Input of an encoder: pixels of a patch, f32[n_rows, 3 * patch_size^2], in order of channel, line, column."""
ROWS: Final = "rows"
"""The tower's result: f32[n_rows, n_embd of the text model]."""
F64 = npt.NDArray[np.float64]
Arrays = Mapping[str, npt.NDArray[np.generic]]


@dataclass(frozen=True)
class PatchGrid:
    """The patches of a picture, or of a tile of one: columns and lines."""

    nx: int
    ny: int

    @property
    def n_patches(self) -> int:
        """Patches in all."""
        return self.nx * self.ny


@dataclass(frozen=True)
class PictureLayout:
    """How a picture stands in a text. pieces: strings, which are tokenized with special tokens, and numbers of rows.

    columns, lines: of the rows, where positions of the text model have lines and columns; 0 for others.
    """

    pieces: tuple[str | int, ...]
    columns: int = 0
    lines: int = 0

    @property
    def n_rows(self) -> int:
        """Rows of the picture in all."""
        return sum(piece for piece in self.pieces if isinstance(piece, int))


@dataclass(frozen=True)
class Fitting:
    """How a picture gets the size that a tower takes.

    filter: of the resampling: "bilinear", "bicubic", "lanczos". align: both sides are multiples of so many pixels.
    least, most: pixels; a picture beyond them is scaled. square: the side of towers that take one size alone. A
    picture keeps its shape; what it leaves of the size is black.
    """

    filter: str
    align: int = 1
    least: int = 0
    most: int = 0
    square: int | None = None

    @classmethod
    def of_rows(cls, align: int, min_rows: int, max_rows: int) -> Fitting:
        """Bicubic, for pictures of min_rows to max_rows rows, each a square of `align` pixels."""
        return cls("bicubic", align, min_rows * align**2, max_rows * align**2)

    def within(self, max_rows: int) -> Fitting:
        """The same for at most so many rows."""
        return self if self.square is not None else replace(self, most=min(self.most, max_rows * self.align**2))

    def size(self, width: int, height: int) -> tuple[int, int]:
        """Width and height that a picture of this size gets, in float32 as the format's home computes it."""
        if self.square is not None:
            return self.square, self.square
        a, f = self.align, np.float32

        def down(x: np.float32) -> int:
            return max(a, int(np.floor(x / f(a))) * a)

        w, h = (max(a, int(np.floor(f(x) / f(a) + f(0.5))) * a) for x in (width, height))
        if w * h > self.most:
            beta = np.sqrt(f(height * width) / f(self.most))
            return down(f(width) / beta), down(f(height) / beta)
        if w * h < self.least:
            beta = np.sqrt(f(self.least) / f(height * width))
            w, h = (int(np.ceil(f(x) * beta / f(a))) * a for x in (width, height))
        return w, h


@dataclass(frozen=True)
class TowerInfo(ModelInfo):
    """Sizes of a tower.

    image_size: side of the square that the position table is for. mean, std: of a channel, where 255 is 1.
    n_out: elements of a row of the text model. activation: of the feed-forward network.
    """

    n_ff: int
    n_heads: int
    head_dim: int
    patch_size: int
    image_size: int
    eps: float
    mean: tuple[float, ...]
    std: tuple[float, ...]
    n_out: int
    activation: str

    @classmethod
    def from_file(cls, file: GGUFFile, kind: str, *activations: str) -> TowerInfo:
        """activations: those that the tower computes. Raises `ModelError`, also where the file has another one."""
        keys = Keys(file.metadata, "clip")
        named = [name for name in ("gelu", "silu") if keys.flag(f"use_{name}", False)]
        activation = named[0] if named else "gelu_quick"
        if len(named) > 1 or activation not in activations:
            raise ModelError(
                f"{kind}: the file's activation is {' and '.join(named) or activation} (clip.use_gelu, clip.use_silu);"
                f" {' or '.join(activations)} is needed"
            )
        n_embd, n_heads = keys.integer("vision.embedding_length"), keys.integer("vision.attention.head_count")
        if n_embd % n_heads:
            raise ModelError(f"clip.vision.embedding_length is {n_embd}, no multiple of {n_heads} heads")
        return cls(
            architecture=f"clip {kind}",
            n_layers=keys.integer("vision.block_count"),
            n_embd=n_embd,
            n_vocab=0,
            n_ctx_train=0,
            n_ff=keys.integer("vision.feed_forward_length", minimum=0) or _n_ff_of_tensors(file),
            n_heads=n_heads,
            head_dim=n_embd // n_heads,
            patch_size=keys.integer("vision.patch_size", maximum=256),
            image_size=keys.integer("vision.image_size", maximum=1 << 14),
            eps=keys.number("vision.attention.layer_norm_epsilon"),
            mean=keys.numbers("vision.image_mean", 3),
            std=keys.numbers("vision.image_std", 3, above=0.0),
            n_out=keys.integer("vision.projection_dim"),
            activation=activation,
        )

    def quarter(self) -> int:
        """Pairs of a head that turn by the line, and as many by the column. Raises `ModelError`."""
        if self.head_dim % 4:
            raise ModelError(f"heads have {self.head_dim} elements, a multiple of 4 is needed for line and column")
        return self.head_dim // 4


def _n_ff_of_tensors(file: GGUFFile) -> int:
    """Of old files, whose key says 0. Raises `ModelError`."""
    tensor = file.tensors.get("v.blk.0.ffn_up.weight")
    if tensor is None:
        raise ModelError("clip.vision.feed_forward_length is 0, and v.blk.0.ffn_up.weight is missing")
    return max(tensor.shape)


class Tower(ABC):
    """A tower for pictures.

    encoder: its inputs are `PATCHES`, what `step` gives, and nothing else. projector: from what `join` makes of the
    encoder's outputs to `ROWS`, and to a further output "rows.1", "rows.2", ... for each deepstack layer.
    """

    info: TowerInfo
    encoder: ModelDefinition
    projector: ModelDefinition
    fitting: Fitting
    n_deepstack: int = 0
    side: int = 1
    """Patches of a block that becomes a row, both ways."""
    frame: tuple[str, str] = ("", "")
    """What stands before and behind a picture's rows in a text."""

    def layout(self, width: int, height: int) -> PictureLayout:
        """How a picture of this size stands in a text: by default its rows within the frame."""
        fitted = self.fitting.size(width, height)
        columns, lines = (n // (self.side * self.info.patch_size) for n in fitted)
        before, after = self.frame
        return PictureLayout((before, columns * lines, after))

    def tiles(self, pixels: npt.NDArray[np.uint8]) -> Sequence[npt.NDArray[np.uint8]]:
        """The pictures that the encoder sees of a picture u8[height, width, 3]: by default one, fitted to a size."""
        height, width = pixels.shape[:2]
        return [fit(pixels, *self.fitting.size(width, height), self.fitting.filter)]

    @abstractmethod
    def order(self, grid: PatchGrid) -> npt.NDArray[np.int64]:
        """The patches in the encoder's order, by their number in reading order: i64[n_patches]."""

    @abstractmethod
    def step(self, grids: Sequence[PatchGrid]) -> Arrays:
        """The encoder's inputs beside the patches, for pictures one after another."""

    @abstractmethod
    def join(self, outputs: Arrays, grids: Sequence[PatchGrid]) -> Arrays:
        """The projector's inputs, by the encoder's outputs."""

    def arrange(self, rows: F32, grids: Sequence[PatchGrid]) -> F32:
        """The projector's rows in order of the text, with rows that no patch gives; by default as they are."""
        return rows


class TowerParts(RowParts):
    """A tower's graph under construction, over the tensors of a projector's file."""

    info: TowerInfo

    def __init__(self, file: GGUFFile, info: TowerInfo) -> None:
        super().__init__(file, info, info.eps)

    def embed_patches(self, names: Sequence[str] = ("v.patch_embd.weight",)) -> BufferId:
        """Kernels times the patch, summed, plus the bias where the file has one."""
        sizes = self.info
        p = sizes.patch_size
        patches = self.given(PATCHES, 3 * p * p)
        x: BufferId | None = None
        for i, name in enumerate(names):
            y = self.product(patches, self.kernel(name, (sizes.n_embd, 3, p, p)), f"v.patch_embd.{i}")
            x = y if x is None else self.add(x, y, "v.patch_embd.sum")
        assert x is not None
        return self.biased(x, "v.patch_embd", None)

    def seen(self, prefix: str = "") -> list[BufferId]:
        """Inputs: the first and the last row that each row sees, i32[n_rows]. prefix: of their names."""
        return [self.g.buffer(prefix + name, BufferKind.INPUT, DType.I32, ("n_rows",)) for name in ("first", "last")]

    def rotate(
        self, x: BufferId, angles: BufferId, name: str, *, interleaved: bool = False, tables: int = 1
    ) -> BufferId:
        """Rotate each head by its row's angles, an input f32[n_rows, tables * 2 * pairs].

        tables: equal parts of a head, each with angles of its own.
        """
        y, sizes = self.temp(name, self.width(x)), self.info
        heads = {"n_heads": tables * sizes.n_heads, "head_dim": sizes.head_dim // tables, "tables": tables}
        self.g.node(Op.ROTATE, [x, angles], [y], name, interleaved=interleaved, **heads)
        return y

    def attend(
        self,
        q: BufferId,
        k: BufferId,
        v: BufferId,
        seen: Sequence[BufferId],
        name: str,
        *,
        scale: float | None = None,
    ) -> BufferId:
        """Attention among the rows of the step. scale: of scores, by default 1 over the root of head_dim."""
        y, sizes = self.temp(name, self.width(q)), self.info
        heads = {"n_heads": sizes.n_heads, "head_dim": sizes.head_dim}
        factor = 1.0 / math.sqrt(sizes.head_dim) if scale is None else scale
        self.g.node(Op.ROW_ATTN, [q, k, v, *seen], [y], name, scale=factor, **heads)
        return y

    def clamp(self, x: BufferId, low: float, high: float, name: str, y: BufferId | None = None) -> BufferId:
        """x held in low .. high. y: where to; None for a fresh activation."""
        y = self.temp(name, self.width(x)) if y is None else y
        self.g.node(Op.CLAMP, [x], [y], f"{name}.clamp", low=low, high=high)
        return y

    def table_row(self, name: str, n: int) -> F32:
        """A tensor of one row or a vector, f32[1, n], whatever its format. Raises `ModelError`."""
        tensor = self.file.tensors.get(name)
        if tensor is not None and len(tensor.shape) == 1:
            values = self.vector(name, n)
            assert values is not None
            return values[None]
        row = self.table(name, n)
        if len(row) != 1:
            raise ModelError(f"tensor {name} has {len(row)} rows, one is needed")
        return row

    def tables(self, name: str, n_tables: int, n: int) -> F32:
        """A tensor of several tables, f32[n_tables, n_rows, n], whatever its format. Raises `ModelError`."""
        tensor = self.file.tensors.get(name)
        if tensor is None or len(tensor.shape) != 3 or tensor.shape[0] != n_tables or tensor.shape[2] != n:
            found = "missing" if tensor is None else f"of shape {list(tensor.shape)}"
            raise ModelError(f"tensor {name} is {found}; [{n_tables}, rows, {n}] is needed")
        self._host.add(name)
        return dequantize(tensor.type, self.file.raw(name)).reshape(tensor.shape)

    def gated_feed_forward(self, x: BufferId, p: str, *, bias: bool) -> BufferId:
        """activation(gate) * up, then down."""
        wide, down = self._up_and_down(p)
        gate, up = (self.project(x, name, self.info.n_ff, bias=bias) for name in (f"{p}.ffn_gate", wide))
        inner = self.gate(gate, up, f"{p}.ffn_act", activation=self.info.activation)
        return self.project(inner, down, self.info.n_embd, bias=bias)

    def two_products(
        self, x: BufferId, first: str, second: str, n_inner: int, out: str, *, bias: bool | None = True
    ) -> None:
        """A product, GELU and a product, to the output `out` of the text model's width."""
        inner = self.activate(self.project(x, first, n_inner, bias=bias), f"{first}.gelu", "gelu")
        self.project(inner, second, self.info.n_out, bias=bias, y=self.output(out, self.info.n_out))

    def feed_forward(self, x: BufferId, p: str) -> BufferId:
        """Up, GELU in the file's form, down, with biases."""
        up, down = self._up_and_down(p)
        wide = self.project(x, up, self.info.n_ff, bias=True)
        inner = self.activate(wide, f"{p}.gelu", self.info.activation)
        return self.project(inner, down, self.info.n_embd, bias=True)

    def _up_and_down(self, p: str) -> tuple[str, str]:
        """The names of a feed-forward's two matrices, which old files call by each other's."""
        names, sizes = (f"{p}.ffn_up", f"{p}.ffn_down"), self.info
        down = self.file.tensors.get(f"{p}.ffn_down.weight")
        swapped = down is not None and down.shape == (sizes.n_ff, sizes.n_embd) and sizes.n_ff != sizes.n_embd
        return (names[1], names[0]) if swapped else names


def block_means(x: npt.NDArray[np.generic], side: int) -> F32:
    """The mean of each block of side * side rows: they are added one after another, in float32."""
    by_block = np.asarray(x, np.float32).reshape(-1, side**2, x.shape[1])
    total = by_block[:, 0].copy()
    for i in range(1, side**2):
        total += by_block[:, i]
    return np.asarray(total / np.float32(side**2))


def spans(n: Sequence[int], prefix: str = "") -> Arrays:
    """The inputs of `TowerParts.seen` where rows see each other in spans of n rows."""
    ends = np.cumsum(n)
    return {
        f"{prefix}first": np.repeat(ends - n, n).astype(np.int32),
        f"{prefix}last": np.repeat(ends - 1, n).astype(np.int32),
    }


def whole(grids: Sequence[PatchGrid]) -> Arrays:
    """The inputs `first` and `last` where each row sees all of its picture."""
    return spans([grid.n_patches for grid in grids])


def angles(order: npt.NDArray[np.int64], grid: PatchGrid, by_line: F64, by_column: F64) -> F32:
    """Cosine and sine of position * frequency, a product in float64, each rounded once: f32[n_patches, 2 * pairs].

    order: numbers of the patches. by_line, by_column: frequencies of the pairs that turn by each, one after another.
    """
    line, column = np.divmod(order[:, None], grid.nx)
    turned = np.concatenate([line * by_line, column * by_column], axis=1)
    return turns(turned).reshape(len(order), -1)


def blocks(grid: PatchGrid, side: int) -> npt.NDArray[np.int64]:
    """Numbers of the patches by blocks of side * side: blocks, and the patches of each, in reading order."""
    numbers = np.arange(grid.n_patches).reshape(grid.ny // side, side, grid.nx // side, side)
    return numbers.transpose(0, 2, 1, 3).reshape(-1)

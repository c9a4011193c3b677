"""From a graph to operations, one or two dispatches a node; norm, rotation and cache write of heads are one.

Arguments name memory by `TempSpec`: a buffer by its id, what else there is by a tuple whose first item says what.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.backends.amdgpu.operations import (
    BLOCKS,
    ArgumentBlock,
    Counted,
    GpuOperation,
    Room,
    StepShape,
    TempSpec,
    block_of,
    padded_rows,
)
from zinc_rt.backends.base import Capacity
from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.backends.fusion import HeadChains, Heads, Readers
from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.op import Op, name
from zinc_rt.kernels.rdna.argmax import PART
from zinc_rt.kernels.rdna.attention import GpuAttentionArgs
from zinc_rt.kernels.rdna.catalogue import (
    DECODE,
    FLOATS,
    QUANTIZED,
    KernelEntry,
    attention_kernels,
    heads_kernel,
    matvec_rows,
    merge_quantized,
)
from zinc_rt.kernels.rdna.heads import GpuHeadsArgs
from zinc_rt.numerics import GROUP, SPLIT

_FOUR = 1024  # elements of a workgroup that does four a lane
_MAX_HEAD_DIM, _MAX_GROUP = 512, 32
_ELSEWHERE = "the CPU runs it: use --device cpu"


@dataclass
class GpuLowered:
    """Operations in order; rooms: temporaries and outputs that they name; kernels: all that any shape may need."""

    operations: list[GpuOperation] = field(default_factory=list)
    rooms: dict[Hashable, Room] = field(default_factory=dict)
    kernels: list[KernelEntry] = field(default_factory=list)
    rotations: list[int] = field(default_factory=list)  # buffers of cosines and sines, which kernels want apart


class GpuLowering:
    """Walks a graph once. Touches no memory."""

    def __init__(self, graph: Graph, sizes: Capacity) -> None:
        self.graph, self.sizes_ = graph, sizes
        self.out = GpuLowered()
        self.readers = Readers(graph)
        self.heads = HeadChains(graph, self.readers)
        self.quantized: set[Hashable] = set()

    def run(self) -> GpuLowered:
        """All nodes. Raises `UnsupportedOp`."""
        for node in self.graph.nodes:
            if node.op is Op.BARRIER:
                continue
            lower = _LOWER.get(node.op)
            if lower is None:
                supported = ", ".join(name(op) for op in _LOWER)
                raise UnsupportedOp(
                    f"node {node.name}: the GPU kernels have none for {name(node.op)}; they have {supported};"
                    f" {_ELSEWHERE}"
                )
            lower(self, node)
        return self.out

    # -- places -----------------------------------------------------------------------------------------------------

    def width(self, buffer: int) -> int:
        """Elements of a row."""
        return math.prod(int(d) for d in self.graph.buffer(buffer).shape[1:])

    def counted(self, buffer: int) -> Counted:
        """What a step has as many of as the buffer has rows."""
        return "n_logits" if self.graph.buffer(buffer).shape[0] == "n_logits" else "n_rows"

    def at(self, buffer: int) -> TempSpec:
        """A buffer as an argument."""
        b = self.graph.buffer(buffer)
        if b.kind in (BufferKind.TEMP, BufferKind.OUTPUT):
            self.room(buffer, self.counted(buffer), self.width(buffer) * 4)
        return TempSpec(buffer)

    def room(self, key: Hashable, counted: Counted, row_bytes: int) -> TempSpec:
        """A temporary with this many bytes a row."""
        self.out.rooms[key] = Room(counted, row_bytes)
        return TempSpec(key)

    def emit(
        self, node: Node, kernel: KernelEntry | Callable[[StepShape], KernelEntry], groups: Callable[[StepShape],
        tuple[int, ...]],
        arguments: tuple[Any, ...], counted: Counted, reads: tuple[Hashable, ...], writes: tuple[Hashable, ...],
        work: Callable[[StepShape], int] = lambda s: 0,
    ) -> None:  # fmt: skip
        """Add an operation."""
        if isinstance(kernel, KernelEntry):
            fixed = kernel
            self.out.kernels.append(fixed)
            kernel = lambda shape: fixed  # noqa: E731
        self.out.operations.append(
            GpuOperation(node.name, kernel, lambda s: _three(groups(s)), arguments, counted, reads, writes, work=work)
        )

    # -- activations ------------------------------------------------------------------------------------------------

    def embed(self, n: Node) -> None:
        table = self.graph.buffer(n.inputs[1])
        width = int(table.shape[1])
        kind = self.format_of(n, n.inputs[1])
        span = 256 if kind in FLOATS else 2048
        self.emit(
            n, DECODE[f"embed_{kind.lower()}"], lambda s: (-(-width // span), s.n_rows),
            (self.at(n.inputs[1]), self.at(n.inputs[0]), self.at(n.outputs[0]), width), "n_rows",
            (n.inputs[0],), (n.outputs[0],),
        )  # fmt: skip

    def rms_norm(self, n: Node) -> None:
        if "head_dim" in n.attrs:
            self.head_norm(n)
            return
        (x, w), y = n.inputs, n.outputs[0]
        self.norm(n, "", (x,), w, (), y)

    def residual_rms_norm(self, n: Node) -> None:
        (x, residual, w), (total, y) = n.inputs, n.outputs
        self.norm(n, "residual_", (x, residual), w, (total,), y)

    def norm(self, n: Node, prefix: str, rows: tuple[int, ...], w: int, total: tuple[int, ...], y: int) -> None:
        """A norm of rows or of the sum of two, as int8 where only products read it."""
        quantized = self.only_packed(y)
        results = tuple(self.packed(y).values()) if quantized else (self.at(y),)
        arguments = (*map(self.at, (*rows, w, *total)), *results, self.width(y), float(n.attrs["eps"]))
        kernel = prefix + ("norm_quantized" if quantized else "rms_norm")
        self.rows(n, kernel, arguments, rows, (*total, *(r.key for r in results)))

    def argmax(self, n: Node) -> None:
        x, y = n.inputs[0], n.outputs[0]
        width, counted = self.width(x), self.counted(x)
        if width <= PART:
            self.rows(n, "argmax", (self.at(x), self.at(y), width), (x,), (y,))
            return
        parts = -(-width // PART)
        tops, places = (self.room((what, n.id), counted, parts * 4) for what in ("best", "place"))
        between = (tops.key, places.key)
        self.emit(
            n, DECODE["argmax_parts"], lambda s: (parts, getattr(s, counted)), (self.at(x), tops, places, width, parts),
            counted, (x,), between,
        )  # fmt: skip
        self.emit(
            n, DECODE["argmax_merge"], lambda s: (getattr(s, counted),), (tops, places, self.at(y), parts), counted,
            between, (y,),
        )  # fmt: skip

    def rows(
        self, n: Node, kernel: str, arguments: tuple[Any, ...], reads: tuple[int, ...], writes: tuple[Hashable, ...]
    ) -> None:
        """A workgroup a row."""
        counted = self.counted(reads[0])
        self.emit(n, DECODE[kernel], lambda s: (getattr(s, counted),), arguments, counted, reads, writes)

    def bias_add(self, n: Node) -> None:
        (a, b), y = n.inputs, n.outputs[0]
        width, counted = self.width(y), self.counted(y)
        self.emit(
            n, DECODE["add_row"], lambda s: (-(-width // 256), getattr(s, counted)),
            (self.at(a), self.at(b), self.at(y), width), counted, (a, b), (y,),
        )  # fmt: skip

    def residual_add(self, n: Node) -> None:
        self.elements(n, "add")

    def swiglu(self, n: Node) -> None:
        (gate, up), y = n.inputs, n.outputs[0]
        if not self.only_packed(y):
            self.elements(n, "swiglu")
            return
        width = self.width(y)
        self.emit(
            n, DECODE["swiglu_quantized"], lambda s: (-(-s.n_rows * width // _FOUR),),
            (self.at(gate), self.at(up), *self.packed(y).values(), lambda s: s.n_rows * width), "n_rows", (gate, up),
            pack_keys(y),
        )  # fmt: skip

    def elements(self, n: Node, kernel: str) -> None:
        """Two buffers element by element."""
        (a, b), y = n.inputs, n.outputs[0]
        width, counted = self.width(y), self.counted(y)
        self.emit(
            n, DECODE[kernel], lambda s: (-(-getattr(s, counted) * width // _FOUR),),
            (self.at(a), self.at(b), self.at(y), lambda s: getattr(s, counted) * width), counted, (a, b), (y,),
        )  # fmt: skip

    # -- products ---------------------------------------------------------------------------------------------------

    def format_of(self, n: Node, buffer: int) -> str:
        """A matrix's format. Raises `UnsupportedOp`."""
        kind = self.graph.buffer(buffer).dtype.ggml.name
        if kind not in QUANTIZED and kind not in FLOATS:
            known = ", ".join((*QUANTIZED, *FLOATS))
            raise UnsupportedOp(
                f"node {n.name}: the GPU kernels read no weights of type {kind}; they read {known}; {_ELSEWHERE}"
            )
        return kind

    def matmul(self, n: Node) -> None:
        self.product(n, n.inputs[0], "n_rows")

    def lm_head(self, n: Node) -> None:
        """The wanted rows first, then their product."""
        x, rows = n.inputs[0], n.inputs[2]
        width, key = self.width(x), ("wanted", n.id)
        self.emit(
            n, DECODE["embed_f32"], lambda s: (-(-width // 256), s.n_logits),
            (self.at(x), self.at(rows), self.room(key, "n_logits", width * 4), width), "n_logits", (x, rows), (key,),
        )  # fmt: skip
        self.product(n, key, "n_logits")

    def product(self, n: Node, x: Hashable, counted: Counted) -> None:
        """Rows of activations times a matrix."""
        y, weight = n.outputs[0], n.inputs[1]
        kind = self.format_of(n, weight)
        n_out, n_in = (int(d) for d in self.graph.buffer(weight).shape)
        most = int(getattr(self.sizes_, counted))
        entries = {m: matvec_rows(kind, m) for m in BLOCKS if m <= padded_rows(most)}
        self.out.kernels += entries.values()
        keys: tuple[Hashable, ...] = (x,) if kind in FLOATS else self.pack(n, x, n_in, counted)
        n_units = n_in if kind in FLOATS else n_in // GROUP
        arguments = (self.at(weight), *map(TempSpec, keys), self.at(y), n_units, n_out)
        self.emit(
            n, lambda s: entries[block_of(getattr(s, counted))],
            lambda s: (-(-n_out // 4), -(-getattr(s, counted) // block_of(getattr(s, counted)))),
            arguments, counted, keys, (y,), lambda s: getattr(s, counted) * n_out * n_in,
        )  # fmt: skip

    def only_packed(self, buffer: int) -> bool:
        """Whether a buffer is read by products alone that want it as int8."""
        readers = self.readers.of(buffer)
        return self.graph.buffer(buffer).kind is BufferKind.TEMP and all(
            r.op is Op.MATMUL and self.format_of(r, r.inputs[1]) in QUANTIZED for r in readers
        )

    def packed(self, buffer: int) -> dict[str, TempSpec]:
        """Room for a buffer's rows as int8, which whoever asks for it fills: quants, scales and sums."""
        return self.pack_room(buffer, self.width(buffer), "n_rows")

    def pack_room(self, x: Hashable, width: int, counted: Counted) -> dict[str, TempSpec]:
        """Room for rows as int8, which are there from now on."""
        self.quantized.add(x)
        sizes = (width, width // 8, width // 8)
        return {key[0]: self.room(key, counted, size) for key, size in zip(pack_keys(x), sizes, strict=True)}

    def pack(self, n: Node, x: Hashable, width: int, counted: Counted) -> tuple[Hashable, ...]:
        """Activations as int8, once for all products that read them: the names of quants, scales and sums."""
        keys = pack_keys(x)
        if x not in self.quantized:
            places = self.pack_room(x, width, counted).values()
            self.emit(
                n, DECODE["quantize"], lambda s: (-(-getattr(s, counted) * width // _FOUR),),
                (TempSpec(x), *places, lambda s: getattr(s, counted) * width), counted, (x,), keys,
            )  # fmt: skip
        return keys

    # -- heads and attention ----------------------------------------------------------------------------------------

    def head_norm(self, n: Node) -> None:
        self.heads_to_buffer(n, self.heads.norm(n))

    def rope(self, n: Node) -> None:
        self.heads_to_buffer(n, self.heads.rope(n))

    def kv_write(self, n: Node) -> None:
        _, _, positions, slots, pages = n.inputs
        where = {
            "positions": self.at(positions), "slots": self.at(slots), "page_table": self.at(pages),
            "max_pages": self.sizes_.max_pages,
        }  # fmt: skip
        for known, cache in self.heads.kv_write(n):
            self.put_heads(n, known, cache, where)

    def heads_to_buffer(self, n: Node, known: Heads | None) -> None:
        """Write heads to a node's output, unless that is for a later node."""
        if known is not None:
            # Every row reads its position, also where nothing comes of it: then any memory will do.
            positions = self.at(known.source if known.positions is None else known.positions)
            self.put_heads(n, known, n.outputs[0], {"positions": positions})

    def put_heads(self, n: Node, known: Heads, target: int, where: dict[str, Any]) -> None:
        """Write heads where they belong: a buffer, or the cache when `where` says which pages."""
        cache, count, table = "page_table" in where, known.n_heads, known.table
        self.check_head(n, known.dim)
        if table is not None and table not in self.out.rotations:
            self.out.rotations.append(table)
        values = {
            "x": self.at(known.source), "cache" if cache else "y": self.at(target),
            "weight": 0 if known.weight is None else self.at(known.weight),
            "table": 0 if table is None else TempSpec(("rotation", table)), "n_heads": count,
            "n_rows": lambda s: s.n_rows, "eps": known.eps, **where,
        }  # fmt: skip
        entry = heads_kernel(
            known.dim, known.pairs, interleaved=known.interleaved, norm=known.weight is not None, cache=cache
        )
        self.emit(
            n, entry, lambda s: (-(-s.n_rows * count // 4),), (ArgumentBlock(GpuHeadsArgs, values),), "n_rows",
            (known.source,), (target,),
        )  # fmt: skip

    def check_head(self, n: Node, dim: int) -> None:
        """Raise `UnsupportedOp` for heads that the kernels cannot do."""
        if dim > _MAX_HEAD_DIM:
            raise UnsupportedOp(
                f"node {n.name}: heads of {dim} elements; the GPU kernels do up to {_MAX_HEAD_DIM}; {_ELSEWHERE}"
            )

    def flash_attn(self, n: Node) -> None:
        n_heads, n_kv, dim = (int(n.attrs[a]) for a in ("n_heads", "n_kv_heads", "head_dim"))
        group, (q, k, v, positions, slots, pages), y = n_heads // n_kv, n.inputs, n.outputs[0]
        self.check_head(n, dim)
        if dim % 8 or group > _MAX_GROUP:
            raise UnsupportedOp(
                f"node {n.name}: {group} query heads to a key head, of {dim} elements; the GPU kernels do up to"
                f" {_MAX_GROUP}, of a multiple of 8; {_ELSEWHERE}"
            )
        most = -(-self.sizes_.n_ctx // SPLIT)
        values, tops = ("values", n.id), ("tops", n.id)
        quantized = dim % GROUP == 0 and self.only_packed(y)
        results = self.packed(y) if quantized else {"y": self.at(y)}
        named = {"q": "quants", "d": "scales", "s": "sums", "y": "y"}
        block = ArgumentBlock(GpuAttentionArgs, {
            "q": self.at(q), "k_cache": self.at(k), "v_cache": self.at(v),
            **{named[name]: place for name, place in results.items()},
            "values": self.room(values, "n_rows", most * n_heads * dim * 4),
            "tops": self.room(tops, "n_rows", most * n_heads * 8), "positions": self.at(positions),
            "slots": self.at(slots), "page_table": self.at(pages), "max_pages": self.sizes_.max_pages,
            "max_splits": lambda s: s.splits, "n_kv": n_kv, "scale": float(n.attrs["scale"]),
        })  # fmt: skip
        attention, merge = attention_kernels(dim, group)
        across = n_heads
        if quantized:
            merge, across = merge_quantized(dim, group), -(-n_heads // 4)
        self.emit(
            n, attention, lambda s: (s.splits, n_kv, s.n_rows), (block,), "n_rows", (q, k, v), (values, tops),
            lambda s: 2 * s.n_rows * s.splits * SPLIT * n_heads * dim,
        )  # fmt: skip
        self.emit(
            n, merge, lambda s: (across, s.n_rows), (block,), "n_rows", (values, tops),
            tuple(place.key for place in results.values()),
        )  # fmt: skip


def pack_keys(x: Hashable) -> tuple[tuple[str, Hashable], ...]:
    """Names of the quants, scales and sums of a buffer's rows."""
    return ("q", x), ("d", x), ("s", x)


def _three(groups: tuple[int, ...]) -> tuple[int, int, int]:
    x, y, z = (*groups, 1, 1)[:3]
    return x, y, z


_LOWER: dict[Op, Callable[[GpuLowering, Node], None]] = {
    Op.EMBED: GpuLowering.embed,
    Op.RMS_NORM: GpuLowering.rms_norm,
    Op.RESIDUAL_RMS_NORM: GpuLowering.residual_rms_norm,
    Op.MATMUL: GpuLowering.matmul,
    Op.BIAS_ADD: GpuLowering.bias_add,
    Op.RESIDUAL_ADD: GpuLowering.residual_add,
    Op.SWIGLU: GpuLowering.swiglu,
    Op.ROPE: GpuLowering.rope,
    Op.KV_WRITE: GpuLowering.kv_write,
    Op.FLASH_ATTN: GpuLowering.flash_attn,
    Op.LM_HEAD: GpuLowering.lm_head,
    Op.ARGMAX: GpuLowering.argmax,
}

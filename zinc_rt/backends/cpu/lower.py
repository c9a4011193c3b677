"""From a graph to operations: nodes that follow each other on the same data become one kernel call where one exists.

- an RMS norm, with the addition before it, writes its rows already packed for the products that read them;
- bias additions ride in the product before, SwiGLU in the packing of the product after;
- the norm, the rotation and the cache write of heads are one pass.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any, Literal

from zinc_rt.backends.base import Capacity
from zinc_rt.backends.cpu.choice import PACK_CHUNK, TargetTuning
from zinc_rt.backends.cpu.program import CpuOperation, Scale
from zinc_rt.backends.cpu.weights import Matrix
from zinc_rt.backends.errors import UnsupportedOp
from zinc_rt.backends.fusion import HeadChains, Heads, Readers
from zinc_rt.formats.table import FORMATS
from zinc_rt.ir.graph import BufferKind, Graph, Node
from zinc_rt.ir.op import Op, name
from zinc_rt.kernels.cpu import attention, layout, structs
from zinc_rt.numerics import GROUP, SPLIT


@dataclass(frozen=True)
class External:
    """Memory that is there before the program is: a buffer (key: its id), the cosines and sines of a rotation apart
    (id of its table), a weight's rows as in the file (its name), a matrix in tiles (its name).
    """

    what: Literal["buffer", "rotation", "rows", "tiles"]
    key: int | str


@dataclass(frozen=True)
class TempRef:
    """Memory that is placed when all lifetimes are known; offset in bytes."""

    key: Hashable
    offset: int = 0


@dataclass(frozen=True)
class QuantisedActs:
    """Where a packed buffer's parts will lie: one stretch of memory, by offset; None: not there."""

    key: Hashable
    n: int
    rows: int
    q: int | None
    d: int
    s: int
    f: int | None
    size: int


@dataclass
class CpuLowered:
    """Operations in order; sizes of the memory they refer to by `TempRef`; pack descriptions by key."""

    operations: list[CpuOperation] = field(default_factory=list)
    sizes: dict[Hashable, int] = field(default_factory=dict)
    packs: dict[Hashable, QuantisedActs] = field(default_factory=dict)
    max_splits: int = 1
    split_rows: int = 0  # rows of a step whose attention may be split up
    attention_rows: int = 1  # rows of a unit of attention


def matrices_of(graph: Graph) -> dict[int, Matrix]:
    """The matrices that products read, by buffer id."""
    used = {n.inputs[1] for n in graph.nodes if n.op in (Op.MATMUL, Op.LM_HEAD)}
    out = {}
    for b in graph.of_kind(BufferKind.WEIGHT):
        if b.id in used:
            n_out, n_in = (int(d) for d in b.shape)
            out[b.id] = Matrix(b.name, b.dtype.ggml, n_out, n_in)
    return out


class CpuLowering:
    """Walks a graph once. Touches no memory: arguments stand for it as `External`, `TempRef` and `QuantisedActs`."""

    def __init__(self, graph: Graph, sizes: Capacity, choice: TargetTuning, threads: int) -> None:
        self.graph, self.sizes_, self.choice, self.threads = graph, sizes, choice, threads
        self.out = CpuLowered()
        self.readers = Readers(graph)
        self.heads = HeadChains(graph, self.readers)
        self.skip: set[int] = set()  # nodes done together with an earlier one
        self.matrices = matrices_of(graph)
        self._shape_attention()

    def _shape_attention(self) -> None:
        """What all attention of a step has in common, whatever its heads."""
        shapes = [
            tuple(int(n.attrs[a]) for a in ("n_heads", "n_kv_heads")) for n in self.graph.nodes if n.op is Op.FLASH_ATTN
        ]
        out = self.out
        out.max_splits = -(-self.sizes_.n_ctx // SPLIT)
        out.attention_rows = min((self.choice.attention_rows(heads // n_kv) for heads, n_kv in shapes), default=1)
        # Splitting up pays where there are fewer heads than threads can share.
        if self.threads > 1 and shapes:
            out.split_rows = min(self.sizes_.n_rows, 4 * self.threads // max(n_kv for _, n_kv in shapes))

    def run(self) -> CpuLowered:
        """All nodes. Raises `UnsupportedOp`."""
        for node in self.graph.nodes:
            if node.id in self.skip or node.op is Op.BARRIER:
                continue
            lower = _LOWER.get(node.op)
            if lower is None:
                supported = ", ".join(name(op) for op in _LOWER)
                raise UnsupportedOp(
                    f"node {node.name}: the native kernels have none for {name(node.op)}; they have {supported}"
                )
            lower(self, node)
        return self.out

    # -- places -----------------------------------------------------------------------------------------------------

    def width(self, buffer: int) -> int:
        """Elements of a row."""
        return math.prod(int(d) for d in self.graph.buffer(buffer).shape[1:])

    def counted(self, buffer: int) -> Scale:
        """What a step has as many of as the buffer has rows."""
        return Scale.LOGITS if self.graph.buffer(buffer).shape[0] == "n_logits" else Scale.ROWS

    def at(self, buffer: int) -> Any:
        """A buffer as an argument."""
        b = self.graph.buffer(buffer)
        if b.kind is not BufferKind.TEMP:
            return External("buffer", buffer)
        self.out.sizes[buffer] = math.prod(self.sizes_.shape(b.shape)) * 4
        return TempRef(buffer)

    def products(self, buffer: int) -> list[Node]:
        """Matrix products that read a buffer as their activations."""
        return [n for n in self.readers.of(buffer) if n.op in (Op.MATMUL, Op.LM_HEAD) and n.inputs[0] == buffer]

    def plain_needed(self, buffer: int) -> bool:
        """Whether anything but products reads a buffer."""
        return self.graph.buffer(buffer).kind is not BufferKind.TEMP or len(self.products(buffer)) < len(
            self.readers.of(buffer)
        )

    def pack_place(self, buffer: int, by_logit: bool) -> QuantisedActs:
        """The packed form of a buffer's rows (or of the wanted ones) that its products need."""
        key = ("pack", buffer, by_logit)
        if key in self.out.packs:
            return self.out.packs[key]
        wanted = [n for n in self.products(buffer) if (n.op is Op.LM_HEAD) == by_logit]
        kinds = [FORMATS[self.matrices[n.inputs[1]].kind.name].quantized for n in wanted]
        n, rows = self.width(buffer), self.sizes_.n_logits if by_logit else self.sizes_.n_rows
        groups = layout.n_groups(n)
        rows = -(-rows // layout.BLOCK_ROWS) * layout.BLOCK_ROWS if rows > layout.BLOCK_ROWS else rows
        at, parts = 0, {}
        for part, size in (
            ("q", rows * groups * GROUP if any(kinds) else 0),
            ("d", rows * groups * 4 if any(kinds) else 0),
            ("s", rows * groups * 24 if any(kinds) else 0),
            ("f", rows * groups * 128 if not all(kinds) else 0),
        ):
            parts[part] = at if size else None
            at += -(-size // 64) * 64
        place = QuantisedActs(key, n, rows, parts["q"], parts["d"] or 0, parts["s"] or 0, parts["f"], at)
        self.out.packs[key], self.out.sizes[key] = place, at
        return place

    def emit(
        self, node: Node, kind: str, kernel: Any, struct: Any, arguments: dict[str, Any], units: int, scale: Scale,
        reads: tuple[Hashable, ...], writes: tuple[Hashable, ...], n_bytes: int = 0,
    ) -> None:  # fmt: skip
        """Add an operation."""
        self.out.operations.append(
            CpuOperation(node.name, kind, kernel, struct, arguments, units, scale, reads, writes, n_bytes)
        )

    # -- activations ------------------------------------------------------------------------------------------------

    def embed(self, n: Node) -> None:
        b = self.graph.buffer(n.inputs[1])
        width = int(b.shape[1])
        arguments = {
            "table": External("rows", b.name), "row_bytes": b.dtype.row_bytes(width), "y": self.at(n.outputs[0]),
            "n": width,
        }  # fmt: skip
        self.emit(
            n, "embed", self.choice.embed(b.dtype.ggml), structs.EmbedArgs, arguments, 1, Scale.ROWS,
            (n.inputs[0],), (n.outputs[0],),
        )  # fmt: skip

    def rms_norm(self, n: Node) -> None:
        if "head_dim" in n.attrs:
            self.head_norm(n)
        else:
            self.norm_rows(n, n.inputs[0], None, n.inputs[1], None, n.outputs[0], total_read=False)

    def residual_rms_norm(self, n: Node) -> None:
        total = n.outputs[0]
        read = bool(self.readers.of(total)) or self.graph.buffer(total).kind is not BufferKind.TEMP
        self.norm_rows(n, n.inputs[0], n.inputs[1], n.inputs[2], total, n.outputs[1], total_read=read)

    def norm_rows(
        self, n: Node, x: int, residual: int | None, weight: int, total: int | None, y: int, *, total_read: bool
    ) -> None:
        """total = x + residual; y = norm(total), packed for its products; only the wanted rows if no other is read."""
        products = self.products(y)
        only_logits = bool(products) and all(p.op is Op.LM_HEAD for p in products) and not self.plain_needed(y)
        only_logits = only_logits and not total_read
        wanted = not products or self.plain_needed(y) or (any(p.op is Op.LM_HEAD for p in products) and not only_logits)
        reads: list[Hashable] = [x, *([residual] if residual is not None else [])]
        writes: list[Hashable] = [*([total] if total is not None else [])]
        arguments: dict[str, Any] = {
            "x": self.at(x), "residual": 0 if residual is None else self.at(residual), "weight": self.at(weight),
            "total": 0 if total is None else self.at(total), "n": self.width(y), "eps": float(n.attrs["eps"]),
            "by_logit": int(only_logits), "y": 0, "pack": 0,
        }  # fmt: skip
        if wanted:
            arguments["y"] = self.at(y)
            writes.append(y)
        if any(p.op is Op.MATMUL for p in products) or only_logits:
            place = self.pack_place(y, only_logits)
            arguments["pack"] = place
            writes.append(place.key)
        self.emit(
            n, "norm", self.choice.norm(), structs.NormArgs, arguments, 1,
            Scale.LOGITS if only_logits else Scale.ROWS, tuple(reads), tuple(writes),
        )  # fmt: skip

    def residual_add(self, n: Node) -> None:
        follower = self.readers.sole(n.outputs[0], Op.RMS_NORM)
        if follower is not None and "head_dim" not in follower.attrs:
            self.skip.add(follower.id)
            self.norm_rows(
                follower, n.inputs[0], n.inputs[1], follower.inputs[1], n.outputs[0], follower.outputs[0],
                total_read=False,
            )  # fmt: skip
            return
        self.add(n)

    def add(self, n: Node) -> None:
        a, b, y = n.inputs[0], n.inputs[1], n.outputs[0]
        repeat = len(self.graph.buffer(b).shape) == 1
        arguments = {"a": self.at(a), "b": self.at(b), "y": self.at(y), "n": self.width(y), "repeat": int(repeat)}
        self.emit(n, "add", self.choice.add(), structs.AddArgs, arguments, 1, self.counted(y), (a, b), (y,))

    def swiglu(self, n: Node) -> None:
        gate, up, y = n.inputs[0], n.inputs[1], n.outputs[0]
        self.pack_rows(n, "swiglu", gate, up, y, by_logit=False)

    def pack_rows(self, n: Node, kind: str, x: int, up: int | None, y: int, *, by_logit: bool) -> None:
        """Pack a buffer for its products; with `up`, silu(x) * up first, which is the buffer y."""
        width = self.width(x)
        arguments: dict[str, Any] = {
            "x": self.at(x), "up": 0 if up is None else self.at(up), "n": width, "y": 0, "pack": 0,
            "by_logit": int(by_logit),
        }  # fmt: skip
        writes: list[Hashable] = []
        if up is not None and (self.plain_needed(y) or any(p.op is Op.LM_HEAD for p in self.products(y))):
            arguments["y"] = self.at(y)
            writes.append(y)
        if up is None or any(p.op is Op.MATMUL for p in self.products(y)):
            place = self.pack_place(y, by_logit)
            arguments["pack"] = place
            writes.append(place.key)
        reads = (x,) if up is None else (x, up)
        self.emit(
            n, kind, self.choice.pack(), structs.PackArgs, arguments, -(-width // PACK_CHUNK),
            Scale.LOGITS if by_logit else Scale.ROWS, reads, tuple(writes),
        )  # fmt: skip

    # -- products ---------------------------------------------------------------------------------------------------

    def matmul(self, n: Node) -> None:
        y, bias = n.outputs[0], None
        follower = self.readers.sole(y, Op.BIAS_ADD)
        if follower is not None and follower.inputs[0] == y:
            term = self.at(follower.inputs[1])
            if isinstance(term, External):
                self.skip.add(follower.id)
                y, bias = follower.outputs[0], term
        self.product(n, y, bias, by_logit=False)

    def lm_head(self, n: Node) -> None:
        self.product(n, n.outputs[0], None, by_logit=True)

    def product(self, n: Node, y: int, bias: External | None, *, by_logit: bool) -> None:
        x, m = n.inputs[0], self.matrices[n.inputs[1]]
        key = ("pack", x, by_logit)
        if key not in self.out.packs:
            self.pack_rows(n, "pack", x, None, x, by_logit=by_logit)
        arguments = {
            "w": External("tiles", m.name), "tile_bytes": m.tile_bytes, "pack": self.out.packs[key], "y": self.at(y),
            "bias": 0 if bias is None else bias, "n_out": m.n_out, "by_logit": int(by_logit),
        }  # fmt: skip
        self.emit(
            n, "lm_head" if by_logit else "matmul", self.choice.matmul(m.kind), structs.MatmulArgs, arguments,
            layout.n_tiles(m.n_out), Scale.ONCE, (key,), (y,), m.n_bytes,
        )  # fmt: skip

    def argmax(self, n: Node) -> None:
        x, y = n.inputs[0], n.outputs[0]
        arguments = {"x": self.at(x), "y": self.at(y), "n": self.width(x)}
        self.emit(n, "argmax", self.choice.argmax(), structs.ArgmaxArgs, arguments, 1, self.counted(x), (x,), (y,))

    # -- heads and attention ----------------------------------------------------------------------------------------

    def head_norm(self, n: Node) -> None:
        self.heads_to_buffer(n, self.heads.norm(n))

    def rope(self, n: Node) -> None:
        self.heads_to_buffer(n, self.heads.rope(n))

    def kv_write(self, n: Node) -> None:
        for (known, cache), name_ in zip(self.heads.kv_write(n), ("k_cache", "v_cache"), strict=True):
            self.put_heads(n, known, {name_: self.at(cache)}, (cache,))

    def heads_to_buffer(self, n: Node, known: Heads | None) -> None:
        """Write heads to a node's output, unless that is for a later node."""
        if known is not None:
            self.put_heads(n, known, {"y": self.at(n.outputs[0])}, (n.outputs[0],))

    def put_heads(self, n: Node, known: Heads, to: dict[str, Any], writes: tuple[Hashable, ...]) -> None:
        """Write heads where they belong."""
        arguments = {
            "x": self.at(known.source), "weight": 0 if known.weight is None else self.at(known.weight),
            "table": 0 if known.table is None else External("rotation", known.table), "n_heads": known.n_heads,
            "eps": known.eps, "y": 0, "k_cache": 0, "v_cache": 0, **to,
        }  # fmt: skip
        kernel = self.choice.heads(known.dim, known.pairs, known.interleaved)
        reads = (known.source,) if known.positions is None else (known.source, known.positions)
        self.emit(n, "heads", kernel, structs.HeadsArgs, arguments, known.n_heads, Scale.ROWS, reads, writes)

    def flash_attn(self, n: Node) -> None:
        n_heads, n_kv, dim = (int(n.attrs[a]) for a in ("n_heads", "n_kv_heads", "head_dim"))
        group, (q, k, v, *_), y = n_heads // n_kv, n.inputs, n.outputs[0]
        out = self.out
        partial = ("partial", n.id)
        out.sizes[partial] = out.split_rows * out.max_splits * n_heads * (dim + attention.STATE) * 4
        arguments = {
            "q": self.at(q), "k_cache": self.at(k), "v_cache": self.at(v), "y": self.at(y),
            "partial": TempRef(partial), "n_kv": n_kv, "max_splits": out.max_splits, "scale": float(n.attrs["scale"]),
        }  # fmt: skip
        self.emit(
            n, "attention", self.choice.attention(group, dim, out.attention_rows), structs.AttentionArgs, arguments,
            n_kv, Scale.ATTENTION, (q, k, v), (y, partial),
        )  # fmt: skip
        if out.split_rows:
            self.emit(
                n, "merge", self.choice.merge(group, dim), structs.AttentionArgs, arguments, n_heads, Scale.MERGE,
                (partial,), (y, partial),
            )  # fmt: skip


_LOWER: dict[Op, Callable[[CpuLowering, Node], None]] = {
    Op.EMBED: CpuLowering.embed,
    Op.RMS_NORM: CpuLowering.rms_norm,
    Op.RESIDUAL_RMS_NORM: CpuLowering.residual_rms_norm,
    Op.MATMUL: CpuLowering.matmul,
    Op.BIAS_ADD: CpuLowering.add,
    Op.RESIDUAL_ADD: CpuLowering.residual_add,
    Op.SWIGLU: CpuLowering.swiglu,
    Op.ROPE: CpuLowering.rope,
    Op.KV_WRITE: CpuLowering.kv_write,
    Op.FLASH_ATTN: CpuLowering.flash_attn,
    Op.LM_HEAD: CpuLowering.lm_head,
    Op.ARGMAX: CpuLowering.argmax,
}

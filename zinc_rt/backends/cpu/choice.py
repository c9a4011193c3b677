"""Which kernels, specialised how, a target gets."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

from zinc_rt.backends.fusion import Attend
from zinc_rt.formats.kinds import CodeLayout
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import GGMLType
from zinc_rt.kernels.cpu import (
    attention,
    elementwise,
    embed,
    experts,
    grouped,
    heads,
    layout,
    matmul,
    matmul_float,
    packs,
    recurrent,
    repack,
    routing,
)
from zinc_rt.kernels.cpu.attention_split import AttentionShape
from zinc_rt.kernels.cpu.structs import CROSSED
from zinc_rt.kernels.cpu.tiles import Ahead
from zinc_rt.lang.kernel import Function, Static
from zinc_rt.lang.target import Target, host_processor
from zinc_rt.numerics import TREE_LANES

PACK_CHUNK = 256
"""Elements of a unit when activations are packed."""

SCALE_CHUNK = 2048
"""Elements of a unit when rows are scaled."""

CONV_CHUNK = 128
"""Channels of a unit of a convolution."""

Kernel = tuple[Function, dict[str, Static]]


class Ways(NamedTuple):
    """How the products of a format are computed: how many blocks of 16 rows at once in matrix registers, 0 for vectors.

    small: for products of 16 to 31 rows, 0 or 1. large: for larger ones, 0, 1 or 2.
    """

    small: int = 0
    large: int = 0


VECTORS = Ways()


@dataclass(frozen=True)
class TargetTuning:
    """Constants for a target. lanes: float32 lanes of a vector; blocks: rows a product works on at once.

    ways: of formats, by name; products of the others are computed in vectors.
    """

    lanes: int
    blocks: tuple[int, ...]
    ahead: Ahead
    tiles: str  # the matrix registers that products may use: none (""), "amx", or "emulated" for tests
    flip: int  # what Q8_0 words are xored with: makes them unsigned where the dot product wants that
    plain_avx2: bool = False  # AVX2 without dot products of four bytes: see `panels` and `lookups`
    ways: tuple[tuple[str, Ways], ...] = ()

    @classmethod
    def of(cls, target: Target) -> TargetTuning:
        """The constants that measured best."""
        unsigned = bool({"vnni", "avxvnni"} & target.isa)
        flip = 0x80808080 if unsigned else 0
        if "avx512" in target.isa:
            return cls(16, (8, 4, 2, 1), _ahead(8192), "amx" if "amx" in target.isa else "", flip)
        if target.arch == "x86_64":
            return cls(8, (4, 2, 1), _ahead(16384), "", flip, not unsigned)
        return cls(4, (4, 2, 1), Ahead(1024, 1024), "", flip)

    def matmul(self, kind: GGMLType) -> Kernel:
        """W x for a weight format."""
        constants: dict[str, Any] = {
            "FMT": kind.name,
            "W": self.lanes,
            "BLOCKS": self.blocks,
            "AHEAD": self.ahead,
        }
        if not FORMATS[kind.name].quantized:
            return matmul_float.matmul_float, constants
        return matmul.matmul, {**constants, **self._matrix(kind)}

    def ways_of(self, kind: GGMLType) -> Ways:
        """How a format's products are computed."""
        return dict(self.ways).get(kind.name, VECTORS)

    def parts(self, kind: GGMLType) -> set[str]:
        """Which parts of a pack products with this format read, beside scales and sums."""
        if not FORMATS[kind.name].quantized:
            return {"f"}
        words = self.plain_avx2 and FORMATS[kind.name].wide
        tables = self.plain_avx2 and FORMATS[kind.name].kind == CodeLayout.SIGN_BITS
        return {"q", *(["words"] if words else []), *(["tables"] if tables else [])}

    def sums(self, kind: GGMLType) -> set[int]:
        """Which of a pack's sums products with this format read."""
        return set(layout.tile_format(kind).sums) - (set() if self.plain_avx2 else {CROSSED})

    def _matrix(self, *kinds: GGMLType) -> dict[str, Any]:
        """The constants that products of these formats share."""
        ways = [self.ways_of(kind) for kind in kinds]
        both = Ways(min(w.small for w in ways), min(w.large for w in ways))
        return {"TILES": self.tiles if any(both) else "", "FEW": both.small, "MANY": both.large}

    def repack(self, kind: GGMLType) -> Kernel:
        """File rows to tiles."""
        if not FORMATS[kind.name].quantized:
            return repack.repack_float, {"FMT": kind.name}
        return repack.repack, {"FMT": kind.name, "FLIP": self.flip}

    def embed(self, kind: GGMLType) -> Kernel:
        """Rows of the embedding table."""
        return embed.embed, {"FMT": kind.name}

    def norm(self) -> Kernel:
        """RMS norm of rows."""
        return packs.norm, {"W": self.lanes, "CHUNK": PACK_CHUNK}

    def pack(self, activation: str = "silu") -> Kernel:
        """Packing, with or without a gate; one kernel does without and "silu"."""
        return packs.pack, {"W": self.lanes, "CHUNK": PACK_CHUNK, "ACT": activation}

    def _quantized(self, wanted: bool) -> dict[str, Static]:
        """The constants of kernels of a cache, which those of a float16 one leave out."""
        return {"QUANT": True, "FLIP": bool(self.flip)} if wanted else {}

    def heads(
        self, dim: int, pairs: int, interleaved: bool, *, quantized: bool = False, begin: int = 0, block: int = 1
    ) -> Kernel:
        """Norm, rotation and placing of heads; quantized: in a cache of Q8_0 blocks; begin, block: see the kernel."""
        return heads.heads, {
            "W": self.lanes,
            "DIM": dim,
            "PAIRS": pairs,
            "INTERLEAVED": interleaved and pairs > 0,
            **self._quantized(quantized),
            **({"BEGIN": begin} if begin else {}),
            **({"BLOCK": block} if block > 1 else {}),
        }

    def attention(self, n: Attend, rows: int, *, quantized: bool = False) -> Kernel:
        """Attention; rows: see `attention_rows`, at most that. quantized: over caches of Q8_0 blocks."""
        shape = AttentionShape(
            G=n.group,
            DIM=n.head_dim,
            VALUE=n.value_dim,
            ROPE=n.head_dim - n.value_dim if n.latent else 0,
            W=self.lanes,
            LATENT=n.latent,
            WINDOWED=n.windowed,
            CHUNKED=n.chunk is not None,
            CAPPED=n.softcap is not None,
            SINKS=n.sinks is not None,
            WHOLE=n.whole,
            SLOPES=n.slopes is not None,
            QUANT=quantized,
            FLIP=quantized and bool(self.flip),
            CHOSEN=n.chosen is not None,
            SECOND=self.ahead.second,
        )
        return attention.attention, {"R": rows, "S": shape}

    def attention_rows(self, group: int) -> int:
        """Rows of a sequence that share their loads of keys and values: as many as registers hold sums for."""
        queries = {4: 2, 8: 6, 16: 8}[self.lanes]
        return max(1, queries // group)

    def topk(self, gating: str, n_experts: int) -> Kernel:
        """The experts of rows."""
        most = -(-n_experts // TREE_LANES) * TREE_LANES
        return routing.topk, {"W": self.lanes, "GATING": gating, "MOST": most}

    def route(self) -> Kernel:
        """Rows in the order of their experts."""
        return routing.route, {}

    def gather(self) -> Kernel:
        """Packed rows in that order."""
        return routing.gather, {}

    def pack_pairs(self) -> Kernel:
        """Rows of pairs, packed in that order."""
        return routing.pack_pairs, {"W": self.lanes}

    def add_shared(self) -> Kernel:
        """What the shared expert adds."""
        return routing.add_shared, {"W": self.lanes}

    def _experts(self, *kinds: GGMLType) -> dict[str, Any]:
        return {"W": self.lanes, "BLOCKS": self.blocks, "AHEAD": self.ahead, **self._matrix(*kinds)}

    def expert_gate_up(self, gate: GGMLType, up: GGMLType, activation: str = "silu") -> Kernel:
        """Gate and up of chosen experts, and the activation."""
        return experts.expert_gate_up, {
            "GATE": gate.name,
            "UP": up.name,
            **self._experts(gate, up),
            "ACT": activation,
        }

    def expert_down(self, kind: GGMLType) -> Kernel:
        """Down of chosen experts, summed."""
        return experts.expert_down, {"FMT": kind.name, **self._experts(kind)}

    def grouped_pack(self) -> Kernel:
        """Parts of rows, packed."""
        return grouped.grouped_pack, {"W": self.lanes}

    def grouped_matmul(self, kind: GGMLType) -> Kernel:
        """Parts of rows times a matrix each."""
        return grouped.grouped_matmul, {"FMT": kind.name, **self._experts(kind)}

    def merge(self, n: Attend) -> Kernel:
        """Merging of splits."""
        return attention.merge, {
            "G": n.group,
            "VALUE": n.value_dim,
            "W": self.lanes,
            "WINDOWED": n.windowed,
            "CHUNKED": n.chunk is not None,
            "SINKS": n.sinks is not None,
            "WHOLE": n.whole,
        }

    def add(self) -> Kernel:
        """a + b."""
        return elementwise.add, {"W": self.lanes}

    def scale(self, function: str) -> Kernel:
        """Rows times a number, or held under a bound or between two. function: "scale", "softcap" or "clamp"."""
        return elementwise.scale, {"W": self.lanes, "CHUNK": SCALE_CHUNK, "WHAT": function}

    def multiply(self, *, gated: bool, heads: bool) -> Kernel:
        """a * b, or a * sigmoid(b). heads: b has one element for each head."""
        return elementwise.multiply, {"GATED": gated, "HEADS": heads, "W": self.lanes}

    def conv1d(self, taps: int, *, gated: bool, apart: bool) -> Kernel:
        """A causal convolution, with or without silu."""
        form = {"TAPS": taps, "GATED": gated, "APART": apart}
        return recurrent.conv1d, {**form, "CHUNK": CONV_CHUNK, "W": self.lanes}

    def delta_net(self, dim: int, *, channels: bool, bounded: bool) -> Kernel:
        """The gated delta rule; channels, bounded: see there."""
        form = {"DIM": dim, "CHANNELS": channels, "BOUNDED": bounded}
        return recurrent.delta_net, {**form, "WIDE": 8, "NARROW": 4, "W": self.lanes}

    def scan(self, state: int, dim: int, per_channel: bool) -> Kernel:
        """The selective scan."""
        part = self.scan_slice(dim)
        constants = {"STATE": state, "DIM": dim, "CHANNELS": per_channel, "SLICE": part}
        return recurrent.scan, {**constants, "NARROW": min(part, 4 * self.lanes), "W": self.lanes}

    def scan_slice(self, dim: int) -> int:
        """Elements of a unit of the scan: as many as registers hold sums for, or a line of a usual state."""
        return math.gcd(dim, min(64, 8 * self.lanes))

    def gated_norm(self, dim: int, activation: str, *, first: bool) -> Kernel:
        """RMS norm of heads, gated behind it or before it (`first`)."""
        return recurrent.gated_norm, {"DIM": dim, "FIRST": first, "SIGMOID": activation == "sigmoid", "W": self.lanes}

    def argmax(self) -> Kernel:
        """The largest of a row."""
        return elementwise.argmax, {"W": self.lanes}

    def sample(self) -> Kernel:
        """Tokens of rows of logits, with float64 lanes."""
        from zinc_rt.kernels.cpu import sampling  # not needed where the likeliest tokens are wanted

        return sampling.sample, {"W": self.lanes // 2}

    def read_sum(self) -> Kernel:
        """The bandwidth measurement."""
        return elementwise.read_sum, {"W": self.lanes, "AHEAD": 4096 if self.ahead.one else 0}


def _ahead(distance: int) -> Ahead:
    """AMD's processors since Zen 3 read a stream faster by themselves (benchmarks/results/code_of_products.md)."""
    about = host_processor()
    by_itself = about.get("vendor_id") == "AuthenticAMD" and int(about.get("cpu family", "0")) >= 25
    return Ahead(0, 16384, second=True) if by_itself else Ahead(distance, distance, 1024)

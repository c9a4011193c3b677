"""The rows of the native kernels' table: measurement, model and goal of each."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """The kinds of measurements."""

    DECODE = "decode"  # one row a step, after `depth` positions
    PREFILL = "prefill"  # `n` rows at once
    BATCH = "batch"  # `streams` rows a step, `n` steps
    START = "start"  # the whole command: load, one token, exit


@dataclass(frozen=True)
class Goal:
    """The goal of a figure. ratio: to the peer, in speed; share: of the read bandwidth; limit: in the unit."""

    ratio: float | None = None
    share: float | None = None
    limit: float | None = None

    def __str__(self) -> str:
        parts = []
        if self.ratio is not None:
            parts.append(f"{self.ratio:g} x")
        if self.share is not None:
            parts.append(f"{self.share:.0%}")
        if self.limit is not None:
            parts.append(f"≤ {self.limit:g}")
        return ", ".join(parts)


@dataclass(frozen=True)
class Row:
    """One line of the table.

    name: unique, `group/...`; model: the file's name without its ending; n: tokens (decode: steps; prefill: rows);
    depth: positions in the cache before them; streams: sequences at once; threads: None is the run's own number;
    level: the instruction-set level that is forced (None: the best there is), the peer's build with it;
    rounds: at most so many; repeats: in each, of which the median counts; peer_flags: given to the peer's program;
    must, aim: the goals, those of memory apart.
    """

    name: str
    kind: Kind
    model: str
    n: int
    depth: int = 0
    streams: int = 1
    threads: int | None = None
    level: str | None = None
    rounds: int | None = None
    repeats: int = 1
    peer_flags: tuple[str, ...] = ()
    must: Goal = Goal()
    aim: Goal = Goal()
    must_memory: Goal = Goal()
    aim_memory: Goal = Goal()

    @property
    def group(self) -> str:
        """The part of the name in front of the stroke."""
        return self.name.partition("/")[0]

    @property
    def counts_bytes(self) -> bool:
        """Whether reading the weights bounds it, so that a share of the read bandwidth says something."""
        return self.kind in (Kind.DECODE, Kind.BATCH) and self.group != "toy"

    @property
    def n_ctx(self) -> int:
        """Positions that a sequence needs."""
        return self.depth + self.n + 16


SMALL, LARGE, TOY = "qwen3-0.6b", "qwen3-8b", "toy"
FAMILIES = {
    "30b-a3b": "qwen3-30b-a3b-16l-q4_k_m",
    "35b-a3b": "qwen3.6-35b-a3b-16l-q4_k_m",
    "gpt-oss-20b": "gpt-oss-20b-12l-mxfp4",
    "gemma-4-e4b": "gemma-4-e4b-q4_k_m",
}
"""Models of the routed and other families; those of more than 8 GB are cut in layers."""
USUAL = ("q8_0", "q4_0", "q4_k_m", "q6_k", "bf16", "q4_1", "q5_0", "q5_1", "f16", "f32")
"""Mixes of the small model whose decoding and prefill are in the table."""
FORMATS = ("iq4_xs", "iq4_nl", "mxfp4_all", "q3_k", "q2_k")
"""Mixes of the small model that its row of Q4_K_M is the measure of."""
CONTEXT = 4096
"""Context in tokens of the command whose start is timed."""


def table() -> list[Row]:
    """All rows, in the order of the table."""
    return [
        *_decode(), *_formats(), *_families(), *_depth(), *_prefill(), *_thread(), *_toy(), *_batch(), *_start(),
        *_levels(),
    ]  # fmt: skip


def _decode() -> Iterable[Row]:
    goals = {
        "q8_0": (Goal(1.2, 0.80), Goal(1.45, 0.95)),
        "q4_0": (Goal(1.3, 0.65), Goal(1.8, 0.90)),
        "q4_k_m": (Goal(2.0, 0.55), Goal(3.5, 0.90)),
        "q6_k": (Goal(2.0, 0.55), Goal(3.5, 0.90)),
        "bf16": (Goal(1.4, 0.75), Goal(1.8, 0.95)),
    }
    for quant in USUAL:
        must, aim = goals.get(quant, (Goal(1.0), Goal(1.2)))
        yield Row(f"decode/0.6b-{quant}", Kind.DECODE, f"{SMALL}-{quant}", 128, must=must, aim=aim)
    for quant in ("q4_0", "q4_k_m"):
        must, aim = Goal(1.15, 0.85), Goal(1.25, 0.95)
        yield Row(f"decode/8b-{quant}", Kind.DECODE, f"{LARGE}-{quant}", 32, must=must, aim=aim)


def _formats() -> Iterable[Row]:
    """Goals are those of Q4_K_M: ten points less of the bandwidth, or as much."""
    for quant in FORMATS:
        model = f"{SMALL}-{quant}"
        yield Row(f"formats/{quant}", Kind.DECODE, model, 128, must=Goal(share=0.45), aim=Goal(share=0.9))


def _families() -> Iterable[Row]:
    decode = {
        "30b-a3b": Goal(2.0, 0.70),
        "35b-a3b": Goal(2.5, 0.65),
        "gpt-oss-20b": Goal(share=0.70),
        "gemma-4-e4b": Goal(share=0.70),
    }
    for name, must in decode.items():
        aim = Goal(share=0.85)
        yield Row(f"families/decode-{name}", Kind.DECODE, FAMILIES[name], 32, rounds=3, must=must, aim=aim)
    for name in ("30b-a3b", "35b-a3b", "gpt-oss-20b"):
        must, aim = Goal(2.0), Goal(4.0)
        yield Row(f"families/prefill-{name}", Kind.PREFILL, FAMILIES[name], 512, rounds=3, must=must, aim=aim)


def _depth() -> Iterable[Row]:
    for depth in (512, 2048, 4096, 16384):
        must = Goal(1.5) if depth >= 2048 else Goal()
        rounds = 1 if depth > 4096 else 3 if depth > 512 else None  # the peer fills its cache anew each round
        yield Row(
            f"depth/{depth}",
            Kind.DECODE,
            f"{SMALL}-q8_0",
            32,
            depth=depth,
            rounds=rounds,
            must=must,
            aim=Goal(share=0.85),
        )


def _prefill() -> Iterable[Row]:
    for size, model, quants in (("0.6b", SMALL, USUAL), ("8b", LARGE, ("q4_0", "q4_k_m"))):
        for quant in quants:
            yield Row(
                f"prefill/{size}-{quant}",
                Kind.PREFILL,
                f"{model}-{quant}",
                512,
                rounds=3 if model == LARGE else None,
                must=Goal(2.0),
                aim=Goal(5.0),
            )


def _thread() -> Iterable[Row]:
    """One thread alone."""
    for kind, n in ((Kind.DECODE, 128), (Kind.PREFILL, 512)):
        yield Row(f"thread/{kind.value}-q8_0", kind, f"{SMALL}-q8_0", n, threads=1, must=Goal(1.0), aim=Goal(1.2))


def _toy() -> Iterable[Row]:
    for threads in (1, 2):
        yield Row(
            f"toy/{threads}-thread{'s' if threads > 1 else ''}",
            Kind.DECODE,
            f"{TOY}-q8_0",
            128,
            threads=threads,
            repeats=5,
            must=Goal(1.2),
            aim=Goal(3.0),
        )


def _batch() -> Iterable[Row]:
    for quant in ("q8_0", "q4_0"):
        yield Row(
            f"batch/16-{quant}",
            Kind.BATCH,
            f"{SMALL}-{quant}",
            32,
            depth=16,
            streams=16,
            must=Goal(1.5),
            aim=Goal(2.5),
        )


def _start() -> Iterable[Row]:
    """Against llama.cpp as it comes, and at its quickest."""
    must, aim = Goal(ratio=1.0, limit=0.9), Goal(limit=0.45)
    model = f"{SMALL}-q8_0"
    cache = 2 * 28 * 8 * 128 * 2 * CONTEXT / 1e6  # keys and values, layers, heads, elements, bytes, positions
    file = 638  # MB
    memory = Goal(limit=1200), Goal(limit=round(file + cache + 100))
    yield Row("start/0.6b-q8_0", Kind.START, model, 1, must=must, aim=aim, must_memory=memory[0], aim_memory=memory[1])
    flags = ("--no-warmup", "--no-repack")
    yield Row("start/0.6b-q8_0-lean-peer", Kind.START, model, 1, peer_flags=flags, aim=Goal(ratio=1.0))


def _levels() -> Iterable[Row]:
    """Lesser instruction sets, against a peer built for them."""
    must, aim = Goal(1.0), Goal(1.5)
    for level in ("avx2", "avx512vnni"):
        for quant in ("q8_0", "q4_0", "q4_k_m"):
            model = f"{SMALL}-{quant}"
            yield Row(f"{level}/decode-{quant}", Kind.DECODE, model, 128, level=level, must=must, aim=aim)
            yield Row(f"{level}/prefill-{quant}", Kind.PREFILL, model, 512, level=level, must=must, aim=aim)

"""Kernels for drivers that compile them further (SPIR-V, PTX): those of the catalogue, of shapes as models have them,
and all that a small model of every kind needs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.helpers import T
from tests.kernels.test_adapters import adapted
from tests.models.families import CASES
from tests.models.families.build import Case, write_case
from tests.models.families.embedders import EMBEDDERS
from tests.models.families.qwen_moe import wide
from tests.vision import towers
from zinc_rt.backends.base import Capacity
from zinc_rt.backends.gpu.lowering import GpuLowering
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.ir.graph import DType, Graph
from zinc_rt.kernels.gpu import catalogue as c
from zinc_rt.kernels.gpu.catalogue import DECODE, KernelEntry
from zinc_rt.lang.target import TARGETS
from zinc_rt.models import define, define_draft_head
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.models.errors import ModelError
from zinc_rt.models.towers import define_tower

SIZES = Capacity(16, 8, 512, 4, 128)
DRIVERS = ("spirv", "ptx80", "ptx")
"""Targets; most of what is compiled for the last two is the same."""


def named(entries: Iterable[KernelEntry]) -> dict[str, KernelEntry]:
    """By their symbols, which no two have in common."""
    return {entry.spec.symbol: entry for entry in entries}


def _products(kind: str) -> Iterator[KernelEntry]:
    """Of one format: rows, experts, and what runs behind a product."""
    for rows in (1, 2, 8):
        yield c.matvec_rows(kind, rows)
    yield c.gated_experts(kind, kind, packed=True, bias=False, activation="silu")
    yield c.experts_down(kind, 4, 512, bias=False)


def _more_products(kind: str) -> Iterator[KernelEntry]:
    for rows in (1, 4, 8):
        yield c.matvec_rows(kind, rows, bias=True)
        yield c.grouped_rows(kind, rows)
        yield c.gated_rows(kind, kind, rows, packed=True, bias=rows == 8, activation="silu")
        yield c.matvec_norm(kind, rows, 4096, c.TailForm(packed=True), bias=False)
        yield c.matvec_conv(kind, rows, 4, gated=False, bias=False)
        form = c.head_form(128, 64, interleaved=False, norm=True, cache=True)
        yield c.matvec_heads(kind, rows, 4096, form, bias=True)
    yield c.expert_rows(kind, bias=False)
    yield c.experts_down_norm(kind, 8, 512, c.TailForm(packed=True), bias=False, shared=kind, n_shared=512, gated=True)


def _layers() -> Iterator[KernelEntry]:
    """Shapes of heads, caches, routers and recurrent layers as files have them."""
    for dim, group in ((64, 8), (80, 4), (96, 1), (128, 4), (256, 2)):
        for quantized in (False, True):
            if dim % 32 == 0 or not quantized:
                yield c.attention_kernel(dim, group, quantized=quantized, packed=quantized)
    yield c.attention_kernel(64, 8, window=True, sinks=True, whole=True)
    yield c.attention_kernel(256, 2, cap=True, window=True)
    yield c.attention_kernel(256, 8, gated=True, packed=True, quantized=True)
    yield c.attention_kernel(128, 1, reach=True)
    yield c.heads_kernel(c.head_form(128, 64, interleaved=False, norm=True, cache=True))
    yield c.heads_kernel(c.head_form(128, 64, interleaved=True, norm=False, cache=True, quantized=True))
    yield c.heads_kernel(c.head_form(64, 0, interleaved=False, norm=True, cache=False, packed=True))
    for dim in (64, 128, 256):
        yield c.delta_net(dim, norm="silu" if dim < 256 else "", packed=dim < 256)
    yield c.delta_net(128, norm="sigmoid", packed=True, decay="channel")
    yield c.conv1d(4, gated=False, bias=True)
    yield c.conv1d(3, gated=True, bias=False)
    yield c.choose_experts(128, 8, gating="softmax", normalise=True, bias=False, scaled=False)
    yield c.choose_experts(256, 8, gating="sigmoid", normalise=True, bias=True, scaled=True, groups=8, used=4)
    for rows in (1, 8):
        yield c.route(
            "F32", rows, 128, 8, gating="softmax", normalise=True, bias=False, scaled=False, router_bias=False,
            factor=False,
        )  # fmt: skip
    yield c.gated_norm(128)
    for dim, size in ((64, 128), (64, 256), (80, 48)):
        yield c.selective_scan(dim, size, per_channel=False)
    yield c.selective_scan(4096, 16, per_channel=True)
    yield c.gate_first_norm(4096)
    for kind in ("F32", "F16", "BF16"):
        yield c.float_tile(kind, bias=kind == "F32")
        yield c.float_expert_tiles(kind, bias=False, gather=True)
    yield c.arrange_experts(gather=True)
    yield c.sum_experts(8)
    yield c.sum_norm(weight=True, quantized=True, both=True)
    for activation in ("silu", "gelu", "clamped"):
        yield from c.gate_kernels(activation)


def _graphs(folder: Path, few: bool) -> Iterator[Graph]:
    """Of small models of every architecture, with both caches, of embedders, pictures' towers and adapters. few: some
    that have every function together.
    """
    cases = {**CASES, **EMBEDDERS}
    names = ("deepseek4", "qwen4exp", "minicpm3", "gpt-oss", "bert-mean") if few else tuple(cases)
    models: list[tuple[Case, GGMLType]] = [(cases[name], T.F32) for name in names]
    more = ("qwen35moe", "gpt-oss") if few else ("qwen35moe", "gpt-oss", "gemma3", "qwen3moe", "deepseek2")
    models += [(CASES[name], T.Q8_0) for name in more]
    if not few:
        models += [(wide(), kind) for kind in (T.Q4_0, T.Q4_K, T.Q6_K)]
    for i, (case, kind) in enumerate(models):
        with GGUFFile.open(write_case(folder / f"{i}.gguf", case, kind).path) as file:
            for definition in (define(file), define_draft_head(file)):
                if definition is not None:
                    yield definition.graph
                    with suppress(ModelError):  # heads that are no whole blocks
                        yield with_cache(definition, CacheFormat.Q8_0).graph
    for kind in ("qwen3vl_merger",) if few else towers.KINDS:
        with GGUFFile.open(towers.write(folder / f"{kind}.gguf", kind).path) as file:
            tower = define_tower(file)
            yield tower.encoder.graph
            yield tower.projector.graph
    for kind in ("plain", "wanted", "lookup", "experts", "down", "parts"):
        for dtype in (DType.F16, DType.F32):
            yield adapted(kind, 48, dtype).graph


def _tiles() -> Iterator[KernelEntry]:
    """By matrix instructions."""
    for i, kind in enumerate(c.QUANTIZED):
        yield c.block_tile(kind, bias=i % 2 == 0)
        yield c.block_expert_tiles(kind, bias=i % 2 == 1)


@cache
def entries(target: str) -> Mapping[str, KernelEntry]:
    """All kernels of a target, by their symbols."""
    return {**_listed(False), **(named(_tiles()) if TARGETS[target].matrix_instructions else {})}


@cache
def _listed(few: bool) -> Mapping[str, KernelEntry]:
    """All but those by matrix instructions; few: of fewer models."""
    found = dict(named(DECODE.values()))
    for kind in (*c.QUANTIZED, *c.FLOATS):
        found |= named(_products(kind)) | named(_more_products(kind))
    found |= named(_layers())
    with TemporaryDirectory() as folder:
        for graph in _graphs(Path(folder), few):
            found |= named(GpuLowering(graph, SIZES).run().kernels)
    return found


@cache
def _some() -> tuple[KernelEntry, ...]:
    """Of every function one kernel at the least, of every fourth format products of one, two and eight rows by turns,
    and of the functions with many forms those that differ most. Of what differs by a bias alone, one.
    """
    found = [entry for name, entry in DECODE.items() if not name.startswith(("matvec_", "embed_"))]
    for i, kind in enumerate((*c.QUANTIZED[::4], *c.FLOATS)):
        found.append(c.matvec_rows(kind, (1, 2, 1, 8)[i % 4]))
        if i % 4 == 0:
            found.append(DECODE[f"embed_{kind.lower()}"])
    found += [c.attention_kernel(128, 4), c.attention_kernel(256, 8, gated=True, packed=True, quantized=True)]
    found.append(c.experts_down("Q6_K", 4, 512, bias=False))  # LLVM reverses two bits in it
    found += [c.float_tile("BF16", bias=False), c.float_expert_tiles("F16", bias=False, gather=True)]
    found.append(c.delta_net(128, norm="sigmoid", packed=True, decay="channel"))
    found.append(c.selective_scan(4096, 16, per_channel=True))
    known = {entry.spec.function.name for entry in found}
    for entry in _layers():
        if entry.spec.function.name not in known:
            known.add(entry.spec.function.name)
            found.append(entry)
    for entry in _listed(True).values():
        if entry.spec.function.name not in known:
            known |= {entry.spec.function.name, f"{entry.spec.function.name}_bias"}
            found.append(entry)
    return tuple(named(found).values())


PARTS = 9


def some_entries(part: int, target: str) -> Mapping[str, KernelEntry]:
    """A share of some kernels of each kind."""
    tiles = list(_tiles())[::14] if TARGETS[target].matrix_instructions else []
    return named((*_some(), *tiles)[part::PARTS])

"""A definition whose parts contradict each other, or ask for what is not built, is refused by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from tests.helpers import LLAMA, Spec, write_model
from zinc_rt import models
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.errors import GraphError
from zinc_rt.ir.graph import BufferKind
from zinc_rt.ir.op import Op
from zinc_rt.models import ModelDefinition, StateKind, StateSpec, WeightRows, phi3
from zinc_rt.models.attention import AttentionSpec
from zinc_rt.models.blocks import Residual, decoder, pre_norm_block
from zinc_rt.models.config import DenseInfo, HeadSizes
from zinc_rt.models.errors import ModelError
from zinc_rt.models.feed_forward import FeedForwardSpec
from zinc_rt.models.parts import GraphParts
from zinc_rt.models.states import StateBooks

Define = Callable[[GGUFFile, str], ModelDefinition]


@dataclass(frozen=True)
class Made:
    """An architecture of one function."""

    function: Define
    NAMES: tuple[str, ...] = ("made",)

    def define(self, file: GGUFFile, name: str) -> ModelDefinition:
        return self.function(file, name)


@contextmanager
def made(tmp_path: Path, define: Define, spec: Spec = LLAMA) -> Iterator[GGUFFile]:
    """A llama file whose architecture is called "made", and is what `define` makes of it."""
    path = write_model(tmp_path / "m.gguf", replace(spec, architecture="made")).path
    architecture = Made(define)
    models.register(architecture)
    try:
        with GGUFFile.open(path) as file:
            yield file
    finally:
        models.unregister(architecture)


@dataclass(frozen=True)
class WithSinks(Spec):
    """A model whose first layer has so many sinks."""

    n_sinks: int = 4

    def shapes(self) -> dict[str, tuple[int, ...]]:
        return {**super().shapes(), "blk.0.attn_sinks.weight": (self.n_sinks,)}


def parts_of(file: GGUFFile, name: str) -> tuple[GraphParts, DenseInfo]:
    info = DenseInfo.from_file(file, name, interleaved_rope=True)
    return GraphParts(file, info, info.eps), info


def test_the_definition_of_a_dense_model(tmp_path: Path) -> None:
    with made(tmp_path, phi3.define) as file:
        definition = models.define(file)
        graph = definition.graph
        (state,) = definition.states
        assert state == StateSpec(
            "kv",
            StateKind.PAGES,
            (0, 1),
            tuple(f"blk.{i}.{s}_cache" for i in (0, 1) for s in "kv"),
            position_bytes=256,
            read_bytes=256,
        )
        assert set(definition.constants) == {"rope_table"} == {b.name for b in graph.of_kind(BufferKind.CONSTANT)}
        for name, rows in definition.weights.items():
            assert rows == WeightRows(name, 0, file.tensors[name].n_rows)
            assert definition.raw(file, name).tobytes() == file.raw(name).tobytes()


def test_bytes_that_a_step_reads() -> None:
    everything = StateSpec("kv", StateKind.PAGES, (0,), ("k", "v"), position_bytes=32, read_bytes=64)
    windowed = replace(everything, window=10)
    recurrent = StateSpec("conv", StateKind.SEQUENCE, (1,), ("s",), sequence_bytes=500)
    assert [everything.bytes_read(n) for n in (0, 1, 100)] == [0, 64, 6400]
    assert [windowed.bytes_read(n) for n in (0, 9, 10, 11, 100)] == [0, 576, 640, 640, 640]
    assert [recurrent.bytes_read(n) for n in (0, 100)] == [500, 500]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda d: replace(d, constants={}), "constant buffers .* constants differ in rope_table"),
        (lambda d: replace(d, constants={**d.constants, "more": d.constants["rope_table"]}), "differ in more"),
        (lambda d: replace(d, states=()), "state buffers .* states differ in blk.0.k_cache, blk.0.v_cache"),
        (lambda d: replace(d, states=(*d.states, d.states[0])), "two states hold blk.0.k_cache"),
        (lambda d: replace(d, weights={}), "weight buffers .* weights differ in blk.0.attn_k.weight"),
    ],
)
def test_parts_that_do_not_belong_together(
    change: Callable[[ModelDefinition], ModelDefinition], message: str, tmp_path: Path
) -> None:
    with made(tmp_path, phi3.define) as file:
        definition = models.define(file)
        with pytest.raises(ModelError, match=f"'made': .*{message}"):
            change(definition)


def test_rows_that_nobody_reads(tmp_path: Path) -> None:
    """A tensor cut into projections must be used up."""

    def define(file: GGUFFile, name: str) -> ModelDefinition:
        definition, name = phi3.define(file, name), "blk.1.ffn_up.weight"
        return replace(definition, weights={**definition.weights, name: WeightRows(name, 0, 95)})

    with (
        made(tmp_path, define) as file,
        pytest.raises(ModelError, match=r"'made' reads 95 of the 96 rows of blk\.1\.ffn_up\.weight"),
    ):
        models.define(file)


def test_a_window(tmp_path: Path) -> None:
    def define(file: GGUFFile, name: str) -> ModelDefinition:
        parts, info = parts_of(file, name)
        attention = AttentionSpec(info.heads, parts.rotation(info.rope))
        block = pre_norm_block(attention, FeedForwardSpec(info.n_ff))
        windowed = pre_norm_block(replace(attention, window=128, softcap=30.0), FeedForwardSpec(info.n_ff))
        return decoder(parts, [block, windowed])

    with made(tmp_path, define) as file:
        definition = models.define(file)
    everything, local = (n for n in definition.graph.nodes if n.op is Op.FLASH_ATTN)
    assert not {"window", "softcap"} & everything.attrs.keys()
    assert (local.attrs["window"], local.attrs["softcap"]) == (128, 30.0)
    assert [(s.name, s.layers, s.window) for s in definition.states] == [
        ("kv", (0,), None),
        ("kv of 128 positions", (1,), 128),
    ]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"window": 0}, "'blk.0.flash_attn'.*'window' is 0, expected int of at least 1"),
        ({"window": -5}, "'window' is -5, expected int of at least 1"),
        ({"softcap": 0.0}, "'softcap' is 0.0, expected float above 0"),
        ({"softcap": math.nan}, "'softcap' is nan, expected a finite number"),
        ({"softcap": math.inf}, "'softcap' is inf, expected a finite number"),
    ],
)
def test_windows_and_caps_that_say_nothing(change: dict[str, float], message: str, tmp_path: Path) -> None:
    def define(file: GGUFFile, name: str) -> ModelDefinition:
        parts, info = parts_of(file, name)
        attention = replace(AttentionSpec(info.heads, None), **change)
        return decoder(parts, [pre_norm_block(attention, FeedForwardSpec(info.n_ff))] * info.n_layers)

    with made(tmp_path, define) as file, pytest.raises(GraphError, match=message):
        models.define(file)


@pytest.mark.parametrize("spec", [LLAMA, WithSinks(n_sinks=3)])
def test_sinks_are_one_a_head(spec: Spec, tmp_path: Path) -> None:
    def define(file: GGUFFile, name: str) -> ModelDefinition:
        parts, info = parts_of(file, name)
        attention = AttentionSpec(info.heads, None, sinks=True)
        return decoder(parts, [pre_norm_block(attention, FeedForwardSpec(info.n_ff))] * info.n_layers)

    with made(tmp_path, define, spec) as file, pytest.raises(ModelError, match=r"blk\.0\.attn_sinks\.weight.*\[4\]"):
        models.define(file)


@pytest.mark.parametrize(
    ("shared", "n_kv_heads", "message"),
    [
        (1, 2, "block 1 has no KV cache to share; blocks that have one so far: 0"),
        (7, 2, "block 7 has no KV cache"),
        (0, 4, "block 0 caches 2 heads of 16, they cannot be shared as 4 of 16"),
    ],
)
def test_caches_that_cannot_be_shared(shared: int, n_kv_heads: int, message: str, tmp_path: Path) -> None:
    def define(file: GGUFFile, name: str) -> ModelDefinition:
        parts, info = parts_of(file, name)
        first = AttentionSpec(info.heads, None)
        second = replace(first, heads=replace(info.heads, n_kv_heads=n_kv_heads), shared_kv=shared)
        return decoder(parts, [pre_norm_block(a, FeedForwardSpec(info.n_ff)) for a in (first, second)])

    with made(tmp_path, define) as file, pytest.raises(ModelError, match=message):
        models.define(file)


def test_a_layer_has_one_cache(tmp_path: Path) -> None:
    with made(tmp_path, phi3.define) as file:
        states: StateBooks = parts_of(file, "made")[0].states
    states.kv_cache(3, HeadSizes(1, 1, 8))
    with pytest.raises(ModelError, match="block 3 has a KV cache already"):
        states.kv_cache(3, HeadSizes(1, 1, 8))


def test_layers_of_one_window_are_one_kind(tmp_path: Path) -> None:
    with made(tmp_path, phi3.define) as file:
        states = parts_of(file, "made")[0].states
    for layer, window in enumerate((128, None, 128, None)):
        states.kv_cache(layer, HeadSizes(2, 2, 8), window=window)
    local, everything = states.specs()
    assert (local.window, local.layers, local.position_bytes) == (128, (0, 2), 2 * 2 * 2 * 8 * 2)
    assert (everything.window, everything.layers, everything.position_bytes) == (None, (1, 3), 2 * 2 * 2 * 8 * 2)


def test_a_sum_goes_with_the_norm_behind_it(tmp_path: Path) -> None:
    """One node where a norm follows, two where the sum is read before, none for what nobody asks for."""
    with made(tmp_path, phi3.define) as file:
        parts, _ = parts_of(file, "made")
        a, b = (parts.temp(name, 64) for name in "ab")
        x = Residual(parts, a)
        assert x.value() == a
        x.add(b, "sum")
        x.norm("blk.0.attn_norm")
        total = x.value()
        x.add(b, "next")
        value = x.value()
        x.norm("blk.0.ffn_norm")
        x.replace(b)
        assert x.value() == b
    nodes = [(n.name, n.inputs[:2], n.outputs[0]) for n in parts.g._nodes]
    assert nodes[0] == ("blk.0.attn_norm.residual_rms_norm", (a, b), total)
    assert nodes[1] == ("next.residual_add", (total, b), value)
    assert nodes[2][0] == "blk.0.ffn_norm.rms_norm"
    assert nodes[2][1][0] == value
    assert len(nodes) == 3


def test_rows_of_every_period(tmp_path: Path) -> None:
    """A tensor whose heads hold two things becomes two matrices, which backends read as if they were stored so."""
    with made(tmp_path, phi3.define) as file:
        parts = parts_of(file, "made")[0]
        name = "blk.0.ffn_up.weight"
        n_out, n_in = file.tensors[name].shape
        whole = file.raw(name)
        for i, (start, stop) in enumerate(((0, 5), (5, 8))):
            parts.weight_rows(name, (n_out, n_in), start, stop, period=8)
            rows = list(parts._rows.values())[i]
            assert rows == WeightRows(name, start, stop, 8)
            assert rows.count(n_out) == n_out // 8 * (stop - start)
            buffer = parts.g._buffers[parts._weights[f"{name}[{start}:{stop} of 8]"]]
            assert buffer.shape == (rows.count(n_out), n_in)
            definition = phi3.define(file, "made")
            raw = replace(definition, weights={**definition.weights, name: rows}).raw(file, name)
            chosen = [whole[r].tobytes() for r in range(n_out) if start <= r % 8 < stop]
            assert [row.tobytes() for row in raw.reshape(-1, raw.shape[-1])] == chosen
        for start, stop, period in ((0, 9, 8), (5, 5, 8), (-1, 3, 8), (0, 3, 7)):
            with pytest.raises(ModelError, match=f"no rows {start} to {stop} of every {period}"):
                parts.weight_rows(name, (n_out, n_in), start, stop, period=period)


def test_rows_of_a_period_that_nobody_reads(tmp_path: Path) -> None:
    def define(file: GGUFFile, name: str) -> ModelDefinition:
        definition, name = phi3.define(file, name), "blk.1.ffn_up.weight"
        return replace(definition, weights={**definition.weights, name: WeightRows(name, 0, 3, 8)})

    with (
        made(tmp_path, define) as file,
        pytest.raises(ModelError, match=r"reads 36 of the 96 rows of blk\.1\.ffn_up\.weight"),
    ):
        models.define(file)

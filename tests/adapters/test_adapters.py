"""Adapters on whole models: what they add, the same bits everywhere and beside others, what is refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import zinc_rt
from tests.adapters.files import DENSE, story_adapters, write_adapter
from tests.helpers import LLAMA, QWEN2, QWEN3, Spec, T, Tiny, random_tokens, soon, write_model
from zinc_rt.adapters.errors import AdapterError, UnknownAdapter
from zinc_rt.adapters.slots import AdapterRequest, AdapterSlots, AdapterUse
from zinc_rt.engine.engine import Device, Engine, Options, SequenceChunk
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile, GGUFWriter, ValueType
from zinc_rt.models import define

ALL = (*DENSE, "output.weight", "token_embd")


def merged(tiny: Tiny, path: Path, added: Mapping[str, np.ndarray], scale: float) -> Path:
    """The model with the adapter in its weights, in float32."""
    writer = GGUFWriter(path)
    for key, value in tiny.spec.metadata().items():
        writer.add(key, value, ValueType.UINT32 if type(value) is int else None)
    for name, values in tiny.tensors.items():
        whole = np.float32(values + scale * added.get(name, 0.0))
        writer.add_tensor(name, whole.reshape(-1, whole.shape[-1]).view(np.uint8), T.F32, whole.shape)
    writer.write()
    return path


def run(
    path: Path, chunks: list[tuple[list[int], tuple[AdapterUse, ...]]], slots: Any = None, **options: Any
) -> list[np.ndarray]:
    """The logits after each token of texts in one step, as bits."""
    with GGUFFile.open(path) as file, Engine(Options(n_ctx=64, n_slots=len(chunks), **options)) as engine:
        definition = define(file)
        if slots is not None:
            definition = AdapterSlots.make(definition, file, slots).definition
        engine.load(file, definition)
        batch = [
            SequenceChunk(engine.open_sequence(salt=None), 0, tokens, range(len(tokens)), adapters=uses)
            for tokens, uses in chunks
        ]
        rows = np.split(engine.step(batch).logits.copy(), np.cumsum([len(tokens) for tokens, _ in chunks])[:-1])
        return [part.view(np.uint32) for part in rows]


@pytest.mark.parametrize(
    "spec",
    [pytest.param(LLAMA, marks=pytest.mark.slow), QWEN2, replace(QWEN3, tied=True)],
    ids=lambda spec: spec.architecture,
)
def test_it_is_as_if_merged(spec: Spec, tmp_path: Path) -> None:
    """On all products, the embedding and the head, against the model whose weights have it."""
    tiny = write_model(tmp_path / "model.gguf", spec)
    names = tuple(name for name in ALL if name != "output.weight" or not spec.tied)
    if spec.tied:  # the embedding's pair is for the lookup alone, merged weights would change the head
        names = names[:-1]
    rank = {"attn_q": 3, "ffn": 40}
    added = write_adapter(tmp_path / "a.gguf", spec.architecture, spec.shapes(), names, rank=rank, size=0.3)
    tokens = random_tokens(3, 9, spec.n_vocab)
    (want,) = run(merged(tiny, tmp_path / "merged.gguf", added, 0.5), [(tokens, ())], kernels="reference")
    given = [AdapterRequest(tmp_path / "a.gguf")]
    (got,) = run(tiny.path, [(tokens, (AdapterUse(0, 0.5),))], given, kernels="reference")
    (without,) = run(tiny.path, [(tokens, ())], kernels="reference")
    differ = np.abs(got.view(np.float32) - want.view(np.float32)).max()
    assert differ < 1e-3
    assert np.abs(without.view(np.float32) - want.view(np.float32)).max() > 0.1


@pytest.mark.parametrize("weights", soon((T.Q8_0,), (T.Q8_0, T.Q4_K, T.F16)), ids=lambda kind: kind.name)
def test_the_same_bits_whoever_is_beside(weights: Any, tmp_path: Path) -> None:
    """Several adapters at once, in one step; on both kernels; a row without any as if none were loaded.

    `tests/kernels/test_adapters.py` has the other formats.
    """
    n_embd = 256 if weights is T.Q4_K else 64
    spec = replace(
        QWEN3, n_layers=1, weights=weights, n_embd=n_embd, n_ff=256 if n_embd == 256 else 96, n_heads=n_embd // 16
    )
    path = write_model(tmp_path / "model.gguf", replace(spec, head_dim=16)).path
    spec = replace(spec, head_dim=16)
    given = []
    for i, (names, kind) in enumerate([(ALL, T.F32), (("ffn_down",), T.BF16), (DENSE, T.F16)]):
        write_adapter(tmp_path / f"{i}.gguf", "qwen3", spec.shapes(), names, rank=3 + i, kind=kind, seed=i)
        given.append(AdapterRequest(tmp_path / f"{i}.gguf"))
    one, two = AdapterUse(0, 0.5), AdapterUse(2, -1.5)
    chunks = [
        (random_tokens(1, 8, spec.n_vocab), ()),
        (random_tokens(2, 5, spec.n_vocab), (one,)),
        (random_tokens(3, 6, spec.n_vocab), (one, AdapterUse(1, 1.0), two)),
        (random_tokens(4, 1, spec.n_vocab), (two,)),
    ]
    want = run(path, chunks, given, kernels="reference")
    for threads in (1, 2):
        for a, b in zip(run(path, chunks, given, threads=threads), want, strict=True):
            assert (a == b).all()
    for i in (0, 2):
        assert (run(path, [chunks[i]], given)[0] == want[i]).all()
    assert (run(path, chunks[:1])[0] == want[0]).all()
    assert not (want[1] == run(path, [(chunks[1][0], ())])[0]).all()


@pytest.mark.slow  # takes seconds; `tests/kernels/test_adapters.py` has each kind of product on a GPU
def test_an_emulated_gpu(tmp_path: Path) -> None:
    """All products of a model; rows with several adapters, with one, and without; one is loaded behind the model."""
    spec = replace(QWEN3, n_layers=1, n_ff=64, weights=T.Q8_0)
    path = write_model(tmp_path / "model.gguf", spec).path
    for i, names in enumerate((ALL, DENSE)):
        write_adapter(tmp_path / f"{i}.gguf", "qwen3", spec.shapes(), names, rank=3 + i, seed=i)
    given = [AdapterRequest(tmp_path / f"{i}.gguf") for i in range(2)]
    one, two = AdapterUse(0, 0.5), AdapterUse(1, -1.5)
    chunks = [([5, 6], ()), ([7], (one, two)), ([8, 9], (two,))]
    want = np.concatenate(run(path, chunks, given, kernels="reference"))
    with GGUFFile.open(path) as file, Engine(Options(n_ctx=32, n_slots=3, n_batch=8, device=Device.emu)) as engine:
        slots = AdapterSlots.make(define(file), file, given[:1], free=1)
        engine.load(file, slots.definition)
        slots.write = engine.write_constant
        slots.load(given[1])
        got = engine.step(
            [SequenceChunk(engine.open_sequence(), 0, ids, range(len(ids)), adapters=uses) for ids, uses in chunks]
        )
        assert (got.logits.view(np.uint32) == want).all()


def test_in_python(tmp_path: Path) -> None:
    """Adapters for all texts, chosen ones, their scales, the prefix cache, and loading at run time."""
    files = story_adapters(tmp_path, "abc")
    tokens = random_tokens(1, 40, 100)

    def logits(**options: Any) -> np.ndarray:
        with zinc_rt.load(n_ctx=128, device="cpu", **options) as model:
            return model.logits(tokens).view(np.uint32)

    plain, a, half, both = (logits(lora=lora) for lora in (None, files[0], (files[0], 0.5), files[:2]))
    with zinc_rt.load(n_ctx=128, device="cpu", lora={"a": files[0], "b": files[1]}, lora_slots=1) as model:
        for _ in range(2):  # the second time with what the prefix cache has
            for adapters, want in ((None, plain), ("a", a), ({"a": 0.5}, half), (["a", "b"], both), (["b", "a"], both)):
                chosen = model.with_adapter(adapters)
                assert (chosen.logits(tokens).view(np.uint32) == want).all()
                assert chosen.cached_tokens(tokens) >= 32
        assert (model.logits(tokens).view(np.uint32) == plain).all()
        assert model.with_adapter("a", 2.0).cached_tokens(tokens) == 0
        with pytest.raises(UnknownAdapter, match="no adapter 'c' is loaded; there are a, b"):
            model.with_adapter("c")
        model.load_adapter(files[2], "c")
        c = model.with_adapter("c")
        assert (c.logits(tokens).view(np.uint32) == logits(lora=files[2])).all()
        with pytest.raises(UsageError, match="room for 3 adapters"):
            model.load_adapter(files[2], "d")
        text = c.stream(tokens, max_tokens=3, temperature=0)
        first = next(text)
        model.unload_adapter("c")  # while it is in use: the text ends first
        with pytest.raises(UsageError, match="room for 3"):
            model.load_adapter(files[0], "d")
        assert first.token_id is not None
        assert len([chunk for chunk in text if chunk.token_id is not None]) == 2
        with pytest.raises(UnknownAdapter):
            c.generate(tokens, max_tokens=1)
        model.load_adapter(files[0], "c")
        assert (c.logits(tokens).view(np.uint32) == a).all()
        with pytest.raises(UsageError, match="without adapters"):
            c.save_state(tmp_path / "state", tokens)


Refused = Callable[[Path, Path], Any]
SHAPES = QWEN3.shapes()
Q = "blk.0.attn_q.weight"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"keys": {"general.type": "model"}}, "general.type = 'model'; an adapter has 'adapter'"),
        ({"keys": {"adapter.type": None}}, "adapter.type = None"),
        ({"keys": {"general.architecture": "llama"}}, "architecture 'llama', the model is of architecture 'qwen3'"),
        ({"alpha": float("nan")}, "adapter.lora.alpha = nan"),
        ({"change": {f"{Q}.lora_b": None}}, f"{Q}.lora_a without {Q}.lora_b"),
        ({"change": {f"{Q}.lora_a": None}}, f"{Q}.lora_b without {Q}.lora_a"),
        ({"change": {f"{Q}.lora_a": (5, 64)}}, f"{Q}.lora_b of shape \\[96, 4\\] has rank 4, {Q}.lora_a of shape"),
        ({"change": {f"{Q}.lora_a": (4, 65)}}, f"tensor {Q}.lora_a has shape \\[4, 65\\].* must be \\[4, 64\\]"),
        ({"change": {f"{Q}.lora_b": (95, 4)}}, f"tensor {Q}.lora_b has shape \\[95, 4\\].* must be \\[96, 4\\]"),
        ({"shapes": {**SHAPES, "blk.9.attn_q.weight": (96, 64)}}, "the model has no tensor blk.9.attn_q.weight"),
        ({"shapes": {**SHAPES, "blk.0.attn_qkv.weight": (96, 64)}, "names": ("attn_qkv",)}, "no tensor blk.0.attn_qkv"),
        ({"names": ()}, "no tensors that end in .lora_a and .lora_b"),
        ({"rank": 1025}, "has rank 1025, at most 1024"),
        ({"keys": {"adapter.alora.invocation_tokens": [1, 2]}}, "adapter.alora.invocation_tokens"),
    ],
)
def test_what_is_refused(options: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = write_model(tmp_path / "model.gguf", QWEN3).path
    architecture, shapes = "qwen3", options.pop("shapes", SHAPES)
    write_adapter(tmp_path / "a.gguf", architecture, shapes, **options)
    with GGUFFile.open(path) as file, pytest.raises(AdapterError, match=message):
        AdapterSlots.make(define(file), file, [AdapterRequest(tmp_path / "a.gguf")])


def test_wrong_arguments(tmp_path: Path) -> None:
    (a,) = story_adapters(tmp_path, "a")
    for lora, message in (
        (3, "lora is 3"),
        ([(a, "x")], "a number is needed"),
        ({"": "a.gguf"}, "names are texts"),
        ([a] * 2, "'a' is loaded already"),
    ):
        with pytest.raises(UsageError, match=message):
            zinc_rt.load(lora=lora)
    with pytest.raises(UsageError, match="loaded to embed"):
        zinc_rt.load(lora=a, embeddings=True)
    with zinc_rt.load(n_ctx=64) as model:
        with pytest.raises(UsageError, match="without room for adapters"):
            model.with_adapter("a")
        assert model.adapters == []

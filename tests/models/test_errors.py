"""Files that are no model, or not one that runs here: each is refused by name, before anything is computed."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import LLAMA, QWEN2, QWEN3, Spec, T, engine_for, write_model
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, UnsupportedTensorType
from zinc_rt.models import ModelDefinition, architecture_of, define, supported
from zinc_rt.models.architectures import FILES, architecture_for
from zinc_rt.models.config import DenseInfo, HeadSizes
from zinc_rt.models.errors import ModelError


def defined(path: Path) -> ModelDefinition:
    with GGUFFile.open(path) as file:
        return define(file)


def dense(path: Path) -> DenseInfo:
    info = defined(path).info
    assert isinstance(info, DenseInfo)
    return info


Parts = tuple[dict[str, Any], dict[str, tuple[GGMLType, tuple[int, ...], np.ndarray]]]
_GOOD: dict[str, Parts] = {}


def good_parts(tmp_path: Path, spec: Spec) -> Parts:
    """Metadata and tensors of a good file, made once for each kind of model."""
    if repr(spec) not in _GOOD:
        tiny = write_model(tmp_path / "good.gguf", spec)
        with GGUFFile.open(tiny.path) as file:
            tensors = {n: (info.type, info.shape, file.raw(n).copy()) for n, info in file.tensors.items()}
            _GOOD[repr(spec)] = dict(file.metadata), tensors
    return _GOOD[repr(spec)]


def altered(
    tmp_path: Path,
    spec: Spec = LLAMA,
    keys: Mapping[str, Any] | None = None,
    tensors: Mapping[str, tuple[GGMLType, tuple[int, ...]] | None] | None = None,
) -> Path:
    """A good file with some keys and tensors changed, or removed (None). Changed tensors hold zeros."""
    metadata, good = good_parts(tmp_path, spec)
    writer = GGUFWriter(tmp_path / "bad.gguf")
    for key, value in {**metadata, **(keys or {})}.items():
        if value is not None:
            writer.add(key, value)
    changed = dict(tensors or {})
    for name, (kind, shape, raw) in good.items():
        if name not in changed:
            writer.add_tensor(name, raw, kind, shape)
    for name, change in changed.items():
        if change is not None:
            kind, shape = change
            rows = int(np.prod(shape[:-1]))
            writer.add_tensor(name, np.zeros(rows * kind.row_bytes(shape[-1]), np.uint8), kind, shape)
    writer.write()
    return tmp_path / "bad.gguf"


def test_each_architecture_is_built_by_one_file() -> None:
    modules = [importlib.import_module(f"zinc_rt.models.{file}") for file in FILES]
    assert sorted(name for module in modules for name in module.NAMES) == sorted(supported())
    for module in modules:
        assert all(architecture_for(name) is module for name in module.NAMES)
    assert len(set(FILES)) == len(FILES)


@pytest.mark.parametrize("name", ["rwkv7", "llama5", "Llama", ""])
def test_unknown_architecture(name: str, tmp_path: Path) -> None:
    path = altered(tmp_path, keys={"general.architecture": name})
    with pytest.raises(ModelError) as caught:
        defined(path)
    assert repr(name) in str(caught.value)
    assert all(name in caught.value.advice for name in supported())


def test_an_encoder_is_refused(tmp_path: Path) -> None:
    path = altered(tmp_path, keys={"llama.attention.causal": False})
    with pytest.raises(ModelError, match=r"llama\.attention\.causal = false") as caught:
        defined(path)
    assert caught.value.advice.startswith("what would run: a model that generates text")
    defined(altered(tmp_path, keys={"llama.attention.causal": True}))


def test_no_architecture(tmp_path: Path) -> None:
    path = altered(tmp_path, keys={"general.architecture": None})
    with pytest.raises(ModelError, match=r"bad\.gguf has no general\.architecture"):
        defined(path)


def test_architecture_that_is_no_text(tmp_path: Path) -> None:
    path = altered(tmp_path, keys={"general.architecture": 3})
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=r"general\.architecture is 3, a string"):
        architecture_of(file)


NEEDED = [
    "context_length",
    "embedding_length",
    "block_count",
    "feed_forward_length",
    "attention.head_count",
    "attention.layer_norm_rms_epsilon",
]


@pytest.mark.parametrize("spec", [LLAMA, QWEN2, QWEN3], ids=lambda s: s.architecture)
@pytest.mark.parametrize("key", NEEDED)
def test_missing_key(key: str, spec: Spec, tmp_path: Path) -> None:
    path = altered(tmp_path, spec, keys={f"{spec.architecture}.{key}": None})
    with pytest.raises(ModelError, match=f"no {spec.architecture}.{key}"):
        defined(path)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("embedding_length", "64", "llama.embedding_length is '64', an integer is needed"),
        ("embedding_length", 64.0, "an integer is needed"),
        ("embedding_length", True, "an integer is needed"),
        ("embedding_length", 0, "between 1 and"),
        ("embedding_length", -64, "between 1 and"),
        ("embedding_length", 1 << 40, "between 1 and"),
        ("block_count", 0, "between 1 and 4096"),
        ("block_count", 4097, "between 1 and 4096"),
        ("context_length", 1 << 33, "between 1 and"),
        ("feed_forward_length", np.array([96, 64], np.int32), "the same integer in every layer"),
        ("feed_forward_length", np.array([96.0, 96.0], np.float32), "the same integer in every layer"),
        ("attention.head_count", 3, "head_count 3 must be a multiple of .*head_count_kv 2"),
        ("attention.head_count_kv", 3, "head_count 4 must be a multiple of .*head_count_kv 3"),
        ("attention.head_count_kv", 0, "between 1 and"),
        ("attention.layer_norm_rms_epsilon", "1e-5", "a finite number is needed"),
        ("attention.layer_norm_rms_epsilon", float("nan"), "a finite number is needed"),
        ("attention.layer_norm_rms_epsilon", -1.0, "at least 0"),
        ("rope.freq_base", [10000.0], "a finite number is needed"),
    ],
)
def test_wrong_values(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = altered(tmp_path, keys={f"llama.{key}": value})
    with pytest.raises(ModelError, match=message):
        defined(path)


def test_heads_that_do_not_divide_the_width(tmp_path: Path) -> None:
    keys = {"llama.attention.key_length": None, "llama.attention.value_length": None, "llama.embedding_length": 66}
    path = altered(tmp_path, keys=keys)
    with pytest.raises(ModelError, match="66 is not a multiple of the 4 heads"):
        defined(path)


def test_sizes_that_are_the_same_in_every_layer_may_be_lists(tmp_path: Path) -> None:
    keys = {
        "llama.feed_forward_length": np.array([96, 96], np.int32),
        "llama.attention.head_count": np.array([4, 4], np.uint32),
        "llama.attention.head_count_kv": np.array([2, 2], np.int64),
    }
    info = dense(altered(tmp_path, keys=keys))
    assert (info.n_ff, info.heads) == (96, HeadSizes(4, 2, 16))


def test_defaults(tmp_path: Path) -> None:
    """Keys that a file may leave out: head sizes follow from the width, key-value heads from the heads."""
    spec = replace(LLAMA, n_kv_heads=4)
    left_out = ("attention.key_length", "attention.value_length", "attention.head_count_kv", "rope.freq_base")
    info = dense(altered(tmp_path, spec, keys={f"llama.{k}": None for k in left_out}))
    assert (info.heads.head_dim, info.heads.n_kv_heads) == (16, 4)
    assert (info.rope.dim, info.rope.base) == (16, 10000.0)
    assert (info.heads.q_width, info.heads.k_width, info.heads.v_width) == (64, 64, 64)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("attention.value_length", 1025, r"heads of 1025 elements \(llama.attention.value_length\) are not supported"),
        ("expert_count", 8, "llama.expert_count is set: mixture-of-experts"),
        ("rope.scaling.type", "longrope", "'longrope'"),
    ],
)
def test_unsupported_features(key: str, value: Any, message: str, tmp_path: Path) -> None:
    path = altered(tmp_path, keys={f"llama.{key}": value})
    with pytest.raises(ModelError, match=message):
        defined(path)


def with_heads(tmp_path: Path, n_heads: int, n_kv_heads: int, head_dim: int | None) -> Path:
    """A file that states these numbers; its tensors, which are looked at later, have others."""
    keys = {"head_count": n_heads, "head_count_kv": n_kv_heads, "key_length": head_dim, "value_length": head_dim}
    return altered(tmp_path, keys={f"llama.attention.{key}": value for key, value in keys.items()})


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (
            (1000, 1, 16),
            "1000 query heads to a key-value head (llama.attention.head_count / llama.attention.head_count_kv)"
            " are not supported; at most 128 are",
        ),
        ((129, 1, 16), "129 query heads to a key-value head"),
        ((4, 2, 65536), "heads of 65536 elements (llama.attention.key_length) are not supported; at most 1024 are"),
        ((4, 2, 1025), "heads of 1025 elements"),
    ],
)
def test_heads_that_would_take_minutes_to_compile_for(heads: tuple[int, int, int], words: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError) as caught:
        defined(with_heads(tmp_path, *heads))
    assert words in str(caught.value)


def test_a_head_as_wide_as_the_model(tmp_path: Path) -> None:
    keys = {"llama.embedding_length": 8192, "llama.attention.head_count": 4}
    gone = {"llama.attention.key_length": None, "llama.attention.value_length": None}
    with pytest.raises(ModelError, match=r"heads of 2048 elements \(llama.embedding_length\) are not supported"):
        defined(altered(tmp_path, keys={**keys, **gone}))


@pytest.mark.parametrize("heads", [(128, 1, 16), (128, 1, 576), (71, 1, 64), (16, 8, 1024), (64, 8, 512)])
def test_heads_within_the_limits(heads: tuple[int, int, int], tmp_path: Path) -> None:
    """The next thing that is wrong is that the tensors have other shapes."""
    with pytest.raises(ModelError, match=r"attn_q\.weight"):
        defined(with_heads(tmp_path, *heads))


def test_a_vocabulary_beyond_the_limit(tmp_path: Path) -> None:
    rows = (1 << 24) + 1
    with GGUFFile.open(altered(tmp_path)) as file:
        embedding = replace(file.tensors["token_embd.weight"], shape=(rows, 64))
        file.tensors = {**file.tensors, "token_embd.weight": embedding}
        with pytest.raises(ModelError, match=r"vocabularies of 16777217 tokens .* at most 16777216 are"):
            define(file)


def test_no_experts_are_no_feature(tmp_path: Path) -> None:
    assert defined(altered(tmp_path, keys={"llama.expert_count": 0})).info.n_layers == 2


@pytest.mark.parametrize(
    ("spec", "names"),
    [
        (LLAMA, [n for n in replace(LLAMA, n_layers=1).shapes() if n != "output.weight"]),
        (QWEN2, [f"blk.1.attn_{part}.bias" for part in "qkv"]),
        (QWEN3, ["blk.0.attn_q_norm.weight", "blk.1.attn_k_norm.weight"]),
    ],
    ids=["llama", "qwen2", "qwen3"],
)
def test_missing_tensors(spec: Spec, names: list[str], tmp_path: Path) -> None:
    for name in names:
        with pytest.raises(ModelError, match=f"tensor {name} .*{spec.architecture!r} needs"):
            defined(altered(tmp_path, spec, tensors={name: None}))


def test_a_missing_output_is_the_embedding(tmp_path: Path) -> None:
    graph = defined(altered(tmp_path, tensors={"output.weight": None})).graph
    head = next(node for node in graph.nodes if node.name == "lm_head")
    assert graph.buffer(head.inputs[1]).name == "token_embd.weight"


@pytest.mark.parametrize(
    ("name", "shape", "wanted"),
    [
        ("blk.0.attn_q.weight", (64, 32), "[64, 64]"),
        ("blk.1.attn_k.weight", (64, 64), "[32, 64]"),
        ("blk.0.ffn_down.weight", (96, 64), "[64, 96]"),  # transposed
        ("blk.0.attn_norm.weight", (63,), "[64]"),
        ("blk.0.attn_norm.weight", (1, 64), "[64]"),
        ("output.weight", (62, 64), "[61, 64]"),
        ("token_embd.weight", (61, 96), "[61, 64]"),
        ("blk.0.attn_output.weight", (2, 32, 64), "[64, 64]"),
    ],
)
def test_wrong_shapes(name: str, shape: tuple[int, ...], wanted: str, tmp_path: Path) -> None:
    path = altered(tmp_path, tensors={name: (T.F32, shape)})
    with pytest.raises(ModelError) as caught:
        defined(path)
    assert f"tensor {name} has shape {list(shape)}" in str(caught.value)
    assert wanted in str(caught.value)


WIDE = replace(LLAMA, n_embd=256, head_dim=64, n_ff=256)


@pytest.mark.parametrize("kind", [T.Q8_K, T.Q4_0_4_4, T.F64, T.I8], ids=lambda t: t.name)
def test_formats_that_are_not_read(kind: GGMLType, tmp_path: Path) -> None:
    path = altered(tmp_path, WIDE, tensors={"blk.1.ffn_up.weight": (kind, (256, 256))})
    with pytest.raises(UnsupportedTensorType) as caught:
        defined(path)
    assert f"'blk.1.ffn_up.weight' is of type {kind.name}" in str(caught.value)
    assert caught.value.advice == "what would run: this model's Q4_K_M or Q8_0 file"
    assert all(name in str(caught.value) for name in ("Q4_K", "Q8_0", "BF16"))


@pytest.mark.parametrize("kind", [T.I32, T.F16, T.Q8_0], ids=lambda t: t.name)
def test_vectors_are_float32(kind: GGMLType, tmp_path: Path) -> None:
    path = altered(tmp_path, tensors={"output_norm.weight": (kind, (64,))})
    with pytest.raises(UnsupportedTensorType, match=f"output_norm.weight'? is of type {kind.name}.*F32"):
        defined(path)


def test_a_matrix_of_integers(tmp_path: Path) -> None:
    path = altered(tmp_path, tensors={"blk.0.attn_q.weight": (T.I32, (64, 64))})
    with pytest.raises(UnsupportedTensorType, match="I32"):
        defined(path)


def test_messages_are_one_line(tmp_path: Path) -> None:
    path = altered(tmp_path, tensors={"blk.0.attn_q.weight": None})
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.weight") as caught:
        defined(path)
    assert "\n" not in str(caught.value)


def test_the_good_file_is_good(tmp_path: Path) -> None:
    """What the alterations start from runs, and rewriting alone breaks nothing."""
    with engine_for(altered(tmp_path), kernels="reference") as engine:
        assert engine.sizes is not None

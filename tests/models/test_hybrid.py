"""qwen35, qwen35moe, qwen3next: the ways in which files differ, and what is refused. `families` has the formulas."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import T, add_tensors, logits_of, random_tokens
from tests.models.families import CASES
from tests.models.families.build import N_VOCAB, Made, add_vocabulary, write_case
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter, ValueType
from zinc_rt.models import StateKind, define
from zinc_rt.models.errors import ModelError

TOKENS = random_tokens(8, 11, N_VOCAB - 2)
Tensors = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    folder = tmp_path_factory.mktemp("hybrid")
    known: dict[str, Made] = {}

    def make(name: str) -> Made:
        if name not in known:
            known[name] = write_case(folder / f"{name}.gguf", CASES[name])
        return known[name]

    return make


def variant(path: Path, base: Made, keys: dict[str, Any], change: Callable[[Tensors], None] | None = None) -> Path:
    """The model again with other keys (None: without) and tensors."""
    tensors = {name: values.astype(np.float32) for name, values in base.tensors.items()}
    if change is not None:
        change(tensors)
    writer = GGUFWriter(path)
    writer.add("general.architecture", base.case.architecture)
    for key, value in {**base.case.keys, **keys}.items():
        whole = isinstance(value, int) and not isinstance(value, bool)
        if value is not None:
            writer.add(f"{base.case.architecture}.{key}", value, ValueType.UINT32 if whole else None)
    add_vocabulary(writer)

    def plain(name: str, shape: tuple[int, ...]) -> GGMLType:
        return T.F32

    shapes = {name: values.shape for name, values in tensors.items()}
    add_tensors(writer, shapes, plain, np.random.default_rng(0), lambda name, shape, rng: tensors[name])
    writer.write()
    return path


def logits(path: Path) -> np.ndarray:
    return logits_of(path, TOKENS, n_ctx=64, kernels="reference").view(np.uint32)


@cache
def base_logits(path: Path) -> np.ndarray:
    return logits(path)


def same(path: Path, base: Made) -> None:
    np.testing.assert_array_equal(logits(path), base_logits(base.path))


def test_layers_as_a_list(made: Callable[[str], Made], tmp_path: Path) -> None:
    """The list counts, whatever the interval says."""
    for flags in ([True, True, False], [1, 1, 0]):
        keys = {"attention.recurrent_layers": flags, "full_attention_interval": 2}
        same(variant(tmp_path / "list.gguf", made("qwen35"), keys), made("qwen35"))


def draft_block(tensors: Tensors) -> None:
    rng = np.random.default_rng(5)
    n_embd = tensors["output_norm.weight"].size
    for name in [n for n in tensors if n.startswith("blk.2.")]:
        tensors[name.replace("blk.2.", "blk.3.")] = rng.standard_normal(tensors[name].shape).astype(np.float32)
    for name, shape in {
        "eh_proj": (n_embd, 2 * n_embd),
        "enorm": (n_embd,),
        "hnorm": (n_embd,),
        "shared_head_norm": (n_embd,),
    }.items():
        tensors[f"blk.3.nextn.{name}.weight"] = rng.standard_normal(shape).astype(np.float32)


def test_blocks_that_draft_are_left_out(made: Callable[[str], Made], tmp_path: Path) -> None:
    for name in ("qwen35", "qwen35moe"):
        path = variant(tmp_path / "draft.gguf", made(name), {"block_count": 4, "nextn_predict_layers": 1}, draft_block)
        same(path, made(name))
        with GGUFFile.open(path) as file:
            definition = define(file)
            assert definition.info.n_layers == 3
            assert definition.unread == {n for n in file.tensors if n.startswith("blk.3.")}


def test_a_strange_tensor_beside_a_draft_is_refused(made: Callable[[str], Made], tmp_path: Path) -> None:
    def change(tensors: Tensors) -> None:
        draft_block(tensors)
        tensors["blk.3.nextn.other.weight"] = np.zeros(4, np.float32)

    path = variant(tmp_path / "m.gguf", made("qwen35"), {"block_count": 4, "nextn_predict_layers": 1}, change)
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=r"blk\.3\.nextn\.other\.weight"):
        define(file)


def test_rows_by_key_head_in_one_tensor(made: Callable[[str], Made], tmp_path: Path) -> None:
    """`ssm_in`, as the first converters left it."""

    def change(tensors: Tensors) -> None:
        for p in ("blk.0.", "blk.1."):
            qkv, z = tensors.pop(f"{p}attn_qkv.weight"), tensors.pop(f"{p}attn_gate.weight")
            n_k, d, n = 2, 32, qkv.shape[1]
            q, k, v = np.split(qkv, [n_k * d, 2 * n_k * d])
            heads = [part.reshape(n_k, -1, n) for part in (q, k, v, z)]
            tensors[f"{p}ssm_in.weight"] = np.concatenate(heads, axis=1).reshape(-1, n)

    same(variant(tmp_path / "m.gguf", made("qwen3next"), {}, change), made("qwen3next"))


def test_state_of_a_sequence(made: Callable[[str], Made]) -> None:
    with GGUFFile.open(made("qwen35").path) as file:
        states = {state.name: state for state in define(file).states}
    assert set(states) == {"kv", "delta net"}
    delta = states["delta net"]
    assert (delta.kind, delta.layers, delta.position_bytes) == (StateKind.SEQUENCE, (0, 1), 0)
    assert delta.buffers == tuple(f"blk.{i}.{kept}_state" for i in (0, 1) for kept in ("conv", "delta"))
    # Three inputs of (2 * 2 + 6) * 32 channels, and six heads of 32 by 32, in two layers of float32.
    assert delta.sequence_bytes == 2 * 4 * (3 * 320 + 6 * 32 * 32)
    assert states["kv"].layers == (2,)


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"ssm.state_size": None}, r"no qwen35\.ssm\.state_size"),
        ({"ssm.inner_size": 100}, r"inner_size is 100; 6 value heads .* of 32 elements .* are 192"),
        ({"ssm.group_count": 4}, "6 value heads are no multiple of 4 key heads"),
        ({"ssm.state_size": 512, "ssm.inner_size": 3072}, "512 elements .*; 1 to 256 are"),
        ({"ssm.time_step_rank": 1026, "ssm.inner_size": 32832}, "1026 value heads .*; 1 to 1024"),
        ({"ssm.conv_kernel": 1}, "1 taps .*; 2 to 16 are"),
        ({"ssm.conv_kernel": 17}, "17 taps .*; 2 to 16 are"),
        ({"attention.recurrent_layers": [True, False]}, r"recurrent_layers is \[True, False\], 3 of"),
        ({"attention.recurrent_layers": [0, 1, 2]}, r"recurrent_layers is \[0, 1, 2\], 3 of true or"),
        ({"nextn_predict_layers": 3}, "nextn_predict_layers is 3, of 3 blocks"),
        ({"nextn_predict_layers": 4}, "nextn_predict_layers is 4, it must be between 0 and 3"),
        ({"full_attention_interval": 1}, r"blk\.0\.attn_qkv"),
        ({"feed_forward_length": None}, r"no qwen35\.feed_forward_length"),
    ],
)
def test_what_is_refused(keys: dict[str, Any], message: str, made: Callable[[str], Made], tmp_path: Path) -> None:
    path = variant(tmp_path / "m.gguf", made("qwen35"), keys)
    with GGUFFile.open(path) as file, pytest.raises(ModelError, match=message):
        define(file)

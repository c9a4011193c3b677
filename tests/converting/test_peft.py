"""PEFT folders: what the new pairs add is what conversion makes of merged matrices."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converting import folders
from tests.helpers import soon
from zinc_rt.adapters.file import AdapterFile
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.model import ConvertedModel
from zinc_rt.converting.peft import PeftAdapter
from zinc_rt.gguf import GGMLType
from zinc_rt.gguf.blocks import dequantize

RANK = 3


def write_peft(folder: Path, pairs: Mapping[str, np.ndarray], base: Path | None, **config: Any) -> Path:
    """A folder as PEFT writes it. pairs: by the ends of tensors' names."""
    folder.mkdir()
    tensors = {f"base_model.model.{name}": np.float32(values) for name, values in pairs.items()}
    folders.write_safetensors(folder / "adapter_model.safetensors", folders.as_f32(tensors))
    given = {"peft_type": "LORA", "r": RANK, "lora_alpha": 6, "base_model_name_or_path": base and str(base), **config}
    (folder / "adapter_config.json").write_text(json.dumps(given))
    return folder


def drawn(tensors: Mapping[str, np.ndarray], rank: int = RANK) -> dict[str, np.ndarray]:
    """A pair for each matrix of a model's folder but the embedding, which is one of the head, maybe."""
    rng, pairs = np.random.default_rng(4), {}
    for name, x in tensors.items():
        module, _, kind = name.rpartition(".")
        if x.ndim == 2 and kind == "weight" and "norm" not in module and "embed" not in module:
            pairs[f"{module}.lora_A.weight"] = rng.standard_normal((rank, x.shape[1])).astype(np.float32)
            pairs[f"{module}.lora_B.weight"] = rng.standard_normal((x.shape[0], rank)).astype(np.float32)
    return pairs


def values_of(model: ConvertedModel, name: str) -> np.ndarray:
    tensor = model.tensors[name]
    return dequantize(tensor.type, model.raw(name)).reshape(tensor.shape).astype(np.float64)


def added(path: Path) -> dict[str, np.ndarray]:
    """What each pair of a GGUF adapter adds to its matrix."""
    with AdapterFile.open(path) as adapter:
        made = {}
        for name, pair in adapter.pairs.items():
            a, b = (adapter.values(t).astype(np.float64) for t in (pair.a, pair.b))
            made[name] = float(adapter.factor(pair)) * (b @ (a.T if name == "token_embd.weight" else a))
        return made


@pytest.mark.parametrize("name", soon(("granitemoe",), ("granite", "phi3", "granitemoe", "gemma2")))
def test_it_is_what_merged_matrices_become(name: str, tmp_path: Path) -> None:
    _, tensors = folders.write_folder(tmp_path / "base", name)
    pairs = drawn(tensors)
    assert pairs
    PeftAdapter(write_peft(tmp_path / "peft", pairs, tmp_path / "base")).write(tmp_path / "a.gguf")
    merged = {
        key: x + 2 * pairs[f"{module}.lora_B.weight"] @ pairs[f"{module}.lora_A.weight"]
        if f"{(module := key.rpartition('.')[0])}.lora_A.weight" in pairs
        else x
        for key, x in tensors.items()
    }
    with ConvertedModel(tmp_path / "base") as model:
        before = {key: values_of(model, key) for key in model.tensors}
    folders.write_safetensors(tmp_path / "base" / "model.safetensors", folders.as_f32(merged))
    with ConvertedModel(tmp_path / "base") as model:
        want = {key: values_of(model, key) - before[key] for key in model.tensors}
    got = added(tmp_path / "a.gguf")
    assert got.keys() == {key for key, x in want.items() if np.abs(x).max() > 1e-3}
    for key, x in got.items():
        assert np.abs(x.reshape(want[key].shape) - want[key]).max() < 1e-4, key


def test_scales_and_the_embedding(tmp_path: Path) -> None:
    """Ranks and alphas by module, the root of the rank, and an embedding's pair, which is stored the other way."""
    _, tensors = folders.write_folder(tmp_path / "base", "llama")
    q, v = (f"model.layers.0.self_attn.{x}_proj" for x in "qv")
    embedding = tensors["model.embed_tokens.weight"]
    rng = np.random.default_rng(2)
    pairs = {
        f"{v}.lora_A.default.weight": rng.standard_normal((4, tensors[f"{v}.weight"].shape[1])),
        f"{v}.lora_B.default.weight": rng.standard_normal((tensors[f"{v}.weight"].shape[0], 4)),
        f"{q}.lora_A.weight": rng.standard_normal((2, tensors[f"{q}.weight"].shape[1])),
        f"{q}.lora_B.weight": rng.standard_normal((tensors[f"{q}.weight"].shape[0], 2)),
        "model.embed_tokens.lora_embedding_A": rng.standard_normal((4, embedding.shape[0])),
        "model.embed_tokens.lora_embedding_B": rng.standard_normal((embedding.shape[1], 4)),
    }
    peft = write_peft(tmp_path / "peft", pairs, tmp_path / "base", use_rslora=True, alpha_pattern={"q_proj": 5})
    PeftAdapter(peft).write(tmp_path / "a.gguf", GGMLType.F32)
    got = added(tmp_path / "a.gguf")
    wanted = {n: x.astype(np.float32).astype(np.float64) for n, x in pairs.items()}
    want = 6 / 2 * wanted[f"{v}.lora_B.default.weight"] @ wanted[f"{v}.lora_A.default.weight"]
    assert np.allclose(got["blk.0.attn_v.weight"], want, rtol=1e-5, atol=1e-5)
    size = 5 / np.sqrt(2) * wanted[f"{q}.lora_B.weight"] @ wanted[f"{q}.lora_A.weight"]
    assert np.allclose(np.sort(got["blk.0.attn_q.weight"], axis=None), np.sort(size, axis=None), rtol=1e-5, atol=1e-5)
    rows = wanted["model.embed_tokens.lora_embedding_B"] @ wanted["model.embed_tokens.lora_embedding_A"]
    assert np.allclose(got["token_embd.weight"], 3 * rows, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "change", "message"),
    [
        ({"use_dora": True}, {}, "use_dora = True"),
        ({"modules_to_save": ["lm_head"]}, {}, "modules_to_save"),
        ({"bias": "all"}, {}, "bias = 'all'"),
        ({"peft_type": "IA3"}, {}, "peft_type = 'IA3'"),
        ({"alora_invocation_tokens": [5]}, {}, "alora_invocation_tokens"),
        ({"lora_alpha": 0}, {}, "lora_alpha = 0"),
        ({}, {"model.layers.0.mlp.up_proj.lora_B.weight": None}, "has no lora_B"),
        ({}, {"model.layers.0.mlp.up_proj.lora_B.weight": np.zeros((96, 2))}, "lora_B of shape \\[96, 2\\]"),
        ({}, {"model.layers.0.mlp.up_proj.lora_magnitude_vector": np.zeros(96)}, "lora_magnitude_vector"),
        ({}, {"model.layers.0.mlp.side.lora_A.weight": np.zeros((3, 64)),
              "model.layers.0.mlp.side.lora_B.weight": np.zeros((9, 3))}, "mlp.side"),
        ({"base_model_name_or_path": "some/model"}, {}, "no config.json of the model .*some/model.*--base"),
    ],
)  # fmt: skip
def test_what_is_refused(config: dict[str, Any], change: dict[str, Any], message: str, tmp_path: Path) -> None:
    _, tensors = folders.write_folder(tmp_path / "base", "llama")
    pairs = {key: x for key, x in {**drawn(tensors), **change}.items() if x is not None}
    with pytest.raises(ConvertError, match=message):
        PeftAdapter(write_peft(tmp_path / "peft", pairs, tmp_path / "base", **config))

"""Folders with the layouts of published models become files whose tensors and keys are those of the tables."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from tests.converting.folders import as_f32, write_safetensors, write_tokenizer
from tests.converting.published import LAYOUTS, Layout
from tests.models.families.build import add_vocabulary
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.made import Made, SmallArray, tensor_info
from zinc_rt.converting.model import ConvertedModel
from zinc_rt.gguf import GGMLType
from zinc_rt.models import supported


class Recorded(dict[str, Any]):
    """What a writer of GGUF files is told."""

    def add(self, key: str, value: Any, _: Any = None) -> None:
        self[key] = value


def parts_of(layout: Layout) -> dict[str, Any]:
    """All parts by their new names, with whole names of the folder."""
    made = {name: (part, part.stored) for name, part in layout.ends.items()}
    for i, layer in enumerate(layout.layers):
        made |= {f"blk.{i}.{name}": (part, f"{layout.layer}.{i}.{part.stored}") for name, part in layer.items()}
    return made


def write(folder: Path, name: str, layout: Layout) -> dict[str, np.ndarray]:
    """Write the folder; its tensors."""
    rng, tensors = np.random.default_rng(3), dict[str, np.ndarray]()
    for part, stored in parts_of(layout).values():
        for number in range(max(part.count, 1)):
            one = stored.replace("*", str(number))
            if part.stored and one not in tensors:
                tensors[one] = rng.standard_normal(part.shape).astype(np.float32)
    for key in layout.general.values():
        for i in range(len(layout.layers)):
            tensors[f"model.layers.{i}.mlp.act_fn.{key}"] = rng.standard_normal(1).astype(np.float32)
    folder.mkdir()
    whole = {
        f"{layout.layer}.1.{key}": ("I64", (len(values),), np.array(values, "<i8").tobytes())
        for key, values in layout.whole_numbers.items()
    }
    write_safetensors(folder / "model.safetensors", as_f32(tensors) | whole)
    (folder / "config.json").write_text(
        json.dumps({"architectures": [name.split(maxsplit=1)[0]]} | dict(layout.config))
    )
    words = Recorded()
    add_vocabulary(words)  # type: ignore[arg-type]
    tokens, merges = words["tokenizer.ggml.tokens"], words["tokenizer.ggml.merges"]
    write_tokenizer(folder, tokens, merges, {"bos_token": "<|endoftext|>", "eos_token": "<|im_end|>"})
    return tensors


@pytest.mark.parametrize("name", LAYOUTS)
def test_tensors_and_keys(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the architecture runs, its definition is built from the new file, too, which reads every tensor and key."""
    layout = LAYOUTS[name]
    tensors = write(tmp_path / name, name, layout)
    if layout.architecture not in supported():
        monkeypatch.setattr(ConvertedModel, "_check", lambda _: None)
    with ConvertedModel(tmp_path / name) as model:
        parts = parts_of(layout)
        given = {f"rope_factors_{x}.weight" for x in ("long", "short")} if "rope_scaling" in layout.config else set()
        assert model.tensors.keys() - given == parts.keys()
        for new, (part, stored) in parts.items():
            all_of_it = [tensors.get(stored.replace("*", str(i)), np.zeros(0)) for i in range(max(part.count, 1))]
            rows = np.concatenate if "shard_" in stored else np.stack  # experts, or parts of a table
            wanted = rows([part.change(x) for x in all_of_it]) if part.count else part.change(all_of_it[0])
            tensor = model.tensors[new]
            assert tensor.type is GGMLType.F32
            assert tensor.shape == wanted.shape, new
            got = model.raw(new).view(np.float32).reshape(wanted.shape)
            np.testing.assert_allclose(got, wanted, rtol=1e-6 if new.endswith("ssm_a") else 0, atol=0, err_msg=new)
        assert model.metadata["general.architecture"] == layout.architecture
        for key, value in layout.keys.items():
            got = model.metadata.get(f"{layout.architecture}.{key}")
            same = got is value if value is None or isinstance(value, bool) else np.allclose(got, value, rtol=1e-12)
            assert same, (key, got, value)
        for key, end in layout.general.items():
            stored = [f"model.layers.{i}.mlp.act_fn.{end}" for i in range(len(layout.layers))]
            assert model.metadata[key] == [float(tensors[one][0]) for one in stored]


@pytest.mark.parametrize("name", LAYOUTS)
def test_names_as_the_gguf_package_has_them(name: str) -> None:
    layout = LAYOUTS[name]
    known = {text: number for number, text in gguf.MODEL_ARCH_NAMES.items()}
    if layout.architecture not in known:
        pytest.skip(f"this gguf package does not know {layout.architecture}")
    table = gguf.get_tensor_name_map(known[layout.architecture], len(layout.layers))
    split = (
        "wqkv",
        "gate_up_proj",
        "kv_b_proj",
        "moe_statics",
        "norms.",
        "shared_mlp.",
        "classifier.",
    )  # becomes several, or is renamed on the way
    for new, (part, stored) in parts_of(layout).items():
        if not part.stored or any(word in stored for word in split):
            continue
        usual = stored.replace(".*.", ".").replace("expert_bias", "expert_bias.bias").replace("n_bias", "n.bias")
        usual = usual.replace(".parametrizations.", ".").removesuffix(".original").removeprefix("roberta.")
        usual = usual.removeprefix("bert.") if layout.architecture == "jina-bert-v2" else usual
        usual = usual.removeprefix("model.") if layout.architecture == "modern-bert" else usual
        usual += ".weight" * usual.endswith((".w1", ".w2"))
        usual = usual.replace("backbone.layers.2.mixer.experts", "model.layers.2.mlp.experts")
        usual = usual.replace("dt_bias", "dt.bias" if layout.architecture.endswith("moe") else "dt_proj.bias")
        got = table.get_name(usual, try_suffixes=(".weight", ".bias"))
        assert got is not None, usual
        assert new in (got, f"{got}.weight", f"{got}.bias"), (stored, new, got)


def test_numbers_that_a_layer_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the activation's numbers each layer needs its own."""
    name = "ApertusForCausalLM"
    tensors = write(tmp_path / "m", name, LAYOUTS[name])
    del tensors["model.layers.1.mlp.act_fn.beta"]
    write_safetensors(tmp_path / "m" / "model.safetensors", as_f32(tensors))
    with pytest.raises(ConvertError, match=r"1 of 2 layers have a tensor 'act_fn.beta'"):
        ConvertedModel(tmp_path / "m")
    assert math.isfinite(float(tensors["model.layers.0.mlp.act_fn.beta"][0]))


@pytest.mark.parametrize(
    ("name", "key", "value", "words"),
    [
        ("BailingMoeV3ForCausalLM", "layer_group_size", 0, "layer_group_size = 0"),
        ("ExaoneMoEForCausalLM", "moe_intermediate_size", None, "has no moe_intermediate_size"),
        ("NemotronHForCausalLM", "hybrid_override_pattern", [[1]], "no hybrid_override_pattern"),
        ("NomicBertModel", "num_experts", 0, "expert_used_count"),
        ("Step3p5ForCausalLM", "layer_types", [[1], [2]], "rope_theta is .* a number is needed"),
    ],
)
def test_values_that_make_no_model(name: str, key: str, value: object, words: str, tmp_path: Path) -> None:
    write(tmp_path / "m", name, replace(LAYOUTS[name], config={**LAYOUTS[name].config, key: value}))
    with pytest.raises(ConvertError, match=words):
        ConvertedModel(tmp_path / "m")


@pytest.mark.parametrize(
    ("said", "want"),
    [
        ({"pooling_mode_mean_tokens": True, "pooling_mode_cls_token": False}, 1),
        ({"pooling_mode_cls_token": True}, 2),
        ({"pooling_mode_lasttoken": True}, 3),
        ({"pooling_mode_max_tokens": True}, "makes vectors in a way that is not converted"),
        (None, None),
    ],
)
def test_how_vectors_are_made(said: dict[str, bool] | None, want: int | str | None, tmp_path: Path) -> None:
    """As sentence-transformers says beside the model; weights of adapters are left aside."""
    name, folder = "XLMRobertaModel", tmp_path / "m"
    tensors = write(folder, name, LAYOUTS[name])
    tensors["roberta.emb_ln.parametrizations.weight.0.lora_A"] = np.zeros((5, 4, 64), np.float32)
    write_safetensors(folder / "model.safetensors", as_f32(tensors))
    if said is not None:
        (folder / "1_Pooling").mkdir()
        (folder / "1_Pooling" / "config.json").write_text(json.dumps(said))
        listed = [{"path": "", "type": "Transformer"}, {"path": "1_Pooling", "type": "a.b.Pooling"}]
        (folder / "modules.json").write_text(json.dumps(listed))
    if isinstance(want, str):
        with pytest.raises(ConvertError, match=want):
            ConvertedModel(folder)
        return
    with ConvertedModel(folder) as model:
        assert model.metadata.get("jina-bert-v3.pooling_type") == want
        assert model.notes == ["left aside: adapters of tasks; the text model is converted"]


def test_rows_of_parts_of_several_sizes() -> None:
    """A table in parts, of which the last one is shorter, is read at any rows."""
    x = np.arange(28, dtype=np.float32).reshape(7, 4)
    parts = [SmallArray(x[a:b].reshape(-1)) for a, b in ((0, 3), (3, 6), (6, 7))]
    made = Made(tensor_info("t.weight", x.shape, GGMLType.F32), parts, GGMLType.F32, 4)
    for start in range(8):
        for stop in range(start + 1, 8):
            np.testing.assert_array_equal(made.rows(start, stop).view(np.float32), x[start:stop])

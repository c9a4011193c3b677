"""Folders of made-up models become the GGUF files that they were written from."""

from __future__ import annotations

import json
import re
from pathlib import Path

import gguf
import numpy as np
import pytest

from tests.converting import folders
from tests.models.families import CASES
from zinc_rt.converting.config import Config
from zinc_rt.converting.families import BY_TEXT_MODEL
from zinc_rt.converting.families import CLASSES as CONVERTED
from zinc_rt.converting.model import ConvertedModel
from zinc_rt.converting.rope import rope_keys, rope_of
from zinc_rt.converting.safetensors import open_safetensors
from zinc_rt.gguf import GGMLType, GGUFFile
from zinc_rt.gguf.dequantize import dequantize
from zinc_rt.quantizing.convert import Conversion
from zinc_rt.quantizing.plan import Planner
from zinc_rt.quantizing.presets import preset_of


def convert(folder: Path, out: Path, name: str | None = None) -> list[str]:
    """Write the file; returns the notes."""
    with ConvertedModel(folder) as model:
        preset = preset_of(name or model.usual_type)
        work = Conversion(model, out, preset, Planner(model, preset, leave_blocks=True).choices())
        work.check_target()
        assert work.write(threads=2) == work.size == out.stat().st_size
        return model.notes


def as_stored(name: str, values: np.ndarray, architecture: str) -> np.ndarray:
    """Of a file's values those that a folder can hold: a norm of Gemma is stored less one."""
    x = values.astype(np.float32)
    if folders.less_one(name.removesuffix(".weight").split(".")[-1], architecture):
        return (x - np.float32(1)) + np.float32(1)
    return x


@pytest.mark.parametrize("name", folders.CLASSES)
def test_the_file_comes_back(name: str, tmp_path: Path) -> None:
    made, _ = folders.write_folder(tmp_path / name, name)
    assert convert(tmp_path / name, tmp_path / "out.gguf", "F32") == []
    with GGUFFile.open(made.path) as old, GGUFFile.open(tmp_path / "out.gguf") as new:
        architecture = old.architecture
        assert new.tensors.keys() == old.tensors.keys()
        for tensor in old.tensors.values():
            assert new.tensors[tensor.name].shape == tensor.shape
            if tensor.type is not GGMLType.F32:
                assert new.tensors[tensor.name].type is tensor.type
                np.testing.assert_array_equal(new.raw(tensor.name), old.raw(tensor.name))
                continue
            wanted = as_stored(tensor.name, made.tensors[tensor.name], architecture)
            got = new.raw(tensor.name).view(np.float32).reshape(tensor.shape)
            rounded = 1e-6 if tensor.name.endswith("ssm_a") else 0.0  # a logarithm in folders
            np.testing.assert_allclose(got, wanted, rtol=rounded, atol=0, err_msg=tensor.name)
        for key in old.metadata:
            both = (new.metadata[key], old.metadata[key])
            assert np.array_equal(np.asarray(both[0]), np.asarray(both[1])), (key, *both)
        assert new.metadata["tokenizer.chat_template"].startswith("{% for m")
        head = new.metadata[f"{architecture}.attention.key_length"]
        added = {
            "vocab_size": 320, "rope.dimension_count": head, "rope.freq_base_swa": 10000.0,
            "rope.scaling.yarn_beta_fast": 32.0, "rope.scaling.yarn_beta_slow": 1.0, "embedding_scale": 1.0,
            "residual_scale": 1.0, "attention.scale": 1.0, "logit_scale": 1.0,
            "attention.sliding_window_pattern": [True, True, True, False], "attention.key_length": 16,
            "attention.recurrent_layers": [True, True, False], "attention.value_length": 16,
            "rope.scaling.attn_factor": 1.0,
        }  # fmt: skip
        for key in new.metadata.keys() - old.metadata.keys():
            if key.startswith(architecture):
                assert np.array_equal(new.metadata[key], added[key.removeprefix(f"{architecture}.")]), key


@pytest.mark.parametrize("name", folders.CLASSES)
def test_names_as_the_gguf_package_has_them(name: str) -> None:
    case = CASES[name]
    arch = next(number for number, text in gguf.MODEL_ARCH_NAMES.items() if text == case.architecture)
    table = gguf.get_tensor_name_map(arch, case.keys["block_count"])
    for theirs in folders.hf_tensors(case, {name: -np.ones(shape) for name, shape in case.shapes.items()}):
        if any(part in theirs for part in ("input_linear", "gate_up_proj", "qkvz")):  # one that becomes two
            continue
        usual = re.sub(r"experts\.\d+\.", "experts.", theirs)
        usual = usual.replace(".dt_bias", ".dt_proj.bias").replace("down_proj_bias", "down_proj.bias")
        new = table.get_name(usual, try_suffixes=(".weight", ".bias"))
        assert new is not None, theirs
        assert new in case.shapes or f"{new}.weight" in case.shapes, (theirs, new)


def test_parts_in_bfloat16(tmp_path: Path) -> None:
    """Two files and an index; the format of the weights is the default, and vectors are float32."""
    folder = tmp_path / "qwen3moe"
    made, tensors = folders.write_folder(folder, "qwen3moe")
    (folder / "model.safetensors").unlink()
    names = list(tensors)
    halves = {"model-1.safetensors": names[::2], "model-2.safetensors": names[1::2]}
    for file, those in halves.items():
        folders.write_safetensors(folder / file, folders.as_bf16({n: tensors[n] for n in those}))
    where = {name: file for file, those in halves.items() for name in those}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    folders.write_safetensors(folder / "consolidated.safetensors", {})
    convert(folder, tmp_path / "out.gguf")
    with GGUFFile.open(tmp_path / "out.gguf") as new:
        assert new.metadata["general.file_type"] == 32
        for tensor in new.tensors.values():
            bits = made.tensors[tensor.name].astype(np.float32).view(np.uint32) >> 16
            kept = len(tensor.shape) == 1 or "ffn_gate_inp" in tensor.name
            assert tensor.type is (GGMLType.F32 if kept else GGMLType.BF16), tensor.name
            got = new.raw(tensor.name).reshape(-1).view(np.uint32 if kept else np.uint16)
            np.testing.assert_array_equal(got, (bits << 16 if kept else bits.astype(np.uint16)).reshape(-1))


def test_experts_in_bfloat16_with_their_inputs_first(tmp_path: Path) -> None:
    """Folders of gpt-oss that were trained further: no blocks, and rows of the new file are columns."""
    folder = tmp_path / "m"
    made, _ = folders.write_folder(folder, "gpt-oss")
    file, stored = open_safetensors(folder / "model.safetensors")
    tensors = {name: (t.dtype, t.shape, t.flat().tobytes()) for name, t in stored.items()}
    config = json.loads((folder / "config.json").read_text())
    file.close()
    with GGUFFile.open(made.path) as old:
        wanted = {n: dequantize(t.type, old.raw(n).reshape(t.n_rows, -1)) for n, t in old.tensors.items()}
        shapes = {name: tensor.shape for name, tensor in old.tensors.items()}
    for layer in range(config["num_hidden_layers"]):
        before = f"model.layers.{layer}.mlp.experts."
        gate, up, down = (
            wanted[f"blk.{layer}.ffn_{x}_exps.weight"].reshape(shapes[f"blk.{layer}.ffn_{x}_exps.weight"])
            for x in ("gate", "up", "down")
        )
        both = np.stack([gate, up], axis=2).reshape(len(gate), -1, gate.shape[-1])
        for name, x in (("gate_up_proj", both), ("down_proj", down)):
            for part in ("_blocks", "_scales"):
                del tensors[before + name + part]
            tensors |= folders.as_bf16({before + name: np.ascontiguousarray(x.swapaxes(1, 2))})
    folders.write_safetensors(folder / "model.safetensors", tensors)
    del config["quantization_config"]
    (folder / "config.json").write_text(json.dumps(config))
    for preset, kind in (("F32", GGMLType.F32), ("BF16", GGMLType.BF16), ("MXFP4_MOE", GGMLType.MXFP4)):
        convert(folder, tmp_path / f"{preset}.gguf", preset)
        with GGUFFile.open(tmp_path / f"{preset}.gguf") as new:
            assert {name: tensor.shape for name, tensor in new.tensors.items()} == shapes
            for name, tensor in new.tensors.items():
                if name.endswith("exps.weight"):
                    assert tensor.type is kind
                    got = dequantize(tensor.type, new.raw(name).reshape(tensor.n_rows, -1))
                    np.testing.assert_allclose(got, wanted[name], rtol=0, atol=0 if preset != "MXFP4_MOE" else 0.5)


def test_quantised_in_one_pass(tmp_path: Path) -> None:
    """The same bytes as by way of a file of floats."""
    folders.write_folder(tmp_path / "llama", "llama")
    convert(tmp_path / "llama", tmp_path / "floats.gguf", "F32")
    convert(tmp_path / "llama", tmp_path / "at_once.gguf", "Q4_K_M")
    with GGUFFile.open(tmp_path / "floats.gguf") as file:
        preset = preset_of("Q4_K_M")
        Conversion(file, tmp_path / "after.gguf", preset, Planner(file, preset).choices()).write(threads=1)
    with GGUFFile.open(tmp_path / "at_once.gguf") as one, GGUFFile.open(tmp_path / "after.gguf") as two:
        assert {n: (t.type, t.shape) for n, t in one.tensors.items()} == {
            n: (t.type, t.shape) for n, t in two.tensors.items()
        }
        for name in one.tensors:
            np.testing.assert_array_equal(one.raw(name), two.raw(name))


def test_towers_are_left_aside(tmp_path: Path) -> None:
    name = "gemma3-scaled-cap"
    _, tensors = folders.write_folder(tmp_path / name, name)
    more = {f"language_model.{old}": x for old, x in tensors.items()} | {
        "vision_tower.a.weight": np.ones((2, 2), np.float32)
    }
    folders.write_safetensors(tmp_path / name / "model.safetensors", folders.as_f32(more))
    notes = convert(tmp_path / name, tmp_path / "out.gguf", "F32")
    assert notes == ["left aside: vision_tower; the text model is converted"]
    with GGUFFile.open(tmp_path / "out.gguf") as new:
        assert new.tensors.keys() == CASES[name].shapes.keys()


@pytest.mark.parametrize(("kind", "name"), [("mistral", "llama"), ("ministral3", "mistral3")])
def test_text_models_of_one_class(kind: str, name: str, tmp_path: Path) -> None:
    _, tensors = folders.write_folder(tmp_path / "m", name)
    below = {f"language_model.{old}": x for old, x in tensors.items()}
    folders.write_safetensors(tmp_path / "m" / "model.safetensors", folders.as_f32(below))
    text = json.loads((tmp_path / "m" / "config.json").read_text()) | {"model_type": kind}
    config = {"architectures": ["Mistral3ForConditionalGeneration"], "text_config": text}
    (tmp_path / "m" / "config.json").write_text(json.dumps(config))
    with ConvertedModel(tmp_path / "m") as model:
        assert model.metadata["general.architecture"] == name
        assert model.tensors.keys() == CASES[name].shapes.keys()


@pytest.mark.parametrize(("window", "kept"), [(64, True), (512, False), (0, False), (None, False)])
def test_a_window_is_kept_where_it_is_shorter_than_the_context(window: int | None, kept: bool, tmp_path: Path) -> None:
    folder = tmp_path / "llama"
    folders.write_folder(folder, "llama")
    config = json.loads((folder / "config.json").read_text())
    config |= {"architectures": ["MistralForCausalLM"], "sliding_window": window, "max_position_embeddings": 512}
    (folder / "config.json").write_text(json.dumps(config))
    assert convert(folder, tmp_path / "out.gguf") == []
    with GGUFFile.open(tmp_path / "out.gguf") as new:
        assert new.metadata["llama.context_length"] == 512
        assert new.metadata.get("llama.attention.sliding_window") == (window if kept else None)


# ---------------------------------------------------------------- rotations

YARN = {"factor": 4.0, "original_max_position_embeddings": 128}


@pytest.mark.parametrize(
    "scaling",
    [
        {"rope_type": "linear", "factor": 8.0},
        {"rope_type": "yarn", **YARN},
        {"rope_type": "llama3", **YARN, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
    ],
)
def test_both_writings_of_a_rotation(scaling: dict[str, object]) -> None:
    sizes = {"max_position_embeddings": 512}
    old = Config(sizes | {"rope_theta": 500.0, "rope_scaling": scaling})
    new = Config(sizes | {"rope_parameters": {"rope_theta": 500.0, **scaling}})
    layered = Config(sizes | {"rope_parameters": {"full_attention": {"rope_theta": 500.0, **scaling}}})
    keys, factors = rope_keys(old, rope_of(old), 16)
    assert keys["rope.freq_base"] == 500.0
    assert keys.get("rope.scaling.type", "llama3") == scaling["rope_type"]
    for other in (new, layered):
        again, same = rope_keys(other, rope_of(other), 16)
        assert again == keys
        assert all(np.array_equal(same[name], factors[name]) for name in factors)


def test_factors_of_llama3() -> None:
    """Waves shorter than a quarter of the old context stay, those longer than it are stretched."""
    config = Config(
        {
            "max_position_embeddings": 512,
            "rope_theta": 1e4,
            "rope_scaling": {"type": "llama3", **YARN, "low_freq_factor": 1.0, "high_freq_factor": 4.0},
        }
    )
    _, factors = rope_keys(config, rope_of(config), 16)
    got, waves = factors["rope_freqs.weight"], 2 * np.pi * 1e4 ** (np.arange(8) / 8)
    for wave, factor in zip(waves, got, strict=True):
        if wave <= 32:
            assert factor == 1
        elif wave >= 128:
            assert factor == 4
        else:
            smooth = (128 / wave - 1) / 3
            assert factor == pytest.approx(1 / ((1 - smooth) / 4 + smooth), rel=1e-6)


def test_yarn_with_a_magnitude() -> None:
    rope = Config({"rope_type": "yarn", "attention_factor": 1.5, **YARN})
    keys, _ = rope_keys(Config({"max_position_embeddings": 512}), rope, 16)
    assert keys["rope.scaling.attn_factor"] * (1 + 0.1 * np.log(4.0)) == pytest.approx(1.5, rel=1e-12)


def test_the_documentation_names_every_class() -> None:
    text = (Path(__file__).parents[2] / "docs" / "use" / "models.md").read_text(encoding="utf-8")
    assert [name for name in (*CONVERTED, *BY_TEXT_MODEL) if f"`{name}`" not in text] == []

"""Files of families whose keys contradict each other or their tensors: each is refused with the numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.models.families import CASES
from tests.models.families.build import hollow, write_case
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.op import Op
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.errors import ModelError
from zinc_rt.models.temperature import Temperature


def changed(
    tmp_path: Path,
    name: str,
    keys: Mapping[str, Any],
    shapes: Mapping[str, tuple[int, ...] | None] | None = None,
    given: Mapping[str, list[float]] | None = None,
) -> ModelDefinition:
    """A family's small model with other keys and tensors, None for none."""
    case = CASES[name]
    every = {key: value for key, value in {**case.keys, **keys}.items() if value is not None}
    all_shapes = {key: shape for key, shape in {**case.shapes, **(shapes or {})}.items() if shape is not None}
    path = tmp_path / "changed.gguf"
    write_case(path, hollow(replace(case, keys=every, shapes=all_shapes, given={**case.given, **(given or {})})))
    with GGUFFile.open(path) as file:
        return define(file)


PATTERN = "attention.sliding_window_pattern"
WRONG: list[tuple[str, dict[str, Any], type[ModelError], str]] = [
    ("smollm3", {"expert_count": 4}, "smollm3.expert_count is set"),
    ("kimi-linear", {"kda.head_dim": 257}, "257 elements of a delta net's head"),
    ("kimi-linear", {"attention.head_count_kv": [0, 1]}, "3 integers are needed, one a layer"),
    ("bailingmoe3", {"kda.safe_gate": False}, "safe_gate is false"),
    ("bailingmoe3", {"kda.gate_lower_bound": 5.0}, "gate_lower_bound is 5.0, it must be at most 0"),
    ("bailingmoe3", {"swiglu_clamp_exp": [1.0, 1.0]}, "3 finite numbers are needed"),
    ("smollm3", {"attention.scale": -1.0}, "attention.scale is -1.0, it must be at least 0"),
    ("mistral3", {"attention.temperature_scale": float("inf")}, "temperature_scale is inf, a finite"),
    ("mistral3", {"rope.scaling.yarn_log_multiplier": -1.0}, "yarn_log_multiplier is -1.0"),
    ("mistral3", {"rope.scaling.yarn_log_multiplier": 1e30}, r"multiplier is 1.*e\+30, it must be at most"),
    ("phi3", {"rope.scaling.type": "ntk"}, "'ntk'; supported are none, linear, yarn, longrope"),
    ("phi3-long", {"rope.dimension_count": 14}, r"rope_factors_long.* F32\[7\] is needed"),
    ("olmo3", {"attention.sliding_window": 0}, "sliding_window is 0, it must be between 1 and"),
    ("olmo3", {PATTERN: 0}, "sliding_window_pattern is 0, it must be between 1 and 4096"),
    ("olmo3", {PATTERN: [True, False]}, r"pattern is \[True, False\], 4 of true or false are needed"),
    ("glm4", {"rope.dimension_count": 9}, "dimension_count is 9, it must be even"),
    ("granite", {"logit_scale": None}, "granite.logit_scale"),
    ("cohere2", {"logit_scale": None}, "cohere2.logit_scale"),
    ("cohere2", {"attention.sliding_window": None}, "cohere2.attention.sliding_window"),
    ("gptneox", {"use_parallel_residual": None}, "gptneox.use_parallel_residual"),
    ("hunyuan-dense-alpha", {"rope.scaling.alpha": 1e30}, r"alpha is 1.*e\+30, it must be between"),
    ("minicpm3", {"rope.dimension_count": 40}, "is 40, it must be less than minicpm3.attention.key_length"),
    ("granite", {"logit_scale": 0.0}, "logit_scale is 0.0, it must be at least"),
    ("granite", {"residual_scale": -0.5}, "residual_scale is -0.5"),
    ("granite", {"rope.scaling.finetuned": 1}, "finetuned is 1, true or false is needed"),
    ("granitemoe", {"expert_used_count": 9}, "expert_used_count is 9, it must be between 1 and"),
    ("gemma2", {"attn_logit_softcapping": 0.0}, "attn_logit_softcapping is 0.0, it must be above 0"),
    ("gemma3", {"attention.sliding_window": None}, "gemma3.attention.sliding_window"),
    ("gemma3", {"rope.freq_base_swa": 1.0}, "freq_base_swa is 1.0, it must be above 1"),
    ("gemma3", {"final_logit_softcapping": -30.0}, "final_logit_softcapping is -30"),
    ("gemma4", {PATTERN: None}, "gemma4.attention.sliding_window_pattern"),
    ("gemma4", {PATTERN: [True] * 3}, "8 of true or false are needed"),
    ("gemma4", {"attention.shared_kv_layers": 9}, "shared_kv_layers is 9, it must be between 0 and 8"),
    ("gemma4", {"attention.shared_kv_layers": 7}, "is 7 of 8 layers: layer -1 must be there"),
    ("gemma4", {"attention.shared_kv_layers": 3}, "is 3 of 8 layers: layer 3 must be there"),
    ("gemma4", {"attention.value_length": 16}, "value_length is 16, it must be as .*key_length, 32"),
    ("gemma4", {"attention.value_length_swa": 8}, "value_length_swa is 8, it must be as .*, 16"),
    ("gemma4", {"rope.dimension_count_swa": 15}, "dimension_count_swa is 15, it must be even"),
    ("gemma4", {"rope.dimension_count_swa": 18}, "dimension_count_swa is 18, it must be between 1 and 16"),
    ("gemma4", {"attention.head_count_kv": [2] * 7}, "8 integers are needed, one a layer"),
    ("gemma4", {"attention.head_count_kv": [2] * 7 + [1]}, "1 in layer 7, which reads .* 5, where it is 2"),
    ("gemma4", {"attention.head_count_kv": 4}, "head_count 6 must be a multiple of .*head_count_kv 4"),
    ("gemma4", {"feed_forward_length": [96] * 8}, r"ffn_.*weight has shape"),
    ("gemma4", {"embedding_length_per_layer_input": 16}, r"per_layer_token_embd.*\[320, 128\]"),
    ("gemma4", {"embedding_length_per_layer_input": 0}, "tensors that .*'gemma4' does not use"),
]


@pytest.mark.parametrize(
    ("name", "keys", "message"), WRONG, ids=[f"{w[0]}-{next(iter(w[1]))}-{i}" for i, w in enumerate(WRONG)]
)
def test_wrong_keys(name: str, keys: dict[str, Any], message: str, tmp_path: Path) -> None:
    arrays = {
        key: np.array(value, np.int32) if isinstance(value, list) and type(value[0]) is int else value
        for key, value in keys.items()
    }
    with pytest.raises(ModelError, match=message):
        changed(tmp_path, name, arrays)


def test_a_bias_that_only_one_form_has(tmp_path: Path) -> None:
    """qwen2 needs biases, in one tensor or in three."""
    gone = {f"blk.0.attn_{part}.bias": None for part in "qkv"}
    with pytest.raises(ModelError, match=r"blk\.0\.attn_q\.bias"):
        changed(tmp_path, "qwen2", {}, gone)


def test_a_bias_of_another_length(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"attn_qkv\.bias is F32\[9\], F32\[240\] is needed"):
        changed(tmp_path, "qwen3-fused-qkv-biases", {}, {"blk.1.attn_qkv.bias": (9,)})


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_layer_scale_that_is_no_number(value: float, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"layer_output_scale\.weight is .*, a finite number is needed"):
        changed(tmp_path, "gemma4", {}, given={"blk.2.layer_output_scale.weight": [value]})


@pytest.mark.parametrize("name", ["clip", "gemma3n"])
def test_relatives_are_refused_with_the_reason(name: str, tmp_path: Path) -> None:
    write_case(tmp_path / "m.gguf", replace(CASES["qwen3"], architecture=name))
    with GGUFFile.open(tmp_path / "m.gguf") as file, pytest.raises(ModelError) as caught:
        define(file)
    text = str(caught.value)
    assert text.startswith(f"architecture {name!r} is not supported: ")
    assert len(text.partition("; supported are ")[0]) > 60


def test_factors_by_layer_are_read_as_well(tmp_path: Path) -> None:
    """Some files of Gemma 4 have the frequency factors in each full layer, instead of once."""
    one = changed(tmp_path, "gemma4", {})
    factors = list(CASES["gemma4"].given["rope_freqs.weight"])
    names = {f"blk.{layer}.rope_freqs.weight": (16,) for layer in (2, 5, 7)}
    each = changed(tmp_path, "gemma4", {}, {"rope_freqs.weight": None, **names}, given=dict.fromkeys(names, factors))
    tables = [each.constants[f"blk.{layer}.rope_full"](20) for layer in (2, 5, 7)]
    assert all((table == one.constants["rope_full"](20)).all() for table in tables)


def test_what_layers_of_gemma4_are(tmp_path: Path) -> None:
    """Sizes by layer, shared caches, and a table that no product reads."""
    definition = changed(tmp_path, "gemma4", {})
    graph = definition.graph
    attends = [n for n in graph.nodes if n.op is Op.FLASH_ATTN]
    pattern = CASES["gemma4"].keys[PATTERN]
    assert [n.attrs.get("window") for n in attends] == [9 if near else None for near in pattern]
    assert [n.attrs["head_dim"] for n in attends] == [16 if near else 32 for near in pattern]
    assert {n.attrs["scale"] for n in attends} == {1.0}
    assert [graph.buffer(n.inputs[1]).name for n in attends[-2:]] == ["blk.4.k_cache", "blk.5.k_cache"]
    table = next(b.id for b in graph.buffers if b.name == "per_layer_token_embd.weight")
    assert {n.op for n in graph.nodes if table in n.inputs} == {Op.EMBED}


def test_long_factors_hold_from_one_context_on(tmp_path: Path) -> None:
    """At every position, or at none: by the context that the engine is opened with."""
    make = changed(tmp_path, "phi3-long", {}).constants["rope_table"]
    short, long = make(128), make(129)
    assert (short[1:] != long[1:128]).any()
    case = CASES["phi3-long"]
    other = replace(case, shapes={n: s for n, s in case.shapes.items() if "rope_factors" not in n})
    assert (
        make(128)
        != changed(tmp_path, "phi3-long", {}, dict.fromkeys(set(case.shapes) - set(other.shapes))).constants[
            "rope_table"
        ](128)
    ).any()


def test_temperatures() -> None:
    """1 below the original context, then by the logarithm of how often it fits."""
    got = Temperature(0.25, 16).factors(70)
    assert got.dtype == np.float32
    assert (got[:16] == 1.0).all()
    assert (got[16:32] == np.float32(1 + 0.25 * np.log(2.0))).all()
    assert got[69] == np.float32(1 + 0.25 * np.log(5.0))

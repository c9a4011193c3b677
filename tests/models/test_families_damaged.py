"""Files of every family with something wrong in them: a typed error or a model that runs, and soon.

Damage is drawn from a fixed seed: a key that is missing, of another type, out of range; an array of another length;
a tensor that is missing, of another shape, or one too many.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.helpers import engine_for
from tests.models.families import CASES, FAMILIES, soon
from tests.models.families.build import Case, hollow, write_case
from tests.models.families.embedders import EMBEDDERS
from zinc_rt.engine.engine import SequenceChunk
from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.models.errors import ModelError

NUMBERS = [0, 1, 2, 3, 5, 7, 13, 255, 1000, 65537, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, -1, -7]
OTHERS = [0.5, 0.0, -1.5, math.nan, math.inf, -math.inf, 1e30, 1e-30, 3e38, "", "yarn", "sideways", True, False, []]
ALL = CASES | EMBEDDERS


def damaged_value(rng: np.random.Generator, value: Any) -> Any:
    """Something else in the place of a key's value; None removes the key."""
    if isinstance(value, list) and rng.random() < 0.7:
        i, kind = int(rng.integers(0, len(value))), int(rng.integers(0, 5))
        other = int(rng.choice(NUMBERS)) if kind else None
        return {
            0: value[:-1],
            1: [*value, value[-1]],
            2: [*value[:i], other, *value[i + 1 :]] if not isinstance(value[0], bool) else [not v for v in value],
            3: [other] * len(value),
            4: value[::-1],
        }[kind]
    if rng.random() < 0.1:
        return None
    if rng.random() < 0.6:
        return int(rng.choice(NUMBERS))
    other = OTHERS[int(rng.integers(0, len(OTHERS)))]
    return [1, 2] if other == [] else other


def damaged(rng: np.random.Generator, case: Case) -> tuple[Case, str]:
    """The case with one thing changed, and what it is."""
    if rng.random() < 0.6:
        key = str(rng.choice(sorted(case.keys)))
        value = damaged_value(rng, case.keys[key])
        keys = {k: v for k, v in case.keys.items() if k != key}
        return replace(case, keys=keys if value is None else keys | {key: value}), f"{key} = {value!r}"
    name = str(rng.choice(sorted(case.shapes)))
    shape, shapes = case.shapes[name], dict(case.shapes)
    at = int(rng.integers(0, len(shape)))
    changed = {
        0: None,
        1: shape[::-1] if shape != shape[::-1] else (*shape, 1),
        2: tuple(n + (i == at) for i, n in enumerate(shape)),
        3: tuple(max(1, n // (1 + (i == at))) for i, n in enumerate(shape)),
        4: (1, *shape),
        5: (math.prod(shape),),
    }[int(rng.integers(0, 6))]
    if rng.random() < 0.1:
        shapes[f"{name}.extra"] = shape
        return replace(case, shapes=shapes), f"{name}.extra"
    if changed is None:
        del shapes[name]
    else:
        shapes[name] = changed
    return replace(case, shapes=shapes, given={}), f"{name} of {changed}"


def opens(path: Path) -> str:
    """What becomes of a file: the name of its error, or "runs" after two steps."""
    try:
        with engine_for(path, n_ctx=32, n_batch=4, kernels="reference") as engine:
            slot = engine.open_sequence()
            engine.step([SequenceChunk(slot, 0, [3, 1, 4], (2,))])
            engine.step([SequenceChunk(slot, 3, [1], (0,))])
    except ZincError as error:
        if "\n" in str(error):
            raise RuntimeError("a message of more than one line") from error
        return type(error).__name__
    return "runs"


def try_damage(case: Case, path: Path, seed: int, n: int) -> list[str]:
    rng = np.random.default_rng(seed)
    found = []
    for i in range(n):
        changed, what = damaged(rng, case)
        write_case(path, changed)
        with np.errstate(all="ignore"):
            try:
                found.append(opens(path))
            except Exception as error:
                raise AssertionError(f"damage {i} ({what}) raises {type(error).__name__}: {error}") from error
    return found


@pytest.mark.timeout(60)
@pytest.mark.parametrize("name", soon((*FAMILIES, "bert-mean"), ALL))
def test_damage(name: str, tmp_path: Path) -> None:
    found = try_damage(ALL[name], tmp_path / "damaged.gguf", seed=1, n=4)
    assert any(outcome != "runs" for outcome in found)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", ALL)
def test_much_damage(name: str, tmp_path: Path) -> None:
    found = try_damage(ALL[name], tmp_path / "damaged.gguf", seed=2, n=200)
    assert any(outcome != "runs" for outcome in found)


NOT_NEEDED = (
    *("layer_output_scale.weight", "exp_probs_b.bias", "ffn_down_exps.scale", "rope_freqs.weight"),
    "token_types.weight",
)
OWN_OUTPUT = (
    "gpt-oss",
    "olmo2",
    "internlm2",
    "nemotron",
    "gptneox",
)  # others take the embedding where a file has no output


def needed(case: Case) -> list[str]:
    """The tensors of the last block, and of the model, that a file cannot do without."""
    last = int(case.keys["block_count"]) - int(case.keys.get("nextn_predict_layers", 0)) - 1
    shown = [t for t in case.shapes if not t.startswith("blk.") or t.startswith(f"blk.{last}.")]
    optional = NOT_NEEDED + ("output.weight",) * (case.architecture not in OWN_OUTPUT)
    optional += ("ssm_norm.weight",) * (case.architecture == "falcon-h1")
    return [t for t in shown if ".bias" not in t and t.removeprefix(f"blk.{last}.") not in optional]


def defines(path: Path) -> bool:
    try:
        with GGUFFile.open(path) as file:
            define(file)
    except ModelError:
        return False
    return True


@pytest.mark.parametrize("name", soon(("qwen35", "gpt-oss", "deepseek2", "bert-mean"), ALL))
def test_without_a_tensor(name: str, tmp_path: Path) -> None:
    """Each tensor in turn: a model that lacks one is refused."""
    case = ALL[name]
    for tensor in needed(case):
        shapes = {k: v for k, v in case.shapes.items() if k != tensor}
        path = write_case(tmp_path / "less.gguf", hollow(replace(case, shapes=shapes))).path
        assert not defines(path), tensor


NAN = math.nan
REFUSED: list[tuple[str, dict[str, Any]]] = [
    ("qwen3moe", {"expert_used_count": 9}),
    ("qwen3moe", {"expert_used_count": 0}),
    ("qwen3moe", {"expert_count": 1 << 20}),
    ("qwen2moe", {"expert_shared_feed_forward_length": 64}),
    ("qwen35", {"full_attention_interval": 0}),
    ("qwen35", {"full_attention_interval": 2}),
    ("qwen35", {"ssm.time_step_rank": 5}),
    ("qwen35", {"ssm.group_count": 0}),
    ("qwen35", {"ssm.inner_size": 96}),
    ("qwen35", {"ssm.conv_kernel": 0}),
    ("qwen35", {"ssm.conv_kernel": 5}),
    ("qwen35-mtp", {"nextn_predict_layers": 4}),
    ("qwen35-mtp", {"nextn_predict_layers": 5}),
    ("granite", {"logit_scale": 0.0}),
    ("granite", {"logit_scale": NAN}),
    ("granite", {"residual_scale": NAN}),
    ("granite", {"embedding_scale": math.inf}),
    ("granite", {"attention.scale": NAN}),
    ("granitemoe", {"expert_used_count": 9}),
    ("mistral3", {"attention.temperature_scale": NAN}),
    ("mistral3", {"rope.scaling.original_context_length": 0}),
    ("mistral3", {"rope.scaling.yarn_log_multiplier": NAN}),
    ("olmo3", {"attention.sliding_window": -1}),
    ("glm4moe", {"expert_gating_func": 9}),
    ("glm4moe", {"expert_weights_scale": NAN}),
    ("gemma3", {"attention.sliding_window": -1}),
    ("gemma3", {"attention.sliding_window": "wide"}),
    ("gemma3-scaled-cap", {"final_logit_softcapping": NAN}),
    ("gemma3-scaled-cap", {"final_logit_softcapping": -8.0}),
    ("gemma4", {"attention.sliding_window_pattern": [True, False]}),
    ("gemma4", {"attention.sliding_window_pattern": [True] * 7 + [False]}),
    ("gemma4", {"attention.shared_kv_layers": 8}),
    ("gemma4", {"attention.shared_kv_layers": 7}),
    ("gemma4", {"attention.shared_kv_layers": 9}),
    ("gemma4", {"feed_forward_length": [96] * 8}),
    ("gemma4", {"feed_forward_length": [96] * 7}),
    ("gemma4", {"embedding_length_per_layer_input": 0}),
    ("gemma4", {"embedding_length_per_layer_input": 16}),
    ("gemma4-experts", {"attention.head_count_kv": [2, 2]}),
    ("gemma4-experts", {"attention.head_count_kv": [2, 0, 1]}),
    ("gpt-oss", {"expert_used_count": 9}),
    ("gpt-oss", {"attention.sliding_window": -1}),
    ("lfm2", {"attention.head_count_kv": [0, 2, 0]}),
    ("lfm2", {"attention.head_count_kv": [2, 2, 0, 2]}),
    ("lfm2", {"shortconv.l_cache": 0}),
    ("lfm2", {"shortconv.l_cache": 4}),
    ("lfm2moe", {"leading_dense_block_count": 1}),
    ("lfm2moe", {"expert_gating_func": 7}),
    ("deepseek2", {"attention.kv_lora_rank": 0}),
    ("deepseek2", {"attention.key_length_mla": 16}),
    ("deepseek2", {"rope.dimension_count": 64}),
    ("deepseek2", {"expert_weights_scale": NAN}),
    ("deepseek2-groups", {"expert_group_count": 5}),
    ("deepseek2-groups", {"expert_group_used_count": 5}),
    ("deepseek2-groups", {"expert_group_used_count": 0}),
    ("deepseek2-yarn", {"rope.scaling.factor": 0.0}),
    ("deepseek32", {"attention.indexer.top_k": 0}),
    ("deepseek32", {"attention.indexer.key_length": 8}),
    ("glm-dsa", {"attention.indexer.types": [0, 1, 1]}),
    ("deepseek4", {"attention.compress_ratios": [0, 4, 3]}),
    ("deepseek4", {"attention.compress_ratios": [0, 4]}),
    ("deepseek4", {"attention.output_group_count": 4}),
    ("deepseek4", {"expert_count": 5}),
    ("qwen4exp", {"attention.indexer.top_k": 3}),
    ("qwen4exp", {"attention.compress_ratios": [0, 0, 17]}),
    ("qwen4exp", {"hyper_connection.count": 3}),
    ("qwen4exp", {"ple.conv_kernel": 7}),
    ("qwen4exp", {"ple.layers": [3]}),
    ("qwen4exp", {"ple.layer_multipliers": [1, 2]}),
    ("qwen4exp", {"ple.head_vocab_sizes": [31, 37, 41, 0]}),
    ("qwen4exp", {"ple.head_vocab_sizes": [31, 37, 41, 44]}),
    ("qwen4exp", {"embedding_length_per_layer_input": 8}),
]
"""Keys that a model does not survive, or whose answers would be others' than the file's."""


@pytest.mark.parametrize(("name", "keys"), REFUSED, ids=lambda v: v if isinstance(v, str) else str(v))
def test_refused(name: str, keys: dict[str, Any], tmp_path: Path) -> None:
    case = CASES[name]
    assert all(not np.array_equal(case.keys[key], value) for key, value in keys.items() if key in case.keys)
    write_case(tmp_path / "model.gguf", hollow(replace(case, keys={**case.keys, **keys})))
    assert opens(tmp_path / "model.gguf") != "runs"

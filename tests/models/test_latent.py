"""Latent attention's files: what is refused by name, and what a cache holds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.models.families.build import hollow, write_case
from tests.models.families.deepseek2 import CASES
from zinc_rt.gguf import GGUFFile
from zinc_rt.ir.op import Op
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.deepseek2 import DeepSeek2Info
from zinc_rt.models.errors import ModelError

GOOD = CASES["deepseek2"]


def defined(
    tmp_path: Path, keys: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...] | None] | None = None
) -> ModelDefinition:
    """The good case with keys and tensors changed, or removed (None)."""
    changed = {k: v for k, v in {**GOOD.keys, **keys}.items() if v is not None}
    tensors = {k: v for k, v in {**GOOD.shapes, **(shapes or {})}.items() if v is not None}
    made = write_case(tmp_path / "m.gguf", hollow(replace(GOOD, keys=changed, shapes=tensors)))
    with GGUFFile.open(made.path) as file:
        return define(file)


def test_one_vector_a_position(tmp_path: Path) -> None:
    """64 latent elements and 16 that turn, in float16, in each of three layers."""
    definition = defined(tmp_path, {})
    (state,) = definition.states
    assert (state.position_bytes, state.read_bytes) == (3 * 80 * 2, 3 * 80 * 2)
    assert state.buffers == tuple(f"blk.{i}.k_cache" for i in range(3))
    attention = [n for n in definition.graph.nodes if n.op is Op.FLASH_ATTN]
    sizes = [tuple(n.attrs[a] for a in ("n_heads", "n_kv_heads", "latent_dim", "rope_dim")) for n in attention]
    assert sizes == [(3, 1, 64, 16)] * 3


def test_blocks_that_draft_are_left_aside(tmp_path: Path) -> None:
    last = {name: shape for name, shape in GOOD.shapes.items() if name.startswith("blk.2.")}
    drafts = {name.replace("blk.2.", "blk.3."): shape for name, shape in last.items()}
    drafts["blk.3.nextn.eh_proj.weight"] = (64, 128)
    keys = {"block_count": 4, "nextn_predict_layers": 1}
    assert defined(tmp_path, keys, drafts).info.n_layers == 3
    with pytest.raises(ModelError, match=r"blk\.3\.nextn\.other"):
        defined(tmp_path, keys, {**drafts, "blk.3.nextn.other.weight": (64,)})


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"attention.key_length_mla": None}, "no deepseek2.attention.key_length_mla"),
        ({"rope.dimension_count": None}, "no deepseek2.rope.dimension_count"),
        ({"rope.dimension_count": 48}, "rope.dimension_count is 48, it must be less than .* which is 48"),
        ({"rope.dimension_count": 50}, "rope.dimension_count is 50, it must be between 1 and 48"),
        ({"attention.kv_lora_rank": 0}, "kv_lora_rank is 0, it must be between"),
        ({"attention.kv_lora_rank": 1020}, "heads of 1036 elements .*kv_lora_rank"),
        ({"attention.head_count": 129}, "129 query heads to a key-value head"),
        ({"leading_dense_block_count": 4}, "leading_dense_block_count is 4, it must be between 0 and 3"),
        ({"nextn_predict_layers": 3}, "nextn_predict_layers is 3, of 3 blocks in all"),
        ({"expert_gating_func": 6}, "expert_gating_func is 6"),
        ({"attention.kv_lora_rank": 32}, r"attn_k_b.* calls for \[3, 32, 32\]"),
    ],
)
def test_wrong_keys(keys: Mapping[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=message):
        defined(tmp_path, keys)


def test_files_with_one_matrix_of_keys_and_values(tmp_path: Path) -> None:
    """The message says what would run."""
    old = {f"blk.{i}.attn_{name}_b.weight": None for i in range(3) for name in "kv"}
    with pytest.raises(ModelError, match=r"blk\.0\.attn_kv_b\.weight .* a newer file .* attn_k_b .* runs"):
        defined(tmp_path, {}, {**old, **{f"blk.{i}.attn_kv_b.weight": (3 * 64, 64) for i in range(3)}})


@pytest.mark.parametrize(("n_layers", "n_vocab", "gating"), [(47, 154_880, "sigmoid"), (47, 151_936, "softmax")])
def test_the_gating_that_first_files_do_not_say(n_layers: int, n_vocab: int, gating: str, tmp_path: Path) -> None:
    keys = {k: v for k, v in GOOD.keys.items() if k != "expert_gating_func"} | {"block_count": n_layers}
    shapes = {"token_embd.weight": (n_vocab, 64)}
    made = write_case(tmp_path / "m.gguf", hollow(replace(GOOD, keys=keys, shapes=shapes)))
    with GGUFFile.open(made.path) as file:
        assert DeepSeek2Info.from_file(file, "deepseek2").routing.gating == gating

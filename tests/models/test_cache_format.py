"""The KV cache as Q8_0 blocks: half the memory, logits that are near, the same bits wherever it runs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import zinc_rt
from tests.helpers import QWEN3, T, engine_for, logits_of, random_tokens, run_tokens, soon, write_model
from tests.models.families.build import write_case
from tests.models.families.deepseek2 import CASES
from zinc_rt.engine.engine import Device, Options
from zinc_rt.errors import UsageError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import ModelDefinition, define
from zinc_rt.models.cache_format import CacheFormat, with_cache
from zinc_rt.models.errors import ModelError

SPEC = replace(QWEN3, weights=T.Q8_0, n_heads=4, n_kv_heads=2, head_dim=32)
LATENT = {"attn_q_b": (3 * 64, 32), "attn_kv_a_mqa": (96, 64)}
TOKENS = random_tokens(4, 40, SPEC.n_vocab)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("models") / "m.gguf", SPEC).path


@pytest.fixture(scope="module")
def want(path: Path) -> np.ndarray:
    return logits_of(path, TOKENS, kernels="reference", kv="q8_0")


def definition(path: Path) -> ModelDefinition:
    with GGUFFile.open(path) as file:
        return define(file)


def test_34_bytes_for_32_elements(path: Path) -> None:
    wide = definition(path)
    narrow = with_cache(wide, CacheFormat.Q8_0)
    (a,), (b,) = wide.states, narrow.states
    assert (b.position_bytes * 64, b.read_bytes * 64) == (a.position_bytes * 34, a.read_bytes * 34)
    assert replace(b, position_bytes=a.position_bytes, read_bytes=a.read_bytes) == a
    plans = {}
    for kv in CacheFormat:
        with engine_for(path, n_ctx=64, kernels="reference", kv=kv) as engine:
            assert engine.plan is not None
            plans[kv] = engine.plan.kv_cache, engine.step_bytes(11) - engine.step_bytes(10)
    assert plans[CacheFormat.F16] == (64 * a.position_bytes, a.read_bytes)
    assert plans[CacheFormat.Q8_0] == (64 * b.position_bytes, b.read_bytes)


def test_the_format_that_it_has_changes_nothing(path: Path) -> None:
    plain = definition(path)
    assert with_cache(plain, CacheFormat.F16) is plain
    made = with_cache(plain, CacheFormat.Q8_0)
    assert with_cache(made, CacheFormat.Q8_0) is made
    assert with_cache(made, CacheFormat.F16) == plain


def test_logits_are_near_those_of_float16(path: Path, want: np.ndarray) -> None:
    plain = logits_of(path, TOKENS, kernels="reference")
    error = np.abs(want - plain).max()
    assert 0 < error < 0.1 * np.abs(plain).max()
    np.testing.assert_array_equal(want[0], logits_of(path, TOKENS[:1], kernels="reference", kv="q8_0")[0])


@pytest.mark.parametrize("chunk", soon((7,), (1, 7, 40)))
def test_chunks_on_native_kernels(path: Path, want: np.ndarray, chunk: int) -> None:
    with engine_for(path, n_batch=40, n_slots=2, kv="q8_0") as engine:
        for _ in range(2):
            got = run_tokens(engine, engine.open_sequence(), TOKENS, chunk)
            np.testing.assert_array_equal(got.view(np.uint32), want.view(np.uint32))


@pytest.mark.slow  # takes long; `tests/backends/amdgpu/test_attention.py` has such caches
def test_an_emulated_gpu(path: Path, want: np.ndarray) -> None:
    with engine_for(path, n_ctx=32, n_batch=9, device=Device.emu, kv="q8_0") as engine:
        got = run_tokens(engine, engine.open_sequence(), TOKENS[:11], 9)
    np.testing.assert_array_equal(got.view(np.uint32), want[:11].view(np.uint32))


@pytest.mark.parametrize("name", ["f32", "Q8_0", "", 8])
def test_other_names_are_refused(name: object) -> None:
    with pytest.raises(UsageError, match=r"kv is .*, it must be f16 or q8_0"):
        Options(kv=name)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match=r"kv is .*, it must be f16 or q8_0"):
        zinc_rt.load(kv=name)  # type: ignore[arg-type]


def test_heads_that_are_no_whole_blocks_are_refused(tmp_path: Path) -> None:
    narrow = write_model(tmp_path / "m.gguf", replace(SPEC, head_dim=16)).path
    with (
        pytest.raises(ModelError, match=r"head_dim is 16; .* q8_0 .* multiples of 32 .* f16"),
        engine_for(narrow, kernels="reference", kv="q8_0"),
    ):
        pass
    latent = write_case(tmp_path / "latent.gguf", CASES["deepseek2"]).path
    with pytest.raises(ModelError, match=r"rope_dim is 16; .* multiples of 32"):
        with_cache(definition(latent), CacheFormat.Q8_0)


def test_latent_attention(tmp_path: Path) -> None:
    """96 elements a position, of which 64 are the value."""
    good = CASES["deepseek2"]
    keys = {"rope.dimension_count": 32, "attention.key_length": 96, "attention.key_length_mla": 64}
    shapes = {f"blk.{i}.{name}.weight": shape for i in range(3) for name, shape in LATENT.items()}
    wider = replace(good, keys={**good.keys, **keys}, shapes={**good.shapes, **shapes})
    path = write_case(tmp_path / "m.gguf", wider).path
    (state,) = with_cache(definition(path), CacheFormat.Q8_0).states
    assert state.position_bytes == 3 * 3 * 34
    plain, blocks = (logits_of(path, TOKENS[:9], kernels="reference", kv=kv) for kv in CacheFormat)
    # The median, since a row may choose another expert, which moves it further.
    assert 0 < np.median(np.abs(blocks - plain)) < 0.05 * plain.std()

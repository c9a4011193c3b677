"""RoPE frequencies from metadata against the formulas, typed anew in `truth`."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.helpers import LLAMA, QWEN2, QWEN3, Spec, write_model
from tests.models.truth import frequencies
from zinc_rt.gguf import GGMLType, GGUFFile, GGUFWriter
from zinc_rt.models import define
from zinc_rt.models.config import DenseInfo
from zinc_rt.models.errors import ModelError
from zinc_rt.models.keys import Keys
from zinc_rt.models.rope_config import RopeConfig


def config(head_dim: int = 64, context: int = 4096, **keys: Any) -> RopeConfig:
    """From `llama.rope.*`; dots of the keys are written as double underscores."""
    metadata = {f"llama.rope.{k.replace('__', '.')}": v for k, v in keys.items()}
    return RopeConfig.from_keys(Keys(metadata, "llama"), head_dim, context, interleaved=True)


CASES: dict[str, Spec] = {
    "plain": LLAMA,
    "base": replace(LLAMA, rope_base=1e6),
    "partial": replace(LLAMA, rope_dim=8),
    "wide": replace(QWEN3, head_dim=128),
    "linear": replace(LLAMA, keys={"rope.scaling.type": "linear", "rope.scaling.factor": 4.0}),
    "none": replace(LLAMA, keys={"rope.scaling.type": "none", "rope.scaling.factor": 4.0}),
    "factors": replace(LLAMA, head_dim=64, rope_factors=True),
    "yarn": replace(
        QWEN2,
        head_dim=128,
        rope_base=1e6,
        keys={
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0,
            "rope.scaling.original_context_length": 32768,
        },
    ),
    "yarn, short": replace(QWEN2, head_dim=64, keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 2.5}),
    "yarn with factors": replace(
        LLAMA, head_dim=32, rope_factors=True, keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0}
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_frequencies_and_table(name: str, tmp_path: Path) -> None:
    spec = CASES[name]
    tiny = write_model(tmp_path / "tiny.gguf", spec)
    with GGUFFile.open(tiny.path) as file:
        definition = define(file)
        assert isinstance(definition.info, DenseInfo)
        rope = definition.info.rope
        got, magnitude = rope.frequencies(tiny.tensors.get("rope_freqs.weight"))
        table = definition.constants["rope_table"](70)
    want, want_magnitude = frequencies(spec, tiny.tensors.get("rope_freqs.weight"))
    np.testing.assert_allclose(got, want, rtol=1e-12)
    assert magnitude == pytest.approx(want_magnitude, rel=1e-15)
    assert rope.interleaved == (spec.architecture == "llama")
    assert table.shape == (70, len(want), 2)
    assert table.dtype == np.float32
    angles = np.arange(70)[:, None] * np.array(want)
    np.testing.assert_allclose(table[..., 0], np.cos(angles) * magnitude, atol=6e-8 * magnitude + 1e-9)
    np.testing.assert_allclose(table[..., 1], np.sin(angles) * magnitude, atol=6e-8 * magnitude + 1e-9)


def test_yarn_keeps_fast_pairs_and_slows_slow_ones() -> None:
    """At both ends of Qwen 2.5's numbers the blend is all of one or all of the other."""
    plain = config(128, 32768, freq_base=1e6)
    yarn = config(128, 32768, freq_base=1e6, scaling__type="yarn", scaling__factor=4.0)
    (slow, magnitude), (base, one) = yarn.frequencies(), plain.frequencies()
    assert one == 1.0
    assert magnitude == pytest.approx(1.1386294361, rel=1e-9)  # 1 + 0.1 ln 4
    np.testing.assert_array_equal(slow[:20], base[:20])
    np.testing.assert_allclose(slow[-20:], base[-20:] / 4)
    ratio = slow / base
    assert (np.diff(ratio) <= 1e-15).all()


def test_yarn_keys() -> None:
    common = {"scaling__type": "yarn", "scaling__factor": 4.0, "scaling__original_context_length": 2048}
    base, _ = config(**common).frequencies()
    faster, _ = config(**common, scaling__yarn_beta_fast=8.0).frequencies()
    slower, _ = config(**common, scaling__yarn_beta_slow=4.0).frequencies()
    longer, _ = config(**{**common, "scaling__original_context_length": 8192}).frequencies()
    for other in (faster, slower, longer):
        assert not np.array_equal(other, base)
    assert config(**common, scaling__attn_factor=0.5).frequencies()[1] == pytest.approx(0.5 * (1 + 0.1 * math.log(4)))
    assert config(**{**common, "scaling__factor": 1.0}).frequencies()[1] == 1.0


@pytest.mark.parametrize(
    ("keys", "divisor"),
    [
        ({}, 1.0),
        ({"scaling__type": "linear", "scaling__factor": 4.0}, 4.0),
        ({"scale_linear": 2.0}, 2.0),  # old files
        ({"scaling__type": "linear", "scale_linear": 2.0}, 2.0),
        ({"scaling__factor": 4.0}, 4.0),  # without a type the factor is a linear one
        ({"scaling__factor": 4.0, "scale_linear": 2.0}, 4.0),
        ({"scaling__type": "none", "scale_linear": 2.0}, 1.0),
        ({"scaling__type": "linear"}, 1.0),
    ],
)
def test_which_factor_counts(keys: dict[str, Any], divisor: float) -> None:
    got, magnitude = config(**keys).frequencies()
    np.testing.assert_allclose(got, config().frequencies()[0] / divisor, rtol=1e-15)
    assert magnitude == 1.0


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({"dimension_count": 7}, "llama.rope.dimension_count is 7, it must be even"),
        ({"dimension_count": 66}, "between 1 and 64"),
        ({"dimension_count": 0}, "between 1 and 64"),
        ({"dimension_count": "8"}, "an integer is needed"),
        ({"freq_base": 0.0}, "llama.rope.freq_base is 0.0"),
        ({"freq_base": -1.0}, "above"),
        ({"freq_base": math.inf}, "finite"),
        ({"freq_base": math.nan}, "finite"),
        ({"freq_base": 1.0, "scaling__type": "yarn", "scaling__factor": 2.0}, "freq_base"),
        ({"scaling__type": "longrope"}, "'longrope'; supported are none, linear, yarn"),
        ({"scaling__type": 3}, "a string is needed"),
        ({"scaling__type": "linear", "scaling__factor": 0.0}, "scaling.factor is 0.0"),
        ({"scaling__type": "linear", "scaling__factor": True}, "finite number"),
        ({"scaling__type": "yarn", "scaling__original_context_length": 0}, "between 1"),
        ({"scaling__type": "yarn", "scaling__yarn_beta_fast": 0.0}, "above 0"),
        ({"scale_linear": -2.0}, "above 0"),
        ({"scaling__factor": 2.0**21}, r"factor is 2097152.0, it must be between 9.54e-07 and 1048576"),
        ({"scale_linear": 2.0**-21}, r"scale_linear is 4.7\d*e-07, it must be between"),
        ({"scaling__yarn_beta_slow": 5e-324}, "yarn_beta_slow is 5e-324, it must be between"),
        ({"scaling__yarn_beta_fast": 1e308}, r"yarn_beta_fast is 1e\+308, it must be between"),
        ({"scaling__attn_factor": 1e39}, r"attn_factor is 1e\+39, it must be between"),
    ],
)
def test_errors(keys: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=message):
        config(**keys)


POSITIVE = st.floats(min_value=0.0, exclude_min=True, allow_infinity=False)


@given(
    kind=st.sampled_from(["linear", "yarn"]),
    values=st.fixed_dictionaries(
        {},
        optional={
            "freq_base": st.floats(1.0, exclude_min=True, allow_infinity=False),
            "scaling__factor": POSITIVE,
            "scaling__attn_factor": POSITIVE,
            "scaling__yarn_beta_fast": POSITIVE,
            "scaling__yarn_beta_slow": POSITIVE,
            "scaling__original_context_length": st.integers(1, 1 << 31),
        },
    ),
)
def test_whatever_is_taken_gives_finite_tables(kind: str, values: dict[str, Any]) -> None:
    try:
        rope = config(scaling__type=kind, **values)
    except ModelError:
        return
    frequencies, magnitude = rope.frequencies()
    assert np.isfinite(frequencies).all()
    assert math.isfinite(magnitude)
    assert np.isfinite(rope.table(4)).all()


def with_factors(tmp_path: Path, values: np.ndarray) -> DenseInfo:
    spec = replace(LLAMA, rope_factors=True)
    tiny = write_model(tmp_path / "good.gguf", spec)
    writer = GGUFWriter(tmp_path / "bad.gguf")
    with GGUFFile.open(tiny.path) as file:
        for key, value in file.metadata.items():
            writer.add(key, value)
        for name, info in file.tensors.items():
            if name == "rope_freqs.weight":
                kind = GGMLType.F16 if values.dtype == np.float16 else GGMLType.F32
                writer.add_tensor(name, values, kind, values.shape)
            else:
                writer.add_tensor(name, file.raw(name).copy(), info.type, info.shape)
    writer.write()
    with GGUFFile.open(tmp_path / "bad.gguf") as file:
        info = define(file).info
    assert isinstance(info, DenseInfo)
    return info


@pytest.mark.parametrize(
    "values",
    [
        np.ones(7, np.float32),
        np.ones(8, np.float16),
        np.zeros(8, np.float32),
        np.float32([1, 1, 1, -1, 1, 1, 1, 1]),
        np.float32([1, 1, 1, np.nan, 1, 1, 1, 1]),
    ],
    ids=["short", "f16", "zero", "negative", "nan"],
)
def test_bad_frequency_factors(values: np.ndarray, tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"rope_freqs\.weight"):
        with_factors(tmp_path, values)


def test_good_frequency_factors(tmp_path: Path) -> None:
    assert with_factors(tmp_path, np.ones(8, np.float32)).rope.dim == 16

"""Rows of floats in every format that is written, judged by the `gguf` package."""

from __future__ import annotations

import re

import gguf
import numpy as np
import pytest

from tests.gguf.judge import dequantized
from zinc_rt.formats.table import FORMATS, quantized
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.gguf.errors import GGUFError, InvalidBlocks
from zinc_rt.quantizing.levels import levels_of
from zinc_rt.quantizing.rows import NEED_IMPORTANCE, SEARCHED, WRITTEN, quantize_rows

T = GGMLType
THEIRS = (T.Q4_0, T.Q4_1, T.Q5_0, T.Q5_1, T.Q8_0, T.MXFP4, T.TQ2_0, T.TQ1_0)
"""Formats that the `gguf` package writes."""
LARGEST_LOSS = {
    T.Q8_0: 0.006, T.Q6_K: 0.0175, T.Q5_K: 0.0365, T.Q5_1: 0.035, T.Q5_0: 0.041, T.Q4_K: 0.0715, T.Q4_1: 0.0705,
    T.IQ4_NL: 0.074, T.IQ4_XS: 0.0745, T.Q4_0: 0.083, T.NVFP4: 0.092, T.MXFP4: 0.112, T.Q3_K: 0.147, T.Q2_K: 0.266,
    T.Q2_0: 0.36, T.TQ2_0: 0.437, T.TQ1_0: 0.437, T.Q1_0: 0.603,
}  # fmt: skip
"""Relative root mean square error on normal numbers. Rounding alone, with the scale by the largest value, is worse by
5 % or more.
"""

searched = pytest.mark.parametrize("kind", SEARCHED, ids=lambda t: t.name)


def normal(seed: int, n_rows: int = 24, n: int = 512) -> np.ndarray:
    return (np.random.default_rng(seed).standard_normal((n_rows, n)) * 0.02).astype(np.float32)


def heavy(seed: int) -> np.ndarray:
    """Most numbers small, some far outside."""
    return (np.random.default_rng(seed).standard_t(3, (24, 512)) * 0.02).astype(np.float32)


def loss(x: np.ndarray, y: np.ndarray) -> float:
    return float(np.sqrt(np.square(x - y, dtype=np.float64).sum() / np.square(x, dtype=np.float64).sum()))


def test_every_format_is_written_or_refused() -> None:
    assert set(WRITTEN) | set(NEED_IMPORTANCE) == {T[name] for name in FORMATS}
    assert not set(WRITTEN) & set(NEED_IMPORTANCE)
    assert set(LARGEST_LOSS) == {T[f.name] for f in quantized()} - set(NEED_IMPORTANCE)


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda t: t.name)
def test_the_oracle_reads_what_we_read(kind: GGMLType) -> None:
    for x in (normal(1), heavy(2)):
        raw = quantize_rows(kind, x)
        assert raw.shape == (len(x), kind.row_bytes(x.shape[1]))
        np.testing.assert_array_equal(dequantized(kind, raw), blocks.dequantize(kind, raw))


@pytest.mark.parametrize("kind", THEIRS, ids=lambda t: t.name)
def test_no_block_loses_more_than_in_the_oracles_bytes(kind: GGMLType) -> None:
    few = np.random.default_rng(4).choice(np.float32([-3, 3, 1.5, 0, 0.25]), (24, 512))
    for x in (normal(5), heavy(6), few, np.abs(normal(7)), normal(8) + np.float32(1)):
        theirs = gguf.quants.quantize(x, gguf.GGMLQuantizationType(kind)).view(np.uint8)
        ours = quantize_rows(kind, x)
        errors = [
            np.square(x - dequantized(kind, raw), dtype=np.float64).reshape(-1, kind.block_size).sum(axis=1)
            for raw in (ours, theirs)
        ]
        assert (errors[0] <= errors[1] * (1 + 1e-5)).all()


@pytest.mark.parametrize("kind", LARGEST_LOSS, ids=lambda t: t.name)
def test_the_loss_is_what_the_format_allows(kind: GGMLType) -> None:
    x = normal(3, 128)
    assert loss(x, dequantized(kind, quantize_rows(kind, x))) < LARGEST_LOSS[kind]


@searched
def test_numbers_that_the_format_holds_stay_nearly(kind: GGMLType) -> None:
    """Written twice, little is lost the second time."""
    once = dequantized(kind, quantize_rows(kind, normal(9)))
    twice = dequantized(kind, quantize_rows(kind, once))
    assert loss(once, twice) < LARGEST_LOSS[kind] / 3


@searched
def test_odd_rows_stay_finite_and_near(kind: GGMLType) -> None:
    x = np.zeros((9, 512), np.float32)
    x[1] = 0.5
    x[2] = -0.5
    x[3, 100] = 7.0
    x[4] = 1e-30
    x[5] = 1e-6 * normal(1, 1)[0]
    x[6] = np.abs(normal(2, 1)[0])
    x[7] = FORMATS[kind.name].largest
    x[8] = -x[7]
    y = dequantized(kind, quantize_rows(kind, x))
    assert np.isfinite(y).all()
    assert (y[0] == 0).all()
    for row in (1, 2, 3, 6):
        assert loss(x[row], y[row]) < 3 * LARGEST_LOSS[kind] + 0.01, row
    assert np.abs(y[4:6]).max() < 1e-3
    assert (y[7] > 0).all()
    assert (y[8] < 0).all()


@pytest.mark.parametrize("kind", [T.Q2_0, T.TQ2_0, T.TQ1_0, T.Q1_0], ids=lambda t: t.name)
def test_few_values_come_back_as_they_were(kind: GGMLType) -> None:
    """A model that was trained with the values of the format loses nothing."""
    rng = np.random.default_rng(13)
    d = np.repeat(np.float16(rng.uniform(0.01, 0.03, (8, 2048 // kind.block_size))), kind.block_size, axis=1)
    x = rng.choice(np.float32(FORMATS[kind.name].levels), (8, 2048)) * d.astype(np.float32)
    np.testing.assert_array_equal(dequantized(kind, quantize_rows(kind, x)), x)


def test_rows_and_chunks_do_not_depend_on_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    x = heavy(11)
    for kind in SEARCHED:
        whole = quantize_rows(kind, x)
        np.testing.assert_array_equal(quantize_rows(kind, x[5:6]), whole[5:6])
        monkeypatch.setattr("zinc_rt.quantizing.rows.CHUNK", 1024)
        np.testing.assert_array_equal(quantize_rows(kind, x), whole)
        monkeypatch.undo()
        assert quantize_rows(kind, x[:0]).shape == (0, whole.shape[1])


def test_the_nearest_integer_is_the_nearest() -> None:
    x = np.random.default_rng(0).uniform(-150, 150, 5000).astype(np.float32)
    for f in quantized():
        if T[f.name] in SEARCHED:
            levels = levels_of(f)
            values = np.float32(f.levels)
            gap = np.abs(values - x[:, None]).min(axis=1)
            np.testing.assert_array_equal(np.abs(levels.nearest(x.copy()) - x), gap, err_msg=f.name)


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("kind", WRITTEN, ids=lambda t: t.name)
def test_the_largest_value_is_held_and_a_larger_one_is_refused(kind: GGMLType, sign: int) -> None:
    largest = np.float32(FORMATS[kind.name].largest)
    x = normal(12, 3) * (largest / np.float32(2))
    x[2, 40], x[2, 41] = sign * largest, -sign * largest / 3
    y = blocks.dequantize(kind, quantize_rows(kind, x))
    assert np.isfinite(y).all()
    scaled = (part.astype(np.float64) / largest for part in (x, y))
    assert loss(*scaled) < 3 * LARGEST_LOSS.get(kind, 0.002)
    if kind != T.F32:
        x[2, 40] = np.nextafter(x[2, 40], np.float32(sign * np.inf))
        words = f"row 7, element 40 is .*{kind.name} cannot hold.*" + re.escape(f"{largest:g}")
        with pytest.raises(InvalidBlocks, match=words):
            quantize_rows(kind, x, first=5)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", LARGEST_LOSS, ids=lambda t: t.name)
def test_what_is_no_number_is_refused_where_values_share_a_scale(kind: GGMLType, value: float) -> None:
    x = np.zeros((3, 256), np.float32)
    x[2, 40] = value
    with pytest.raises(InvalidBlocks, match="row 2, element 40"):
        quantize_rows(kind, x)


def test_refusals() -> None:
    with pytest.raises(GGUFError, match="100"):
        quantize_rows(T.Q4_K, np.zeros((1, 100), np.float32))
    with pytest.raises(InvalidBlocks, match="only read"):
        quantize_rows(T.IQ2_XXS, np.zeros((1, 256), np.float32))

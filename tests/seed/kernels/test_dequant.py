"""The dequant page against an oracle of its own: scalar float32 steps as docs/how/numerics.md writes them, weights
taken apart by the `gguf` package, fused multiply-adds in exact fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from zinc_rt.gguf import SUPPORTED, GGMLType
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.seed.kernels import dequant
from zinc_rt.seed.kernels import errors as e

f32 = np.float32
DOTS: dict[GGMLType, Callable[..., np.float32]] = {
    GGMLType.F32: dequant.dot_f32_row,
    GGMLType.F16: dequant.dot_f16_row,
    GGMLType.BF16: dequant.dot_bf16_row,
    GGMLType.Q8_0: dequant.dot_q8_0_row,
    GGMLType.Q4_0: dequant.dot_q4_0_row,
    GGMLType.Q4_K: dequant.dot_q4k_row,
    GGMLType.Q5_K: dequant.dot_q5k_row,
    GGMLType.Q6_K: dequant.dot_q6k_row,
}
# Byte places of d, and of m or dmin, in a block.
PLACES = {
    GGMLType.Q4_0: (0, None),
    GGMLType.Q4_1: (0, 2),
    GGMLType.Q5_0: (0, None),
    GGMLType.Q5_1: (0, 2),
    GGMLType.Q8_0: (0, None),
    GGMLType.Q4_K: (0, 2),
    GGMLType.Q5_K: (0, 2),
    GGMLType.Q6_K: (208, None),
}
# Formats with codebooks and with 2 or 3 bits are `tests/kernels/test_matmul.py`'s; the same code reads their rows.
TYPES = [t for t in SUPPORTED if t in PLACES or not t.quantized]
every_type = pytest.mark.parametrize("kind", TYPES, ids=lambda t: t.name)
every_dot = pytest.mark.parametrize("kind", DOTS, ids=lambda t: t.name)


def theirs(kind: GGMLType, raw: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType(kind))


def random_raw(kind: GGMLType, n_rows: int, n_cols: int, seed: int) -> np.ndarray:
    """Rows with random integers and scales near 0.1 and -0.1."""
    rng = np.random.default_rng(seed)
    if not kind.quantized:
        x = rng.standard_normal((n_rows, n_cols)).astype(f32)
        return np.ascontiguousarray(gguf.quants.quantize(x, gguf.GGMLQuantizationType(kind))).view(np.uint8)
    raw = rng.integers(0, 256, (n_rows, n_cols // kind.block_size, kind.block_bytes), np.uint8)
    for at in PLACES[kind]:
        if at is not None:
            raw[..., at + 1] = rng.choice(np.array([0x2E, 0xAE], np.uint8), raw.shape[:2])
    return raw.reshape(n_rows, -1)


# ---------------------------------------------------------------- the oracle


def round_f32(value: Fraction) -> np.float32:
    """A fraction rounded once to float32, ties to even, subnormals kept; finite range only."""
    if value == 0:
        return f32(0)
    magnitude = abs(value)
    exponent = math.floor(math.log2(magnitude.numerator) - math.log2(magnitude.denominator))
    while Fraction(2) ** exponent > magnitude:
        exponent -= 1
    while Fraction(2) ** (exponent + 1) <= magnitude:
        exponent += 1
    unit = Fraction(2) ** (max(exponent, -126) - 23)
    return f32(math.copysign(float(round(magnitude / unit) * unit), value))


def chain(weights: np.ndarray, x: np.ndarray) -> np.float32:
    acc = f32(0)
    for w, v in zip(weights.tolist(), x.tolist()):
        acc = round_f32(Fraction(w) * Fraction(v) + Fraction(float(acc)))
    return acc


def with_scales(kind: GGMLType, raw: np.ndarray, d: float, m: float) -> np.ndarray:
    """The row's values when its scales are replaced: exact integers for d, m of 0 and 1."""
    blocks = raw.reshape(-1, kind.block_bytes).copy()
    for at, scale in zip(PLACES[kind], (d, m)):
        if at is not None:
            blocks[:, at : at + 2] = np.array([scale], "<f2").view(np.uint8)
    return theirs(kind, blocks).reshape(-1, 32)


def scale_of(kind: GGMLType, raw: np.ndarray, place: int) -> np.ndarray:
    at = PLACES[kind][place]
    blocks = raw.reshape(-1, kind.block_bytes)
    halves = np.ascontiguousarray(blocks[:, at : at + 2]).view("<f2")[:, 0]
    return np.repeat(halves.astype(f32), kind.block_size // 32)


def group_values(kind: GGMLType, raw: np.ndarray, x: np.ndarray) -> list[np.float32]:
    groups = x.reshape(-1, 32)
    if not kind.quantized:
        return [chain(w, v) for w, v in zip(theirs(kind, raw[None]).reshape(-1, 32), groups)]
    ints = with_scales(kind, raw, 1, 0)  # scale times integer for K-quants
    d_w = scale_of(kind, raw, 0)
    values = []
    for g, v in enumerate(groups):
        d_x = np.abs(v).max() / f32(127)
        q = np.zeros(32) if d_x == 0 else np.rint(v * (f32(1) / d_x))
        isum, s = f32(float(ints[g].astype(np.float64) @ q)), f32(q.sum())
        value = (d_w[g] * d_x) * isum
        if PLACES[kind][1] is not None:
            m = scale_of(kind, raw, 1)[g]
            if kind.block_size == 256:
                mn = -with_scales(kind, raw, 0, 1)[g, 0]
                value = value - (m * d_x) * f32(float(mn) * float(s))
            else:
                value = value + (m * d_x) * s
        values.append(value)
    return values


def oracle_dot(kind: GGMLType, raw: np.ndarray, x: np.ndarray) -> np.float32:
    lanes = [f32(0)] * 32
    for g, value in enumerate(group_values(kind, raw, x)):
        lanes[g % 32] = lanes[g % 32] + value
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [lanes[i] + lanes[i + half] for i in range(half)]
    return lanes[0]


def test_the_oracle_rounds_as_ieee_does() -> None:
    rng = np.random.default_rng(1)
    for value in rng.standard_normal(200) * 10.0 ** rng.integers(-45, 38, 200):
        assert round_f32(Fraction(value)) == f32(value)
    tie = Fraction(1) + Fraction(1, 2**24)
    assert round_f32(tie) == 1.0
    assert round_f32(tie + Fraction(1, 2**80)) == f32(1 + 2.0**-23)  # where rounding through float64 fails


# ---------------------------------------------------------------- dot products


@every_type
@pytest.mark.parametrize("n_cols", [256, 1024, 2304])
def test_dot_row_is_the_matrix_product_of_one_row(kind: GGMLType, n_cols: int) -> None:
    raw = random_raw(kind, 2, n_cols, seed=n_cols)
    rng = np.random.default_rng(int(kind))
    x = (rng.standard_normal(n_cols) * 10.0 ** rng.integers(-3, 3)).astype(f32)
    x[32:64] = 0
    for i in range(2):
        got = dequant.dot_row(raw, kind, i, x)
        assert got.dtype == f32
        assert got.tobytes() == oracle_dot(kind, raw[i], x).tobytes()


@every_dot
def test_the_named_dots_are_dot_row_of_their_type(kind: GGMLType) -> None:
    raw = random_raw(kind, 1, 512, seed=3)[0]
    x = np.random.default_rng(4).standard_normal(512).astype(f32)
    expected = oracle_dot(kind, raw, x)
    assert DOTS[kind](raw, x) == expected
    assert DOTS[kind](raw.tobytes(), list(map(float, x))) == expected
    assert DOTS[kind](memoryview(raw.tobytes() + b"more than needed"), x) == expected


@pytest.mark.parametrize("kind", [GGMLType.Q8_0, GGMLType.Q4_0], ids=lambda t: t.name)
@pytest.mark.parametrize("n_cols", [32, 64, 96, 1056])
def test_rows_of_any_number_of_groups(kind: GGMLType, n_cols: int) -> None:
    raw = random_raw(kind, 1, n_cols, seed=n_cols)[0]
    x = np.random.default_rng(n_cols).standard_normal(n_cols).astype(f32)
    assert DOTS[kind](raw, x) == oracle_dot(kind, raw, x)


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.F16, GGMLType.BF16], ids=lambda t: t.name)
def test_float_rows_need_not_be_whole_groups(kind: GGMLType) -> None:
    raw = random_raw(kind, 1, 45, seed=9)[0]
    x = np.random.default_rng(9).standard_normal(45).astype(f32)
    weights = theirs(kind, raw[None])[0]
    expected = chain(weights[:32], x[:32]) + chain(weights[32:], x[32:])
    assert DOTS[kind](raw, x) == expected


@every_type
def test_a_dot_is_close_to_the_true_one(kind: GGMLType) -> None:
    """Within what eight-bit activations explain: half a step of each group's largest input."""
    raw = random_raw(kind, 1, 1024, seed=21)
    x = np.random.default_rng(22).standard_normal(1024).astype(f32)
    weights = theirs(kind, raw)[0].astype(np.float64)
    step = np.abs(x.reshape(-1, 32)).max(axis=1).repeat(32) / 127
    bound = (np.abs(weights) * step / 2).sum() + 1e-4 * np.abs(weights * x).sum()
    assert abs(float(dequant.dot_row(raw, kind, 0, x)) - float(weights @ x)) <= bound


# ---------------------------------------------------------------- rows


@every_type
def test_row_writes_the_values_of_one_row_and_nothing_else(kind: GGMLType) -> None:
    raw = random_raw(kind, 3, 512, seed=5)
    expected = theirs(kind, raw)
    for i in range(3):
        output = np.full(520, 7, f32)
        dequant.row(raw, kind, i, 512, output)
        np.testing.assert_array_equal(output[:512], expected[i])
        assert (output[512:] == 7).all()


@pytest.mark.parametrize(
    ("quantize", "kind"),
    [(dequant.quantize_row_to_q4_0, GGMLType.Q4_0), (dequant.quantize_row_to_q8_0, GGMLType.Q8_0)],
)
@given(data=st.data())
@settings(max_examples=60, deadline=None)
def test_quantize_row(quantize: Callable[..., None], kind: GGMLType, data: st.DataObject) -> None:
    n = data.draw(st.sampled_from([32, 96]))
    finite = st.floats(width=32, allow_nan=False, allow_infinity=False)
    x = data.draw(hnp.arrays(f32, n, elements=finite | st.floats(-4, 4, width=32)))
    size = kind.row_bytes(n)
    output = np.full(size + 3, 99, np.uint8)
    quantize(x, output)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(output[:size], gguf.quants.quantize(x, gguf.GGMLQuantizationType(kind)))
    assert (output[size:] == 99).all()


def test_fill_input_sum32_adds_in_index_order() -> None:
    rng = np.random.default_rng(8)
    x = (rng.standard_normal(160) * 10.0 ** rng.integers(-6, 6, 160)).astype(f32)
    output = np.full(6, -1, f32)
    dequant.fill_input_sum32(x, output)
    for g in range(5):
        acc = f32(0)
        for v in x[32 * g : 32 * g + 32]:
            acc = acc + v
        assert output[g] == acc
    assert output[5] == -1
    in_order = f32([1e8, *[1.0] * 30, -1e8])  # the ones are lost one by one
    dequant.fill_input_sum32(in_order, output)
    assert output[0] == 0
    dequant.fill_input_sum32(np.full(32, np.inf, f32), output)
    assert output[0] == np.inf


# ---------------------------------------------------------------- errors


@every_type
def test_errors_of_row_and_dot_row(kind: GGMLType) -> None:
    raw = random_raw(kind, 2, 256, seed=1)
    output, x = np.zeros(256, f32), np.ones(256, f32)
    cases: list[tuple[type[Exception], Callable[[], Any]]] = [
        (e.OutputTooSmall, lambda: dequant.row(raw, kind, 0, 256, output[:255])),
        (e.EmptyInput, lambda: dequant.row(raw, kind, 0, 0, output)),
        (e.EmptyInput, lambda: dequant.dot_row(raw, kind, 0, [])),
        (e.InputTooSmall, lambda: dequant.row(raw, kind, 2, 256, output)),
        (e.InputTooSmall, lambda: dequant.row(raw, kind, -1, 256, output)),
        (e.InputTooSmall, lambda: dequant.dot_row(raw.reshape(-1)[:-1], kind, 1, x)),
        (e.InputTooSmall, lambda: dequant.dot_row(b"", kind, 0, x)),
    ]
    if kind.quantized:
        cases += [
            (e.UnsupportedShape, lambda: dequant.row(raw, kind, 0, 250, output)),
            (e.UnsupportedShape, lambda: dequant.dot_row(raw, kind, 0, x[:250])),
        ]
    for error, action in cases:
        with pytest.raises(error):
            action()
    assert (output == 0).all()


@every_dot
def test_errors_of_the_named_dots(kind: GGMLType) -> None:
    raw = random_raw(kind, 1, 256, seed=1)[0]
    with pytest.raises(e.EmptyInput):
        DOTS[kind](raw, [])
    with pytest.raises(e.InputTooSmall, match=f"takes bytes 0 to {raw.size - 1}, the data have {raw.size - 1}"):
        DOTS[kind](raw[:-1], np.ones(256, f32))
    if kind.quantized:
        with pytest.raises(e.UnsupportedShape, match="31 elements"):
            DOTS[kind](raw, np.ones(31, f32))


@pytest.mark.parametrize("kind", [t for t in GGMLType if not t.supported], ids=lambda t: t.name)
def test_types_without_kernels(kind: GGMLType) -> None:
    raw = np.zeros(kind.block_bytes, np.uint8)
    for action in (
        lambda: dequant.row(raw, kind, 0, kind.block_size, np.zeros(kind.block_size, f32)),
        lambda: dequant.dot_row(raw, kind, 0, np.zeros(kind.block_size, f32)),
    ):
        with pytest.raises(e.UnsupportedTensorType, match=kind.name):
            action()


def test_errors_of_quantizing_and_summing() -> None:
    room, sums = np.zeros(64, np.uint8), np.zeros(1, f32)
    for quantize, size in ((dequant.quantize_row_to_q4_0, 18), (dequant.quantize_row_to_q8_0, 34)):
        with pytest.raises(e.EmptyInput):
            quantize([], room)
        with pytest.raises(e.UnsupportedShape):
            quantize(np.ones(33, f32), room)
        with pytest.raises(e.OutputTooSmall, match=f"room for {size - 1} elements, {size} are needed"):
            quantize(np.ones(32, f32), room[: size - 1])
        with pytest.raises(InvalidBlocks, match="nan"):
            quantize(np.full(32, np.nan, f32), room)
    assert (room == 0).all()
    with pytest.raises(e.EmptyInput):
        dequant.fill_input_sum32([], sums)
    with pytest.raises(e.UnsupportedShape):
        dequant.fill_input_sum32(np.ones(31, f32), sums)
    with pytest.raises(e.OutputTooSmall):
        dequant.fill_input_sum32(np.ones(64, f32), sums)

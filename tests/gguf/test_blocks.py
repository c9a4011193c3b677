"""Block formats against their judge: same bits for any bytes, same bytes for any finite floats."""

from __future__ import annotations

import gguf
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from tests.gguf.judge import SIZES, dequantized
from tests.kernels.material import places_of_halves, put_halves
from zinc_rt.formats.kinds import HALF_SCALES, WITH_MINIMA, Scale
from zinc_rt.formats.table import FORMATS
from zinc_rt.gguf import SUPPORTED, GGMLType, UnsupportedTensorType, blocks
from zinc_rt.gguf.errors import GGUFError, InvalidBlocks

QUANTISED = [t for t in SUPPORTED if t.quantized]
WRITTEN = [GGMLType.Q4_0, GGMLType.Q8_0]

# Zeros, subnormals, the least normal, ones, the largest, infinities, NaNs.
AWKWARD_F16 = [
    0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00, 0xFC00, 0x7E00,
    0xFE01,
]  # fmt: skip

ids = pytest.mark.parametrize("kind", SUPPORTED, ids=lambda t: t.name)
quantised = pytest.mark.parametrize("kind", QUANTISED, ids=lambda t: t.name)


def same_bits(a: np.ndarray, b: np.ndarray) -> None:
    """Equal to the bit; NaNs need only be in the same places, their payload is nobody's contract."""
    assert a.dtype == b.dtype == np.float32
    assert a.shape == b.shape
    nan = np.isnan(a)
    np.testing.assert_array_equal(nan, np.isnan(b))
    np.testing.assert_array_equal(a.view(np.uint32)[~nan], b.view(np.uint32)[~nan])


def random_rows(kind: GGMLType, seed: int, n_rows: int = 5, n_blocks: int = 3) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (n_rows, n_blocks * kind.block_bytes), np.uint8)


@ids
def test_sizes_agree_with_the_oracle(kind: GGMLType) -> None:
    assert (kind.block_size, kind.block_bytes) == SIZES[kind]


def test_every_type_of_the_oracle_is_known_by_name_and_size() -> None:
    for theirs, size in gguf.GGML_QUANT_SIZES.items():
        ours = GGMLType(int(theirs))
        assert ours.name == theirs.name
        assert (ours.block_size, ours.block_bytes) == size


@ids
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_dequantize_any_bytes(kind: GGMLType, data: st.DataObject) -> None:
    n_rows, n_blocks = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 3))
    width = n_blocks * kind.block_bytes
    raw = np.frombuffer(data.draw(st.binary(min_size=n_rows * width, max_size=n_rows * width)), np.uint8)
    raw = raw.reshape(n_rows, width)
    same_bits(blocks.dequantize(kind, raw), dequantized(kind, raw))


@quantised
def test_dequantize_awkward_scales(kind: GGMLType) -> None:
    places = places_of_halves(kind)
    if FORMATS[kind.name].scale in (Scale.POWER_OF_TWO, Scale.E4M3_HALVES):
        raw = random_rows(kind, 0, n_rows=256, n_blocks=1)
        raw[:, FORMATS[kind.name].d] = np.arange(256)
        same_bits(blocks.dequantize(kind, raw), dequantized(kind, raw))
        return
    for first in AWKWARD_F16:
        raw = random_rows(kind, first, n_rows=len(AWKWARD_F16), n_blocks=1)
        put_halves(kind, raw, places[0], np.full(len(raw), first, "<u2").view("<f2"))
        for at in places[1:]:
            put_halves(kind, raw, at, np.array(AWKWARD_F16, "<u2").view("<f2"))
        same_bits(blocks.dequantize(kind, raw), dequantized(kind, raw))


@pytest.mark.parametrize("kind", [GGMLType.F16, GGMLType.BF16], ids=lambda t: t.name)
def test_every_half_float_dequantizes_like_the_oracle(kind: GGMLType) -> None:
    raw = np.arange(1 << 16, dtype="<u2").view(np.uint8).reshape(64, -1)
    same_bits(blocks.dequantize(kind, raw), dequantized(kind, raw))


@ids
def test_rows_are_independent_and_may_be_slices_of_a_read_only_matrix(kind: GGMLType) -> None:
    raw = random_rows(kind, 7, n_rows=9, n_blocks=4)
    raw.setflags(write=False)
    whole = blocks.dequantize(kind, raw)
    assert whole.flags.writeable
    same_bits(blocks.dequantize(kind, raw[2:7]), whole[2:7])
    same_bits(blocks.dequantize(kind, raw[::3]), whole[::3])
    inner = slice(kind.block_bytes, 3 * kind.block_bytes)  # the rows of a column range are not contiguous
    same_bits(blocks.dequantize(kind, raw[:, inner]), whole[:, kind.block_size : 3 * kind.block_size])


@ids
def test_no_rows_and_empty_rows(kind: GGMLType) -> None:
    for n_rows, n_blocks in ((0, 4), (3, 0), (0, 0)):
        raw = random_rows(kind, 1, n_rows, n_blocks)
        assert blocks.dequantize(kind, raw).shape == (n_rows, n_blocks * kind.block_size)
        if kind.quantized:
            assert blocks.unpack(kind, raw).ints.shape == (n_rows, n_blocks * kind.block_size // 32, 32)
        if kind in blocks.QUANTIZABLE:
            x = np.zeros((n_rows, n_blocks * kind.block_size), np.float32)
            assert blocks.quantize(kind, x).shape == raw.shape


def test_dequantize_of_more_than_one_chunk() -> None:
    raw = random_rows(GGMLType.Q4_0, 3, n_rows=40, n_blocks=1024)
    same_bits(blocks.dequantize(GGMLType.Q4_0, raw), dequantized(GGMLType.Q4_0, raw))


# ---------------------------------------------------------------- the integer view


def value_of(rows: blocks.QuantRows, row: int, group: int, element: int) -> float:
    """One element from the integer view by the formula of its format, in Python's own floats."""
    q, d = int(rows.ints[row, group, element]), float(rows.d[row, group])
    if rows.last is not None and element >= 16:
        d = float(rows.last[row, group])
    if rows.sc is None:
        return d * q + (0.0 if rows.m is None else float(rows.m[row, group]))
    place = (row, group, element // 16) if rows.sc.ndim == 3 else (row, group)
    if rows.mn is None:
        return d * int(rows.sc[place]) * q
    assert rows.m is not None
    return d * int(rows.sc[place]) * q - float(rows.m[row, group]) * int(rows.mn[place])


@quantised
def test_unpack_evaluates_to_what_the_oracle_dequantizes(kind: GGMLType) -> None:
    raw = random_rows(kind, 11, n_rows=4, n_blocks=2)
    for at in places_of_halves(kind):
        put_halves(kind, raw.reshape(4, 2, -1), at, np.float16(0.1 + np.arange(8).reshape(4, 2) / 100))
    if FORMATS[kind.name].scale == Scale.POWER_OF_TWO:
        raw.reshape(4, 2, -1)[:, :, FORMATS[kind.name].d] = [124, 126]
    rows = blocks.unpack(kind, raw)
    expected = dequantized(kind, raw)
    n_groups = 2 * kind.block_size // 32
    assert rows.ints.shape == (4, n_groups, 32)
    got = np.array(
        [[value_of(rows, r, g, e) for g in range(n_groups) for e in range(32)] for r in range(4)], np.float64
    )
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


RANGES = {
    GGMLType.Q4_0: (-8, 7),
    GGMLType.Q4_1: (0, 15),
    GGMLType.Q5_0: (-16, 15),
    GGMLType.Q5_1: (0, 31),
    GGMLType.Q8_0: (-128, 127),
    GGMLType.Q4_K: (0, 15),
    GGMLType.Q5_K: (0, 31),
    GGMLType.Q6_K: (-32, 31),
    GGMLType.IQ4_NL: (-127, 113),
    GGMLType.MXFP4: (-12, 12),
    GGMLType.IQ4_XS: (-127, 113),
    GGMLType.Q3_K: (-4, 3),
    GGMLType.Q2_K: (0, 3),
    GGMLType.NVFP4: (-12, 12),
    GGMLType.IQ2_XXS: (-43, 43),
    GGMLType.IQ2_XS: (-43, 43),
    GGMLType.IQ2_S: (-43, 43),
    GGMLType.IQ3_XXS: (-62, 62),
    GGMLType.IQ3_S: (-15, 15),
    GGMLType.Q2_0: (-1, 2),
    GGMLType.TQ2_0: (-1, 2),
    GGMLType.TQ1_0: (-1, 1),
    GGMLType.Q1_0: (-1, 1),
    GGMLType.IQ1_M: (-9, 9),
    GGMLType.IQ1_S: (-9, 9),
}
SMALL_SCALES = {
    Scale.SIX_BIT: (0, 63),
    Scale.INT8_HALVES: (-128, 127),
    Scale.SIX_BIT_SIGNED: (-32, 31),
    Scale.SIX_BIT_HALVES: (-32, 31),
    Scale.FOUR_BIT_HALVES: (0, 15),
    Scale.ODD_WORD: (1, 31),
    Scale.ODD_NIBBLES: (1, 31),
    Scale.ODD_HALVES: (1, 31),
    Scale.ODD_TOP: (1, 15),
    Scale.ODD_THREES: (1, 15),
}
"""The least and the greatest of the integer scales; minima end where scales do."""


@quantised
def test_unpack_types_shapes_and_ranges(kind: GGMLType) -> None:
    raw = random_rows(kind, 13, n_rows=32, n_blocks=16)
    rows = blocks.unpack(kind, raw)
    n_groups = 16 * kind.block_size // 32
    assert rows.type is kind
    assert rows.ints.dtype == np.int8
    assert rows.d.dtype == np.float32
    assert rows.d.shape == (32, n_groups)
    assert (rows.ints.min(), rows.ints.max()) == RANGES[kind]
    assert not np.shares_memory(rows.ints, raw)
    f = FORMATS[kind.name]
    assert (rows.m is not None) == (f.minimum is not None)
    assert (rows.sc is not None) == (f.scale in SMALL_SCALES)
    assert (rows.mn is not None) == (f.scale in WITH_MINIMA)
    halves = f.scale in HALF_SCALES
    assert (rows.last is not None) == (f.scale == Scale.E4M3_HALVES)
    for part in (rows.sc, rows.mn):
        if part is not None:
            assert part.dtype == np.int32
            assert part.shape == ((32, n_groups, 2) if halves else (32, n_groups))
            assert (part.min(), part.max()) == SMALL_SCALES[Scale(f.scale)]
    if rows.m is not None:
        assert rows.m.dtype == np.float32
        assert rows.m.shape == (32, n_groups)


# ---------------------------------------------------------------- quantising


def oracle_bytes(kind: GGMLType, x: np.ndarray) -> np.ndarray:
    with np.errstate(all="ignore"):
        raw = gguf.quants.quantize(x, gguf.GGMLQuantizationType(kind))
    return np.ascontiguousarray(raw).view(np.uint8).reshape(len(x), -1)


FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
TAME = st.floats(-8, 8, width=32)
FEW = st.sampled_from([0.0, -0.0, 1.0, -1.0, 0.5, 127.0, -128.0, 1e-45, -1e-40, 1e-38, 3e38, -3e38, 0.0625])


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda t: t.name)
@given(x=hnp.arrays(np.float32, st.tuples(st.integers(1, 3), st.sampled_from([32, 64])), elements=FINITE | TAME | FEW))
@settings(max_examples=60, deadline=None)
def test_quantize_gives_the_bytes_of_the_oracle(kind: GGMLType, x: np.ndarray) -> None:
    np.testing.assert_array_equal(blocks.quantize(kind, x), oracle_bytes(kind, x))


@pytest.mark.parametrize("kind", WRITTEN, ids=lambda t: t.name)
def test_quantize_halfway_cases_and_ties(kind: GGMLType) -> None:
    rng = np.random.default_rng(5)
    steps = rng.integers(-255, 256, (400, 32)).astype(np.float32) / 2  # many exact halves of d
    steps[:, 0] = np.where(rng.integers(0, 2, 400), 127, -127)
    gauss = rng.standard_normal((2000, 64)).astype(np.float32)
    ties = rng.choice(np.float32([-3, 3, 1.5]), (50, 96))  # equal magnitudes of both signs
    for x in (steps, steps * np.float32(2.0**-20), gauss, gauss * np.float32(1e-30), ties):
        np.testing.assert_array_equal(blocks.quantize(kind, x), oracle_bytes(kind, x))


@pytest.mark.parametrize("kind", [GGMLType.F32, GGMLType.F16, GGMLType.BF16], ids=lambda t: t.name)
@given(bits=hnp.arrays(np.uint32, st.tuples(st.integers(1, 3), st.integers(1, 40))))
@settings(max_examples=50, deadline=None)
def test_plain_floats_are_stored_like_the_oracle(kind: GGMLType, bits: np.ndarray) -> None:
    x = bits.view(np.float32)
    np.testing.assert_array_equal(blocks.quantize(kind, x), oracle_bytes(kind, x))


@pytest.mark.parametrize("kind", blocks.QUANTIZABLE, ids=lambda t: t.name)
def test_a_round_trip_loses_at_most_half_a_step(kind: GGMLType) -> None:
    x = np.random.default_rng(2).standard_normal((30, 256)).astype(np.float32)
    back = blocks.dequantize(kind, blocks.quantize(kind, x))
    largest = np.abs(x).reshape(30, -1, 32).max(axis=-1, keepdims=True).repeat(32, axis=-1).reshape(x.shape)
    # Half a step, and for Q4_0 a whole one at the end that -8..7 leaves open; plus the rounding of the scale.
    step = {"F32": 0.0, "F16": 2.0**-11, "BF16": 2.0**-8, "Q4_0": 1 / 8, "Q8_0": 0.5 / 127}[kind.name]
    assert (np.abs(back - x) <= largest * (step + 2e-3 * (step > 2e-3))).all()


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("kind", WRITTEN, ids=lambda t: t.name)
def test_quantize_refuses_what_is_not_finite(kind: GGMLType, value: float) -> None:
    x = np.zeros((3, 64), np.float32)
    x[2, 40] = value
    with pytest.raises(InvalidBlocks, match="row 2, element 40"):
        blocks.quantize(kind, x)


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("kind", [t for t in GGMLType if not t.supported], ids=lambda t: t.name)
def test_types_not_supported_are_named_with_those_that_are(kind: GGMLType) -> None:
    raw = np.zeros((1, kind.block_bytes), np.uint8)
    for action in (
        lambda: blocks.dequantize(kind, raw),
        lambda: blocks.unpack(kind, raw),
        lambda: blocks.quantize(kind, np.zeros((1, kind.block_size), np.float32)),
    ):
        with pytest.raises(UnsupportedTensorType) as caught:
            action()
        words = str(caught.value).replace(";", " ").split()
        assert kind.name in words
        assert {t.name for t in SUPPORTED} <= set(words)


@ids
def test_wrong_shapes_and_dtypes_are_refused(kind: GGMLType) -> None:
    good = random_rows(kind, 1)
    for bad in (good[0], good[:, :-1], good.astype(np.int16), good[None]):
        with pytest.raises(InvalidBlocks):
            blocks.dequantize(kind, bad)
    if not kind.quantized:
        with pytest.raises(InvalidBlocks, match="not quantised"):
            blocks.unpack(kind, good)
    else:
        with pytest.raises(InvalidBlocks):
            blocks.unpack(kind, good[:, :-1])


def test_quantize_refusals() -> None:
    with pytest.raises(InvalidBlocks, match="only read"):
        blocks.quantize(GGMLType.Q6_K, np.zeros((1, 256), np.float32))
    with pytest.raises(InvalidBlocks, match="float64"):
        blocks.quantize(GGMLType.Q8_0, np.zeros((1, 32)))
    with pytest.raises(InvalidBlocks):
        blocks.quantize(GGMLType.Q8_0, np.zeros(32, np.float32))
    with pytest.raises(GGUFError, match="33"):
        blocks.quantize(GGMLType.Q8_0, np.zeros((1, 33), np.float32))

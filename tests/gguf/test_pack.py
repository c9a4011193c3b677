"""`pack` is the inverse of `unpack`, for the bytes of random blocks."""

from __future__ import annotations

import numpy as np
import pytest

from zinc_rt.formats.kinds import GRID_KINDS, CodeLayout, Scale
from zinc_rt.formats.table import quantized
from zinc_rt.gguf import GGMLType, blocks
from zinc_rt.gguf.errors import InvalidBlocks
from zinc_rt.gguf.pack import e4m3, exponents, pack
from zinc_rt.gguf.unpack import half_e4m3

PACKED = [GGMLType[f.name] for f in quantized() if f.kind not in GRID_KINDS]


def canonical(kind: GGMLType, seed: int) -> np.ndarray:
    """Random rows whose float16 scales are no NaN, as their payload is nobody's contract."""
    rng = np.random.default_rng(seed)
    raw = rng.integers(0, 256, (4, 3, kind.block_bytes), np.uint8)
    f = next(f for f in quantized() if f.name == kind.name)
    for at in f.halves:
        raw[:, :, at + 1] &= 0xBF
    if f.scale == Scale.E4M3_HALVES:
        raw[:, :, f.d : f.d + 4] %= 0x7F
    if f.kind == CodeLayout.TRITS:
        numbers = raw[:, :, f.q : f.q + 52] % 243
        numbers[:, :, 48:] -= numbers[:, :, 48:] % 3  # a fifth digit of 0
        raw[:, :, f.q : f.q + 52] = -(numbers.astype(np.int32) * -256 // 243)
    if f.codebook and len(set(f.codebook)) < 16:  # two codes mean 0: the first of them is written
        at, n = f.q, f.block // 2
        codes = raw[:, :, at : at + n]
        codes[codes & 15 == 8] &= 0xF0
        codes[codes >> 4 == 8] &= 0x0F
    return raw.reshape(4, 3 * kind.block_bytes)


@pytest.mark.parametrize("kind", PACKED, ids=lambda t: t.name)
def test_pack_gives_back_what_was_unpacked(kind: GGMLType) -> None:
    for seed in range(20):
        raw = canonical(kind, seed)
        np.testing.assert_array_equal(pack(blocks.unpack(kind, raw)), raw)
    assert pack(blocks.unpack(kind, raw[:0])).shape == (0, raw.shape[1])


def test_every_scale_of_a_byte_comes_back() -> None:
    e = np.arange(256, dtype=np.uint8)
    raw = np.zeros((256, 17), np.uint8)
    raw[:, 0] = e
    np.testing.assert_array_equal(exponents(blocks.unpack(GGMLType.MXFP4, raw).d[:, 0]), e)
    s = np.arange(0x7F, dtype=np.uint8)
    np.testing.assert_array_equal(e4m3(half_e4m3(s)), s)
    assert e4m3(np.array([1e9, 0.0], np.float32)).tolist() == [0x7E, 0]
    between = np.random.default_rng(1).uniform(0, 224, 3000).astype(np.float32)
    nearest = np.abs(half_e4m3(s)[None] - between[:, None]).min(axis=1)
    np.testing.assert_array_equal(np.abs(half_e4m3(e4m3(between)) - between), nearest)


def test_pack_refuses_what_has_no_integers() -> None:
    with pytest.raises(InvalidBlocks, match="F16 is not quantised"):
        pack(blocks.QuantRows(GGMLType.F16, np.zeros((1, 1, 32), np.int8), np.zeros((1, 1), np.float32)))

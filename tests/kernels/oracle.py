"""The reductions and kernels of docs/how/numerics.md, one scalar operation after the other, in exact arithmetic."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import gguf
import numpy as np

from tests.kernels.exact import add, div, exp, fma, maximum, mul, sqrt, sub
from zinc_rt.gguf import GGMLType

Vector = Sequence[float]


def floats(array: np.ndarray) -> list:
    """The elements as Python floats (nested lists for more dimensions); exact for float16 and float32."""
    return array.tolist()


def same_bits(got: np.ndarray, want: object) -> None:
    """Equal to the bit, zeros' signs included; a NaN is any NaN."""
    assert got.dtype == np.float32
    expected = np.asarray(want, np.float32)
    assert got.shape == expected.shape
    nan = np.isnan(expected)
    np.testing.assert_array_equal(np.isnan(got), nan)
    a, b = np.ascontiguousarray(got).view(np.uint32), np.ascontiguousarray(expected).view(np.uint32)
    different = np.argwhere((a != b) & ~nan)
    if different.size:
        at = tuple(different[0])
        raise AssertionError(
            f"{len(different)} of {a.size} elements differ, the first at {at}: {float(got[at]).hex()} is not"
            f" {float(expected[at]).hex()}"
        )


def chain(a: Iterable[float], b: Iterable[float]) -> float:
    acc = 0.0
    for x, y in zip(a, b, strict=True):
        acc = fma(x, y, acc)
    return acc


def fold(lanes: list[float]) -> float:
    """Pairwise at distance half, quarter, ..., 1."""
    while len(lanes) > 1:
        half = len(lanes) // 2
        lanes = [add(lanes[i], lanes[i + half]) for i in range(half)]
    return lanes[0]


def tree(values: Vector, lanes: int = 32) -> float:
    acc = [0.0] * lanes
    for i, value in enumerate(values):
        acc[i % lanes] = add(acc[i % lanes], value)
    return fold(acc)


# Matrix products.


def quantize_group(x: Vector) -> tuple[float, list[int]]:
    """d and the 32 integers."""
    amax = maximum([abs(v) for v in x])
    d = div(amax, 127.0)
    if d < 2.0**-126:
        return 0.0, [0] * 32
    if not math.isfinite(d):
        return d, [0] * 32
    inverse = div(1.0, d)
    return d, [round(mul(v, inverse)) for v in x]


def cached_group(x: Vector) -> tuple[float, list[int]]:
    """The same as a cache keeps it: d rounded to float16, integers only where that is a number above zero."""
    d, q = quantize_group(x)
    with np.errstate(over="ignore", under="ignore"):
        kept = float(np.float32(d).astype(np.float16))
    return kept, q if 0 < kept < math.inf else [0] * 32


def cached_product(q: Vector, key: Sequence[tuple[float, list[int]]]) -> float:
    """A query head times a cached key: the groups' products, added in order."""
    total = 0.0
    for g, (d, ints) in enumerate(key):
        d_x, x = quantize_group(q[32 * g : 32 * g + 32])
        total = add(total, mul(mul(d, d_x), float(sum(a * b for a, b in zip(x, ints, strict=True)))))
    return total


@dataclass
class Group:
    """32 weights of a block: integers with their offset applied, float16 scales, integer scales."""

    ints: list[int]
    d: float
    m: float = 0.0
    sc: tuple[int, ...] = ()
    mn: int | tuple[int, int] = 0
    last: float | None = None


def _half(raw: bytes, at: int) -> float:
    return float(np.frombuffer(raw, "<f2", 1, at)[0])


def _nibbles(raw: bytes) -> list[int]:
    return [b & 15 for b in raw] + [b >> 4 for b in raw]


def _bit(raw: bytes, i: int) -> int:
    return raw[i // 8] >> (i % 8) & 1


def _k_scale(raw: bytes, g: int) -> tuple[int, int]:
    """Scale and minimum of group g of a K-quant from its 12 bytes."""
    if g < 4:
        return raw[g] & 63, raw[g + 4] & 63
    low = raw[g + 4]
    return (low & 15) | (raw[g - 4] >> 6) << 4, (low >> 4) | (raw[g] >> 6) << 4


# Values of four-bit codes: those of the format that is called non-linear, and twice a float of 1, 2 and 1 bits.
IQ4 = [-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113]
E2M1 = [
    int(2 * (code & 1) * 0.5 if code & 7 < 2 else 2 * 2.0 ** ((code & 7) // 2 - 1) * (1 + code % 2 / 2))
    * (-1 if code > 7 else 1)
    for code in range(16)
]


def _q2_bits(packed: bytes, i: int) -> int:
    """The two bits of weight i of a block of 256."""
    half, rest = divmod(i, 128)
    return packed[32 * half + rest % 32] >> 2 * (rest // 32) & 3


def _q3_scale(packed: bytes, j: int) -> int:
    """The scale of the j-th 16 weights of a Q3_K block, without its offset."""
    low = packed[j] & 15 if j < 8 else packed[j - 8] >> 4
    return low + 16 * (packed[8 + j % 4] >> 2 * (j // 4) & 3)


def _small_groups(kind: GGMLType, b: bytes) -> list[Group]:
    """Blocks of codes and of two or three bits."""
    t = GGMLType
    if kind is t.IQ4_NL:
        return [Group([IQ4[x] for x in _nibbles(b[2:])], _half(b, 0))]
    if kind is t.MXFP4:
        return [Group([E2M1[x] for x in _nibbles(b[1:])], 2.0 ** (b[0] - 128))]
    groups = []
    for g in range(8):
        span = range(32 * g, 32 * g + 32)
        if kind is t.IQ4_XS:
            upper = int.from_bytes(b[2:4], "little") >> 2 * g & 3
            scale = (b[4 + g // 2] >> 4 * (g % 2) & 15) + 16 * upper - 32
            groups.append(Group([IQ4[x] for x in _nibbles(b[8 + 16 * g :][:16])], _half(b, 0), sc=(scale,)))
        elif kind is t.Q3_K:
            ints = [_q2_bits(b[32:96], i) - (0 if b[i % 32] >> i // 32 & 1 else 4) for i in span]
            scales = _q3_scale(b[96:108], 2 * g) - 32, _q3_scale(b[96:108], 2 * g + 1) - 32
            groups.append(Group(ints, _half(b, 108), sc=scales))
        else:
            assert kind is t.Q2_K
            both = b[2 * g], b[2 * g + 1]
            scales, minima = (both[0] % 16, both[1] % 16), (both[0] // 16, both[1] // 16)
            groups.append(Group([_q2_bits(b[16:80], i) for i in span], _half(b, 80), _half(b, 82), scales, minima))
    return groups


def _e4m3(byte: int) -> float:
    """A float of 4 and 3 bits, bias 7."""
    exponent, mantissa = byte >> 3 & 15, byte & 7
    if byte == 0x7F:
        return 0.0
    return mantissa * 2.0**-9 if exponent == 0 else (1 + mantissa / 8) * 2.0 ** (exponent - 7)


def _nv_groups(b: bytes) -> list[Group]:
    groups = []
    for g in range(2):
        ints = []
        for k in (2 * g, 2 * g + 1):
            part = b[4 + 8 * k :][:8]
            ints += [E2M1[x & 15] for x in part] + [E2M1[x >> 4] for x in part]
        groups.append(Group(ints, _e4m3(b[2 * g]) / 2, last=_e4m3(b[2 * g + 1]) / 2))
    return groups


@functools.cache
def _vectors(name: str) -> list[list[int]]:
    """The table of a format, from the `gguf` package."""
    table = gguf.quants._type_traits[gguf.GGMLQuantizationType[name]]
    table.init_grid()
    return table.grid.reshape(table.grid_shape).astype(int).tolist()


def _even(seven: int) -> list[int]:
    """+1 and -1 for seven bits and one that makes the number of minuses even."""
    bits = [seven >> i & 1 for i in range(7)]
    return [1 - 2 * x for x in [*bits, sum(bits) % 2]]


def _grid_groups(kind: GGMLType, b: bytes) -> list[Group]:
    """Blocks of indices of vectors."""
    t, vectors, groups = GGMLType, _vectors(kind.name), []
    for g in range(8):
        bytes_at = {t.IQ2_S: 34, t.IQ3_S: 74}.get(kind)
        plain = [] if bytes_at is None else [1 - 2 * _bit(b[bytes_at + 4 * g :], i) for i in range(32)]
        if kind is t.IQ2_XXS:
            part = b[2 + 8 * g :][:8]
            word = int.from_bytes(part[4:], "little")
            indices, signs = list(part[:4]), [s for k in range(4) for s in _even(word >> 7 * k & 127)]
            scales, unit = (2 * (word >> 28) + 1,), 8
        elif kind is t.IQ2_XS:
            pairs = [int.from_bytes(b[2 + 2 * (4 * g + k) :][:2], "little") for k in range(4)]
            indices, signs = [v % 512 for v in pairs], [s for v in pairs for s in _even(v // 512)]
            scales, unit = (2 * (b[66 + g] & 15) + 1, 2 * (b[66 + g] >> 4) + 1), 8
        elif kind is t.IQ2_S:
            indices = [b[2 + 4 * g + k] + 256 * (b[66 + g] >> 2 * k & 3) for k in range(4)]
            signs, scales, unit = plain, (2 * (b[74 + g] & 15) + 1, 2 * (b[74 + g] >> 4) + 1), 8
        elif kind is t.IQ3_XXS:
            word = int.from_bytes(b[66 + 4 * g :][:4], "little")
            indices, signs = list(b[2 + 8 * g :][:8]), [s for k in range(4) for s in _even(word >> 7 * k & 127)]
            scales, unit = (2 * (word >> 28) + 1,), 4
        else:
            assert kind is t.IQ3_S
            indices = [b[2 + 8 * g + k] + 256 * (b[66 + g] >> k & 1) for k in range(8)]
            signs, scales, unit = plain, (2 * (b[106 + g // 2] >> 4 * (g % 2) & 15) + 1,), 1
        sizes = [size for i in indices for size in vectors[i]]
        groups.append(Group([a * s for a, s in zip(sizes, signs, strict=True)], _half(b, 0) / unit, sc=scales))
    return groups


def _trit(block: bytes, i: int) -> int:
    """The ternary digit of weight i of a TQ1_0 block."""
    if i < 160:
        n, byte = i // 32, block[i % 32]
    elif i < 240:
        n, byte = (i - 160) // 16, block[32 + i % 16]
    else:
        n, byte = (i - 240) // 4, block[48 + i % 4]
    return byte * 3**n % 256 * 3 >> 8


def _low_groups(kind: GGMLType, b: bytes) -> list[Group]:
    """Blocks of one and two bits with one scale."""
    t = GGMLType
    if kind is t.Q1_0:
        return [Group([2 * _bit(b[2:], 32 * g + i) - 1 for i in range(32)], _half(b, 0)) for g in range(4)]
    if kind is t.Q2_0:
        return [Group([(b[2 + 8 * g + i // 4] >> 2 * (i % 4) & 3) - 1 for i in range(32)], _half(b, 0)) for g in (0, 1)]
    if kind is t.TQ1_0:
        return [Group([_trit(b, 32 * g + i) - 1 for i in range(32)], _half(b, 52)) for g in range(8)]
    return [Group([_q2_bits(b, 32 * g + i) - 1 for i in range(32)], _half(b, 64)) for g in range(8)]


def _eighth_groups(kind: GGMLType, b: bytes) -> list[Group]:
    """Blocks of indices of vectors with an eighth added or taken away: integers are eight times their elements."""
    vectors, groups = _vectors("IQ1_S"), []
    words = [int.from_bytes(b[48 + 2 * i :][:2], "little") for i in range(4)]
    for g in range(8):
        ints = []
        for k in range(4 * g, 4 * g + 4):
            if kind is GGMLType.IQ1_S:
                both = int.from_bytes(b[34 + 2 * g :][:2], "little")
                upper, minus = both >> 3 * (k % 4) & 7, both >> 15
            else:
                nibble = b[32 + k // 2] >> 4 * (k % 2) & 15
                upper, minus = nibble & 7, nibble >> 3
            low = b[k] if kind is GGMLType.IQ1_M else b[2 + k]
            ints += [8 * x + (-1 if minus else 1) for x in vectors[low + 256 * upper]]
        if kind is GGMLType.IQ1_S:
            groups.append(Group(ints, _half(b, 0) / 8, sc=(2 * (both >> 12 & 7) + 1,)))
        else:
            d = sum((words[i] >> 12) << 4 * i for i in range(4)).to_bytes(2, "little")
            sc = tuple(2 * (words[g // 2] >> 3 * (2 * (g % 2) + h) & 7) + 1 for h in (0, 1))
            groups.append(Group(ints, _half(d, 0) / 8, sc=sc))
    return groups


def _block_groups(kind: GGMLType, b: bytes) -> list[Group]:
    t = GGMLType
    if kind is t.NVFP4:
        return _nv_groups(b)
    if kind in (t.Q1_0, t.Q2_0, t.TQ1_0, t.TQ2_0):
        return _low_groups(kind, b)
    if kind in (t.IQ1_S, t.IQ1_M):
        return _eighth_groups(kind, b)
    if kind.name.startswith(("IQ2", "IQ3")):
        return _grid_groups(kind, b)
    if kind in (t.IQ4_NL, t.MXFP4, t.IQ4_XS, t.Q3_K, t.Q2_K):
        return _small_groups(kind, b)
    if kind is t.Q8_0:
        return [Group([x - 256 if x > 127 else x for x in b[2:]], _half(b, 0))]
    if kind is t.Q4_0:
        return [Group([x - 8 for x in _nibbles(b[2:])], _half(b, 0))]
    if kind is t.Q4_1:
        return [Group(_nibbles(b[4:]), _half(b, 0), _half(b, 2))]
    if kind is t.Q5_0:
        ints = [low + 16 * _bit(b[2:6], i) - 16 for i, low in enumerate(_nibbles(b[6:]))]
        return [Group(ints, _half(b, 0))]
    if kind is t.Q5_1:
        ints = [low + 16 * _bit(b[4:8], i) for i, low in enumerate(_nibbles(b[8:]))]
        return [Group(ints, _half(b, 0), _half(b, 2))]
    if kind is t.Q6_K:
        groups = []
        for g in range(8):
            half, quarter = divmod(g, 4)
            low = b[64 * half + 32 * (quarter % 2) :][:32]
            high = b[128 + 32 * half :][:32]
            shift = 4 * (quarter // 2)
            ints = [(lo >> shift & 15) + 16 * (hi >> 2 * quarter & 3) - 32 for lo, hi in zip(low, high, strict=True)]
            scales = tuple(s - 256 if s > 127 else s for s in b[192 + 2 * g :][:2])
            groups.append(Group(ints, _half(b, 208), sc=scales))
        return groups
    groups = []  # Q4_K, Q5_K
    packed = b[16:] if kind is t.Q4_K else b[48:]
    for g in range(8):
        part = packed[32 * (g // 2) :][:32]
        ints = [x >> 4 if g % 2 else x & 15 for x in part]
        if kind is t.Q5_K:
            ints = [x + 16 * (h >> g & 1) for x, h in zip(ints, b[16:48], strict=True)]
        sc, mn = _k_scale(b[4:16], g)
        groups.append(Group(ints, _half(b, 0), _half(b, 2), (sc,), mn))
    return groups


def row_groups(kind: GGMLType, raw: np.ndarray) -> list[Group]:
    """The groups of one packed row."""
    data, size = raw.tobytes(), kind.block_bytes
    return [g for at in range(0, len(data), size) for g in _block_groups(kind, data[at : at + size])]


def group_value(kind: GGMLType, w: Group, d_x: float, q: list[int]) -> float:
    """v_g of the table."""
    s = sum(q)
    products = [a * b for a, b in zip(w.ints, q, strict=True)]
    isum = sum(products)
    scale = mul(w.d, d_x)
    t = GGMLType
    if kind in (t.Q8_0, t.Q4_0, t.Q5_0, t.IQ4_NL, t.MXFP4, t.Q1_0, t.Q2_0, t.TQ1_0, t.TQ2_0):
        return mul(scale, float(isum))
    if w.last is not None:
        first, last = float(sum(products[:16])), float(sum(products[16:]))
        return add(mul(scale, first), mul(mul(w.last, d_x), last))
    if kind in (t.IQ4_XS, t.IQ2_XXS, t.IQ3_XXS, t.IQ3_S, t.IQ1_S):
        return mul(scale, float(w.sc[0] * isum))
    if kind in (GGMLType.Q4_1, GGMLType.Q5_1):
        return add(mul(scale, float(isum)), mul(mul(w.m, d_x), float(s)))
    if kind in (t.Q6_K, t.Q3_K, t.IQ2_XS, t.IQ2_S, t.IQ1_M):
        return mul(scale, float(w.sc[0] * sum(products[:16]) + w.sc[1] * sum(products[16:])))
    if isinstance(w.mn, tuple):
        value = mul(scale, float(w.sc[0] * sum(products[:16]) + w.sc[1] * sum(products[16:])))
        return sub(value, mul(mul(w.m, d_x), float(w.mn[0] * sum(q[:16]) + w.mn[1] * sum(q[16:]))))
    return sub(mul(scale, float(w.sc[0] * isum)), mul(mul(w.m, d_x), float(w.mn * s)))


def quant_dot(kind: GGMLType, raw: np.ndarray, x: Vector) -> float:
    """One packed row times one row of activations."""
    groups = row_groups(kind, raw)
    acts = [quantize_group(x[i : i + 32]) for i in range(0, len(x), 32)]
    return tree([group_value(kind, w, d, q) for w, (d, q) in zip(groups, acts, strict=True)])


def float_dot(w: Vector, x: Vector) -> float:
    """One row of float weights times one row of activations."""
    return tree([chain(w[i : i + 32], x[i : i + 32]) for i in range(0, len(x), 32)])


# The other kernels.


def rms_norm(x: Vector, w: Vector, eps: float) -> list[float]:
    lanes = [0.0] * 256
    for i, v in enumerate(x):
        lanes[i % 256] = fma(v, v, lanes[i % 256])
    scale = div(1.0, sqrt(add(div(fold(lanes), float(len(x))), eps)))
    return [mul(mul(v, scale), g) for v, g in zip(x, w, strict=True)]


def layer_norm(x: Vector, w: Vector, b: Vector, eps: float) -> list[float]:
    lanes = [0.0] * 256
    for i, v in enumerate(x):
        lanes[i % 256] = add(lanes[i % 256], v)
    mean = div(fold(lanes), float(len(x)))
    d = [sub(v, mean) for v in x]
    lanes = [0.0] * 256
    for i, v in enumerate(d):
        lanes[i % 256] = fma(v, v, lanes[i % 256])
    scale = div(1.0, sqrt(add(div(fold(lanes), float(len(x))), eps)))
    return [add(mul(mul(v, scale), g), c) for v, g, c in zip(d, w, b, strict=True)]


def rope(head: Vector, cos: Vector, sin: Vector, *, interleaved: bool) -> list[float]:
    out, pairs = list(head), len(cos)
    for i in range(pairs):
        first, second = (2 * i, 2 * i + 1) if interleaved else (i, i + pairs)
        a, b = head[first], head[second]
        out[first] = sub(mul(a, cos[i]), mul(b, sin[i]))
        out[second] = add(mul(a, sin[i]), mul(b, cos[i]))
    return out


def softmax(x: Vector) -> list[float]:
    top = maximum(list(x))
    p = [exp(sub(v, top)) for v in x]
    total = tree(p)
    return [div(v, total) for v in p]


def attend(
    q: Vector,
    keys: Sequence[Any],
    values: Sequence[Vector],
    scale: float,
    sink: float = math.nan,
    first: int = 0,
    product: Callable[[Vector, Any], float] | None = None,
) -> list:
    """One query head against positions `first` and later; keys and values are those from position 0 on. product: of a
    query and a key, None for the chain.
    """
    product = product or chain
    state: tuple[float, float, list[float]] | None = None
    for start in range(first // 256 * 256, len(keys), 256):
        places = range(max(first, start), min(start + 256, len(keys)))
        scores = [mul(product(q, keys[t]), scale) for t in places]
        m = maximum(scores)
        e = [exp(sub(x, m)) for x in scores]
        s = tree([0.0] * (places.start - start) + e)
        o = [chain(e, [values[t][i] for t in places]) for i in range(len(values[0]))]
        if state is None:
            state = m, s, o
            continue
        old_m, old_s, old_o = state
        top = maximum([old_m, m])
        a, b = exp(sub(old_m, top)), exp(sub(m, top))
        merged = [add(mul(x, a), mul(y, b)) for x, y in zip(old_o, o, strict=True)]
        state = top, add(mul(old_s, a), mul(s, b)), merged
    assert state is not None
    m, s, o = state
    if not math.isnan(sink):
        top = maximum([m, sink])
        a, b = exp(sub(m, top)), exp(sub(sink, top))
        s, o = add(mul(s, a), b), [mul(x, a) for x in o]
    return [div(x, s) for x in o]

"""Weights of one group of one tile as dot-product operands, and the group's scales, for every block format."""

from __future__ import annotations

from zinc_rt.formats.decode import format_of, integers_of
from zinc_rt.formats.decode_scales import half_e4m3, power_of_two
from zinc_rt.formats.kinds import CODED_KINDS, ODD_SCALES, PAIR_KINDS, CodeLayout, Scale
from zinc_rt.kernels.cpu.layout import LINE_BYTES, TILES
from zinc_rt.kernels.cpu.structs import BIASES, EIGHTH_WORDS, EIGHTHS, HALF_BIAS, HALF_SUMS, PLAIN_SUM
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    add_pairs,
    bitcast,
    cast,
    fma,
    lanes,
    load,
    lookup16,
    shuffle,
    splat,
    static_assert,
    target_has,
    zeros,
)
from zinc_rt.lang.types import f16, f32, i8, i16, i32, i64, ptr, u8, u16, u32, vec
from zinc_rt.numerics import QUANT_MAX

HALF_SHIFTS = {HALF_BIAS >> n: n for n in range(HALF_BIAS.bit_length())}
"""How far right a pack's sums of halves are shifted to take a bias away."""
RAW_LINES = {0: (), 4: (4, 5, 6, 7), 2: (1, 3, 5, 7), -1: (0, 2, 4, 6)}
"""By `raw_shift`: high nibbles, odd pairs of bits, even bits. Odd pairs are the last lines of a shifted grid."""
WHOLE_SCALES = (Scale.SIX_BIT, Scale.SIX_BIT_SIGNED, Scale.INT8_HALVES, Scale.SIX_BIT_HALVES, Scale.FOUR_BIT_HALVES)
"""Scales that are whole numbers, beside the odd ones."""
ROWS_TOGETHER = tuple(p // 2 + 8 * (p % 2) for p in range(16))
"""The order of rows where their first bytes lie together: sums then come out of `lookups` in the order of rows."""
EIGHT_LINES = 8 * LINE_BYTES
"""A group's weights as bytes."""


@inline
def plain_avx2():
    """Whether the target is AVX2 without an instruction for dot products of four bytes."""
    return target_has("avx2") and not (target_has("avx512") or target_has("vnni") or target_has("avxvnni"))


@inline
def tile_of(FMT: str):
    """Bytes of a tile's parts."""
    F = format_of(FMT)
    static_assert(
        FMT in TILES, f"format {FMT}: tiles have no place for integers of kind {F.kind!s}, scales of kind {F.scale!s}"
    )
    return TILES[FMT]


@inline
def weights_of(tile, groups: i32, FMT: str):
    """Where a tile's groups begin: behind the scales of blocks of several groups, at the next line."""
    return tile + (supers_at(groups, FMT) + 63 & -64)


@inline
def supers_at(group, FMT: str):
    """Where a tile has the scales of the block of several groups that this one belongs to."""
    SUPER = tile_of(FMT).super_scales
    return (group >> format_of(FMT).group_shift) * SUPER if SUPER else 0


@inline
def signed_bytes(FMT: str):
    """Whether weights stay signed bytes, where a target's dot product takes those; else they are made unsigned."""
    return integers_of(FMT).wide and not (target_has("vnni") or target_has("avxvnni"))


@inline
def raw_shift(FMT: str):
    """How far left of their place `line` leaves the integers of raw lines, which takes fewer shifts; negative: right.
    0: the format has no such lines.
    """
    F = integers_of(FMT)
    if F.high_bits != 0 or F.looked_up or (F.scaled_halves and not F.eighths):
        return 0
    if F.kind in CODED_KINDS:
        return 4 if target_has("vnni") or target_has("avxvnni") else 0
    if F.kind == CodeLayout.SIGN_BITS:
        return -1
    static_assert(
        F.kind in PAIR_KINDS or F.kind == CodeLayout.BYTES,
        f"format {FMT}: raw_shift does not know integers of kind {F.kind!s}",
    )
    return 2 if F.kind in PAIR_KINDS else 0


@inline
def raw_lines(FMT: str):
    """Which of a group's lines these are."""
    return RAW_LINES[4 if integers_of(FMT).eighths else raw_shift(FMT)]


@inline
def line(w: ptr[u8], i: int, at: int, FMT: str, N: int, SIGNED: bool, RAW: bool):
    """Line i of a group as N bytes from byte `at`: u8 with the format's bias added, or i8 where SIGNED (wide ones).

    RAW: one of `raw_lines`, as it is.
    """
    F = integers_of(FMT)
    if F.kind == CodeLayout.BYTES:
        bits = load(w, i * 64 + at, lanes=N)
        if SIGNED:
            return bitcast(bits, vec[i8, N])
        return bits
    if F.kind in PAIR_KINDS:
        return pairs_line(w, i, at, FMT, N, RAW)
    if F.kind == CodeLayout.SIGN_BITS:
        if rows_together(FMT):
            x = shuffle(load(w, lanes=64), tuple(p % 4 * 16 + ROWS_TOGETHER.index(at // 4 + p // 4) for p in range(N)))
        else:
            x = load(w, at, lanes=N)
        if RAW:
            return (x >> i) & 1
        return (x << 1 if i == 0 else x >> (i - 1)) & 2
    if F.kind == CodeLayout.GRID:
        return grid_line(w, i, at, FMT, N, SIGNED)
    static_assert(
        F.kind in CODED_KINDS and F.high_bits <= 2,
        f"format {FMT}: line does not know {F.high_bits} high bits of kind {F.kind!s}",
    )
    if RAW:
        return load(w, (i % 4) * 64 + at, lanes=N) & 240
    x = nibbles(w, i, at, N)
    if F.codebook != ():
        if SIGNED:
            return lookup16(i8, F.codebook, x)
        return lookup16(u8, tuple(value + F.bias for value in F.codebook), x)
    if F.high_bits == 1:
        plane = load(w, 256 + at, lanes=N)
        if i < 4:
            x = x | ((plane << (4 - i)) & 16)
        else:
            x = x | ((plane >> (i - 4)) & 16)
    elif F.high_bits == 2:
        plane = load(w, 256 + (i // 4) * 64 + at, lanes=N)
        j = i % 4
        if j < 2:
            x = x | ((plane << (4 - 2 * j)) & 48)
        else:
            x = x | ((plane >> (2 * j - 4)) & 48)
    return x


@inline
def nibbles(w: ptr[u8], i: int, at: int, N: int):
    """Line i's integers of four bits."""
    packed = load(w, (i % 4) * 64 + at, lanes=N)
    return packed & 15 if i < 4 else packed >> 4


@inline
def rows_together(FMT: str):
    """Whether a line has the first byte of all rows, then their second one, and so on, as lookups of sums want it."""
    return integers_of(FMT).kind == CodeLayout.SIGN_BITS and plain_avx2()


@inline
def stored_lines(FMT: str):
    """The order of a group's lines in which pairs of bits have them."""
    return (0, 4, 1, 5, 2, 6, 3, 7) if integers_of(FMT).eighths else tuple(range(8))


@inline
def pairs_line(w: ptr[u8], i: int, at: int, FMT: str, N: int, RAW: bool):
    """As `line` for integers of two bits, or of three, which a grid's places and signs are."""
    F = integers_of(FMT)
    place = stored_lines(FMT).index(i)
    packed = load(w, (place // 4) * 64 + at, lanes=N)
    DOWN = 2 * (place % 4)
    if RAW:
        return (packed >> (DOWN - 2)) & 12
    x = (packed >> DOWN) & 3
    if F.high_bits == 0 and F.kind != CodeLayout.GRID:
        return x
    static_assert(F.high_bits <= 1, f"format {FMT}: pairs_line does not know {F.high_bits} high bits")
    plane = load(w, 128 + at, lanes=N)
    if i < 3:
        return x | ((plane << (2 - i)) & 4)
    return x | ((plane >> (i - 2)) & 4)


@inline
def grid_line(w: ptr[u8], i: int, at: int, FMT: str, N: int, SIGNED: bool):
    """As `line` for places among the sizes of a grid, with signs."""
    G = integers_of(FMT).grid
    x = pairs_line(w, i, at, FMT, N, False) if G.size_bits == 2 else nibbles(w, i, at, N)
    if SIGNED:
        return lookup16(i8, G.signed_sizes, x)
    return lookup16(u8, tuple(size + integers_of(FMT).bias for size in G.signed_sizes), x)


@inline
def lines_in_words(FMT: str, RAISED: bool):
    """How many lines' products can be added up in 16 bits: 8 of 4 bits, 4 of 5, … RAISED: of signed weights and
    unsigned activations; else weights have their bias.
    """
    F = integers_of(FMT)
    LEAST, MOST = F.integers
    LARGEST = max(-LEAST, MOST) * 255 if RAISED else max(-LEAST, MOST + F.bias) * QUANT_MAX
    return max(n for n in (1, 2, 4, 8) if n * 2 * LARGEST < 1 << 15)


@inline
def in_planes(FMT: str):
    """Whether a group has lines of high bits, or of signs, which are read before the lines that they belong to."""
    F = integers_of(FMT)
    return F.high_bits > 0 or (F.kind == CodeLayout.GRID and F.grid.size_bits == 2)


@inline
def scale_of_halves(FMT: str):
    """Whether the two halves of a group have scales of their own."""
    F = format_of(FMT)
    if F.scaled_halves:
        return True
    static_assert(
        F.scale in (Scale.BLOCK, Scale.SIX_BIT, Scale.POWER_OF_TWO, Scale.SIX_BIT_SIGNED) or F.scale in ODD_SCALES,
        f"format {FMT}: products do not know scales of kind {F.scale!s}",
    )
    return False


@inline
def sums_of_halves(FMT: str):
    """Whether the two halves of a group have integer sums of their own."""
    return scale_of_halves(FMT) or integers_of(FMT).eighths


@inline
def reads_sum(i: int, FMT: str):
    """Refuse to compile what reads a sum that packs do not have for the format."""
    static_assert(i in tile_of(FMT).sums, f"format {FMT}: packs for it have sums {tile_of(FMT).sums}, not {i}")


@inline
def sums_step(FMT: str):
    """Elements from a group's sums to the next one's."""
    return EIGHTH_WORDS if integers_of(FMT).eighths else 1


@inline
def sums_at(p, at, FMT: str):
    """Where a pack has a group's sums, which products get as `s`."""
    return p.s + (p.s_stride * EIGHTHS if integers_of(FMT).eighths else i64(0)) + at * sums_step(FMT)


@inline
def half_start(s, at, FMT: str, BIAS: int):
    """Where the integer sum of half a group begins: what takes the bias away, from the pack's sum at `at`."""
    if BIAS == 0:
        return zeros(i32)
    reads_sum(HALF_SUMS[0], FMT)
    if BIAS in HALF_SHIFTS:
        return load(s, at) >> HALF_SHIFTS[BIAS]
    return (load(s, at) >> HALF_SHIFTS[1]) * BIAS


@inline
def bias_sum(FMT: str, BIAS: int):
    """Which of a pack's sums takes away what is added to a whole group's weights; 0: nothing is. See structs.Pack."""
    if sums_of_halves(FMT):
        return 0
    static_assert(BIAS == 0 or BIAS in BIASES, f"format {FMT}: packs have no sums for offset {BIAS}, but for {BIASES}")
    if BIAS == 0:
        return 0
    reads_sum(1 + BIASES.index(BIAS), FMT)
    return 1 + BIASES.index(BIAS)


@inline
def bias_of(s, m: int, s_stride, half: int, FMT: str, BIAS: int):
    """What takes a bias away from the integer sum of row m, or of half of it where halves have sums."""
    if sums_of_halves(FMT):
        return half_start(s, s_stride * HALF_SUMS[half] + m, FMT, BIAS)
    SUM = bias_sum(FMT, BIAS)
    return load(s, s_stride * SUM + m) if SUM else zeros(i32)


@inline
def halves(p: ptr[u8], at, W: int):
    """W float16 at a byte offset, as f32."""
    return f32(load(cast(p + at, ptr[f16]), lanes=W))


@inline
def bytes_as_f32(p: ptr[u8], at, W: int, SIGNED: bool):
    """W integer bytes as f32."""
    if SIGNED:
        return f32(i32(load(cast(p + at, ptr[i8]), lanes=W)))
    return f32(i32(load(p + at, lanes=W)))


@inline
def group_factors(scales, supers, at: int, FMT: str, W: int):
    """What a group's integer sums are multiplied with, for W rows from row `at`: f32 vectors, one to six.

    Those of formats that take eighths are d and, as bits of f32, a tile's byte for each half of each row, twice.
    """
    F = format_of(FMT)
    if F.scale == Scale.POWER_OF_TWO:
        return (power_of_two(u32(load(scales + at, lanes=W))),)
    if F.scale == Scale.E4M3_HALVES:
        return tuple(half_e4m3(u16(load(scales + (at + 16 * h), lanes=W))) for h in range(2))
    if F.scale in ODD_SCALES:
        d = halves(supers, 2 * at, W) * F.unit
        if integers_of(FMT).eighths:
            return d, bitcast(eighth_bytes(scales, at, FMT, W), vec[f32, W])
        bits = i32(load(scales + at, lanes=W))
        first = f32((bits & 15) * 2 + 1)
        return (d, first, f32((bits >> 4) * 2 + 1)) if F.scaled_halves else (d, first)
    if F.scale == Scale.SIX_BIT_SIGNED:
        return halves(supers, 2 * at, W), bytes_as_f32(scales, at, W, True)
    if F.scale == Scale.FOUR_BIT_HALVES:
        both = tuple(i32(load(scales + (at + 16 * h), lanes=W)) for h in range(2))
        sc, mn = tuple(f32(b & 15) for b in both), tuple(f32(b >> 4) for b in both)
        return halves(supers, 2 * at, W), halves(supers, 32 + 2 * at, W), sc[0], sc[1], mn[0], mn[1]
    if F.scale in (Scale.INT8_HALVES, Scale.SIX_BIT_HALVES):
        first = bytes_as_f32(scales, at, W, True)
        return halves(supers, 2 * at, W), first, bytes_as_f32(scales, 16 + at, W, True)
    if F.scale == Scale.SIX_BIT:
        scale = bytes_as_f32(scales, at, W, False)
        low = bytes_as_f32(scales, 16 + at, W, False)
        return halves(supers, 2 * at, W), scale, halves(supers, 32 + 2 * at, W), low
    static_assert(F.scale == Scale.BLOCK, f"format {FMT}: group_factors does not know scales of kind {F.scale!s}")
    of_block = scales if F.groups == 1 else supers
    if F.minimum is not None:
        return halves(of_block, 2 * at, W), halves(of_block, 32 + 2 * at, W)
    return (halves(of_block, 2 * at, W),)


@inline
def eighth_bytes(scales, at: int, FMT: str, W: int):
    """A tile's byte for each half of W rows, twice: u32 vectors."""
    EACH = 2 if format_of(FMT).scaled_halves else 1
    bytes = load(scales + EACH * at, lanes=EACH * W)
    words = bitcast(shuffle(bytes, tuple(p * EACH // 4 for p in range(4 * W))), vec[u32, W])
    return words if EACH == 2 else words | 0x0C0C0808


@inline
def activation_sums(s, at, s_stride, W: int, FMT: str):
    """What minima are multiplied with: the sum of the activations at `at`, or, where halves have minima, both halves'
    sums times -`HALF_BIAS`; f32 vectors. For eighths, the table of their sums; u8 vector. None without any.
    """
    if integers_of(FMT).eighths:
        reads_sum(EIGHTHS, FMT)
        entries = bitcast(load(s, at * EIGHTH_WORDS + 4, lanes=4), vec[u8, 16])
        return shuffle(entries, tuple(p % 16 for p in range(4 * W)))
    if format_of(FMT).minimum is None:
        return None
    if scale_of_halves(FMT):
        reads_sum(HALF_SUMS[0], FMT)
        return tuple(f32(splat(load(s, s_stride * h + at), W)) for h in HALF_SUMS)
    reads_sum(PLAIN_SUM, FMT)
    return splat(load(cast(s, ptr[f32]), at), W)


@inline
def has_whole_scales(FMT: str):
    """Whether a group's scales, but for one of its block, are whole numbers."""
    F = format_of(FMT)
    if F.scale in WHOLE_SCALES or F.scale in ODD_SCALES:
        return True
    static_assert(
        F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO, Scale.E4M3_HALVES),
        f"format {FMT}: products do not know scales of kind {F.scale!s}",
    )
    return False


@inline
def whole_scales(scales, at: int, FMT: str, W: int):
    """The scales of W rows that are whole numbers, i32 vectors: of a group, or of each of its halves."""
    F = format_of(FMT)
    if integers_of(FMT).eighths:
        bits = eighth_bytes(scales, at, FMT, W)
        return tuple(i32(bits >> 4 + 16 * h & 15) * 8 for h in range(2 if F.scaled_halves else 1))
    bytes = tuple(load(cast(scales + (at + 16 * h), ptr[i8]), lanes=W) for h in range(2 if F.scaled_halves else 1))
    if F.scale in ODD_SCALES:
        bits = i32(bitcast(bytes[0], vec[u8, W]))
        return ((bits & 15) * 2 + 1, (bits >> 4) * 2 + 1) if F.scaled_halves else ((bits & 15) * 2 + 1,)
    if F.scale == Scale.FOUR_BIT_HALVES:
        return tuple(i32(b) & 15 for b in bytes)
    static_assert(F.scale in WHOLE_SCALES, f"format {FMT}: whole_scales does not know scales of kind {F.scale!s}")
    return tuple(i32(b) for b in bytes)


@inline
def eighth_scales(scales, at: int, half: int, FMT: str, W: int):
    """What the sums of 8 activations of half a group are multiplied with: scales times 9 or 7, pairs of 16 bits."""
    bits = eighth_bytes(scales, at, FMT, W) >> 16 * half
    odd = bits >> 4 & 15
    both = odd | odd << 16
    return bitcast(both * 9 - (odd * (bits & 1) | odd * (bits >> 1 & 1) << 16) * 2, vec[i32, W])


@inline
def group_value(factors, isum, second, dx, total, FMT: str, LEFT: int):
    """v_g of docs/how/numerics.md.

    second: the other half's sum, where they have their own; LEFT: how far left of their places are both, then.
    total: of `activation_sums`.
    """
    F = format_of(FMT)
    if F.scale == Scale.E4M3_HALVES:
        return (factors[0] * dx) * f32(isum) + (factors[1] * dx) * f32(second)
    if integers_of(FMT).eighths:
        N = lanes(isum)
        bytes = bitcast(factors[1], vec[u16, 2 * N])
        eighths = bitcast(lookup16(u8, total, bitcast(bytes & 0x0F07, vec[u8, 4 * N])), vec[i16, 2 * N])
        sums = tuple(bitcast(x, vec[i16, 2 * N]) for x in (isum << 3 - LEFT, second << 19 - LEFT))
        both = shuffle(sums[0], sums[1], tuple(p + p % 2 * 2 * N for p in range(2 * N)))
        odd = bitcast(bytes >> 12, vec[i16, 2 * N])
        return (factors[0] * dx) * f32(add_pairs(zeros(vec[i32, N]), both + eighths, odd))
    value = f32(isum)
    if F.scale == Scale.FOUR_BIT_HALVES:
        value = fma(factors[2], value, factors[3] * f32(second))
    elif F.scaled_halves:
        value = factors[1] * value + factors[2] * f32(second)
    elif F.scale in WHOLE_SCALES or F.scale in ODD_SCALES:
        value = factors[1] * value
    else:
        static_assert(
            F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO),
            f"format {FMT}: group_value does not know scales of kind {F.scale!s}",
        )
    return scaled_value(factors, value, dx, total, FMT)


@inline
def scaled_value(factors, value, dx, total, FMT: str):
    """The same from the sum that scales which are whole numbers are in. Such sums stay below 2^24: float32 is exact."""
    F = format_of(FMT)
    if F.scale == Scale.FOUR_BIT_HALVES:
        # Everything but the scales is an integer below 2^24, or one over `HALF_BIAS`, a power of two: exact.
        least = fma(factors[4], total[0], factors[5] * total[1]) * (-1.0 / HALF_BIAS)
        return (factors[0] * dx) * value - (factors[1] * dx) * least
    if F.scale == Scale.SIX_BIT:
        return (factors[0] * dx) * value - (factors[2] * dx) * (factors[3] * total)
    static_assert(
        F.scale in (Scale.BLOCK, Scale.POWER_OF_TWO) or F.scale in WHOLE_SCALES or F.scale in ODD_SCALES,
        f"format {FMT}: scaled_value does not know scales of kind {F.scale!s}",
    )
    if F.minimum is not None:
        return (factors[0] * dx) * value + (factors[1] * dx) * total
    return (factors[0] * dx) * value

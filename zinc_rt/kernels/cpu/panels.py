"""Products of many rows without an instruction for dot products of four bytes: weights are unpacked once for a panel.

A group of a tile becomes lines of unsigned bytes, which all rows of the panel then read. Sums of products stay in 16
bits as long as they fit. Integers that need a whole byte become words, and their products are crossed (Winograd's inner
product): w0 x0 + w1 x1 = (w0 + x1) (w1 + x0) - w0 w1 - x0 x1. Half of the multiplications become additions, which more
of a processor's units do; the last two terms are sums of one side alone.
"""

from __future__ import annotations

from zinc_rt.formats.decode import integers_of
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS, LINE_BYTES, PANEL_ROWS
from zinc_rt.kernels.cpu.packs import columns
from zinc_rt.kernels.cpu.structs import CROSSED, EIGHTH_WORDS
from zinc_rt.kernels.cpu.tiles import Ahead, ask_for, four_columns, lane_of
from zinc_rt.kernels.cpu.weights import (
    EIGHT_LINES,
    activation_sums,
    bias_of,
    eighth_scales,
    group_factors,
    group_value,
    has_whole_scales,
    line,
    lines_in_words,
    scale_of_halves,
    scaled_value,
    sums_at,
    sums_step,
    supers_at,
    tile_of,
    weights_of,
    whole_scales,
)
from zinc_rt.lang.kernel import inline
from zinc_rt.lang.ops import (
    add_pairs,
    array,
    bitcast,
    cast,
    dot2,
    load,
    minimum,
    prefetch,
    regs,
    splat,
    store,
    unroll,
    zeros,
)
from zinc_rt.lang.types import f32, i8, i16, i32, i64, ptr, u8, vec
from zinc_rt.numerics import GROUP, TREE_LANES

TOGETHER = 8
"""Groups that are unpacked at once."""
FOUR = 4
"""Lanes whose sums wait until those of all four are there."""
SCALE_WORDS = 64
"""Of a group: scales of its halves, then, from `TAKEN` on, those of eighths, or what is taken from its sums."""
TAKEN = 32
RAISE = 128
"""What makes activations unsigned."""
LEVELS = (TREE_LANES // FOUR).bit_length()
"""Sums of rows that wait: of 4, 8, 16 and 32 lanes."""


@inline
def crossed(FMT: str):
    """Whether products are crossed."""
    return integers_of(FMT).wide


@inline
def group_bytes(FMT: str):
    """Bytes of an unpacked group."""
    return EIGHT_LINES * (2 if crossed(FMT) else 1)


@inline
def raised(FMT: str):
    """Whether activations are made unsigned, so that weights may stay signed. What takes a bias away from two halves
    would be multiplied with their scales for each row.
    """
    return integers_of(FMT).bias != 0 and scale_of_halves(FMT) and has_whole_scales(FMT) and not crossed(FMT)


@inline
def scale_pairs(w, at: int, FMT: str, W: int):
    """The scales of W rows that are whole numbers, each as two words: of a group, or of each of its halves."""
    scales = whole_scales(w + tile_of(FMT).weights, at, FMT, W)
    return tuple(bitcast((scale & 0xFFFF) | scale << 16, vec[i16, 2 * W]) for scale in scales)


@inline
def unpack(w, codes, FMT: str, W: int):
    """A group's weights as eight lines of unsigned bytes."""
    N = 4 * W
    for i in unroll(8):
        for at in unroll(0, LINE_BYTES, N):
            store(codes, line(w, i, at, FMT, N, False, False), i * LINE_BYTES + at, align=N)


@inline
def unpack_signed(w, codes, taken, FMT: str, W: int):
    """A group's weights as eight lines of signed bytes, and what is taken from the sums of 16 rows, i32[16]."""
    N = 4 * W
    for h in unroll(16 // W):
        pairs = scale_pairs(w, h * W, FMT, W)
        sums = zeros(vec[i32, W])
        for half in unroll(2):
            words = zeros(vec[i16, 2 * W])
            for i in unroll(half * 4, half * 4 + 4):
                bytes = bitcast(line(w, i, h * N, FMT, N, False, False) - integers_of(FMT).bias, vec[i8, N])
                store(cast(codes, ptr[i8]), bytes, i * LINE_BYTES + h * N, align=N)
                words = words + dot2(splat(u8(1), N), bytes)
            sums = add_pairs(sums, words, pairs[half])
        store(taken, sums * -RAISE, h * W, align=4 * W)


@inline
def unpack_crossed(w, codes, taken, FMT: str, W: int):
    """A group's weights as eight lines of words, even columns before odd ones, times the scale where that is a whole
    number; and what is taken from the sums of 16 rows: i32[16], negative.
    """
    N = 4 * W
    for h in unroll(16 // W):
        sums = zeros(vec[i32, W])
        pairs = scale_pairs(w, h * W, FMT, W) if has_whole_scales(FMT) else ()
        for i in unroll(8):
            bytes = line(w, i, h * N, FMT, N, True, False)
            both = tuple(columns(bytes, odd) for odd in range(2))
            if len(pairs) != 0:
                both = tuple(words * pairs[i * len(pairs) // 8] for words in both)
            sums = add_pairs(sums, both[0], both[1])
            for odd in unroll(2):
                store(cast(codes, ptr[i16]), both[odd], ((i * 2 + odd) * 16 + h * W) * 2, align=N)
        store(taken, 0 - sums, h * W, align=4 * W)


@inline
def crossed_sums(codes, taken, words: ptr[i16], s, s_stride, isum, M: int, W: int):
    """isum[m * H + h] = the integer sums of M rows. words: of the group, in the pack."""
    H = 16 // W
    w = cast(codes, ptr[i16])
    for m in unroll(M):
        own = splat(load(s, s_stride * CROSSED + m), W)
        for h in unroll(H):
            isum[m * H + h] = own + load(taken, h * W, lanes=W, align=4 * W)
    for i in range(8):
        even = tuple(load(w, (i * 32 + h * W) * 2, lanes=2 * W, align=4 * W) for h in range(H))
        odd = tuple(load(w, (i * 32 + 16 + h * W) * 2, lanes=2 * W, align=4 * W) for h in range(H))
        for m in unroll(M):
            x = tuple(
                bitcast(splat(load(cast(words, ptr[i32]), m * 16 + half * 8 + i), W), vec[i16, 2 * W])
                for half in range(2)
            )
            for h in unroll(H):
                isum[m * H + h] = add_pairs(isum[m * H + h], even[h] + x[1], odd[h] + x[0])


@inline
def raise_rows(x: ptr[i8], high, M: int):
    """M rows of a group as unsigned bytes."""
    for m in unroll(M):
        bytes = bitcast(load(x, m * GROUP, lanes=GROUP), vec[u8, GROUP])
        store(high, bytes ^ RAISE, m * GROUP, align=GROUP)


@inline
def add_lines(codes, x, isum, scales, FIRST: int, LAST: int, FMT: str, M: int, W: int):
    """isum[m * H + h] += the dot products of lines FIRST … LAST-1 with M rows, times scales[h] where there are such."""
    H = 16 // W
    LINES = lines_in_words(FMT, raised(FMT))
    for start in unroll(FIRST, LAST, LINES):
        words = regs(vec[i16, 2 * W], M * H)
        for i in unroll(start, min(start + LINES, LAST)):
            lines = tuple(load(codes, i * 64 + h * 4 * W, lanes=4 * W, align=4 * W) for h in range(H))
            for m in unroll(M):
                q = four_columns(cast(x, ptr[i8]), m, i, W)
                for h in unroll(H):
                    if raised(FMT):
                        both = dot2(bitcast(q, vec[u8, 4 * W]), bitcast(lines[h], vec[i8, 4 * W]))
                    else:
                        both = dot2(lines[h], q)
                    words[m * H + h] = words[m * H + h] + both
        for m in unroll(M):
            for h in unroll(H):
                k = m * H + h
                isum[k] = add_pairs(isum[k], words[k], scales[h] if len(scales) != 0 else None)


@inline
def add_half(codes, scales, x, s, s_stride, isum, half: int, FMT: str, M: int, W: int):
    """isum[m * H + h] += the sums of M rows and half a group (all of one whose halves share their scale), without the
    bias, and times the scale where that is a whole number.
    """
    H = 16 // W
    SCALED = has_whole_scales(FMT)
    words = tuple(load(scales, half * 16 + h * W, lanes=W, align=W * 4) for h in range(H)) if SCALED else ()
    pairs = tuple(bitcast(word, vec[i16, 2 * W]) for word in words)
    add_lines(codes, x, isum, pairs, half * 4, half * 4 + 4 if scale_of_halves(FMT) else 8, FMT, M, W)
    if integers_of(FMT).eighths:
        WORD = half if scale_of_halves(FMT) else 2
        for m in unroll(M):
            pair = bitcast(splat(load(s, m * EIGHTH_WORDS + WORD), W), vec[i16, 2 * W])
            for h in unroll(H):
                own = bitcast(load(scales, TAKEN + half * 16 + h * W, lanes=W, align=W * 4), vec[i16, 2 * W])
                isum[m * H + h] = add_pairs(isum[m * H + h], pair, own)
    elif not raised(FMT):
        for m in unroll(M):
            bias = splat(bias_of(s, m, s_stride, half, FMT, integers_of(FMT).bias), W)
            for h in unroll(H):
                isum[m * H + h] = isum[m * H + h] + (bias * (words[h] << 16 >> 16) if SCALED else bias)


@inline
def values_of(codes, factors, scales, x, words, d, s, s_stride, FMT: str, M: int, W: int):
    """v_g of docs/how/numerics.md for M rows; x, words, d, s: of the first of them."""
    H = 16 // W
    SCALED = has_whole_scales(FMT)
    values = regs(vec[f32, W], M * H)
    isum = regs(vec[i32, W], M * H)
    second = isum
    if raised(FMT):
        for m in unroll(M):
            for h in unroll(H):
                isum[m * H + h] = load(scales, TAKEN + h * W, lanes=W, align=4 * W)
    if crossed(FMT):
        crossed_sums(codes, scales + TAKEN, words, s, s_stride, isum, M, W)
    else:
        add_half(codes, scales, x, s, s_stride, isum, 0, FMT, M, W)
    if scale_of_halves(FMT) and not crossed(FMT):
        if not SCALED:
            second = regs(vec[i32, W], M * H)
        add_half(codes, scales, x, s, s_stride, second, 1, FMT, M, W)
    for h in unroll(H):
        own = tuple(load(factors, k * 16 + h * W, lanes=W) for k in range(integers_of(FMT).factors))
        for m in unroll(M):
            total = activation_sums(s, m, s_stride, W, FMT)
            dx = splat(load(d, m), W)
            k = m * H + h
            if SCALED:
                values[k] = scaled_value(own, f32(isum[k]), dx, total, FMT)
            else:
                values[k] = group_value(own, isum[k], second[k], dx, total, FMT, 0)
    return values


@inline
def open_group(w, supers, codes, factors, scales, FMT: str, W: int):
    """Unpack a group of a tile, and what its sums are multiplied with."""
    if crossed(FMT):
        unpack_crossed(w, codes, scales + TAKEN, FMT, W)
    elif raised(FMT):
        unpack_signed(w, codes, scales + TAKEN, FMT, W)
    else:
        unpack(w, codes, FMT, W)
    behind = w + tile_of(FMT).weights
    for at in unroll(0, 16, W):
        own = group_factors(behind, supers, at, FMT, W)
        for k in unroll(len(own)):
            store(factors, own[k], k * 16 + at)
        if has_whole_scales(FMT) and not crossed(FMT):
            pairs = scale_pairs(w, at, FMT, W)
            for k in unroll(len(pairs)):
                store(scales, bitcast(pairs[k], vec[i32, W]), k * 16 + at)
        if integers_of(FMT).eighths:
            for half in unroll(2):
                store(scales, eighth_scales(behind, at, half, FMT, W), TAKEN + half * 16 + at)


@inline
def multiply_groups(p, at, block: i32, opened, n: i32, last: i32, waiting, q: i32, FMT: str, M: int, W: int):
    """Add the values of n groups to the sums of M rows that wait.

    at: of the first row in the pack, at the first group. opened: codes, factors, scales, and where the values of
    each group wait. last: the group that completes the q-th four lanes; n or more: none does.
    """
    N = M * (16 // W)
    x: ptr[i8] = p.q + at * GROUP
    d: ptr[f32] = p.d + at
    s: ptr[i32] = sums_at(p, at, FMT)
    words: ptr[i16] = p.words + at * GROUP
    stride = p.s_stride
    high = array(u8, TOGETHER * M * GROUP if raised(FMT) else 1, zero=False)
    if raised(FMT):
        for g in range(n):
            raise_rows(x + g * block * GROUP, high + g * (M * GROUP), M)
    for g in range(n):
        if crossed(FMT):
            for line in unroll(M):
                prefetch(words, (block + line) * GROUP)
        else:
            prefetch(x, block * GROUP)
            prefetch(x, block * GROUP + 64)
        codes = opened[0] + g * group_bytes(FMT)
        factors = opened[1] + g * (integers_of(FMT).factors * 16)
        rows: ptr[u8] = cast(x, ptr[u8])
        if raised(FMT):
            rows = high + g * (M * GROUP)
        values = values_of(codes, factors, opened[2] + g * SCALE_WORDS, rows, words, d, s, stride, FMT, M, W)
        place = opened[3][g]
        slot = waiting + (place & (FOUR - 1)) * (N * W)
        if place >= 0:
            for i in unroll(N):
                values[i] = load(slot, i * W, lanes=W, align=W * 4) + values[i]
        if g == last:
            add_four(values, waiting, q, N, W)
        else:
            for i in unroll(N):
                store(slot, values[i], i * W, align=W * 4)
        x = x + block * GROUP
        words = words + block * GROUP
        d = d + block
        s = s + block * sums_step(FMT)


@inline
def panel_rows(
    p, tile, first_row: i32, n_blocks: i32, block: i32, out: ptr[f32], stride: i32, FMT: str, M: int, W: int,
    AHEAD: Ahead,
):  # fmt: skip
    """The sums of one tile for n_blocks times M rows of a pack: f32[n_blocks * M, stride], 16 of each, to `out`.

    first_row: where a block begins: of an expert's rows, that may be any row. block: rows of the pack's blocks.
    """
    H = 16 // W
    N = M * H
    F = integers_of(FMT).factors
    SUMS = N * W
    STATE = (FOUR + LEVELS + 1) * SUMS  # one more: else all lie in the same sets of the cache
    groups = p.n_groups
    TILE = tile_of(FMT)
    codes = array(u8, TOGETHER * group_bytes(FMT), zero=False)
    factors = array(f32, TOGETHER * F * 16, zero=False)
    scales = array(i32, TOGETHER * SCALE_WORDS, zero=False)
    slots = array(i32, TOGETHER, zero=False)  # which of four lanes a group belongs to; negative: it begins the lane
    opened = (codes, factors, scales, slots)
    waiting = array(f32, (PANEL_ROWS // M) * STATE, zero=False)
    w: ptr[u8] = weights_of(tile, groups, FMT)
    place: i32 = 0
    for q in range(TREE_LANES // FOUR):
        n: i32 = 0
        # Of the lanes l, l + 16, l + 8 and l + 24.
        left: i32 = (groups - lane_of(q * FOUR) + (TREE_LANES // FOUR - 1)) >> 3
        for j in range(FOUR):
            group: i32 = lane_of(q * FOUR + j)
            first: i32 = -FOUR
            if group >= groups:
                for b in range(n_blocks):
                    for i in unroll(N):
                        store(waiting, zeros(vec[f32, W]), b * STATE + j * SUMS + i * W)
            while group < groups:
                ask_for(w, AHEAD.several, TILE.group, AHEAD, M)
                open_group(
                    w, tile + supers_at(group, FMT), codes + n * group_bytes(FMT), factors + n * (F * 16),
                    scales + n * SCALE_WORDS, FMT, W,
                )  # fmt: skip
                slots[n] = j + first
                first = 0
                n += 1
                group += TREE_LANES
                w = w + TILE.group
                if n == minimum(left, TOGETHER):
                    last: i32 = TOGETHER
                    if n == left and j == FOUR - 1:
                        last = n - 1
                    for b in range(n_blocks):
                        row = b * M
                        first_of_block = i64(first_row + (row & -BLOCK_ROWS))
                        at = first_of_block * i64(groups) + i64(place * block + (row & (BLOCK_ROWS - 1)))
                        multiply_groups(p, at, block, opened, n, last, waiting + b * STATE, q, FMT, M, W)
                    place += n
                    left -= n
                    n = 0
        if lane_of(q * FOUR + FOUR - 1) >= groups:
            for b in range(n_blocks):
                add_four(regs(vec[f32, W], N), waiting + b * STATE, q, N, W)
    for b in range(n_blocks):
        for m in unroll(M):
            for h in unroll(H):
                at = b * STATE + (FOUR + LEVELS - 1) * SUMS + (m * H + h) * W
                store(out, load(waiting, at, lanes=W) + 0.0, (b * M + m) * stride + h * W)


@inline
def add_four(values, waiting, q: i32, N: int, W: int):
    """The tree over four lanes, the q-th four in visiting order, and over those that wait: a binary counter.

    values: of the last of the four.
    """
    SUMS = N * W
    for i in unroll(N):
        lane = tuple(load(waiting, j * SUMS + i * W, lanes=W, align=W * 4) for j in range(FOUR - 1))
        values[i] = (lane[0] + lane[1]) + (lane[2] + values[i])
    level: i32 = FOUR
    k: i32 = q
    while k & 1 != 0:
        for i in unroll(N):
            values[i] = load(waiting, level * SUMS + i * W, lanes=W, align=W * 4) + values[i]
        level += 1
        k = k >> 1
    for i in unroll(N):
        store(waiting, values[i], level * SUMS + i * W, align=W * 4)

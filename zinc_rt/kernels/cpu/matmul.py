"""Quantised matrix times rows of int8 activations; the order of docs/numerics.md."""

from __future__ import annotations

from zinc_rt.kernels.cpu.structs import MatmulArgs, Step
from zinc_rt.kernels.cpu.weights import BIAS_SUM, SUPER, WITH_MINIMUM, bytes_as_f32, halves, line
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import array, bitcast, cast, dot4, load, prefetch, regs, splat, store, target_has, unroll, zeros
from zinc_rt.lang.types import f32, i8, i32, i64, ptr, u8, u64, vec


@inline
def live_rows(step: ptr[Step], by_logit: i32):
    """Rows that an operation works on in this step."""
    if by_logit != 0:
        return step.n_logits
    return step.n_rows


@inline
def lane_of(q: i32):
    """The q-th lane in visiting order: five bits reversed."""
    return ((q & 1) << 4) | ((q & 2) << 2) | (q & 4) | ((q >> 2) & 2) | ((q >> 4) & 1)


@inline
def put_aside(q: i32, sums, aside: ptr[f32], N: int, W: int):
    """Keep the sums of four lanes, the q-th four in visiting order."""
    for i in unroll(N):
        store(aside, sums[i], (q * N + i) * W, align=W * 4)


@inline
def merge_lanes(sums, aside: ptr[f32], N: int, W: int):
    """The rest of the tree, from the eight sums put aside: pairwise in visiting order."""
    for i in unroll(N):
        part = tuple(load(aside, (q * N + i) * W, lanes=W, align=W * 4) for q in range(8))
        sums[i] = ((part[0] + part[1]) + (part[2] + part[3])) + ((part[4] + part[5]) + (part[6] + part[7]))


@inline
def isum_dots(w: ptr[u8], x: ptr[i8], isum, FIRST: int, LAST: int, FMT: str, M: int, W: int, SIGNED: bool):
    """isum[m * H + h] += the dot products of lines FIRST … LAST-1 with M rows."""
    H = 16 // W
    BOUND = 255 if FMT == "Q8_0" else 63
    for i in unroll(FIRST, LAST):
        lines = tuple(line(w, i, h * 4 * W, FMT, 4 * W, SIGNED) for h in range(H))
        for m in unroll(M):
            q = bitcast(splat(load(cast(x + (m * 32 + i * 4), ptr[i32])), W), vec[i8, 4 * W])
            for h in unroll(H):
                isum[m * H + h] = dot4(isum[m * H + h], lines[h], q, a_max=BOUND)


@inline
def add_group(w, scales, supers, x, d, s, s_stride, sums, FMT: str, M: int, W: int, SIGNED: bool):
    """sums[m * H + h] += v_g of one group for M rows. x, d, s: the group's activations, scales and sums of M rows."""
    H = 16 // W
    isum = regs(vec[i32, W], M * H)
    if FMT in BIAS_SUM and not SIGNED:
        for m in unroll(M):
            for h in unroll(H):
                isum[m * H + h] = splat(load(s, s_stride * BIAS_SUM[FMT] + m), W)
    if FMT == "Q6_K":
        second = regs(vec[i32, W], M * H)
        for m in unroll(M):
            for h in unroll(H):
                isum[m * H + h] = splat(load(s, s_stride * 4 + m), W)
                second[m * H + h] = splat(load(s, s_stride * 5 + m), W)
        isum_dots(w, x, isum, 0, 4, FMT, M, W, SIGNED)
        isum_dots(w, x, second, 4, 8, FMT, M, W, SIGNED)
    else:
        isum_dots(w, x, isum, 0, 8, FMT, M, W, SIGNED)
    for h in unroll(H):
        at = h * W
        if FMT in SUPER:
            dw = halves(supers, 2 * at, W)
        else:
            dw = halves(scales, 2 * at, W)
        for m in unroll(M):
            dx = splat(load(d, m), W)
            k = m * H + h
            if FMT == "Q6_K":
                # Scales times sums stay below 2^24, so float32 holds every integer here exactly.
                first = bytes_as_f32(scales, at, W, True) * f32(isum[k])
                v = (dw * dx) * (first + bytes_as_f32(scales, 16 + at, W, True) * f32(second[k]))
            elif FMT in ("Q4_K", "Q5_K"):
                scaled = bytes_as_f32(scales, at, W, False) * f32(isum[k])
                total = splat(load(cast(s, ptr[f32]), m), W)
                low = (halves(supers, 32 + 2 * at, W) * dx) * (bytes_as_f32(scales, 16 + at, W, False) * total)
                v = (dw * dx) * scaled - low
            elif FMT in WITH_MINIMUM:
                total = splat(load(cast(s, ptr[f32]), m), W)
                v = (dw * dx) * f32(isum[k]) + (halves(scales, 32 + 2 * at, W) * dx) * total
            else:
                v = (dw * dx) * f32(isum[k])
            sums[k] = sums[k] + v


@inline
def tile_rows(
    tile, x, d, s, s_stride, block, groups, sums, FMT: str, M: int, W: int, SUPER_BYTES: int, SCALE_BYTES: int,
    WEIGHT_BYTES: int, AHEAD: int, SIGNED: bool,
):  # fmt: skip
    """The sums of one tile for M rows of a block of `block` rows."""
    N = M * (16 // W)
    aside = array(f32, 8 * N * W)
    scales: ptr[u8] = tile + (groups >> 3) * SUPER_BYTES
    w: ptr[u8] = tile + ((((groups >> 3) * SUPER_BYTES + groups * SCALE_BYTES) + 63) & -64)
    xv: ptr[i8] = x
    dv: ptr[f32] = d
    sv: ptr[i32] = s
    second = regs(vec[f32, W], N)
    for q in range(8):
        # Lanes l, l + 16, l + 8, l + 24: the tree adds the first two, the last two, then both.
        first = lane_of(q * 4)
        for r in unroll(4):
            into = sums if r < 2 else second
            one = regs(vec[f32, W], N)
            group: i32 = first + (0, 16, 8, 24)[r]
            while group < groups:
                for i in unroll(0, WEIGHT_BYTES, 64):
                    prefetch(w, AHEAD + i)
                supers = tile + (group >> 3) * SUPER_BYTES
                add_group(w, scales, supers, xv, dv, sv, s_stride, one, FMT, M, W, SIGNED)
                group += 32
                w = w + WEIGHT_BYTES
                scales = scales + SCALE_BYTES
                xv = xv + block * 32
                dv = dv + block
                sv = sv + block
            for i in unroll(N):
                if r % 2 == 0:
                    into[i] = one[i]
                else:
                    into[i] = into[i] + one[i]
        for i in unroll(N):
            sums[i] = sums[i] + second[i]
        put_aside(q, sums, aside, N, W)
    merge_lanes(sums, aside, N, W)


@inline
def put_tile(a, sums, tile: i32, row: i32, M: int, W: int):
    """Write M rows of a tile's sums, with the bias."""
    H = 16 // W
    n_out = a.n_out
    first = tile * 16
    whole = first + 16 <= n_out
    has_bias = cast(a.bias, u64) != 0
    if whole:
        if has_bias:
            for h in unroll(H):
                b = load(a.bias, first + h * W, lanes=W)
                for m in unroll(M):
                    sums[m * H + h] = sums[m * H + h] + b
        for m in unroll(M):
            y = a.y + (i64(row + m) * i64(n_out) + i64(first))
            for h in unroll(H):
                store(y, sums[m * H + h], h * W)
    else:
        buffer = array(f32, 16)
        for m in unroll(M):
            for h in unroll(H):
                store(buffer, sums[m * H + h], h * W)
            y = a.y + (i64(row + m) * i64(n_out) + i64(first))
            for j in range(n_out - first):
                v: f32 = buffer[j]
                if has_bias:
                    v = v + a.bias[first + j]
                y[j] = v


@kernel
def matmul(
    a: ptr[MatmulArgs], step: ptr[Step], first: i32, last: i32, FMT: str, W: int, SUPER_BYTES: int, SCALE_BYTES: int,
    WEIGHT_BYTES: int, BLOCKS: tuple, AHEAD: int,
):  # fmt: skip
    """Units: tiles. BLOCKS: numbers of rows worked on at once, descending to 1."""
    SIGNED = FMT == "Q8_0" and not (target_has("vnni") or target_has("avxvnni"))
    p = a.pack
    groups = p.n_groups
    s_stride = p.s_stride
    rows = live_rows(step, a.by_logit)
    block: i32 = rows
    if block > 8:
        block = 8
    for t in range(first, last):
        tile = a.w + i64(t) * a.tile_bytes
        start: i32 = 0
        while start < rows:
            here: i32 = rows - start
            if here > block:
                here = block
            at = i64(start) * i64(groups)
            m: i32 = 0
            for M in unroll(BLOCKS):
                while m + M <= here:
                    x = p.q + (at * 32 + i64(m) * 32)
                    sums = regs(vec[f32, W], M * (16 // W))
                    tile_rows(
                        tile, x, p.d + (at + i64(m)), p.s + (at + i64(m)), s_stride, block, groups, sums, FMT, M, W,
                        SUPER_BYTES, SCALE_BYTES, WEIGHT_BYTES, AHEAD, SIGNED,
                    )  # fmt: skip
                    put_tile(a, sums, t, start + m, M, W)
                    m += M
            start += block

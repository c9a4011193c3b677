"""A projection's heads: norm, rotation, and their place in a buffer or in the KV cache."""

from __future__ import annotations

from zinc_rt.kernels.cpu.kv_quant import put_key, put_value, quantized_page
from zinc_rt.kernels.cpu.layout import BLOCK_ROWS
from zinc_rt.kernels.cpu.packs import not_null, rms_scale, row_and_item
from zinc_rt.kernels.cpu.structs import HeadsArgs, StepRecord
from zinc_rt.lang.kernel import kernel
from zinc_rt.lang.ops import array, load, shuffle, splat, store, unroll
from zinc_rt.lang.types import f16, f32, i32, i64, ptr, u32
from zinc_rt.numerics import PAGE_SHIFT, PAGE_TOKENS


@kernel
def heads(
    a: ptr[HeadsArgs], step: ptr[StepRecord], first: i32, last: i32, W: int, DIM: int, PAIRS: int, INTERLEAVED: bool,
    QUANT: bool = False, FLIP: bool = False, BEGIN: int = 0, BLOCK: int = 1,
):  # fmt: skip
    """Units: heads, row after row; into a cache, a head of 16 rows after another, since a line of keys has those of 16
    positions. PAIRS: rotated pairs of a head, 0 for none, from element BEGIN on; V: lanes that divide all of these.
    BLOCK: into a cache of values, only rows that end a block of so many positions are written. QUANT: into a cache of
    Q8_0 blocks; FLIP: see `kv_quant`.
    """
    n_heads = a.n_heads
    rows = step.n_rows
    buffer = array(f32, DIM)
    halves = array(f16, DIM, zero=False)
    together: i32 = BLOCK_ROWS
    if not_null(a.y):
        together = 1
    V = max(w for w in (1, 2, 4, 8, 16) if w <= W and DIM % w == 0 and BEGIN % w == 0)
    P = max(w for w in (1, 2, 4, 8, 16) if w <= W and (PAIRS == 0 or PAIRS % w == 0))
    for u in range(first, last):
        row, head = row_and_item(u, n_heads, rows, together)
        x: ptr[f32] = a.x + (i64(row) * i64(n_heads) + i64(head)) * DIM
        if a.normed != 0:
            scale = splat(rms_scale(x, DIM, a.eps, W), V)
            if not_null(a.weight):
                for i in unroll(0, DIM, V):
                    store(buffer, (load(x, i, lanes=V) * scale) * load(a.weight, i, lanes=V), i)
            else:
                for i in unroll(0, DIM, V):
                    store(buffer, load(x, i, lanes=V) * scale, i)
            x = buffer
        position = step.positions[row]
        if PAIRS > 0:
            cosines = a.table + i64(position) * (2 * PAIRS)
            sines = cosines + PAIRS
            for i in unroll(0, BEGIN, V):
                store(buffer, load(x, i, lanes=V), i)
            for i in unroll(BEGIN + 2 * PAIRS, DIM):
                buffer[i] = x[i]
            for i in unroll(0, PAIRS, P):
                c = load(cosines, i, lanes=P)
                s = load(sines, i, lanes=P)
                if INTERLEAVED and P > 1:
                    both = load(x, BEGIN + 2 * i, lanes=2 * P)
                    p = shuffle(both, tuple(range(0, 2 * P, 2)))
                    q = shuffle(both, tuple(range(1, 2 * P, 2)))
                elif INTERLEAVED:
                    p = x[BEGIN + 2 * i]
                    q = x[BEGIN + 2 * i + 1]
                else:
                    p = load(x, BEGIN + i, lanes=P)
                    q = load(x, BEGIN + PAIRS + i, lanes=P)
                y0 = (p * c) - (q * s)
                y1 = (p * s) + (q * c)
                if INTERLEAVED and P > 1:
                    store(buffer, shuffle(y0, y1, tuple(k // 2 + (k % 2) * P for k in range(2 * P))), BEGIN + 2 * i)
                elif INTERLEAVED:
                    buffer[BEGIN + 2 * i] = y0
                    buffer[BEGIN + 2 * i + 1] = y1
                else:
                    store(buffer, y0, BEGIN + i)
                    store(buffer, y1, BEGIN + PAIRS + i)
            x = buffer
        if not_null(a.y):
            y = a.y + (i64(row) * i64(n_heads) + i64(head)) * DIM
            for i in unroll(0, DIM, V):
                store(y, load(x, i, lanes=V), i)
        else:
            page = step.page_table[i64(step.slots[row]) * i64(step.max_pages) + i64(position >> PAGE_SHIFT)]
            place = i64(page) * i64(n_heads) + i64(head)
            token = i64(position & (PAGE_TOKENS - 1))
            if QUANT:
                if not_null(a.k_cache):
                    keys = quantized_page(a.k_cache, page, n_heads, head, a.width)
                    put_key(keys, x, token, a.start, a.width, DIM, W, FLIP)
                else:
                    put_value(quantized_page(a.v_cache, page, n_heads, head, DIM), x, token, DIM, W)
            elif not_null(a.k_cache):
                k = a.k_cache + ((place * i64(a.width) + i64(a.start)) * PAGE_TOKENS + token)
                for i in unroll(0, DIM, V):
                    store(halves, f16(load(x, i, lanes=V)), i)
                for i in range(DIM):
                    k[i64(i) * PAGE_TOKENS] = halves[i]
            else:
                PER_PAGE = max(1, PAGE_TOKENS // BLOCK)
                entry = token * PER_PAGE >> PAGE_SHIFT
                v = a.v_cache + (place * PER_PAGE + entry) * DIM
                if BLOCK == 1 or u32(position + 1) % BLOCK == 0:
                    for i in unroll(0, DIM, V):
                        store(v, f16(load(x, i, lanes=V)), i)

"""Kernels for gfx1201 that together use all that a driver must get right. They are compiled and read, not run."""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405

from __future__ import annotations

from zinc_rt.lang import *
from zinc_rt.lang.types import Type


@kernel
def q8_0_matvec(w: ptr[u8], xq: ptr[i8], xd: ptr[f32], y: ptr[f32], n_blocks: i32):
    """y[row] of one wave: lane l takes blocks l, l + 32, …; blocks are a float16 scale and 32 bytes."""
    row = workgroup_id(0)
    blocks = w + i64(row) * i64(n_blocks) * 34
    total: f32 = 0.0
    for b in range(i32(lane_id()), n_blocks, 32):
        block = blocks + i64(b) * 34
        scale = f32(load(cast(block, ptr[f16]))) * load(xd, b)
        weights = bitcast(load(block, 2, lanes=32), vec[i8, 32])
        dots = dot4(zeros(vec[i32, 8]), weights, load(xq, i64(b) * 32, lanes=32))
        isum: i32 = 0
        for j in unroll(8):
            isum += dots[j]
        total += scale * f32(isum)
    total = wave_reduce_add(total)
    if lane_id() == 0:
        y[row] = total


@kernel
def q4_0_matvec(w: ptr[u8], xq: ptr[i8], xd: ptr[f32], y: ptr[f32], n_blocks: i32):
    """As q8_0_matvec; blocks are a float16 scale and 16 bytes of two nibbles, offset by 8."""
    row = workgroup_id(0)
    blocks = w + i64(row) * i64(n_blocks) * 18
    total: f32 = 0.0
    for b in range(i32(lane_id()), n_blocks, 32):
        block = blocks + i64(b) * 18
        scale = f32(load(cast(block, ptr[f16]))) * load(xd, b)
        bits = load(block, 2, lanes=16)
        x = load(xq, i64(b) * 32, lanes=32)
        isum: i32 = 0
        for half in unroll(2):
            nibbles = (bits & 15) if half == 0 else (bits >> 4)
            words = bitcast(bitcast(nibbles, vec[u8, 16]), vec[i32, 4])
            xs = bitcast(x, vec[i32, 8])
            for j in unroll(4):
                a, v = bitcast(words[j], vec[u8, 4]), bitcast(xs[half * 4 + j], vec[i8, 4])
                isum = dot4(isum, a, v)
                isum = dot4(isum, zeros(vec[u8, 4]) + 8, -v)
        total += scale * f32(isum)
    total = wave_reduce_add(total)
    if lane_id() == 0:
        y[row] = total


@kernel
def dot_products(a: ptr[u8], b: ptr[i8], y: ptr[i32]):
    """y[i] = 3 + the dot product of four i8 of a and of b; y[64 + i] of u8 of a. Two waves of 32 for i < 64."""
    i = i64(workgroup_id(0)) * 32 + i64(lane_id())
    x, z = load(a, 4 * i, lanes=4), load(b, 4 * i, lanes=4)
    y[i] = dot4(i32(3), bitcast(x, vec[i8, 4]), z)
    y[64 + i] = dot4(i32(3), x, z)


@kernel
def rms_norm(x: ptr[f32], w: ptr[f32], y: ptr[f32], n: i32, eps: f32):
    """One wave a row."""
    row = i64(workgroup_id(0)) * i64(n)
    acc: f32 = 0.0
    for i in range(i32(lane_id()), n, 32):
        v = x[row + i64(i)]
        acc = fma(v, v, acc)
    total = wave_reduce_add(acc)
    one: f32 = 1.0
    scale = one / sqrt(total / f32(n) + eps)
    for i in range(i32(lane_id()), n, 32):
        y[row + i64(i)] = (x[row + i64(i)] * scale) * w[i]


@inline
def add_waves(part, v, waves: int):
    """The sum over a workgroup of several waves: each wave's by shuffles, then theirs through LDS."""
    total = wave_reduce_add(v)
    wave = workitem_id() >> 5
    if lane_id() == 0:
        part[wave] = total
    barrier()
    out: f32 = 0.0
    for i in unroll(waves):
        out += part[i]
    return out


@kernel(workgroup=256)
def workgroup_sum(x: ptr[f32], y: ptr[f32], n: u32):
    """y[group] = the sum of the group's n elements, through LDS and a barrier."""
    part = shared(f32, 8)
    at = u64(workgroup_id(0)) * u64(n)
    acc: f32 = 0.0
    for i in range(workitem_id(), n, 256):
        acc += x[at + u64(i)]
    total = add_waves(part, acc, 8)
    if workitem_id() == 0:
        y[workgroup_id(0)] = total


@kernel
def tile_matmul(a: ptr[u8], b: ptr[i8], c: ptr[i32], k: i32):
    """c[16, 16] = a[16, k] b[k, 16] (b by columns): a lane holds row or column lane % 16, half of each 16 k."""
    lane = lane_id()
    line = i64(lane & 15) * i64(k) + i64(lane >> 4) * 8
    acc = zeros(vec[i32, 8])
    for at in range(0, k, 16):
        x = bitcast(load(a + line, at, lanes=8), vec[i32, 2])
        y = bitcast(load(b + line, at, lanes=8), vec[i32, 2])
        acc = wmma_iu8(acc, x, y, a_signed=False)
    for i in unroll(8):
        c[i64((lane >> 4) * 8 + i) * 16 + i64(lane & 15)] = acc[i]


@kernel
def both_mma(x: ptr[i32], y: ptr[i32]):
    """Products of 32 columns, then of 16; a lane has 16 words of x and 4 of y."""
    own = x + lane_id() * 16
    total = mma_s8(load(own, lanes=4), load(own, 4, lanes=4), load(own, 8, lanes=2))
    store(y, mma_s8(total, load(own, 12, lanes=2), own[14]), lane_id() * 4)


@kernel(workgroup=64)
def grid_barrier(counter: ptr[u32], data: ptr[u32], groups: u32, rounds: u32):
    """Every workgroup waits for all the others; what they wrote before is visible after."""
    for r in range(rounds):
        data[workgroup_id(0) * 64 + workitem_id()] = r
        barrier()
        if workitem_id() == 0:
            atomic_add(counter, 1, order="release")
            while atomic_load(counter, order="acquire") < groups * (r + 1):
                pause()
        barrier()
        fence("acquire")


@struct
class Args:
    x: ptr[f32]
    y: ptr[f32]
    n: u32
    scale: f32


@kernel
def from_block(args: ptr[Args, Space.CONSTANT], first: u32):
    """Arguments in memory instead of registers; uniform, so they come by scalar loads."""
    at = first + workgroup_id(0) * 32 + lane_id()
    if at < args.n:
        args.y[at] = args.x[at] * args.scale


@kernel
def many_arguments(
    a: ptr[f32], n: u32, b: ptr[f32], m: u16, c: ptr[f32], s: f32, d: ptr[f32], flag: i8, e: ptr[f32], last: u32
):
    """Fifteen dwords: pointers that start at odd registers, small integers in registers of their own."""
    i = workgroup_id(1) * n + workgroup_id(2)
    e[i] = a[i] * s + b[u32(m)] + c[i64(flag)] + d[last]


@kernel
def lane_words(x: ptr[u32], y: ptr[u32]):
    """Every exchange between lanes, and work-item memory."""
    v = x[lane_id()]
    for d in unroll((1, 2, 4, 8, 16)):
        v = v ^ (wave_shuffle_xor(v, d) + d)
    y[lane_id()] = v + first_lane(v)


@kernel
def spills_to_scratch(x: ptr[f32], y: ptr[f32], n: u32):
    """A run-time index into an array keeps it in scratch memory, which a launch must then provide."""
    buffer = array(f32, 64)
    for i in range(n):
        buffer[i & 63] = x[i]
    y[lane_id()] = buffer[n & 63]


@kernel(occupancy=12)
def sixteen_loads(x: ptr[f32], y: ptr[f32], FIRST: bool):
    """A sum of sixteen loads, which are all asked for before it is begun if they are to be first."""
    values = tuple(x[lane_id() + i * 32] for i in range(16))
    if FIRST:
        schedule_barrier()
    total: f32 = 0.0
    for i in unroll(16):
        total += values[i]
    y[lane_id()] = total


@kernel(workgroup=64, wave=64)
def lanes_of_64(x: ptr[f32], y: ptr[f32]):
    """Waves of 64 lanes."""
    y[lane_id()] = x[workitem_id()] * 2.0


@kernel(workgroup=64, wave=64)
def reduces_64(x: ptr[f32], y: ptr[f32]):
    """A word for 32 lanes."""
    y[0] = wave_reduce_add(x[lane_id()])


@kernel(workgroup=64, wave=64)
def shuffles_64(x: ptr[f32], y: ptr[f32]):
    """Another."""
    y[0] = wave_shuffle_xor(x[lane_id()], 1)


@kernel(workgroup=64, wave=64)
def multiplies_64(x: ptr[i32], y: ptr[i32]):
    """The third."""
    acc = wmma_iu8(zeros(vec[i32, 8]), load(x, lanes=2), load(x, lanes=2))
    y[0] = acc[0]


ALL = (
    q8_0_matvec, q4_0_matvec, rms_norm, workgroup_sum, tile_matmul, grid_barrier, from_block, many_arguments,
    lane_words, spills_to_scratch,
)  # fmt: skip


@kernel(workgroup=64)
def words_from_odd_places(x: ptr[u8], y: ptr[u32], T: type, LANES: int, ALIGN: int):
    """Row i of y: LANES numbers of x from byte i * ALIGN on, as words."""
    i = workitem_id()
    found = load(cast(x + i * ALIGN, ptr[T]), lanes=LANES, align=ALIGN)
    n = LANES * T.size // 4
    store(y, bitcast(found, vec[u32, n]), i * n)


ODD: tuple[tuple[Type, int, int], ...] = (
    (u32, 4, 2), (u32, 8, 2), (u32, 4, 1), (u32, 2, 1), (f16, 8, 2), (f16, 2, 1)
)  # fmt: skip
"""T, LANES and ALIGN of loads that are wider than their alignment."""

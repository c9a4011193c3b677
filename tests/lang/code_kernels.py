"""Small kernels whose machine code is read."""

# ruff: noqa: F403, F405

from __future__ import annotations

from zinc_rt.lang import *


@kernel
def products_and_sums(a: ptr[f32], b: ptr[f64], n: i32):
    """Everything that a careless compiler contracts, reorders or divides away."""
    for i in range(0, n, 8):
        x = load(a, i, lanes=8)
        y = x * x + x
        store(a, (y - x * y) / splat(x[0], 8) - (x + y) * 0.5, i)
        z = load(b, i, lanes=8)
        store(b, z * z - z * 3.0 + z / 10.0, i)
    s: f32 = 0.0
    for i in range(n):
        s += a[i] * a[i]
    a[0] = s


@kernel
def sums_without_quotients(a: ptr[f32], b: ptr[f64], n: i32):
    """For GPUs, where divisions are made of fused steps."""
    x = a[n]
    y = x * x + x
    a[n] = (y - x * y) - (x + y) * 0.5
    z = b[n]
    b[n] = z * z - z * 3.0 + z


@kernel
def fused(a: ptr[f32], n: i32):
    """One fma."""
    for i in range(0, n, 8):
        x = load(a, i, lanes=8)
        store(a, fma(x, x, x), i)


@kernel
def halves(a: ptr[f32], f: ptr[f16], b: ptr[bf16], n: i32):
    """float32 to both 16-bit formats and back."""
    for i in range(0, n, 8):
        x = load(a, i, lanes=8)
        store(f, f16(x), i)
        store(b, bf16(x), i)
        store(a, f32(load(f, i + n, lanes=8)) + f32(load(b, i + n, lanes=8)), i)


@kernel
def dot(acc: ptr[i32], a: ptr[T], b: ptr[i8], T: type, N: int, BOUND: int):
    """One dot product."""
    store(acc, dot4(load(acc, lanes=N), load(a, lanes=4 * N), load(b, lanes=4 * N), a_max=BOUND))


@kernel
def lookup(indices: ptr[u8], out: ptr[i8], N: int):
    """One lookup of half bytes in a table."""
    store(out, lookup16(i8, tuple(range(-8, 8)), load(indices, lanes=N) >> 4))


@kernel
def hints(a: ptr[f32], out: ptr[f32]):
    """Aligned, non-temporal, prefetched."""
    prefetch(a, 1024, locality=0)
    prefetch(a, 2048)
    store(out, load(a, lanes=8, align=32), align=32, nontemporal=True)


@kernel
def orders(p: ptr[i32], q: ptr[i32]):
    """Atomics and fences."""
    atomic_store(q, atomic_add(p, 1, order="relaxed"))
    fence()
    pause()


@struct
class Settings:
    scale: f32
    n: i32
    data: ptr[f32]


@kernel
def unchanging(s: ptr[Settings, Space.CONSTANT], out: ptr[f32]):
    """Fields of constant memory need no second load, though `out` is written."""
    for i in range(s.n):
        out[i] = s.data[i] * s.scale


@kernel
def quantised(a: ptr[f32], q: ptr[i8], top: ptr[f32]):
    """Float to integer saturates, and extremes mind NaN, without going through the lanes one by one."""
    x = load(a, lanes=16)
    top[0] = reduce_max(x)
    top[1] = reduce_min(x)
    store(q, i8(i32(rint(x))))
    store(q, i8(rint(x * 2.0)), 16)

"""Sums, products, gates, factors, soft caps, clamps and moving memory, four elements a lane."""

from __future__ import annotations

from zinc_rt.kernels.gpu.scalar_loads import unchanged
from zinc_rt.kernels.maths import clamp, gated, sigmoid, tanh
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import load, splat, static_assert, store, workgroup_id, workitem_id
from zinc_rt.lang.types import f32, ptr, u32, u64


@inline
def own_four():
    """The number of this lane's four elements."""
    return workgroup_id(0) * 256 + workitem_id()


@kernel(workgroup=256)
def add(a: ptr[f32], b: ptr[f32], y: ptr[f32], n: u32):
    """y = a + b, n elements; a workgroup adds 1024. y may be a or b."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, load(a, at * 4, lanes=4) + load(b, at * 4, lanes=4), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = a[i] + b[i]


@kernel(workgroup=256)
def add_row(a: ptr[f32], b: ptr[f32], y: ptr[f32], n: u32):
    """y[row] = a[row] + b for rows of n elements (a bias); ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        at = u64(workgroup_id(1)) * u64(n) + u64(i)
        y[at] = a[at] + b[i]


@kernel(workgroup=256)
def swiglu(gate: ptr[f32], up: ptr[f32], y: ptr[f32], n: u32, alpha: f32, limit: f32, ACT: str):
    """y = activation(gate) * up, n elements; a workgroup does 1024. y may be gate or up. See `gated`."""
    at = own_four()
    if at * 4 + 4 <= n:
        four = gated(load(gate, at * 4, lanes=4), load(up, at * 4, lanes=4), splat(alpha, 4), splat(limit, 4), ACT)
        store(y, four, at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = gated(gate[i], up[i], alpha, limit, ACT)


@kernel(workgroup=256)
def swiglu_part(
    gate: ptr[f32], up: ptr[f32], y: ptr[f32], n: u32, start: u32, width: u32, alpha: f32, limit: f32, ACT: str
):
    """As `swiglu` for rows of n elements and elements start ... of up's, which are `width` long; ceil(n / 256)
    workgroups in x, a row each in y.
    """
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        row = u64(workgroup_id(1))
        at = row * u64(n) + u64(i)
        y[at] = gated(gate[at], up[row * u64(width) + u64(start + i)], alpha, limit, ACT)


@inline
def scaled(v, number, WHAT: str):
    """v times the number, or held under it."""
    if WHAT == "softcap":
        return number * tanh(v / number)
    static_assert(WHAT == "scale", f"scale does not know {WHAT}")
    return v * number


@kernel(workgroup=256)
def scale(x: ptr[f32], y: ptr[f32], number: f32, n: u32, WHAT: str):
    """y = x times the number, or held under it, n elements; a workgroup does 1024. y may be x."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, scaled(load(x, at * 4, lanes=4), splat(number, 4), WHAT), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = scaled(x[i], number, WHAT)


@kernel(workgroup=256)
def clamp_rows(x: ptr[f32], y: ptr[f32], low: f32, high: f32, n: u32):
    """y = x held in low .. high, n elements; a workgroup does 1024. y may be x."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, clamp(load(x, at * 4, lanes=4), splat(low, 4), splat(high, 4)), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = clamp(x[i], low, high)


@kernel(workgroup=256)
def position_scale(x: ptr[f32], positions: ptr[u32], factors: ptr[f32], y: ptr[f32], n: u32):
    """y[row] = x[row] * factors[positions[row]], rows of n elements; ceil(n / 256) workgroups in x, a row each in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    row = workgroup_id(1)
    number = unchanged(factors, f32)[unchanged(positions)[row]]
    if i < n:
        at = u64(row) * u64(n) + u64(i)
        y[at] = x[at] * number


@kernel(workgroup=256)
def mul(a: ptr[f32], b: ptr[f32], y: ptr[f32], n: u32):
    """y = a * b, n elements; a workgroup does 1024. y may be a or b."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, load(a, at * 4, lanes=4) * load(b, at * 4, lanes=4), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = a[i] * b[i]


@kernel(workgroup=256)
def sigmoid_mul(x: ptr[f32], gate: ptr[f32], y: ptr[f32], n: u32):
    """y = x * sigmoid(gate), n elements; a workgroup does 1024. y may be x or gate."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, load(x, at * 4, lanes=4) * sigmoid(load(gate, at * 4, lanes=4)), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = x[i] * sigmoid(gate[i])


@kernel(workgroup=256)
def mul_heads(a: ptr[f32], b: ptr[f32], y: ptr[f32], dim: u32, n: u32, GATED: bool):
    """y = a * b, or a * sigmoid(b), n elements; b has one for every `dim` of a. A workgroup does 256. y may be a."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        by = b[i // dim]
        if GATED:
            by = sigmoid(by)
        y[i] = a[i] * by


@kernel(workgroup=256)
def add_shared(routed: ptr[f32], shared: ptr[f32], gate: ptr[f32], y: ptr[f32], n: u32):
    """y[row] = routed[row] + sigmoid(gate[row]) * shared[row], rows of n; ceil(n / 256) workgroups in x, rows in y."""
    i = workgroup_id(0) * 256 + workitem_id()
    if i < n:
        at = u64(workgroup_id(1)) * u64(n) + u64(i)
        y[at] = routed[at] + sigmoid(gate[workgroup_id(1)]) * shared[at]


@kernel(workgroup=256)
def move(x: ptr[u32], y: ptr[u32], n: u32):
    """y = x, n dwords, both at multiples of 16 bytes; a workgroup does 1024. The two must not overlap."""
    at = own_four()
    if at * 4 + 4 <= n:
        store(y, load(x, at * 4, lanes=4), at * 4)
    else:
        for i in range(at * 4, n):
            y[i] = x[i]

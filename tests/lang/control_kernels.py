"""Loops, branches, helpers, compile-time values, threads: one kernel for each thing that is checked."""

# The names of the language all at once; annotations may name a kernel's constants.
# ruff: noqa: F403, F405, B007, RET504, RUF021

from __future__ import annotations

from zinc_rt.lang import *

STEPS = ((i8, (1, 3, 16, 127, -1, -5, -127)), (u8, (1, 3, 16, 255, -1, -5, -255)), (i64, (1, 7, -64)), (u32, (2, -2)))
TABLE = {"one": 1, "two": (2, 22)}
SCALE = 0.1


@kernel
def ranges(start: T, stop: T, out: ptr[T], limit: i32, T: type, STEP: int) -> i32:
    """Writes up to `limit` values of a range; how many there were."""
    count: i32 = 0
    for i in range(start, stop, STEP):
        if count < limit:
            out[count] = i
        count += 1
    return count


@kernel
def nested(n: i32, m: i32, out: ptr[i32]) -> i32:
    """break and continue of the inner and the outer loop, loops by while, early return."""
    count: i32 = 0
    for i in range(n):
        if i == 7:
            break
        if (i & 1) == 1:
            continue
        j: i32 = 0
        while True:
            if j >= m:
                break
            j += 1
            if j == 3:
                continue
            if i + j == 100:
                return -1
            out[count] = i * 1000 + j
            count += 1
    return count


@kernel
def branches(x: i32, y: f32, out: ptr[f32]) -> i32:
    """Names that both sides bind, that one side binds and the other leaves, values of conditions."""
    if x > 10:
        kind = "big"
        z = y * 2.0
        k = 3
    elif x > 0:
        kind = "big"
        z = y + 1.0
        k = 3
    else:
        out[0] = -1.0
        return 0
    static_assert(k == 3 and kind == "big")
    if y < 0.0:
        return -1
    else:
        late = z - 1.0
    out[0] = late
    out[1] = z if x > 20 else -z
    out[2] = 1.5 if x == 5 else y
    return x + 1 if y > 1.0 else 2


@inline
def noted(out: ptr[i32], at: i32, answer):
    """Counts its calls."""
    out[at] = out[at] + 1
    return answer


@kernel
def short_circuits(a: boolean, b: boolean, c: boolean, out: ptr[i32]) -> boolean:
    """Right sides run only where the left does not decide."""
    return noted(out, 0, a) and noted(out, 1, b) or noted(out, 2, c)


@inline
def sign_and_size(x: i32):
    """A tuple, from several returns."""
    if x < 0:
        return -1, -x
    if x == 0:
        return 0, 0
    return 1, x


@inline
def scaled(x, by=SCALE, *, plus: f32 = 0.0):
    """Defaults, by name and by position."""
    return x * by + plus


@inline
def clamped(x: f32, top: f32) -> f32:
    """Constants from early returns take the declared type."""
    if x > top:
        return 1.0
    if x < 0.0:
        return 0.0
    return x / top


@inline
def changed(x: i32) -> i32:
    """Parameters are the helper's own."""
    x += 5
    x = x * 2
    return x


@inline
def add_to(acc, at: int, *values):
    """Registers by reference, the rest of the arguments as a tuple."""
    for v in values:
        acc[at] += v


@kernel
def helpers(x: i32, y: f32, ints: ptr[i32], floats: ptr[f32]):
    """Helpers of all kinds."""
    sign, size = sign_and_size(x)
    ints[0] = sign
    ints[1] = size
    ints[2] = changed(x) + x
    floats[0] = scaled(y)
    floats[1] = scaled(y, 2.0, plus=1.0)
    floats[2] = scaled(plus=y, x=y, by=y)
    floats[3] = clamped(y, 4.0)
    acc = regs(f32, 2)
    add_to(acc, 1, y, y * 2.0, y)
    add_to(acc, 0)
    floats[4] = acc[0]
    floats[5] = acc[1]


@kernel
def compile_time(out: ptr[i64], N: int, NAME: str, T: type, FLAG: bool = True):
    """Python values: loops, tuples, tables, texts, conditions, types."""
    at = 0
    for i, (a, b) in enumerate(zip(range(N), TABLE["two"])):
        out[at] = i + a * 10 + b * 100
        at = at + 1
    for v in (x * x for x in range(N) if x % 2):
        out[at] = v
        at += 1
    if NAME.startswith("q") and N in (3, 5) and not (N > 4 and FLAG):
        out[at] = int(float.fromhex("0x1.8p3")) + len(f"{NAME}:{N:03d}") + TABLE["one"]
    else:
        out[at] = -(N**2) // 3 + max(N, 2) + sum([1, 2, 3]) - abs(-4) + divmod(N, 2)[1]
    out[at + 1] = T.bits + i64(T(1) + T(2))
    out[at + 2] = 1 if target_has("avx2") else 0
    sizes = tuple([8 // n for n in (1, 2, 4)])
    for i in unroll(len(sizes)):
        out[at + 3 + i] = sizes[i]


@kernel
def unrolled(x: i32, out: ptr[i32]):
    """Loop-carried variables in unrolled loops, and types that differ from turn to turn."""
    total: i32 = 0
    for i in unroll(1, 6, 2):
        step = x * i
        if step > 10:
            total += step
        else:
            total -= step
    for j in unroll((4, 2)):
        v = splat(x, j)
        total += v[j - 1]
    out[0] = total


@kernel
def integers_of_c(f: u64, a: i8, b: u8, c: i16, d: u16, e: i32) -> i32:
    """Small integers to and from a C function."""
    return i32(call(f, i8, a, b, c, d, e)) + 1


@kernel
def floats_of_c(f: u64, g: u64, x: f32, y: f64, p: ptr[f32]) -> f64:
    """Floats and pointers to C functions, one of which returns nothing."""
    call(f, None, p, x)
    return call(g, f64, y, p[0]) + f64(p[1])


@kernel
def narrow(x: i32, T: type) -> T:
    """A small integer as a result."""
    return T(x)


@kernel
def count_up(counter: ptr[u64], n: i64, ORDER: str):
    """Atomic additions."""
    for i in range(n):
        atomic_add(counter, 1, order=ORDER)


@kernel
def locked(lock: ptr[u32], total: ptr[i64], n: i64):
    """Additions that are not atomic, under a lock."""
    for i in range(n):
        while atomic_cas(lock, 0, 1, order="acquire") != 0:
            pause()
        total[0] += 1
        atomic_store(lock, 0, order="release")


@kernel
def send(data: ptr[i64], turn: ptr[i32], n: i32):
    """Writes n messages, each after the last was taken."""
    for i in range(n):
        while atomic_load(turn) != 0:
            pause()
        data[0] = i64(i) * 3
        fence("release")
        atomic_store(turn, 1, order="relaxed")


@kernel
def receive(data: ptr[i64], turn: ptr[i32], n: i32) -> i64:
    """The sum of the messages."""
    total: i64 = 0
    for i in range(n):
        while atomic_load(turn, order="relaxed") != 1:
            pause()
        fence("acquire")
        total += data[0]
        atomic_store(turn, 0)
    return total


@kernel
def exchanges(p: ptr[i32], q: ptr[u64], out: ptr[i64]):
    """What atomics give back."""
    out[0] = i64(atomic_add(p, -5, 1))
    out[1] = i64(atomic_cas(p, 10, 77, 1))
    out[2] = i64(atomic_cas(p, 11, 88, 1, order="seq_cst"))
    out[3] = i64(atomic_load(p, 1, order="seq_cst"))
    out[4] = i64(atomic_add(q, 1 << 40, order="relaxed"))
    atomic_store(q, 9, 1, order="seq_cst")
    fence()
    fence("acq_rel")


@kernel
def ticks() -> i64:
    """Time passes."""
    first = cycle_counter()
    return cycle_counter() - first


SPECS = [
    *(Spec(ranges, {"T": t, "STEP": s}) for t, steps in STEPS for s in steps),
    *(Spec(k) for k in (nested, branches, short_circuits, helpers, unrolled, integers_of_c, floats_of_c)),
    *(Spec(compile_time, {"N": n, "NAME": s, "T": t}) for n, s, t in ((3, "q4", i16), (5, "q8", u64), (4, "f", i8))),
    *(Spec(narrow, {"T": t}) for t in (i8, u8, i16, u16)),
    *(Spec(count_up, {"ORDER": o}) for o in ("relaxed", "acq_rel", "seq_cst")),
    *(Spec(k) for k in (locked, send, receive, exchanges, ticks)),
]

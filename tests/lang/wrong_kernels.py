"""Programs that the language refuses, each with what it says. The line that it must name ends with `# here`."""

# Half of this no linter would let pass, which is the point.
# ruff: noqa

from __future__ import annotations

import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from zinc_rt.lang import *


@dataclass
class Case:
    """A kernel, what the error says after file and line, its constants, and the target."""

    function: Function
    message: str
    constants: dict[str, Any]
    target: str


class Lengths(NamedTuple):
    """Constants that belong together."""

    N: int
    M: int


CASES: list[Case] = []


DRIVERS = ("spirv", "ptx")


def wrong(
    message: str, target: str | tuple[str, ...] = "avx2", workgroup: int = 32, **constants: Any
) -> Callable[[Any], Function]:
    """A kernel that one target refuses, or each of several, with a message in which TARGET stands for its name."""

    def mark(fn: Any) -> Function:
        made = kernel(workgroup=workgroup)(fn)
        names = (target,) if isinstance(target, str) else target
        CASES.extend(Case(made, message.replace("TARGET", name), constants, name) for name in names)
        return made

    return mark


TABLE = np.zeros(4)
WORDS_OF = {"a": 1}
MODES = {1, 2, 3}


class Mode(enum.Enum):
    FAST = 1


def plain(x):
    return x


def template(p: ptr[f32], n: i32):
    pass


@struct
class Pair:
    first: f32
    second: ptr[f32]


@inline
def half(x: f32) -> f32:
    return x * 0.5


@inline
def first_of(v, W: int):
    return v[W]


@inline
def forever(x):
    return forever(x)  # here


@inline
def ping(x):
    return pong(x)


@inline
def pong(x):
    return ping(x)  # here


@inline
def sometimes(x: i32):
    if x > 0:
        return x  # here


@inline
def both(x: i32):  # here
    if x > 0:
        return x


@inline
def differs(x: i32):
    if x > 0:
        return x
    return 1.5  # here


@inline
def broken(x: f32):
    return x + True  # here


@inline
def outer(x: f32):
    return broken(x) * 2.0


# ---- types do not mix


@wrong("`p[0] + n`: f32 + i32: operands must have one type; convert one of them: f32(…) or i32(…)")
def int_and_float(p: ptr[f32], n: i32):
    p[n] = p[0] + n  # here


@wrong("`p[1] * n`: i64 * i32: operands must have one type; convert one of them: i64(…) or i32(…)")
def widths(p: ptr[i64], n: i32):
    p[0] = p[1] * n  # here


@wrong("`a < b`: i32 < u32: operands must have one type; convert one of them: i32(…) or u32(…)")
def signs(a: i32, b: u32) -> boolean:
    return a < b  # here


@wrong(
    "`load(p, lanes=8) * p[0]`: vec[f32, 8] * f32: operands must have one type; splat(x, 8) makes a vector of"
    " the scalar",
)
def scalar_and_vector(p: ptr[f32]):
    v = load(p, lanes=8) * p[0]  # here


@wrong(
    "`load(p, lanes=8) + load(p, lanes=4)`: vec[f32, 8] + vec[f32, 4]: operands must have one type; the vectors"
    " differ in lanes",
)
def lanes_differ(p: ptr[f32]):
    v = load(p, lanes=8) + load(p, lanes=4)  # here


@wrong("`p[1] * 2`: expected f32, got the constant 2; write 2.0")
def int_literal_for_float(p: ptr[f32]):
    p[0] = p[1] * 2  # here


@wrong("`n + 1.0`: expected i32, got the constant 1.0; write 1")
def float_literal_for_int(n: i32) -> i32:
    return n + 1.0  # here


@wrong("`p[0] = 256`: 256 does not fit u8, whose values go from 0 to 255")
def too_large(p: ptr[u8]):
    p[0] = 256  # here


@wrong("`n + -1`: -1 does not fit u32, whose values go from 0 to 4294967295")
def negative_unsigned(n: u32) -> u32:
    return n + -1  # here


@wrong("`p[0] = 1e+39`: 1e+39 does not fit f32, whose greatest value is 3.4028234663852886e+38")
def float_overflow(p: ptr[f32]):
    p[0] = 1e39  # here


@wrong("`f16(70000.0)`: 70000.0 does not fit f16, whose greatest value is 65504.0")
def half_overflow(p: ptr[f16]):
    p[0] = f16(70000.0)  # here


@wrong("`p[1] + p[2]`: f16 + f16: f16 is for storage, it has no arithmetic; convert to f32 first")
def half_arithmetic(p: ptr[f16]):
    p[0] = p[1] + p[2]  # here


@wrong("`p[0] < p[1]`: bf16 < bf16: bf16 is for storage; convert to f32 first")
def half_comparison(p: ptr[bf16]) -> boolean:
    return p[0] < p[1]  # here


@wrong("`f16(n)`: f16(i32): go through f32: f16(f32(x))")
def half_from_int(p: ptr[f16], n: i32):
    p[0] = f16(n)  # here


@wrong("`n + a`: i32 + bool: operands must have one type; a truth value becomes a number by select(x, 1, 0)")
def bool_arithmetic(a: boolean, n: i32) -> i32:
    return n + a  # here


@wrong("`bool(n)`: bool(i32): compare instead: x != 0")
def bool_from_int(n: i32) -> boolean:
    return bool(n)  # here


@wrong("`f32(a)`: f32(bool): choose with select(x, 1.0, 0.0)")
def float_from_bool(a: boolean) -> f32:
    return f32(a)  # here


@wrong("`n`: a condition must be a bool, got i32; compare with != 0")
def condition_is_number(n: i32) -> i32:
    if n:  # here
        return 1
    return 0


@wrong("`load(p, lanes=4) > 0.0`: a condition must be one bool, got vec[bool, 4]; use any_of(…) or all_of(…)")
def condition_is_vector(p: ptr[f32]) -> i32:
    if load(p, lanes=4) > 0.0:  # here
        return 1
    return 0


@wrong("`not n`: `not` takes a bool, got i32; compare with == 0, or use ~ for bits and masks")
def not_of_number(n: i32) -> boolean:
    return not n  # here


@wrong("`a // b`: i32 // i32: division is for unsigned integers; convert, or use >> and & for powers of two")
def signed_division(a: i32, b: i32) -> i32:
    return a // b  # here


@wrong("`a / b`: u32 / u32: integers divide with //, floats with /")
def slash_of_integers(a: u32, b: u32) -> u32:
    return a / b  # here


@wrong("`a % 0`: u32 % 0: division by zero")
def by_zero(a: u32) -> u32:
    return a % 0  # here


@wrong("`a % 2.0`: f32 % f32: floats take + - * / only")
def float_modulo(a: f32) -> f32:
    return a % 2.0  # here


@wrong("`a ** 2.0`: f32 ** the constant 2.0: the operator is not part of the language")
def power(a: f32) -> f32:
    return a**2.0  # here


@wrong("`a & a`: f32 & f32: floats take + - * / only")
def bits_of_float(a: f32) -> f32:
    return a & a  # here


@wrong("`a << 32`: u32 << 32: the count must be 0 to 31")
def shift_too_far(a: u32) -> u32:
    return a << 32  # here


@wrong("`0 < a < 10`: comparisons do not chain here; write `a < b and b < c`")
def chained(a: i32) -> boolean:
    return 0 < a < 10  # here


@wrong("`a in (1, 2)`: `in` is for compile-time values; compare run-time values with == != < <= > >=")
def membership(a: i32) -> boolean:
    return a in (1, 2)  # here


@wrong("`vec[i32, 4](n)`: vec[i32, 4](…): write splat(x, 4) for copies, i32(v) to convert every lane")
def vector_call(n: i32, p: ptr[i32]):
    store(p, vec[i32, 4](n))  # here


@wrong("`u64(p)`: u64(ptr[f32]): there is no such conversion; bitcast and cast keep the bits")
def converts_pointer(p: ptr[f32]) -> u64:
    return u64(p)  # here


@wrong("`i32(a, a)`: i32(x) takes one value, got 2")
def two_values(a: f32) -> i32:
    return i32(a, a)  # here


@wrong("`p + q`: ptr[f32] + ptr[f32]: a pointer takes + and - with an integer; for distances cast both to u64")
def pointer_sum(p: ptr[f32], q: ptr[f32]):
    r = p + q  # here


@wrong("`p - q`: ptr[f32] - ptr[f32]: a pointer takes + and - with an integer; for distances cast both to u64")
def pointer_difference(p: ptr[f32], q: ptr[f32]) -> i64:
    return p - q  # here


@wrong("`p[x] = 0.0`: an index must be an integer, got f32")
def float_index(p: ptr[f32], x: f32):
    p[x] = 0.0  # here


@wrong("`p`: expected ptr[i32], got ptr[f32]; cast(p, ptr[i32]) changes a pointer's type")
def other_pointer(p: ptr[f32]):
    q: ptr[i32] = p  # here


@wrong("`p[0] = 0`: expected ptr[f32], got the constant 0; pointers come from arguments, fields, arrays and cast")
def pointer_from_number(p: ptr[ptr[f32]]):
    p[0] = 0  # here


@wrong("`p[0] = n`: expected f32, got i32; f32(…) converts")
def wrong_store(p: ptr[f32], n: i32):
    p[0] = n  # here


# ---- names and variables


@wrong("`missing`: the name is not defined")
def undefined(p: ptr[f32]):
    p[0] = missing  # here


@wrong("`x`: x is used before it is assigned")
def before_assignment(p: ptr[f32]):
    p[0] = x  # here
    x = p[1]


@wrong("`x`: x is assigned on one side only of the `if` in line N; assign it before, or on both sides")
def one_side(p: ptr[f32], n: i32):
    if n > 0:
        x = p[1]
    p[0] = x  # here


@wrong("`x`: x is f32 and i32 on the sides of the `if` in line N; declare it before: `x: type = …`")
def sides_differ(p: ptr[f32], n: i32):
    if n > 0:
        x = p[1]
    else:
        x = n
    p[0] = x  # here


@wrong(
    "`k`: k is the constant 1 and the constant 2 on the sides of the `if` in line N; declare it before: `k: type = …`",
)
def constants_differ(p: ptr[f32], n: i32):
    if n > 0:
        k = 1
    else:
        k = 2
    p[k] = 0.0  # here


@wrong("`last`: last is first assigned inside the loop of line N, which may not run; assign it before the loop")
def only_in_loop(p: ptr[f32], n: i32):
    for i in range(n):
        last = p[i]
    p[0] = last  # here


@wrong("`i`: i is a loop's variable and unknown after the loop")
def after_the_loop(p: ptr[f32], n: i32):
    for i in range(n):
        p[i] = 0.0
    p[i] = 1.0  # here


@wrong("`x = n`: x is a variable of f32: expected f32, got i32; f32(…) converts")
def type_changes(p: ptr[f32], n: i32):
    x = p[0]
    x = n  # here


@wrong("`x: i32 = n`: x is a variable of f32 already; use another name")
def declared_twice(p: ptr[f32], n: i32):
    x: f32 = p[0]
    x: i32 = n  # here


@wrong("`x: f32`: a variable needs a first value: `x: f32 = …`")
def no_first_value(p: ptr[f32]):
    x: f32  # here


@wrong("`x: float = 1.0`: a declaration needs a type of the language, got float; write f32 or f64")
def no_such_type(p: ptr[f32]):
    x: float = 1.0  # here


@wrong(
    "`total = total + i`: total is a compile-time constant and cannot change in run-time control flow; declare"
    " it as a variable: `total: i32 = 0`",
)
def counts_in_constant(p: ptr[f32], n: i32):
    total = 0
    for i in range(n):
        total = total + i  # here


@wrong(
    "`best = p[n]`: best is a compile-time constant and cannot change in run-time control flow; declare it as a"
    " variable: `best: f32 = 0.0`",
)
def sets_float_constant(p: ptr[f32], n: i32):
    best = 0.0
    while p[n] > 1.0:
        best = p[n]  # here


@wrong("`i += 1`: i is the loop's variable; use another name")
def changes_counter(n: i32):
    for i in range(n):
        i += 1  # here


@wrong("`for i in range(n):`: i is in use; a loop's variable needs a name of its own")
def reused_counter(p: ptr[f32], n: i32):
    i: i32 = 0
    for i in range(n):  # here
        p[i] = 0.0
    i += 1


@wrong("`acc = regs(f32, 2)`: acc names registers and keeps them in run-time control flow; assign its elements")
def registers_in_branch(n: i32):
    acc = regs(f32, 2)
    if n > 0:
        acc = regs(f32, 2)  # here


@wrong("`a, b = load(p, lanes=2)`: 2 names cannot take vec[f32, 2]; only tuples are taken apart")
def unpacks_value(p: ptr[f32]):
    a, b = load(p, lanes=2)  # here


@wrong("`a, b = (p[0], p[1], p[2])`: 2 names cannot take 3 values")
def unpacks_too_few(p: ptr[f32]):
    a, b = p[0], p[1], p[2]  # here


@wrong("`v[0] = 1.0`: lanes of vec[f32, 4] cannot be assigned; insert(v, lane, x) gives a changed vector")
def lane_assignment(p: ptr[f32]):
    v = load(p, lanes=4)
    v[0] = 1.0  # here


@wrong("`p[0] + 1.0`: the value is not used; assign it to a name")
def unused_value(p: ptr[f32]):
    p[0] + 1.0  # here


@wrong(
    "`TABLE`: an object of type ndarray cannot be used in a kernel, which takes numbers, text, tuples, types,"
    " helpers and modules from outside",
)
def outside_array(p: ptr[f32]):
    p[0] = TABLE[0]  # here


@wrong("`plain`: a plain Python function cannot be used in a kernel; mark it with @inline")
def outside_function(p: ptr[f32]):
    p[0] = plain(p[1])  # here


@wrong(
    "`Case`: the class Case cannot be used in a kernel, which takes numbers, text, tuples, types, helpers and"
    " modules from outside",
)
def outside_class(p: ptr[f32]):
    p[0] = Case  # here


@wrong("`for m in MODES:`: a set has no order of its own; use sorted(…)")
def loops_over_set(p: ptr[f32]):
    for m in MODES:  # here
        p[m] = 0.0


@wrong("`WORDS_OF['b']`: there is no key 'b'")
def missing_key(p: ptr[f32]):
    p[WORDS_OF["b"]] = 0.0  # here


@wrong("`Mode.SLOW`: Mode has no attribute SLOW")
def missing_attribute(p: ptr[f32]):
    p[Mode.SLOW.value] = 0.0  # here


# ---- Python that is not part of the language


@wrong("`lambda x: x`: lambda is not part of the kernel language")
def lambdas(p: ptr[f32]):
    f = lambda x: x  # here


@wrong("`{'a': 1}`: a dict is not part of the kernel language")
def dicts(p: ptr[f32]):
    d = {"a": 1}  # here


@wrong("`(y := p[1])`: `:=` is not part of the kernel language")
def walrus(p: ptr[f32]):
    p[0] = (y := p[1])  # here


@wrong("`1:2`: a slice is not part of the kernel language")
def slices(p: ptr[f32]):
    q = p[1:2]  # here


@wrong("`fma(*(p[1], p[2], p[3]))`: calls with * or ** are not part of the kernel language")
def stars(p: ptr[f32]):
    p[0] = fma(*(p[1], p[2], p[3]))  # here


@wrong("`b'x'`: bytes constants are not part of the kernel language")
def strings(p: ptr[f32]):
    p[0] = b"x"  # here


@wrong("`(yield p[0])`: yield is not part of the kernel language")
def yields(p: ptr[f32]):
    yield p[0]  # here


@wrong(
    "`assert n > 0`: `assert` is not part of the kernel language; static_assert(condition, message) checks at"
    " compile time",
)
def asserts(n: i32):
    assert n > 0  # here


@wrong("`try:`: `try` is not part of the kernel language")
def tries(p: ptr[f32]):
    try:  # here
        p[0] = 1.0
    except ValueError:
        pass


@wrong("`with p:`: `with` is not part of the kernel language")
def withs(p: ptr[f32]):
    with p:  # here
        pass


@wrong("`raise ValueError`: `raise` is not part of the kernel language")
def raises(p: ptr[f32]):
    raise ValueError  # here


@wrong("`del p`: `del` is not part of the kernel language")
def deletes(p: ptr[f32]):
    del p  # here


@wrong("`import math`: `import` is not part of the kernel language")
def imports(p: ptr[f32]):
    import math  # here


@wrong("`global TABLE`: `global` is not part of the kernel language")
def globals_(p: ptr[f32]):
    global TABLE  # here


@wrong("`def g():`: a function inside a kernel (`def`) is not part of the kernel language")
def functions(p: ptr[f32]):
    def g():  # here
        pass


@wrong("`class C:`: `class` is not part of the kernel language")
def classes(p: ptr[f32]):
    class C:  # here
        pass


@wrong("`match n:`: `match` is not part of the kernel language")
def matches(n: i32):
    match n:  # here
        case 1:
            pass


@wrong("`for i in range(n):`: `else` of a loop is not part of the kernel language")
def loop_else(n: i32):
    for i in range(n):  # here
        pass
    else:
        pass


@wrong("`p[1] @ p[2]`: f32 @ f32: the operator is not part of the language")
def matrix_product(p: ptr[f32]):
    p[0] = p[1] @ p[2]  # here


@wrong("`print`: Python's print is not part of the kernel language")
def prints(p: ptr[f32]):
    print(p[0])  # here


@wrong("`min(a, b)`: min and max are for compile-time values; at run time use minimum(a, b) and maximum(a, b)")
def python_min(a: i32, b: i32) -> i32:
    return min(a, b)  # here


@wrong("`abs(a)`: abs is for compile-time values; at run time use absolute(x)")
def python_abs(a: i32) -> i32:
    return abs(a)  # here


@wrong("`int(a)`: convert with a type of the language: i32(…)")
def python_int(a: f32) -> i32:
    return int(a)  # here


@wrong("`a, *b = (p[0], p[1], p[2])`: 2 names cannot take 3 values")
def starred_assignment(p: ptr[f32]):
    a, *b = p[0], p[1], p[2]  # here


# ---- loops


@wrong("`for i in unroll(10 ** 9):`: unroll gives more than 65536 items at compile time")
def endless_unroll(p: ptr[f32]):
    for i in unroll(10**9):  # here
        p[i] = 0.0


@wrong(
    "`for i in unroll(n):`: unroll takes 1 to 3 compile-time integers, as range does, or a compile-time tuple; got i32",
)
def run_time_unroll(p: ptr[f32], n: i32):
    for i in unroll(n):  # here
        p[i] = 0.0


@wrong("`for i in range(0, n, n):`: the step of range must be a compile-time integer other than 0, got i32")
def run_time_step(p: ptr[f32], n: i32):
    for i in range(0, n, n):  # here
        p[i] = 0.0


@wrong(
    "`for i in range(0, n, 0):`: the step of range must be a compile-time integer other than 0, got the constant 0",
)
def zero_step(p: ptr[f32], n: i32):
    for i in range(0, n, 0):  # here
        p[i] = 0.0


@wrong("`for i in range(n, m):`: the bounds of range have types i32 and i64; convert one of them")
def mixed_bounds(p: ptr[f32], n: i32, m: i64):
    for i in range(n, m):  # here
        p[i] = 0.0


@wrong("`for i in range(x):`: range counts integers, got f32")
def float_bounds(p: ptr[f32], x: f32):
    for i in range(x):  # here
        p[i] = 0.0


@wrong("`for x in p:`: what an unrolled loop goes over must be a compile-time tuple or range, got ptr[f32]")
def over_pointer(p: ptr[f32]):
    for x in p:  # here
        pass


@wrong("`break`: `break` belongs in a run-time loop; an unrolled loop has none to leave")
def break_of_unrolled(p: ptr[f32]):
    for i in unroll(4):
        if p[i] > 0.0:
            break  # here


@wrong("`acc[n] = 0.0`: registers are numbered at compile time, got i32; loop with unroll(…)")
def run_time_register(p: ptr[f32], n: i32):
    acc = regs(f32, 4)
    acc[n] = 0.0  # here


@wrong("`acc[4]`: regs(f32, 4) has numbers 0 to 3, not 4")
def far_register(p: ptr[f32]):
    acc = regs(f32, 4)
    p[0] = acc[4]  # here


# ---- words


@wrong("`sqrt(p[1], p[2])`: sqrt takes 1 argument by position, got 2: sqrt(x)")
def too_many_arguments(p: ptr[f32]):
    p[0] = sqrt(p[1], p[2])  # here


@wrong("`fma(p[1], p[2])`: fma needs the argument c: fma(a, b, c)")
def too_few_arguments(p: ptr[f32]):
    p[0] = fma(p[1], p[2])  # here


@wrong(
    "`load(p, 0, width=4)`: load has no argument width: load(p, index=0, *, lanes=1, align=None, nontemporal=False)",
)
def unknown_argument(p: ptr[f32]):
    v = load(p, 0, width=4)  # here


@wrong(
    "`load(p, 0, index=4)`: load got two values for index: load(p, index=0, *, lanes=1, align=None, nontemporal=False)",
)
def twice_given(p: ptr[f32]):
    v = load(p, 0, index=4)  # here


@wrong("`load(p, align=24)`: align must be a power of two up to 4096, got 24")
def odd_alignment(p: ptr[f32]):
    v = load(p, align=24)  # here


@wrong("`load(p, lanes=1000)`: lanes must be 1 to 256, got 1000")
def many_lanes(p: ptr[f32]):
    v = load(p, lanes=1000)  # here


@wrong("`load(p, lanes=n)`: lanes must be a compile-time int, got i32")
def run_time_lanes(p: ptr[f32], n: i32):
    v = load(p, lanes=n)  # here


@wrong("`load(p)`: the address must be a pointer to numbers or pointers, got ptr[Pair]")
def struct_load(p: ptr[Pair]):
    v = load(p)  # here


@wrong("`p.third = 1.0`: struct Pair has no field third; it has first, second")
def missing_field(p: ptr[Pair]):
    p.third = 1.0  # here


@wrong("`x.first`: f32 has no field first; fields belong to pointers to structs")
def field_of_number(x: f32) -> f32:
    return x.first  # here


@wrong("`p[0] = p[1]`: elements of ptr[Pair] cannot be assigned; assign their fields")
def struct_assignment(p: ptr[Pair]):
    p[0] = p[1]  # here


@wrong("`sqrt(n)`: the argument of sqrt must be of f32 or f64, got i32; convert with f32(…)")
def sqrt_of_int(n: i32) -> i32:
    return sqrt(n)  # here


@wrong("`fma(y, x, y)`: the arguments of fma must have one type, got f64 and f32")
def fma_mixed(x: f32, y: f64) -> f64:
    return fma(y, x, y)  # here


@wrong("`maximum(p[1], p[2])`: maximum is not defined for f16; convert to f32 first")
def max_of_halves(p: ptr[f16]):
    p[0] = maximum(p[1], p[2])  # here


@wrong(
    "`reduce_add(load(p, lanes=3))`: the order is pairwise by halves, so lanes must be a power of two; vec[f32,"
    " 3] has 3",
)
def sum_of_three(p: ptr[f32]) -> f32:
    return reduce_add(load(p, lanes=3))  # here


@wrong("`reduce_add(p[0])`: the argument of reduce_add must be a vector, got f32")
def reduce_scalar(p: ptr[f32]) -> f32:
    return reduce_add(p[0])  # here


@wrong("`load(p, lanes=4)[4]`: vec[f32, 4] has lanes 0 to 3, not 4")
def far_lane(p: ptr[f32]) -> f32:
    return load(p, lanes=4)[4]  # here


@wrong("`shuffle(load(p, lanes=4), (0, 5))`: indices must be numbers from 0 to 3")
def far_shuffle(p: ptr[f32]):
    v = shuffle(load(p, lanes=4), (0, 5))  # here


@wrong(
    "`select(v > 0.0, 1.0, 2.0)`: the constant 1.0 or the constant 2.0: one of them must be a run-time value;"
    " give it a type: f32(…)",
)
def select_lanes(p: ptr[f32]):
    v = load(p, lanes=4)
    w = select(v > 0.0, 1.0, 2.0)  # here


@wrong("`bitcast(x, u32)`: bitcast from f64 to u32: 8 bytes are not 4")
def sizes_differ(x: f64) -> u32:
    return bitcast(x, u32)  # here


@wrong("`cast(x, u64)`: cast is between pointers, or a pointer and u64, not from f32 to u64")
def cast_number(x: f32) -> u64:
    return cast(x, u64)  # here


@wrong("`iota(i8, 200)`: iota of 200 lanes does not fit i8, whose values end at 127")
def large_iota(p: ptr[i8]):
    store(p, iota(i8, 200))  # here


@wrong("`atomic_add(p, 1)`: atomics work on integers of 32 or 64 bits, not on u8")
def small_atomic(p: ptr[u8]) -> u8:
    return atomic_add(p, 1)  # here


@wrong(
    "`atomic_load(p, order='release')`: order 'release' is not possible here; it is one of relaxed, acquire, seq_cst",
)
def wrong_order(p: ptr[i32]) -> i32:
    return atomic_load(p, order="release")  # here


@wrong(
    "`dot4(load(r, lanes=4), load(p, lanes=8), load(q, lanes=8))`: a sum of vec[i32, 4] takes 16 lanes of u8 or"
    " i8, got vec[u8, 8]",
)
def short_dot(p: ptr[u8], q: ptr[i8], r: ptr[i32]):
    store(r, dot4(load(r, lanes=4), load(p, lanes=8), load(q, lanes=8)))  # here


@wrong(
    "`dot4(load(r, lanes=4), load(p, lanes=16), load(p, lanes=16))`: a sum of vec[i32, 4] takes 16 lanes of i8,"
    " got vec[u8, 16]",
)
def unsigned_right(p: ptr[u8], r: ptr[i32]):
    store(r, dot4(load(r, lanes=4), load(p, lanes=16), load(p, lanes=16)))  # here


@wrong(
    "`add_pairs(load(r, lanes=4), load(p, lanes=8), load(p, lanes=4))`: add_pairs takes i32 lanes and twice as many of"
    " i16, got vec[i32, 4] and vec[i16, 4]"
)
def few_factors(p: ptr[i16], r: ptr[i32]):
    store(r, add_pairs(load(r, lanes=4), load(p, lanes=8), load(p, lanes=4)))  # here


@wrong(
    "`signed_like(load(p, lanes=16), load(q, lanes=16))`: signed_like takes two values of i8 with equal lanes, got"
    " vec[i8, 16] and vec[u8, 16]"
)
def unsigned_signs(p: ptr[i8], q: ptr[u8]):
    store(p, signed_like(load(p, lanes=16), load(q, lanes=16)))  # here


@wrong("`lookup16(i32, (0,) * 16, load(p, lanes=16))`: the entries of lookup16 are u8 or i8, got the type i32")
def wide_entries(p: ptr[u8], r: ptr[i32]):
    store(r, lookup16(i32, (0,) * 16, load(p, lanes=16)))  # here


@wrong(
    "`lookup16(i8, (0,) * 15, load(p, lanes=16))`: the table must be a compile-time tuple of 16 integers, or lanes,"
    " got a tuple of 15"
)
def short_table(p: ptr[u8], q: ptr[i8]):
    store(q, lookup16(i8, (0,) * 15, load(p, lanes=16)))  # here


@wrong(
    "`lookup16(i8, load(q, lanes=8), load(p, lanes=8))`: a table of lanes has i8 for each index, 16 or more, got"
    " vec[i8, 8] for 8 indices"
)
def half_a_table(p: ptr[u8], q: ptr[i8]):
    store(q, lookup16(i8, load(q, lanes=8), load(p, lanes=8)))  # here


@wrong(
    "`lookup16(i8, load(q, lanes=16), load(p, lanes=16))`: a GPU has no lookup in lanes; the table must be a"
    " compile-time tuple",
    target="gfx1201",
)
def lanes_on_a_gpu(p: ptr[u8], q: ptr[i8]):
    store(q, lookup16(i8, load(q, lanes=16), load(p, lanes=16)))  # here


@wrong("`lookup16(i8, (128,) * 16, load(p, lanes=16))`: the table's integers must be -128 to 127, as i8 has them")
def large_entries(p: ptr[u8], q: ptr[i8]):
    store(q, lookup16(i8, (128,) * 16, load(p, lanes=16)))  # here


@wrong("`lookup16(i8, (1,) * 16, load(q, lanes=16))`: the indices must be a vector of u8, got vec[i8, 16]")
def signed_indices(q: ptr[i8]):
    store(q, lookup16(i8, (1,) * 16, load(q, lanes=16)))  # here


@wrong(
    "`lookup16(i8, (1,) * 16, load(p, lanes=6))`: a GPU looks up whole words of 4 indices, got vec[u8, 6]",
    target="gfx1201",
)
def part_of_a_word(p: ptr[u8], q: ptr[i8]):
    store(q, lookup16(i8, (1,) * 16, load(p, lanes=6)))  # here


@wrong("`table(u8, (1, 256))`: the table's integers must be 0 to 255, as u8 has them")
def large_in_table(p: ptr[u8]):
    p[0] = gather(table(u8, (1, 256)), p[1])  # here


@wrong("`table(f32, (1, 2))`: a table holds integers, not f32")
def table_of_floats(p: ptr[f32]):
    p[0] = gather(table(f32, (1, 2)), 1)  # here


@wrong("`table(u8, ())`: the values must be a compile-time tuple of integers, got a tuple of 0")
def empty_table(p: ptr[u8]):
    p[0] = gather(table(u8, ()), p[1])  # here


@wrong("`gather(p, load(q, lanes=4))`: the indices must be of integers, got vec[f32, 4]")
def gather_at_floats(p: ptr[u8], q: ptr[f32]):
    store(p, gather(p, load(q, lanes=4)))  # here


@wrong("`gather(p, load(q, lanes=4))`: a GPU gathers from tables; its lanes load for themselves", target="gfx1201")
def gather_on_a_gpu(p: ptr[u8], q: ptr[u8]):
    store(p, gather(p, load(q, lanes=4)))  # here


@wrong("`array(f32, 1 << 20)`: the count must be 1 to 262144, got 1048576")
def large_array(p: ptr[f32]):
    a = array(f32, 1 << 20)  # here


@wrong(
    "`target_has('avx3')`: no target has an instruction set 'avx3'; there are amx, avx2, avx512, avxvnni, dot4,"
    " dotprod, f16c, fma, i8mm, mma, neon, resident, small_groups, vbmi, vnni, wave32, wmma",
)
def unknown_feature(p: ptr[f32]):
    if target_has("avx3"):  # here
        p[0] = 1.0


@wrong("`static_assert(N % 2 == 0, f'N must be even, got {N}')`: N must be even, got 3", N=3)
def asserted(p: ptr[f32], N: int):
    static_assert(N % 2 == 0, f"N must be even, got {N}")  # here


@wrong("`p[0] = sqrt`: expected f32, got the word sqrt")
def word_as_value(p: ptr[f32]):
    p[0] = sqrt  # here


@wrong("`store(p, 1.0)`: ptr[f32, Space.CONSTANT]: nothing is written there while the kernel runs")
def writes_constant_memory(p: ptr[f32, Space.CONSTANT]):
    store(p, 1.0)  # here


@wrong("`p[0] = 1.0`: ptr[f32, Space.CONSTANT]: nothing is written there while the kernel runs")
def assigns_constant_memory(p: ptr[f32, Space.CONSTANT]):
    p[0] = 1.0  # here


# ---- compile time


@wrong("`1 // 0`: arithmetic failed at compile time:")
def static_zero(p: ptr[f32]):
    p[1 // 0] = 0.0  # here


@wrong("`(1, 2)[2]`: indexing failed at compile time:")
def static_index(p: ptr[f32]):
    p[(1, 2)[2]] = 0.0  # here


@wrong("`'a' + 1`: arithmetic failed at compile time:")
def static_mix(p: ptr[f32]):
    p["a" + 1] = 0.0  # here


@wrong("`'a' < 1`: a comparison failed at compile time:")
def static_compare(p: ptr[f32]):
    if "a" < 1:  # here
        p[0] = 0.0


@wrong("`-'a'`: arithmetic failed at compile time:")
def static_negative(p: ptr[f32]):
    p[-"a"] = 0.0  # here


@wrong("`1 << 100000`: compile-time arithmetic gives an integer of more than 4096 bits")
def huge_shift(p: ptr[f32]):
    p[1 << 100000] = 0.0  # here


@wrong("`9 ** 9 ** 9`: compile-time arithmetic gives an integer of more than 4096 bits")
def huge_power(p: ptr[f32]):
    p[9**9**9] = 0.0  # here


@wrong("`(0,) * 10 ** 9`: compile-time arithmetic gives more than 65536 items")
def huge_tuple(p: ptr[f32]):
    p[len((0,) * 10**9)] = 0.0  # here


@wrong("`p[1 << 64] = 0.0`: an index must fit i64")
def huge_index(p: ptr[f32]):
    p[1 << 64] = 0.0  # here


@wrong("`p[0]`: what a text is made of must be known at compile time, got f32")
def text_of_value(p: ptr[f32]):
    static_assert(False, f"{p[0]}")  # here


@wrong("`range(n)`: range with run-time bounds belongs in `for name in range(…)`")
def comprehension_of_values(p: ptr[f32], n: i32):
    t = tuple(p[i] for i in range(n))  # here


@wrong(
    "`[i * j for i in range(2) for j in range(2)]`: a comprehension has one `for` with one name, over"
    " compile-time values",
)
def two_fors(p: ptr[f32]):
    t = [i * j for i in range(2) for j in range(2)]  # here


@wrong("`'x'.upperr`: the constant 'x' has no attribute upperr")
def no_method(p: ptr[f32]):
    p["x".upperr()] = 0.0  # here


@wrong("`WORDS_OF.clear`: a compile-time dict.clear cannot be called in a kernel; helpers need @inline")
def mutates(p: ptr[f32]):
    WORDS_OF.clear()  # here


@wrong("`WORDS_OF('x')`: a compile-time dict cannot be called in a kernel; helpers need @inline")
def calls_dict(p: ptr[f32]):
    p[0] = WORDS_OF("x")  # here


@wrong("`f32(2 ** 70 + 1)`: 1180591620717411303425 is no float64; write the float that you mean")
def large_int(p: ptr[f32]):
    p[0] = f32(2**70 + 1)  # here


@wrong("`p[0] = None`: expected f32, got the constant None")
def integer_for_none(p: ptr[f32]):
    p[0] = None  # here


# ---- helpers and kernels


@wrong("`half(n)`: half: x: expected f32, got i32; f32(…) converts")
def helper_type(n: i32) -> f32:
    return half(n)  # here


@wrong("`half(x, x)`: half takes 1 argument by position, got 2: half(x)")
def helper_arguments(x: f32) -> f32:
    return half(x, x)  # here


@wrong("`first_of(load(p, lanes=4), n)`: first_of: W must be known at compile time, got i32")
def helper_constant(p: ptr[f32], n: i32) -> f32:
    return first_of(load(p, lanes=4), n)  # here


@wrong("`p[0] = n`: expected f32, got i32; f32(…) converts")
def in_another_kernel(p: ptr[f32]):
    wrong_store(p, 1)


@wrong("`x + True`: expected f32, got the constant True; write a float")
def deep(x: f32) -> f32:
    return outer(x)


@wrong("`forever(x)`: forever calls itself; recursion is not part of the kernel language, loop instead")
def recursive(x: f32) -> f32:
    return forever(x)  # here


@wrong("`ping(x)`: ping calls itself; recursion is not part of the kernel language, loop instead")
def mutual(x: f32) -> f32:
    return ping(x)


@wrong("`def both(x: i32):`: both ends without a value, elsewhere it returns one")
def falls_off(n: i32) -> i32:
    return both(n)


@wrong("`return 1.5`: expected i32, got the constant 1.5; write an integer")
def returns_differ(n: i32) -> i32:
    return differs(n)


@wrong("`p`: a kernel's parameter needs a type: of the language, or int, float, bool, str, …")
def no_annotation(p):  # here
    pass


@wrong(
    "`Case`: the class Case cannot be used in a kernel, which takes numbers, text, tuples, types, helpers and"
    " modules from outside",
)
def unknown_annotation(p: ptr[Case]):  # here
    pass


@wrong("`int`: a kernel returns a type of the language or nothing; write i32, f32, …")
def python_return(n: i32) -> int:  # here
    return n


@wrong("missing_constant: the constant N: int is not given")
def missing_constant(p: ptr[f32], N: int):  # here
    pass


@wrong("other_constant: the constant N must be of type int, got the constant 2.0", N=2.0)
def other_constant(p: ptr[f32], N: int):  # here
    pass


@wrong("other_record: the constant S must be of type Lengths, got a tuple of 2", S=(1, 2))
def other_record(p: ptr[f32], S: Lengths):  # here
    pass


@wrong("unknown_constant: there is no constant M; the kernel's constants: none", M=2)
def unknown_constant(p: ptr[f32]):  # here
    pass


@wrong("any_arguments: a kernel cannot take *rest; name every parameter")
def any_arguments(p: ptr[f32], *rest):  # here
    pass


@wrong(
    "`v: vec[f32, 4]`: a kernel's arguments are integers, f32, f64, bool and pointers, not vec[f32, 4]; pass a pointer",
)
def vector_argument(v: vec[f32, 4]):  # here
    pass


@wrong("`x: f16`: a kernel's arguments are integers, f32, f64, bool and pointers, not f16; pass a pointer")
def half_argument(x: f16):  # here
    pass


@wrong(
    "`def vector_result(p: ptr[f32]) -> vec[f32, 4]:`: a kernel cannot return vec[f32, 4]; write results through"
    " a pointer",
)
def vector_result(p: ptr[f32]) -> vec[f32, 4]:  # here
    return load(p, lanes=4)


@wrong("undeclared_result: it returns a value but declares none; write `-> type`")
def undeclared_result(n: i32):  # here
    return n


@wrong("`def missing_result(n: i32) -> i32:`: missing_result ends without a value, elsewhere it returns one")
def missing_result(n: i32) -> i32:  # here
    if n > 0:
        return 1


@wrong("`return n`: expected f32, got i32; f32(…) converts")
def wrong_result(n: i32) -> f32:
    return n  # here


@wrong("`return`: expected i32, got nothing")
def empty_return(n: i32) -> i32:
    return  # here


@wrong("`vec[f32, 500]`: vec[f32, 500]: a vector is vec[scalar type, lanes] with 1 to 256 lanes")
def large_vector(p: ptr[f32]):
    v: vec[f32, 500] = 0.0  # here


@wrong("`ptr[boolean]`: ptr[bool]: a pointer is ptr[type] or ptr[type, Space.…], to numbers, structs or pointers")
def bool_pointer(p: ptr[boolean]):  # here
    pass


# ---- targets


@wrong("`lane_id()`: lane_id belongs to GPU targets, not to avx2")
def lane_on_cpu(p: ptr[u32]):
    p[0] = lane_id()  # here


@wrong("`schedule_barrier()`: schedule_barrier belongs to GPU targets, not to avx2")
def schedule_on_cpu(p: ptr[u32]):
    schedule_barrier()  # here


@wrong("`shared(u32, 4)`: shared memory belongs to GPU targets, not to avx2")
def shared_on_cpu(p: ptr[u32]):
    s = shared(u32, 4)  # here


@wrong(
    "`def result_on_gpu(n: i32) -> i32:`: a GPU kernel returns nothing; write results through a pointer",
    target="gfx1201",
)
def result_on_gpu(n: i32) -> i32:  # here
    return n


@wrong("`call(f, None)`: calls by address belong to CPU targets", target="gfx1201")
def call_on_gpu(f: u64):
    call(f, None)  # here


@wrong(
    "`wmma_iu8(acc, load(x, lanes=2), load(x, lanes=2))`: wmma_iu8 is for gfx12; gfx1100 has another shape of it",
    target="gfx1100",
)
def wmma_on_gfx11(x: ptr[i32]):
    acc = zeros(vec[i32, 8])
    out = wmma_iu8(acc, load(x, lanes=2), load(x, lanes=2))  # here


@wrong(
    "`wmma_iu8(acc, load(x, lanes=2), load(x, lanes=2))`: wmma_iu8 is an instruction of gfx12, which TARGET does not have",
    target=DRIVERS,
)
def wmma_on_drivers(x: ptr[i32]):
    acc = zeros(vec[i32, 8])
    out = wmma_iu8(acc, load(x, lanes=2), load(x, lanes=2))  # here


@wrong("`cycle_counter()`: cycle_counter belongs to CPU targets", target=DRIVERS)
def cycles_on_drivers(p: ptr[i64]):
    p[0] = cycle_counter()  # here


@wrong("`call(f, None)`: calls by address belong to CPU targets", target=DRIVERS)
def call_on_drivers(f: u64):
    call(f, None)  # here


@wrong("`tile_zero(0)`: tile_zero needs the instruction set amx, which the target TARGET does not have", target=DRIVERS)
def tiles_on_drivers(p: ptr[i64]):
    tile_zero(0)  # here


@wrong("`part_traits(0)`: part_traits belongs to resident programs", target=DRIVERS)
def parts_on_drivers(p: ptr[i64]):
    a, b, c = part_traits(0)  # here


@wrong("`shared(f32, 16)`: the kernel shares 49216 bytes, a workgroup has 49152", target="ptx")
def much_shared_on_ptx(p: ptr[f32]):
    a = shared(f32, 12288)
    b = shared(f32, 16)  # here


@wrong(
    "many_registers: its arguments take 17 scalar registers, the hardware passes 16; put them into a struct and"
    " pass one pointer, ptr[…, Space.CONSTANT]",
    target="gfx1201",
)
def many_registers(  # here
    a: ptr[f32], b: ptr[f32], c: ptr[f32], d: ptr[f32], e: ptr[f32], f: ptr[f32], g: ptr[f32], h: ptr[f32], n: i32
):
    pass


@wrong("`shared(f32, 12000)`: the kernel shares 96000 bytes, a workgroup has 65536", target="gfx1201")
def much_shared(p: ptr[f32]):
    a = shared(f32, 12000)
    b = shared(f32, 12000)  # here


@wrong(
    "`shared(f32, 4)`: expected ptr[f32], got ptr[f32, Space.SHARED]; they lie in different memories",
    target="gfx1201",
)
def memory_spaces(p: ptr[f32]):
    q: ptr[f32] = shared(f32, 4)  # here


@wrong(
    "`cast(shared(f32, 4), ptr[f32])`: ptr[f32, Space.SHARED] and ptr[f32] lie in different memories",
    target="gfx1201",
)
def cast_of_shared(p: ptr[f32]):
    q = cast(shared(f32, 4), ptr[f32])  # here


@wrong(
    "`p: ptr[f32, Space.SHARED]`: ptr[f32, Space.SHARED]: only pointers to GLOBAL and CONSTANT memory come from"
    " outside",
    target="gfx1201",
)
def shared_argument(p: ptr[f32, Space.SHARED]):  # here
    pass


@wrong("`wave_shuffle_xor(p[0], 3)`: the distance must be 1, 2, 4, 8 or 16, got 3", target="gfx1201")
def far_shuffle_of_waves(p: ptr[f32]):
    p[0] = wave_shuffle_xor(p[0], 3)  # here


@wrong("`wave_shuffle_xor(p[0], 1)`: wave_shuffle_xor takes a 32-bit scalar, got f64", target="gfx1201")
def wide_shuffle_of_waves(p: ptr[f64]):
    p[0] = wave_shuffle_xor(p[0], 1)  # here


@wrong(
    "`wmma_iu8(load(p, lanes=8), load(p, lanes=4), load(p, lanes=4))`: wmma_iu8 takes vec[i32, 8], vec[i32, 2],"
    " vec[i32, 2], got vec[i32, 8], vec[i32, 4], vec[i32, 4]",
    target="gfx1201",
)
def matrix_types(p: ptr[i32]):
    store(p, wmma_iu8(load(p, lanes=8), load(p, lanes=4), load(p, lanes=4)))  # here


@wrong(
    "`mma_s8(acc, load(x, lanes=4), load(x, lanes=2))`: mma_s8 is an instruction of NVIDIA's GPUs, which gfx1201 does"
    " not have",
    target="gfx1201",
)
def mma_on_amd(x: ptr[i32]):
    acc = zeros(vec[i32, 4])
    out = mma_s8(acc, load(x, lanes=4), load(x, lanes=2))  # here


@wrong(
    "`mma_s8(load(x, lanes=4), load(x, lanes=4), x[0])`: mma_s8 takes vec[i32, 4], vec[i32, 4], vec[i32, 2], or for 16"
    " columns vec[i32, 4], vec[i32, 2], i32, got vec[i32, 4], vec[i32, 4], i32",
    target="ptx80",
)
def columns_of_mma(x: ptr[i32]):
    store(x, mma_s8(load(x, lanes=4), load(x, lanes=4), x[0]))  # here


@wrong("`workgroup_id(3)`: the axis must be 0, 1 or 2, got 3", target="gfx1201")
def fourth_axis(p: ptr[u32]):
    p[0] = workgroup_id(3)  # here

"""The built-in functions of the kernel language, declared with their documentation; `lower/` lowers them.

They work inside kernels only; calling one from ordinary Python raises `LangError`. "Vector" below stands for
a scalar as well where a single lane makes sense. Arguments that must be known at compile time are marked *static*. The
docstrings are the reference (docs/how/lang_reference.md).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, NoReturn

from zinc_rt.lang.errors import LangError
from zinc_rt.lang.signature import Signature


class Word:
    """A built-in function of the language."""

    def __init__(self, fn: Callable[..., Any]) -> None:
        self.name = fn.__name__
        self.__doc__ = fn.__doc__
        self._fn = fn

    @functools.cached_property
    def signature(self) -> Signature:
        """The parameters of the function."""
        return Signature.of(self._fn)

    def __call__(self, *_: object, **__: object) -> NoReturn:
        raise LangError(f"{self.name} is a function of the kernel language; it works inside kernels only")

    def __repr__(self) -> str:
        return f"<kernel word {self.signature}>"


# -- control and compile time ---------------------------------------------------------------------------------------


@Word
def unroll(start: Any, stop: Any = None, step: Any = 1) -> Any:
    """`for i in unroll(n)`: like `range`, with a compile-time `i`; the body is written out once for each value.

    Also goes over a compile-time tuple: `for M in unroll((8, 4, 2, 1))`.
    """


@Word
def static_assert(condition: Any, message: Any = "static_assert failed") -> Any:
    """Refuse to compile when a compile-time condition is false. The message is evaluated then alone."""


@Word
def target_has(feature: Any) -> Any:
    """Whether the target has an instruction set ("avx512", "vnni", "amx", "dotprod", …; static), as a static bool.

    A name that no target has is refused.
    """


@Word
def lanes(x: Any) -> Any:
    """Lanes of a vector, static."""


# -- memory ---------------------------------------------------------------------------------------------------------


@Word
def load(p: Any, index: Any = 0, *, lanes: Any = 1, align: Any = None, nontemporal: Any = False) -> Any:
    """Element `p[index]`, or the vector of `lanes` (static) elements from there.

    align (static): bytes that the address is a multiple of, by the caller's promise; the element's size by default.
    nontemporal (static): a hint that the line is not needed again. Loads from `Space.CONSTANT` may move or be dropped.
    """


@Word
def store(p: Any, value: Any, index: Any = 0, *, align: Any = None, nontemporal: Any = False) -> Any:
    """Write a scalar or vector at `p[index]`; see `load`.

    A non-temporal store must be aligned to its whole size, and others see it in order only after `fence()` or an atomic
    read-modify-write.
    """


@Word
def prefetch(p: Any, index: Any = 0, *, locality: Any = 3, write: Any = False) -> Any:
    """Ask for the cache line of `p[index]`. locality: 3 all levels … 0 non-temporal; static. Never faults."""


@Word
def cast(p: Any, type: Any) -> Any:
    """A pointer as a pointer to another type, or to and from u64. GLOBAL and CONSTANT are one memory."""


@Word
def array(type: Any, n: Any, *, zero: Any = True) -> Any:
    """`n` (static) elements on the stack, zero at first and at every turn of a loop around, as a pointer aligned to 64.

    Up to 1 MiB. zero=False (static) leaves the elements as they are: arbitrary until written. Use it for scratch
    memory. On a GPU it is slow scratch memory (`Space.PRIVATE`) unless every index is static: prefer `regs`.
    """


@Word
def shared(type: Any, n: Any) -> Any:
    """`n` (static) elements that a workgroup shares (LDS), as `ptr[type, Space.SHARED]`. GPU only.

    The contents are arbitrary until written. A kernel may have up to 64 KiB in all.
    """


@Word
def table(type: Any, values: Any) -> Any:
    """A static tuple of integers as memory that nobody writes: `ptr[type, Space.CONSTANT]`, aligned to 64 bytes."""


@Word
def gather(p: Any, indices: Any) -> Any:
    """The vector of `p[indices[i]]`; for a single index the element."""


@Word
def regs(type: Any, n: Any) -> Any:
    """`n` (static) variables of one type, zero at first, indexed by static numbers: `acc[i] += x`.

    Helpers that get them assign to the caller's.
    """


# -- vectors --------------------------------------------------------------------------------------------------------


@Word
def splat(x: Any, lanes: Any) -> Any:
    """A vector of `lanes` (static) copies of a scalar."""


@Word
def zeros(type: Any) -> Any:
    """The zero of a scalar or vector type."""


@Word
def iota(type: Any, lanes: Any) -> Any:
    """The vector 0, 1, 2, … of a scalar type."""


@Word
def shuffle(a: Any, b: Any, indices: Any = None) -> Any:
    """`shuffle(a, indices)` or `shuffle(a, b, indices)`: lanes picked by a static tuple; b's count on after a's."""


@Word
def insert(v: Any, lane: Any, x: Any) -> Any:
    """The vector with one lane replaced. Reading a lane is `v[lane]`. At run time numbers count modulo the lanes."""


@Word
def concat(a: Any, b: Any) -> Any:
    """The lanes of `a`, then those of `b`; of two scalars, the vector of both."""


@Word
def low(v: Any) -> Any:
    """The first half of a vector."""


@Word
def high(v: Any) -> Any:
    """The second half of a vector."""


@Word
def select(condition: Any, a: Any, b: Any) -> Any:
    """`a` where the condition holds, else `b`; both are evaluated."""


@Word
def bitcast(x: Any, type: Any) -> Any:
    """The same bits as another type of the same size; a bool vector of n lanes as an integer of n bits, and back.

    Lane 0 is the lowest.
    """


@Word
def reduce_add(v: Any) -> Any:
    """Sum of the lanes: pairwise at distance n/2, n/4, …, 1, each addition rounded once. Lanes: a power of two."""


@Word
def reduce_max(v: Any) -> Any:
    """The greatest lane; NaN if any lane is NaN."""


@Word
def reduce_min(v: Any) -> Any:
    """The least lane; NaN if any lane is NaN."""


@Word
def reduce_or(v: Any) -> Any:
    """Bitwise or of integer lanes."""


@Word
def any_of(mask: Any) -> Any:
    """Whether any lane of a bool vector holds."""


@Word
def all_of(mask: Any) -> Any:
    """Whether every lane of a bool vector holds."""


# -- arithmetic -----------------------------------------------------------------------------------------------------


@Word
def fma(a: Any, b: Any, c: Any) -> Any:
    """a * b + c, rounded once. The only place where a product and a sum are contracted."""


@Word
def sqrt(x: Any) -> Any:
    """Square root, correctly rounded."""


@Word
def absolute(x: Any) -> Any:
    """|x|; for floats the sign bit is cleared, the least integer stays what it is."""


@Word
def maximum(a: Any, b: Any) -> Any:
    """The greater of two values; for floats NaN if either is NaN, and +0.0 above -0.0."""


@Word
def minimum(a: Any, b: Any) -> Any:
    """The lesser of two values; for floats NaN if either is NaN, and -0.0 below +0.0."""


@Word
def rint(x: Any) -> Any:
    """The nearest integer as a float, ties to even."""


@Word
def floor(x: Any) -> Any:
    """The greatest integer not above x, as a float."""


@Word
def popcount(x: Any) -> Any:
    """Number of set bits."""


@Word
def count_trailing_zeros(x: Any) -> Any:
    """Number of zero bits below the lowest set bit; the width for 0."""


@Word
def reversed_bits(x: Any, n: Any) -> Any:
    """The lowest n bits of a u32 in reverse order, 1 to 8 of them; the bits above are left out."""


@Word
def dot4(acc: Any, a: Any, b: Any, *, a_max: Any = 255) -> Any:
    """Lane i of `acc` (i32, wraps) plus the exact dot product of lanes 4i … 4i+3 of `a` (u8 or i8) and `b` (i8).

    Where `a` is i8, `b` must not hold -128. a_max (static): a bound that `a` (u8) keeps, by the caller's promise; up to
    128 cheaper instructions are exact. Becomes vpdpbusd, vpmaddubsw or vpmaddwd, sdot, usdot or smull, v_dot4_i32_iu8.
    """


@Word
def dot8(acc: Any, a: Any, b: Any) -> Any:
    """Lane 2i + j of `acc` (vec[i32, 4], wraps) plus the exact dot product of bytes 8i … 8i+7 of `a` (16 lanes of u8 or
    i8) and bytes 8j … 8j+7 of `b` (16 lanes of i8): a product of 2 x 8 and 8 x 2. Becomes usmmla or smmla.
    """


@Word
def dot2(a: Any, b: Any) -> Any:
    """Lane i (i16) of the result is the dot product of bytes 2i, 2i + 1 of `a` (u8) and `b` (i8), which must fit it."""


@Word
def add_pairs(acc: Any, words: Any, factors: Any = None) -> Any:
    """Lane i of `acc` (i32) plus lanes 2i and 2i + 1 of `words` (i16), each times its lane of `factors` (i16) if given.

    Becomes vpmaddwd and an addition.
    """


@Word
def signed_like(x: Any, y: Any) -> Any:
    """Lane i is `x[i]` times the sign of `y[i]`, -1, 0 or 1 (both i8, wraps). Becomes vpsignb."""


@Word
def lookup16(type: Any, table: Any, indices: Any) -> Any:
    """Lane i is `table[indices[i] % 16]`. type: u8 or i8; table: a static tuple of 16 of its values; indices: u8 lanes.

    On a processor the table may also be a vector of as many lanes as there are indices, a multiple of 16: each 16
    indices then look up in the 16 lanes at their place. On a GPU the number of lanes is a multiple of 4. Becomes
    vpshufb, tbl, or three v_perm_b32 for each four lanes.
    """


# -- threads --------------------------------------------------------------------------------------------------------


@Word
def atomic_load(p: Any, index: Any = 0, *, order: Any = "acquire") -> Any:
    """Read a 32- or 64-bit integer atomically. order (static): "relaxed", "acquire", "seq_cst"."""


@Word
def atomic_store(p: Any, value: Any, index: Any = 0, *, order: Any = "release") -> Any:
    """Write a 32- or 64-bit integer atomically. order (static): "relaxed", "release", "seq_cst"."""


@Word
def atomic_add(p: Any, value: Any, index: Any = 0, *, order: Any = "acq_rel") -> Any:
    """Add to a 32- or 64-bit integer; gives the old value. order (static): those of load and store, and "acq_rel"."""


@Word
def atomic_cas(p: Any, expected: Any, desired: Any, index: Any = 0, *, order: Any = "acq_rel") -> Any:
    """Write `desired` if the integer equals `expected`; gives the old value. order: as in `atomic_add`."""


@Word
def fence(order: Any = "seq_cst") -> Any:
    """Order the memory operations before and after. order (static): "acquire", "release", "acq_rel", "seq_cst"."""


@Word
def pause() -> Any:
    """Tell the core that this is a spin loop."""


@Word
def cycle_counter() -> Any:
    """A steady count of ticks (i64): the time stamp counter, or the system counter of aarch64. CPU only."""


@Word
def call(address: Any, returns: Any, *arguments: Any) -> Any:
    """Call the function at an address (u64) by the C convention. returns: a type, or None. CPU only."""


# -- matrix registers (AMX only) ------------------------------------------------------------------------------------


@Word
def tile_configure(rows: Any, bytes: Any) -> Any:
    """Set the shapes of this thread's tiles 0, 1, …: rows and bytes of a row, two static tuples. Call it first."""


@Word
def tile_zero(t: Any) -> Any:
    """Clear tile number `t` (static)."""


@Word
def tile_load(t: Any, p: Any, stride: Any) -> Any:
    """Load tile number `t` (static) from rows that lie `stride` bytes apart."""


@Word
def tile_store(t: Any, p: Any, stride: Any) -> Any:
    """Store tile number `t` (static) to rows that lie `stride` bytes apart."""


@Word
def tile_dot_u8i8(c: Any, a: Any, b: Any) -> Any:
    """Tile c (i32) += a (u8 rows) x b (i8, four consecutive k in each 32-bit element); static tile numbers."""


@Word
def tile_dot_i8u8(c: Any, a: Any, b: Any) -> Any:
    """Tile c (i32) += a (i8 rows) x b (u8, four consecutive k in each element); static tile numbers."""


@Word
def tile_dot_i8i8(c: Any, a: Any, b: Any) -> Any:
    """Tile c (i32) += a (i8 rows) x b (i8, four consecutive k in each element); static tile numbers."""


@Word
def tile_release() -> Any:
    """Release the tile state."""


# -- GPU ------------------------------------------------------------------------------------------------------------


@Word
def workgroup_id(axis: Any) -> Any:
    """This workgroup's index along axis 0, 1 or 2 (static), u32."""


@Word
def workitem_id() -> Any:
    """This work-item's index in its workgroup, u32."""


@Word
def lane_id() -> Any:
    """This lane's index in its wave, u32."""


@Word
def barrier() -> Any:
    """Wait for the whole workgroup; its earlier writes are then visible to all its work-items."""


@Word
def schedule_barrier() -> Any:
    """No instruction moves past this point; it executes nothing. Loads above it are asked for before anything below it
    waits for one of them, where LLVM would rather move each to its use.
    """


@Word
def part_traits(number: Any) -> Any:
    """Of a kernel that is part of a resident program, by its number (static): the work-items of its workgroups, how
    many of these run side by side in one of the program's, and whether their waves wait for each other; static.
    """


@Word
def run_part(number: Any, arguments: Any, groups: Any, lane: Any, slot: Any) -> Any:
    """Do the work of a workgroup of a kernel that is part of a resident program, by its number (static); gives how many
    barriers its waves have met at (u32), where they are not a whole workgroup of the program.

    arguments: where the dwords of its arguments lie. groups: its workgroup's three numbers. lane: the work-item's
    number in it. slot: which of the workgroups side by side this is.
    """


@Word
def wave_shuffle_xor(x: Any, distance: Any) -> Any:
    """The value of lane `lane ^ distance` (static: 1, 2, 4, 8 or 16), a 32-bit type. All lanes must be active."""


@Word
def wave_reduce_add(x: Any) -> Any:
    """Sum over the wave's 32 lanes at distance 16, 8, 4, 2, 1; every lane gets it. All lanes must be active."""


@Word
def first_lane(x: Any) -> Any:
    """The first active lane's value, uniform."""


@Word
def wmma_iu8(acc: Any, a: Any, b: Any, *, a_signed: Any = True, b_signed: Any = True) -> Any:
    """Wave matrix multiply, 16 x 16 x 16 bytes into i32: acc vec[i32, 8], a and b vec[i32, 2] on gfx12."""


@Word
def mma_s8(acc: Any, a: Any, b: Any) -> Any:
    """Wave matrix multiply, 16 x 8 x 32 signed bytes into i32: acc vec[i32, 4], a vec[i32, 4], b vec[i32, 2], which lie
    as those of PTX's `mma.m16n8k32`. Of 16 columns, a is vec[i32, 2], b i32: `mma.m16n8k16`.
    """


WORDS: dict[str, Word] = {name: value for name, value in list(globals().items()) if isinstance(value, Word)}
"""Every word by name."""

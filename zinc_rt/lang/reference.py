"""The reference of the language, written from its docstrings.

`python -m zinc_rt.lang.reference > docs/how/lang_reference.md`
"""

from __future__ import annotations

import inspect
import sys
import textwrap
from collections.abc import Iterator
from typing import Final

from zinc_rt.lang.comptime import MAX_BITS, MAX_ITEMS, PYTHON_CALLS
from zinc_rt.lang.expressions import MAX_TURNS
from zinc_rt.lang.frontend import USER_SGPRS
from zinc_rt.lang.irtext import MAX_INSTRUCTIONS
from zinc_rt.lang.kernel import inline, kernel
from zinc_rt.lang.ops import WORDS
from zinc_rt.lang.target import TARGETS
from zinc_rt.lang.types import MAX_LANES, SCALARS, Float, Int, Space

_HEAD: Final = """\
# Reference of the kernel language

Written by `python -m zinc_rt.lang.reference > docs/how/lang_reference.md`; a test compares this file with the language.
The guide is [lang.md](lang.md). Names are imported from `zinc_rt.lang`.
"""

_STATEMENTS: Final = {
    "name = value": "Binds a name. A name that is assigned in several places is a variable of the type of its first "
    "value. A compile-time value (a number, a tuple, a type, `regs`) stays one, and such a name cannot change in "
    "run-time control flow.",
    "name: type = value": "The same with the type said: how a number becomes a variable, `total: i32 = 0`.",
    "p[i] = value, s.field = value, acc[k] = value": "Stores through pointers and into `regs`. Lanes of vectors do not "
    "change: `insert` makes another vector.",
    "a, b = pair": "Takes a tuple apart.",
    "target += value": "And every other operator; the place is evaluated once.",
    "for i in range(start, stop, step)": "A run-time loop. The bounds have one integer type, which is that of `i` (i32 "
    "when both are literals); the step is static and not 0. No bound of the type breaks it. `i` cannot be assigned and "
    "is unknown after the loop.",
    "for x in unroll(...), for x in tuple": "Written out once for each value; see `unroll`. No `break` or `continue`.",
    "while condition": "A run-time loop.",
    "if condition": "With a static condition only the chosen side is compiled. Otherwise a name that is first assigned "
    "inside is known after it when every side that reaches the end assigns it with one type.",
    "break, continue, return, return value": "As in Python. A function's returns have one type; `return a, b` gives a "
    "tuple (helpers only).",
    "call(...)": "An expression statement is a call; any other value that is not used is refused.",
    "pass, docstrings": "Nothing.",
}

_EXPRESSIONS: Final = [
    ("`1`, `2.5`, `True`", "literals; beside a run-time value they take its type if they fit it, and are rounded once"),
    ("`+ - *`", "integers wrap; f32 and f64 round once, to nearest even, and are never contracted or reordered"),
    ("`/`", "f32 and f64, correctly rounded"),
    ("`// %`", "unsigned integers; `x // 0` is 0 and `x % 0` is x"),
    ("`<< >>`", "integers; a run-time count counts modulo the width, `>>` keeps the sign of signed types"),
    ("`& \\| ^ ~`", "integers and truth values"),
    ("`-x`, `+x`", "integers (wraps), f32, f64"),
    ("`== != < <= > >=`", "bool, or a bool vector; with NaN only `!=` holds; pointers compare, too; they do not chain"),
    ("`a and b`, `a or b`, `not a`", "single truth values; the right side runs only where the left does not decide"),
    ("`a if c else b`", "one side runs; both have one type"),
    ("`f32(x)`, `i8(x)`, …", "conversions, lane by lane; see Types"),
    ("`p[i]`", "loads; of a pointer to a struct, the pointer to element i"),
    ("`p + n`, `p - n`", "a pointer n elements on"),
    ("`s.field`", "loads a field through a pointer to a struct"),
    ("`v[lane]`", "a lane; a run-time number counts modulo the lanes"),
    ("`helper(...)`", "written out here; arguments by position or name, defaults, `*rest`"),
    ("`(a, b)`, `[a, b]`", "tuples of anything, with static indices"),
    ("`f(x) for x in …`", "compile-time tuples, in brackets or in `tuple(...)`; one `for`, static conditions"),
    ('`f"{x}"`, `math.pi`, …', "Python's values and operators at compile time"),
]

_SECTIONS: Final = {
    "Compile time": "unroll static_assert target_has lanes",
    "Memory": "load store gather prefetch cast array table shared regs",
    "Vectors": "splat zeros iota shuffle insert concat low high select bitcast any_of all_of",
    "Reductions": "reduce_add reduce_max reduce_min reduce_or",
    "Arithmetic": "fma sqrt absolute maximum minimum rint floor popcount count_trailing_zeros reversed_bits",
    "Dot products of bytes, tables": "dot4 dot8 dot2 add_pairs signed_like lookup16",
    "Threads": "atomic_load atomic_store atomic_add atomic_cas fence pause cycle_counter call",
    "Matrix registers (AMX)": "tile_configure tile_zero tile_load tile_store tile_dot_u8i8 tile_dot_i8u8 tile_dot_i8i8"
    " tile_release",
    "GPU": "workgroup_id workitem_id lane_id barrier schedule_barrier part_traits run_part wave_shuffle_xor"
    " wave_reduce_add first_lane wmma_iu8 mma_s8",
}

_SPACES: Final = {
    Space.GLOBAL: "main memory; what `ptr[type]` means",
    Space.CONSTANT: "main memory that nobody writes while the kernel runs: loads may move, on a GPU they are scalar",
    Space.SHARED: "memory of a workgroup, from `shared`; GPU only",
    Space.PRIVATE: "a work-item's own, where `array` lies on a GPU",
}


def reference() -> str:
    """The whole document in Markdown."""
    return "\n".join([_HEAD, *_decorators(), *_types(), *_syntax(), *_words(), *_targets(), *_limits()]) + "\n"


def _decorators() -> Iterator[str]:
    yield "## Decorators\n"
    for function in (kernel, inline):
        yield f"### `@{function.__name__}`\n\n{_text(function.__doc__)}\n"
    yield "### `@struct`\n"
    yield _wrapped(
        "Class decorator: annotated names become fields in order, at natural alignment, the layout of C. Fields are"
        " integers, floats and pointers. `Args.numpy` is what `numpy.dtype` takes, `Args.size` its bytes."
    )
    yield ""


def _types() -> Iterator[str]:
    yield "## Types\n\n| type | bytes | values |\n|---|---|---|"
    for name, kind in SCALARS.items():
        if isinstance(kind, Int):
            low, high = kind.limits
            text = f"{low} … {high}" if kind.bits < 64 else "-2^63 … 2^63 - 1" if kind.signed else "0 … 2^64 - 1"
        elif isinstance(kind, Float):
            ieee = {"bf16": "the upper half of an f32, for storage", "f16": "IEEE 754 binary16, for storage"}
            text = ieee.get(kind.name, f"IEEE 754 binary{kind.bits}")
        else:
            text = "True, False; written `boolean` in annotations of parameters, not a memory type"
        yield f"| `{name}` | {kind.size} | {text} |"
    yield f"| `vec[type, n]` | n times one | 1 to {MAX_LANES} lanes of a scalar type; with one it is the scalar |"
    yield "| `ptr[type]`, `ptr[type, Space.…]` | 8 | the address of numbers, structs or pointers |"
    yield ""
    yield _wrapped(
        "**Conversions** are calls of a type: `f32(n)`, lane by lane on vectors. Integer to integer wraps. Anything to"
        " a float rounds once, to nearest even. Float to integer truncates and saturates; NaN gives 0. f16 and bf16"
        " convert to and from f32 and f64 alone and have no arithmetic. Truth values become integers; the other way,"
        " compare. `bitcast` keeps bits."
    )
    yield ""
    yield "| space | memory |\n|---|---|"
    yield from (f"| `Space.{space.name}` | {_SPACES[space]} |" for space in Space)
    yield ""


def _syntax() -> Iterator[str]:
    yield "## Statements\n"
    yield from (_wrapped(f"- `{syntax}`: {text}") for syntax, text in _STATEMENTS.items())
    yield "\nNothing else of Python's statements is part of the language; each is refused by name.\n"
    yield "## Expressions\n\n| | |\n|---|---|"
    yield from (f"| {syntax} | {text} |" for syntax, text in _EXPRESSIONS)
    calls = ", ".join(f"`{call.__name__}`" for call in PYTHON_CALLS)
    yield ""
    yield _wrapped(
        f"On compile-time values these functions of Python's work: {calls}, those of `math`, and methods of numbers,"
        " texts and tuples. From outside a kernel sees numbers, texts, tuples, lists, dicts, sets, enums, frozen"
        " dataclasses, types, helpers and modules."
    )
    yield ""


def _words() -> Iterator[str]:
    yield "## Words\n"
    for title, names in _SECTIONS.items():
        yield f"### {title}\n"
        for name in names.split():
            word = WORDS[name]
            yield f"#### `{word.signature}`\n\n{_text(word.__doc__)}\n"


def _targets() -> Iterator[str]:
    yield "## Targets\n\n| target | LLVM's processor | `target_has` |\n|---|---|---|"
    for target in TARGETS.values():
        yield f"| `{target.name}` | {target.cpu} | {', '.join(sorted(target.isa))} |"
    yield ""


def _limits() -> Iterator[str]:
    yield "## Limits\n"
    yield f"- {MAX_LANES} lanes in a vector, 1024 variables in `regs`, 1 MiB in an `array`, 64 KiB of `shared` memory."
    yield f"- {MAX_INSTRUCTIONS} instructions in a kernel before optimisation."
    yield f"- Compile time: integers of {MAX_BITS} bits, {MAX_ITEMS} items in a tuple or text, {MAX_TURNS} loop turns."
    yield f"- {USER_SGPRS} registers of 32 bits for a GPU kernel's arguments: pointers and 64-bit numbers take two."


def _wrapped(text: str) -> str:
    """A paragraph or an item of a list, at the width of this repository's documents."""
    indent = "  " if text.startswith("- ") else ""
    return textwrap.fill(text, 116, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


def _text(docstring: str | None) -> str:
    return inspect.cleandoc(docstring or "")


if __name__ == "__main__":
    sys.stdout.write(reference())

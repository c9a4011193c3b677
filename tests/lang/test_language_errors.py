"""The language's face: every refusal names file, line and expression, says why, and what would be accepted."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

import pytest

from tests.lang import gpu_kernels, wrong_kernels
from tests.lang.wrong_kernels import CASES, Case
from zinc_rt import lang
from zinc_rt.errors import ZincError
from zinc_rt.lang import (
    TARGETS,
    KernelError,
    LangError,
    Spec,
    compile_image,
    emit_module,
    f32,
    inline,
    irtext,
    kernel,
    ptr,
)
from zinc_rt.lang.expressions import _SYNTAX
from zinc_rt.lang.loops import Loops
from zinc_rt.lang.statements import _WORDS

SOURCE = Path(wrong_kernels.__file__).read_text(encoding="utf-8").splitlines()
AVX2 = TARGETS["avx2"]


def refusal(case: Case) -> KernelError:
    with pytest.raises(KernelError) as caught:
        emit_module("wrong", [Spec(case.function, case.constants)], TARGETS[case.target])
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.function.name)
def test_wrong_programs_are_refused(case: Case) -> None:
    error = refusal(case)
    assert isinstance(error, ZincError)
    assert error.file == "tests/lang/wrong_kernels.py"
    assert SOURCE[error.line - 1].endswith("# here"), f"line {error.line} is not the marked one"
    quoted = f"`{error.expression}`: " if error.expression else ""
    message = re.sub(r"line \d+", "line N", quoted + error.reason)
    if case.message.endswith("failed at compile time:"):  # Python's own words follow, and differ between versions
        assert message.startswith(case.message)
    else:
        assert message == case.message
    assert str(error).startswith(f"{error.file}:{error.line}: {quoted}{error.reason}")
    assert "\n" not in str(error)


def test_there_are_enough_of_them() -> None:
    assert len({case.message for case in CASES}) >= 150


def case(name: str) -> Case:
    return next(c for c in CASES if c.function.name == name)


def test_errors_in_helpers_name_the_calls_that_led_there() -> None:
    error = refusal(case("deep"))
    calls = [
        f"tests/lang/wrong_kernels.py:{n + 1}"
        for n, line in enumerate(SOURCE)
        if re.search(r"return (broken|outer)\(", line)
    ]
    assert error.chain == tuple(calls)
    assert str(error).endswith(f"(called from {calls[0]}) (called from {calls[1]})")


@pytest.mark.parametrize("name", ["one_side", "sides_differ", "constants_differ", "only_in_loop"])
def test_messages_name_the_line_of_the_branch_or_loop(name: str) -> None:
    error = refusal(case(name))
    (line,) = re.findall(r"line (\d+)", error.reason)
    assert re.match(r"    (if|for) ", SOURCE[int(line) - 1])
    assert case(name).function.tree.lineno < int(line) < error.line


def handled(kind: type[ast.AST], prefix: str) -> bool:
    return hasattr(Loops, f"{prefix}{kind.__name__.lower()}")


def test_every_kind_of_syntax_is_handled_or_refused_by_name() -> None:
    deprecated = {"Num", "Str", "Bytes", "NameConstant", "Ellipsis"}
    internal = {"TemplateStr", "Interpolation", "TypeAlias"}  # of later Pythons: refused by their own name
    for kind in ast.expr.__subclasses__():
        if kind.__name__ not in deprecated | internal:
            assert handled(kind, "_") or kind in _SYNTAX, kind
    for kind in ast.stmt.__subclasses__():
        if kind.__name__ not in internal:
            assert handled(kind, "_do_") or kind in _WORDS, kind


def body(source: str) -> lang.Function:
    """A kernel with another body, as if its file said so."""

    function = kernel(wrong_kernels.template)
    tree = ast.parse(f"def template(p: ptr[f32], n: i32):\n    {source}\n").body[0]
    assert isinstance(tree, ast.FunctionDef)
    function.tree = tree
    return function


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("x = {1, 2}", "a set is not part"),
        ("x = {i for i in (1, 2)}", "a set is not part"),
        ("x = {i: i for i in (1, 2)}", "a dict is not part"),
        ("x = yield from p", "yield is not part"),
        ("x = 1j", "complex constants are not part"),
        ("p[...] = 0.0", "ellipsis constants are not part"),
        ("x = [*p]", "`*` is not part"),
        ("async def f(): pass", "`async def` is not part"),
        ("from math import pi", "`import` is not part"),
        ("f(**p)", "the name is not defined"),
        ("load(**p)", "calls with * or ** are not part"),
        ("try:\n        pass\n    except* ValueError:\n        pass", "`try` is not part"),
        ("while n > 0:\n        pass\n    else:\n        pass", "`else` of a loop is not part"),
        ("p.x: f32 = 1.0", "a declaration is `name: type = value`"),
        ("(n + 1)[0] = 2.0", "elements of i32 cannot be assigned"),
        ("x = y = z", "the name is not defined"),
        ("if n > 0:\n        return p", "ends without a value, elsewhere it returns one"),
    ],
)
def test_rarer_syntax_is_refused_too(source: str, words: str) -> None:
    with pytest.raises(KernelError, match=re.escape(words)):
        emit_module("wrong", [Spec(body(source))], AVX2)


def test_deep_nesting_is_refused() -> None:
    deep = "p[0] = " + "(" * 80 + "n" + ")" * 80  # brackets leave no trace in the tree
    with pytest.raises(KernelError, match="expected f32, got i32"):
        emit_module("wrong", [Spec(body(deep))], AVX2)
    sum_ = body("p[0] = 0.0")
    value: ast.expr = ast.Name("n", ast.Load(), lineno=2)
    for _ in range(5000):
        value = ast.BinOp(value, ast.Add(), ast.Constant(1, lineno=2), lineno=2)
    sum_.tree.body = [ast.Expr(value, lineno=2)]
    with pytest.raises(KernelError, match="nested too deeply"):
        emit_module("wrong", [Spec(sum_)], AVX2)


def test_kernels_that_grow_without_end_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(irtext, "MAX_INSTRUCTIONS", 9000)
    source = "for i in unroll(5000):\n        for j in unroll(5000):\n            p[i] += p[j]"
    with pytest.raises(KernelError, match=r"grows past 9000 instructions; unroll less, or loop with range"):
        emit_module("wrong", [Spec(body(source))], AVX2)


# -- functions without usable source --------------------------------------------------------------------------------


def test_functions_need_their_source() -> None:
    scope: dict[str, Any] = {"ptr": ptr, "f32": f32}
    exec("def made(p: ptr[f32]):\n    p[0] = 1.0\n", scope)
    with pytest.raises(KernelError, match="the source of made cannot be read; kernels must live in a file"):
        emit_module("wrong", [Spec(kernel(scope["made"]))], AVX2)


def test_changed_files_are_noticed(tmp_path: Path) -> None:
    import importlib.util
    import os

    path = tmp_path / "changing.py"
    path.write_text("from zinc_rt.lang import *\n\n@kernel\ndef first(p: ptr[f32]):\n    p[0] = 1.0\n")
    spec = importlib.util.spec_from_file_location("changing", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    path.write_text("from zinc_rt.lang import *\n\n# moved\n@kernel\ndef first(p: ptr[f32]):\n    p[0] = 1.0\n")
    os.utime(path, ns=(1, 1))
    with pytest.raises(KernelError, match=r"changing.py:3: the source of first is not there \(was the file changed"):
        emit_module("wrong", [Spec(module.first)], AVX2)


def test_lambdas_and_coroutines_are_no_kernels() -> None:
    async def waiting(p: ptr[f32]) -> None:
        pass

    for function in (kernel(lambda p: p), kernel(waiting)):
        with pytest.raises(KernelError, match="must be a plain `def`"):
            emit_module("wrong", [Spec(function)], AVX2)


@inline
def helper(x: f32) -> f32:
    return x


def test_wrong_uses_from_python() -> None:
    with pytest.raises(LangError, match="helper is a helper; only kernels are compiled by themselves"):
        emit_module("wrong", [Spec(helper)], AVX2)
    with pytest.raises(LangError, match="would hold two kernels deep; give each a name or constants of its own"):
        emit_module("wrong", [Spec(case("deep").function)] * 2, AVX2)
    with pytest.raises(LangError, match="is no plain function"):
        kernel(print)
    with pytest.raises(LangError, match="workgroup must be 1 to 1024 work-items, got 2048"):
        kernel(workgroup=2048)(lambda p: p)
    with pytest.raises(LangError, match="occupancy must be 0 to 16 waves of a SIMD, got 17"):
        kernel(occupancy=17)(lambda p: p)
    with pytest.raises(LangError, match="is written in the kernel language; compile it"):
        helper(1.0)
    with pytest.raises(LangError, match="sqrt is a function of the kernel language; it works inside kernels only"):
        lang.sqrt(2.0)
    with pytest.raises(LangError, match="f32 converts values inside kernels only"):
        lang.f32(1)
    with pytest.raises(LangError, match=r"is no kernel; mark it with @kernel"):
        lang.compile(print)  # type: ignore[arg-type]
    with pytest.raises(LangError, match="unknown instruction-set level 'avx3'"):
        lang.compile(gpu_kernels.rms_norm, target="avx3")
    with pytest.raises(LangError, match="level 'gfx1201' needs a gfx1201 device"):
        lang.compile(gpu_kernels.rms_norm, target="gfx1201")
    with pytest.raises(LangError, match="unknown target 'gfx9999'; there are amx, "):
        compile_image(Spec(gpu_kernels.rms_norm), "gfx9999")
    with pytest.raises(AttributeError, match="no_such_word"):
        _ = lang.no_such_word


@pytest.mark.parametrize(
    ("item", "words"),
    [
        ((f32, 0), r"vec\[f32, 0\]: a vector is vec\[scalar type, lanes\] with 1 to 256 lanes"),
        ((f32, True), "vec\\[f32, True\\]: a vector is"),
        ((float, 4), "vec\\[float, 4\\]: a vector is"),
        (f32, "vec\\[f32\\]: a vector is"),
        ((f32, 2, 2), "vec\\[f32, 2, 2\\]: a vector is"),
    ],
)
def test_wrong_vector_types(item: Any, words: str) -> None:
    with pytest.raises(LangError, match=words):
        lang.vec[item]


@pytest.mark.parametrize("item", [float, (f32, 4), (f32, lang.Space.GLOBAL, 1), lang.vec[f32, 4], None])
def test_wrong_pointer_types(item: Any) -> None:
    with pytest.raises(LangError, match=r"ptr\[.*\]: a pointer is ptr\[type\] or ptr\[type, Space.…\]"):
        lang.ptr[item]


def test_wrong_structs() -> None:
    class Empty:
        pass

    class Wrong:
        x: float

    class Unknown:
        x: nowhere  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(LangError, match="struct Empty has no fields"):
        lang.struct(Empty)
    with pytest.raises(LangError, match="struct Wrong: field x is float; fields are integers, floats and pointers"):
        lang.struct(Wrong)
    with pytest.raises(LangError, match="struct Unknown: its annotations cannot be evaluated"):
        lang.struct(Unknown)

"""Expressions: a Python expression tree becomes a run-time value or a compile-time one."""

from __future__ import annotations

import ast
import inspect
import operator
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from zinc_rt.lang.arith import as_index, binary, compare, convert, element, invert, negate
from zinc_rt.lang.diagnostics import KernelError, Reject, text_of
from zinc_rt.lang.errors import LangError
from zinc_rt.lang.irtext import FunctionText
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.ops import Word
from zinc_rt.lang.target import Target
from zinc_rt.lang.types import SCALARS, Bool, Float, Int, Ptr, Struct, Type, Vec, boolean, elem_of, i32
from zinc_rt.lang.values import Constant, Regs, Slot, Val, describe, is_static, literal

Binding = Constant | Slot | Regs
Lower = Callable[..., Any]

_STATIC_BINARY: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod, ast.LShift: operator.lshift, ast.RShift: operator.rshift,
    ast.BitAnd: operator.and_, ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.Pow: operator.pow,
}  # fmt: skip
_STATIC_COMPARE: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le, ast.Gt: operator.gt,
    ast.GtE: operator.ge, ast.In: lambda a, b: a in b, ast.NotIn: lambda a, b: a not in b,
    ast.Is: operator.is_, ast.IsNot: operator.is_not,
}  # fmt: skip
_STATIC_CALLS = (range, len, min, max, tuple, sum, abs, list, reversed, float, int, divmod)
"""Python's own functions that work on compile-time values."""


class Frame:
    """One function's names: the kernel's, or those of a helper being inlined."""

    def __init__(self, function: Function) -> None:
        self.function = function
        self.names: dict[str, Binding] = {}


class Expressions:
    """Evaluates expressions of the function on top of the frame stack."""

    def __init__(self, text: FunctionText, target: Target, words: Mapping[Word, Lower]) -> None:
        self.f, self.target, self.words = text, target, words
        self.frames: list[Frame] = []
        self.sites: list[str] = []  # where the helpers being inlined were called
        self.region = 0  # which stretch of run-time control flow this is

    # -- places -----------------------------------------------------------------------------------------------------

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Turn a `Reject` inside into an error at this node."""
        try:
            yield
        except Reject as reason:
            raise self.error(node, str(reason)) from None

    def error(self, node: ast.AST, reason: str) -> KernelError:
        """An error at a node of the current function."""
        line = getattr(node, "lineno", self.frame.function.tree.lineno)
        return KernelError(self.frame.function.file, line, text_of(node), reason, tuple(reversed(self.sites)))

    @property
    def frame(self) -> Frame:
        """The innermost function."""
        return self.frames[-1]

    # -- dispatch ---------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression: `Val`, `Regs`, a tuple of such, or a compile-time value."""
        method = getattr(self, f"_{type(node).__name__.lower()}", None)
        if method is None:
            raise self.error(node, f"{type(node).__name__} expressions are not part of the kernel language")
        with self.at(node):
            return method(node)

    def value(self, node: ast.expr, kind: Type | None = None) -> Val:
        """A run-time value; a number takes the type `kind`, or bool and i32 by themselves."""
        return self.coerce(node, self.evaluate(node), kind)

    def coerce(self, node: ast.AST, value: Any, kind: Type | None = None) -> Val:
        """As `value`, of what was evaluated already."""
        with self.at(node):
            if isinstance(value, Val):
                if kind is not None and value.type != kind:
                    raise Reject(f"expected {kind}, got {value.type}{_hint(value.type, kind)}")
                return value
            if kind is None:
                kind = boolean if isinstance(value, bool) else i32 if isinstance(value, int) else None
            if kind is None:
                raise Reject(f"expected a run-time value, got {describe(value)}; give it a type: f32({value!r})")
            return literal(value, kind)

    def static(self, node: ast.expr, what: str) -> Any:
        """A compile-time value."""
        value = self.evaluate(node)
        if not is_static(value):
            raise self.error(node, f"{what} must be known at compile time, got a {describe(value)} of run time")
        return value

    # -- leaves -----------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Any:
        if isinstance(node.value, bytes | complex) or node.value is Ellipsis:
            raise Reject(f"{type(node.value).__name__} constants are not part of the kernel language")
        return node.value

    def _name(self, node: ast.Name) -> Any:
        bound = self.frame.names.get(node.id)
        if isinstance(bound, Slot):
            return Val(bound.type, self.f.value(f"load {self.f.type(bound.type)}, {self.f.stack} {bound.ref}"))
        if isinstance(bound, Constant):
            return bound.value
        if bound is not None:
            return bound
        scope = self.frame.function.scope
        if node.id in scope:
            return scope[node.id]
        for builtin in _STATIC_CALLS:
            if builtin.__name__ == node.id:
                return builtin
        if node.id == "bool":
            return boolean
        raise Reject("the name is not defined (a variable must be assigned before it is used, on every path)")

    def _tuple(self, node: ast.Tuple) -> Any:
        return tuple(self.evaluate(item) for item in node.elts)

    def _list(self, node: ast.List) -> Any:
        return tuple(self.evaluate(item) for item in node.elts)

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp) -> Any:
        """A compile-time tuple: one `for` over compile-time values, with compile-time conditions."""
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            raise Reject("a comprehension has one `for` with one name, over compile-time values")
        loop, out = node.generators[0], []
        name = loop.target.id  # type: ignore[attr-defined]
        before = self.frame.names.get(name)
        for item in self.static(loop.iter, "what a comprehension goes over"):
            self.frame.names[name] = Constant(item, self.region)
            if all(self.static(c, "the condition of a comprehension") for c in loop.ifs):
                out.append(self.evaluate(node.elt))
        self.frame.names.pop(name, None)
        if before is not None:
            self.frame.names[name] = before
        return tuple(out)

    _listcomp = _generatorexp

    def _joinedstr(self, node: ast.JoinedStr) -> Any:
        parts = (
            self.static(v.value, "a text") if isinstance(v, ast.FormattedValue) else self.evaluate(v)
            for v in node.values
        )
        return "".join(str(part) for part in parts)

    # -- operators --------------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        return self.operate(node.op, self.evaluate(node.left), self.evaluate(node.right))

    def operate(self, op: ast.operator, a: Any, b: Any) -> Any:
        """`a op b` of evaluated operands. Raises `Reject`."""
        if is_static(a) and is_static(b):
            if type(op) not in _STATIC_BINARY:
                raise Reject(f"{type(op).__name__} is not part of the kernel language")
            try:
                return _STATIC_BINARY[type(op)](a, b)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Reject(f"compile-time arithmetic failed: {error}") from None
        return binary(self.f, op, a, b)

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        x = self.evaluate(node.operand)
        if isinstance(node.op, ast.UAdd):
            return x
        if not isinstance(x, Val):
            if not is_static(x):
                raise Reject(f"not defined for {describe(x)}")
            return not x if isinstance(node.op, ast.Not) else -x if isinstance(node.op, ast.USub) else ~x
        if isinstance(node.op, ast.Not):
            if x.type != boolean:
                raise Reject(f"`not` takes a bool, got {x.type}; compare with == 0, or use ~ for bits")
            return invert(self.f, x)
        return negate(self.f, x) if isinstance(node.op, ast.USub) else invert(self.f, x)

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise Reject("comparisons do not chain here; write `a < b and b < c`")
        a, b, op = self.evaluate(node.left), self.evaluate(node.comparators[0]), node.ops[0]
        if is_static(a) and is_static(b):
            return _STATIC_COMPARE[type(op)](a, b)
        return compare(self.f, op, a, b)

    def _boolop(self, node: ast.BoolOp) -> Any:
        """`and`, `or`: the right side runs only where the left does not decide."""
        is_and = isinstance(node.op, ast.And)
        first = self.evaluate(node.values[0])
        rest = (
            node.values[1] if len(node.values) == 2 else ast.copy_location(ast.BoolOp(node.op, node.values[1:]), node)
        )
        if is_static(first):
            return self.evaluate(rest) if bool(first) is is_and else first
        left = self.condition(node.values[0], first)
        cell = self.f.alloca("i1", 1)
        self.f.emit(f"store i1 {left.ref}, {self.f.stack} {cell}")
        more, end = self.f.new_block("more"), self.f.new_block("end")
        self.f.branch_if(left.ref, *((more, end) if is_and else (end, more)))
        with self.in_region():
            self.f.start(more)
            right = self.condition(rest, self.evaluate(rest))
            self.f.emit(f"store i1 {right.ref}, {self.f.stack} {cell}")
        self.f.start(end)
        return Val(boolean, self.f.value(f"load i1, {self.f.stack} {cell}"))

    def condition(self, node: ast.AST, value: Any) -> Val:
        """A scalar truth value. Raises `KernelError`."""
        if isinstance(value, Val) and isinstance(value.type, Vec) and isinstance(value.type.elem, Bool):
            raise self.error(node, f"a condition must be one bool, got {value.type}; use any_of(…) or all_of(…)")
        return self.coerce(node, value, boolean)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.evaluate(node.test)
        if is_static(test):
            return self.evaluate(node.body if test else node.orelse)
        chosen = self.condition(node.test, test)
        then, other, end = (self.f.new_block(stem) for stem in ("then", "else", "end"))
        self.f.branch_if(chosen.ref, then, other)
        cell, kind = "", None
        for label, branch in ((then, node.body), (other, node.orelse)):
            with self.in_region():
                self.f.start(label)
                x = self.value(branch, kind)
                if kind is None:
                    kind, cell = x.type, self.f.alloca(self.f.type(x.type), 64)
                self.f.emit(f"store {self.f.type(kind)} {x.ref}, {self.f.stack} {cell}")
                self.f.branch(end)
        self.f.start(end)
        assert kind is not None
        return Val(kind, self.f.value(f"load {self.f.type(kind)}, {self.f.stack} {cell}"))

    @contextmanager
    def in_region(self) -> Iterator[None]:
        """Within: code that may run any number of times, so compile-time names of outside must not be rebound."""
        before, self.region = self.region, self.region + 1
        inner = set(self.frame.names)
        try:
            yield
        finally:
            self.region = before
            for name in set(self.frame.names) - inner:  # what was first assigned inside is not known outside
                del self.frame.names[name]

    # -- access -----------------------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Any:
        base, index = self.evaluate(node.value), self.evaluate(node.slice)
        if isinstance(base, Regs):
            return Val(
                base.type, self.f.value(f"load {self.f.type(base.type)}, {self.f.stack} {self.register(base, index)}")
            )
        if isinstance(base, Val) and isinstance(base.type, Ptr):
            address = element(self.f, base, as_index(self.f, index))
            if isinstance(base.type.elem, Struct):
                return Val(base.type, address)
            return self.load(Val(base.type, address))
        if isinstance(base, Val) and isinstance(base.type, Vec):
            if isinstance(index, int) and not 0 <= index < base.type.lanes:
                raise Reject(f"{base.type} has lanes 0 to {base.type.lanes - 1}, not {index}")
            lane = as_index(self.f, index)
            return Val(base.type.elem, self.f.value(f"extractelement {self.f.type(base.type)} {base.ref}, i64 {lane}"))
        if isinstance(base, tuple | list | dict) or hasattr(type(base), "__getitem__"):
            if isinstance(index, Val):
                raise Reject(f"{describe(base)} takes a compile-time index, got {index.type}")
            try:
                return base[index]
            except (LookupError, TypeError, LangError) as error:
                raise Reject(f"{error}") from None
        raise Reject(f"{describe(base)} cannot be indexed; pointers, vectors, regs and tuples can")

    def register(self, base: Regs, index: Any) -> str:
        """The cell of one register. Raises `Reject`."""
        if isinstance(index, bool) or not isinstance(index, int):
            raise Reject(f"registers are numbered at compile time, got {describe(index)}; loop with unroll(…)")
        if not 0 <= index < len(base.slots):
            raise Reject(f"{describe(base)} has numbers 0 to {len(base.slots) - 1}, not {index}")
        return base.slots[index]

    def load(self, p: Val) -> Val:
        """The element that a pointer addresses."""
        assert isinstance(p.type, Ptr)
        elem = p.type.elem
        kind = self.f.type(elem)
        return Val(elem, self.f.value(f"load {kind}, {self.f.type(p.type)} {p.ref}, align {elem.align}"))

    def field(self, base: Val, name: str) -> Val:
        """A pointer to a field of the struct that `base` addresses. Raises `Reject`."""
        if not isinstance(base.type, Ptr) or not isinstance(base.type.elem, Struct):
            raise Reject(f"{describe(base)} has no field {name}; fields belong to pointers to structs")
        layout = base.type.elem
        if name not in layout.offsets:
            raise Reject(f"struct {layout} has no field {name}; it has {', '.join(layout.offsets)}")
        kind = dict(layout.fields)[name]
        pointer = self.f.type(base.type)
        address = self.f.value(f"getelementptr i8, {pointer} {base.ref}, i64 {layout.offsets[name]}")
        return Val(Ptr(kind, base.type.space), address)

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.evaluate(node.value)
        if isinstance(base, Val):
            return self.load(self.field(base, node.attr))
        if isinstance(base, Regs) or not hasattr(base, node.attr):
            raise Reject(f"{describe(base)} has no attribute {node.attr}")
        return getattr(base, node.attr)

    # -- calls ------------------------------------------------------------------------------------------------------

    def _call(self, node: ast.Call) -> Any:
        callee = self.evaluate(node.func)
        if any(isinstance(a, ast.Starred) for a in node.args) or any(k.arg is None for k in node.keywords):
            raise Reject("calls with * or ** are not part of the kernel language")
        positional = [self.evaluate(a) for a in node.args]
        named = {str(k.arg): self.evaluate(k.value) for k in node.keywords}
        if isinstance(callee, Word):
            return self._word(callee, positional, named)
        if isinstance(callee, Function):
            return self.inline(node, callee, positional, named)
        if isinstance(callee, Type):
            return self._convert(callee, positional, named)
        if is_static(tuple(positional)) and is_static(tuple(named.values())) and callee in _STATIC_CALLS:
            try:
                return callee(*positional, **named)
            except (TypeError, ValueError, ArithmeticError) as error:
                raise Reject(f"compile-time call failed: {error}") from None
        if callee in (len, tuple, list) and len(positional) == 1 and isinstance(positional[0], tuple):
            return len(positional[0]) if callee is len else positional[0]
        if callee in (min, max):
            raise Reject("min and max are for compile-time values; at run time use minimum(a, b) and maximum(a, b)")
        if callee in (int, float):
            raise Reject(f"convert with a type of the language: {'i32' if callee is int else 'f32'}(…)")
        raise Reject(
            f"{getattr(callee, '__name__', describe(callee))} cannot be called in a kernel; helpers need @inline"
        )

    def _word(self, word: Word, positional: list[Any], named: dict[str, Any]) -> Any:
        try:
            bound = word.signature.bind(*positional, **named)
        except TypeError as error:
            raise Reject(f"{error}; it is {word.name}{_plain(word.signature)}") from None
        bound.apply_defaults()
        if word not in self.words:
            raise Reject(f"{word.name} is not available on the target {self.target.name}")
        return self.words[word](self, *bound.args, **bound.kwargs)

    def _convert(self, kind: Type, positional: list[Any], named: dict[str, Any]) -> Val:
        if len(positional) != 1 or named:
            raise Reject(f"{kind}(x) takes one value")
        x = positional[0]
        if isinstance(kind, Vec):
            raise Reject(f"{kind}(…): write splat(x, {kind.lanes}) for copies, {kind.elem}(v) to convert every lane")
        if not isinstance(x, Val):
            if isinstance(kind, Float) and isinstance(x, int) and not isinstance(x, bool):
                x = float(x)
            return literal(x, kind)
        return convert(self.f, x, kind)

    def inline(self, node: ast.AST, function: Function, positional: list[Any], named: dict[str, Any]) -> Any:
        """The value of a helper's body with these arguments; implemented by the statements."""
        raise NotImplementedError


def _plain(signature: inspect.Signature) -> str:
    return str(signature.replace(return_annotation=inspect.Signature.empty, parameters=[
        p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()
    ]))  # fmt: skip


def _hint(have: Type, want: Type) -> str:
    if isinstance(want, Vec) and not isinstance(have, Vec) and elem_of(want) == have:
        return f"; splat(x, {want.lanes}) makes a vector of it"
    if (
        isinstance(elem_of(want), Int | Float)
        and isinstance(elem_of(have), Int | Float)
        and str(elem_of(want)) in SCALARS
    ):
        return f"; {elem_of(want)}(…) converts"
    return ""

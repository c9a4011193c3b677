"""Expressions: a Python expression tree becomes a run-time value or a compile-time one."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from zinc_rt.lang import comptime
from zinc_rt.lang.access import Access
from zinc_rt.lang.arith import binary, compare, invert, negate
from zinc_rt.lang.diagnostics import KernelError, Reject, text_of
from zinc_rt.lang.frame import Frame
from zinc_rt.lang.irtext import FunctionText
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.ops import Word
from zinc_rt.lang.target import Target
from zinc_rt.lang.types import Bool, Float, Int, Ptr, Space, Type, Vec, boolean, elem_of, i32
from zinc_rt.lang.values import Constant, Regs, StackSlot, Val, describe, is_static, literal

Lower = Callable[..., Any]

MAX_TURNS = 1 << 20
"""Most turns of all compile-time loops of a kernel together."""

_SYNTAX = {
    ast.Lambda: "lambda", ast.NamedExpr: "`:=`", ast.Dict: "a dict", ast.Set: "a set", ast.SetComp: "a set",
    ast.DictComp: "a dict", ast.Await: "await", ast.Yield: "yield", ast.YieldFrom: "yield", ast.Starred: "`*`",
    ast.Slice: "a slice", ast.FormattedValue: "a format",
}  # fmt: skip


class Expressions(Access):
    """Evaluates expressions of the function on top of the frame stack."""

    def __init__(self, text: FunctionText, target: Target, words: Mapping[Word, Lower]) -> None:
        super().__init__(text)
        self.target, self.words = target, words
        self.frames: list[Frame] = []
        self.frame: Frame = None  # type: ignore[assignment]  # the innermost function; `enter` sets it
        self.sites: list[str] = []  # where the helpers being inlined were called
        self.region = 0  # depth of run-time control flow
        self._turns = 0
        self._methods: dict[type, Any] = {}
        self._outside: dict[tuple[int, str], Any] = {}

    # -- positions -------------------------------------------------------------------------------------------------

    @contextmanager
    def at(self, node: ast.AST) -> Iterator[None]:
        """Turn a `Reject` inside into an error at this node."""
        try:
            yield
        except Reject as reason:
            raise self.error(node, str(reason)) from None

    def error(self, node: ast.AST, reason: str) -> KernelError:
        """An error at a node of the current function."""
        line = getattr(node, "lineno", None) or self.frame.function.tree.lineno
        return KernelError(self.frame.function.file, line, text_of(node), reason, tuple(reversed(self.sites)))

    def enter(self, frame: Frame) -> None:
        """Push the frame of a function."""
        self.frames.append(frame)
        self.frame = frame

    def leave(self) -> None:
        """Pop the frame of a function."""
        self.frames.pop()
        self.frame = self.frames[-1]

    # -- dispatch ---------------------------------------------------------------------------------------------------

    def evaluate(self, node: ast.expr) -> Any:
        """The value of an expression: `Val`, `Regs`, a tuple of such, or a compile-time value. Raises `KernelError`."""
        if type(node) is ast.Name:  # half of all expressions
            bound = self.frame.names.get(node.id)
            if type(bound) is Val:
                return bound
            if type(bound) is Constant:
                return bound.value
        method = self._methods.get(type(node))
        if method is None:
            method = self._methods[type(node)] = getattr(
                self, f"_{type(node).__name__.lower()}", self._outside_language
            )
        try:
            return method(node)
        except Reject as reason:
            raise self.error(node, str(reason)) from None

    def _outside_language(self, node: ast.expr) -> Any:
        raise Reject(f"{_SYNTAX.get(type(node), type(node).__name__)} is not part of the kernel language")

    def value(self, node: ast.expr, kind: Type | None = None) -> Val:
        """A run-time value; a number takes the type `kind`, or bool and i32 by themselves. Raises `KernelError`."""
        return self.coerce(node, self.evaluate(node), kind)

    def coerce(self, node: ast.AST, value: Any, kind: Type | None = None) -> Val:
        """As `value`, for an expression that was evaluated already."""
        try:
            return self.as_value(value, kind)
        except Reject as reason:
            raise self.error(node, str(reason)) from None

    def as_value(self, value: Any, kind: Type | None = None) -> Val:
        """As `coerce`, but raises `Reject`."""
        if isinstance(value, Val):
            if kind is None or value.type is kind or value.type == kind:
                return value
            raise Reject(f"expected {kind}, got {value.type}{_hint(value.type, kind)}")
        if kind is None:
            kind = boolean if isinstance(value, bool) else i32 if isinstance(value, int) else None
        if kind is None:
            hint = f"; give it a type: f32({value!r})" if isinstance(value, float) else ""
            raise Reject(f"expected a run-time value, got {describe(value)}{hint}")
        return literal(value, kind)

    def static(self, node: ast.expr, label: str) -> Any:
        """A compile-time value. Raises `KernelError`."""
        value = self.evaluate(node)
        if not is_static(value):
            raise self.error(node, f"{label} must be known at compile time, got {describe(value)}")
        return value

    # -- leaves -----------------------------------------------------------------------------------------------------

    def _constant(self, node: ast.Constant) -> Any:
        value = node.value
        if type(value) is int and value.bit_length() > comptime.MAX_BITS:
            raise Reject(f"the number has more than {comptime.MAX_BITS} bits")
        if not isinstance(value, (int, float, str, type(None))):
            raise Reject(f"{type(value).__name__} constants are not part of the kernel language")
        return value

    def _name(self, node: ast.Name) -> Any:
        frame = self.frame
        bound = frame.names.get(node.id)
        if type(bound) is StackSlot:
            return Val(bound.type, self.f.value(f"load {self.f.type(bound.type)}, {self.f.stack} {bound.ref}"))
        if bound is None:
            return self._global(frame, node.id)
        return bound.value if isinstance(bound, Constant) else bound

    def _global(self, frame: Frame, name: str) -> Any:
        if name in frame.function.sites:
            raise frame.unknown(name)
        key = (id(frame.function), name)
        found = self._outside.get(key, _MISSING)
        if found is _MISSING:
            value = frame.function.lookup(name, _MISSING)
            if value is _MISSING:
                value = boolean if name == "bool" else comptime.builtin(name)
            found = self._outside[key] = comptime.checked(value)
        return found

    def _tuple(self, node: ast.Tuple | ast.List) -> Any:
        return tuple([self.evaluate(item) for item in node.elts])

    _list = _tuple

    def _generatorexp(self, node: ast.GeneratorExp | ast.ListComp) -> Any:
        """A compile-time loop: one `for` over compile-time values, with compile-time conditions."""
        if len(node.generators) != 1 or not isinstance(node.generators[0].target, ast.Name):
            raise Reject("a comprehension has one `for` with one name, over compile-time values")
        loop, name, out = node.generators[0], node.generators[0].target.id, []
        outer = self.frame.names
        self.frame.names = dict(outer)
        try:
            for item in self.turns(self.evaluate(loop.iter), "a comprehension goes over"):
                self.frame.names[name] = item if isinstance(item, Val) else Constant(item, self.region)
                if all(comptime.truth(self.static(c, "the condition of a comprehension")) for c in loop.ifs):
                    out.append(self.evaluate(node.elt))
        finally:
            self.frame.names = outer
        return tuple(out)

    _listcomp = _generatorexp

    def turns(self, value: Any, clause: str) -> Iterator[Any]:
        """The items of a compile-time loop, in order. Raises `Reject`."""
        for item in comptime.items(value, clause):
            self._turns += 1
            if self._turns > MAX_TURNS:
                raise Reject(f"the kernel's compile-time loops take more than {MAX_TURNS} turns")
            yield item

    def _joinedstr(self, node: ast.JoinedStr) -> str:
        parts = []
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.static(part.value, "what a text is made of")
                layout = self.static(part.format_spec, "a format") if part.format_spec is not None else ""
                parts.append(comptime.formatted(value, layout))
            else:
                parts.append(self.static(part, "a text"))
        return str(comptime.guarded("formatting", "".join, parts))

    # -- operators --------------------------------------------------------------------------------------------------

    def _binop(self, node: ast.BinOp) -> Any:
        return self.operate(node.op, self.evaluate(node.left), self.evaluate(node.right))

    def operate(self, op: ast.operator, a: Any, b: Any) -> Any:
        """`a op b` of evaluated operands. Raises `Reject`."""
        if isinstance(a, Val) or isinstance(b, Val):
            return binary(self.f, op, a, b)
        if is_static(a) and is_static(b):
            return comptime.binary(op, a, b)
        if isinstance(op, ast.Add) and isinstance(a, tuple) and isinstance(b, tuple):
            return a + b
        raise Reject(f"there are no operators for {describe(a if not is_static(a) else b)}; use its elements")

    def _unaryop(self, node: ast.UnaryOp) -> Any:
        x = self.evaluate(node.operand)
        if not isinstance(x, Val):
            if not is_static(x):
                raise Reject(f"there are no operators for {describe(x)}; use its elements")
            return comptime.guarded("arithmetic", comptime.UNARY[type(node.op)], x)
        if isinstance(node.op, ast.Not):
            if x.type != boolean:
                raise Reject(f"`not` takes a bool, got {x.type}; compare with == 0, or use ~ for bits and masks")
            return invert(self.f, x)
        if isinstance(node.op, ast.UAdd):
            return x
        return negate(self.f, x) if isinstance(node.op, ast.USub) else invert(self.f, x)

    def _compare(self, node: ast.Compare) -> Any:
        if len(node.ops) != 1:
            raise Reject("comparisons do not chain here; write `a < b and b < c`")
        a, b, op = self.evaluate(node.left), self.evaluate(node.comparators[0]), node.ops[0]
        if not isinstance(a, Val) and not isinstance(b, Val) and is_static(a) and is_static(b):
            return comptime.compare(op, a, b)
        return compare(self.f, op, a, b)

    def _boolop(self, node: ast.BoolOp) -> Any:
        """`and`, `or`: the right side runs only where the left does not decide."""
        return self._decide(node, isinstance(node.op, ast.And), node.values)

    def _decide(self, node: ast.BoolOp, is_and: bool, values: list[ast.expr]) -> Any:
        first = self.evaluate(values[0])
        if len(values) == 1:
            return first
        if is_static(first):
            return self._decide(node, is_and, values[1:]) if comptime.truth(first) is is_and else first
        left = self.condition(values[0], first)
        more, end = self.f.new_block("more"), self.f.new_block("end")
        ways = [("false" if is_and else "true", str(self.f.block))]
        self.f.branch_if(left.ref, *((more, end) if is_and else (end, more)))
        self.f.start(more)
        with self.in_region():
            right = self.condition(values[1], self._decide(node, is_and, values[1:]))
        if self.f.block is not None:
            ways.append((right.ref, self.f.block))
        self.f.start(end)
        return Val(boolean, self.f.join(boolean, ways))

    def condition(self, node: ast.AST, value: Any) -> Val:
        """A scalar truth value. Raises `KernelError`."""
        if isinstance(value, Val) and value.type != boolean:
            if isinstance(value.type, Vec) and isinstance(value.type.elem, Bool):
                raise self.error(node, f"a condition must be one bool, got {value.type}; use any_of(…) or all_of(…)")
            zero = {Int: "compare with != 0", Float: "compare with != 0.0"}.get(type(value.type), "compare it")
            raise self.error(node, f"a condition must be a bool, got {value.type}; {zero}")
        return self.coerce(node, value, boolean)

    def _ifexp(self, node: ast.IfExp) -> Any:
        test = self.evaluate(node.test)
        if is_static(test):
            return self.evaluate(node.body if comptime.truth(test) else node.orelse)
        chosen = self.condition(node.test, test)
        then, other, end = (self.f.new_block(stem) for stem in ("then", "else", "end"))
        self.f.branch_if(chosen.ref, then, other)
        ways = []
        for label, branch in ((then, node.body), (other, node.orelse)):
            self.f.start(label)
            with self.in_region():
                value = self.evaluate(branch)
            if self.f.block is not None:
                ways.append((branch, value, self.f.block))
                self.f.branch(end)
        self.f.start(end)
        return self.join(ways, None)

    def join(self, ways: Sequence[tuple[ast.AST, Any, str]], kind: Type | None) -> Any:
        """One value of several (where it was written, value, block it comes from); the current block has just started.

        The type is `kind` or that of the first run-time value; tuples join element by element.
        """
        values = [value for _, value, _ in ways]
        if kind is None and (not ways or all(v is values[0] for v in values)):
            return values[0] if values else None
        if all(isinstance(v, tuple) and len(v) == len(values[0]) for v in values):
            columns = range(len(values[0]))
            return tuple(self.join([(node, value[i], block) for node, value, block in ways], None) for i in columns)
        if kind is None:
            kind = next((v.type for v in values if isinstance(v, Val)), None)
        joined = [(self.coerce(node, value, kind), block) for node, value, block in ways]
        kind = joined[0][0].type
        for (node, _, _), (x, _) in zip(ways, joined, strict=True):
            self.coerce(node, x, kind)
        return Val(kind, self.f.join(kind, [(x.ref, block) for x, block in joined]))

    @contextmanager
    def in_region(self, lost: str = "") -> Iterator[None]:
        """Within: code that may run any number of times, so names of outside must not be bound anew.

        lost: why names that were first bound inside are unknown outside.
        """
        frame, outer, twins = self.frame, self.frame.names, self.frame.twins
        frame.names, frame.twins = dict(outer), {}
        self.region += 1
        try:
            yield
        finally:
            self.region -= 1
            if lost:
                frame.lost.update((name, lost) for name in frame.names if name not in outer)
            frame.names, frame.twins = outer, twins

    # -- access -----------------------------------------------------------------------------------------------------

    def _subscript(self, node: ast.Subscript) -> Any:
        return self.item(self.evaluate(node.value), self.evaluate(node.slice))

    def _attribute(self, node: ast.Attribute) -> Any:
        base = self.evaluate(node.value)
        if isinstance(base, Val | Regs):
            return self.load(self.field(base, node.attr))
        return comptime.attribute(base, node.attr)

    def _call(self, node: ast.Call) -> Any:
        raise NotImplementedError  # calls.py

    def inline(self, node: ast.AST, function: Function, positional: list[Any], named: dict[str, Any]) -> Any:
        """The value of a helper's body with these arguments; implemented by the statements."""
        raise NotImplementedError


_MISSING = object()


def _hint(have: Type, want: Type) -> str:
    if isinstance(want, Vec) and not isinstance(have, Vec) and elem_of(want) == have:
        return f"; splat(x, {want.lanes}) makes a vector of it"
    if isinstance(want, Ptr) and isinstance(have, Ptr):
        if {have.space, want.space} - {Space.GLOBAL, Space.CONSTANT} and have.space is not want.space:
            return "; they lie in different memories"
        return f"; cast(p, {want}) changes a pointer's type"
    if isinstance(elem_of(want), Int | Float) and isinstance(elem_of(have), Int | Float):
        return f"; {elem_of(want)}(…) converts" if elem_of(want) != elem_of(have) else ""
    return ""

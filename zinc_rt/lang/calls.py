"""Calls: built-in functions of the language, conversions, Python functions on compile-time values, and helpers.

A helper is written out where it is called: its body is compiled anew with these arguments, in a frame of its own.
"""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

from zinc_rt.lang import comptime
from zinc_rt.lang.convert import convert
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.expressions import Expressions
from zinc_rt.lang.frame import Binding, Frame
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.ops import Word, static_assert
from zinc_rt.lang.types import Float, Type, Vec
from zinc_rt.lang.values import Constant, StackSlot, Val, describe, float_of, is_static, literal

STATIC_KINDS: dict[str, type] = {"int": int, "float": float, "bool": bool, "str": str, "tuple": tuple, "type": Type}
"""Annotations of compile-time parameters; `type` takes a type of the language."""

_DEEP = 64  # helpers within helpers


@dataclass
class Body:
    """A function body being compiled, and where its returns go."""

    region: int
    kind: Type | None  # what it is declared to return, if it is
    label: str | None = None  # of the block after the body, once a return has branched there
    ways: list[tuple[ast.AST, Any, str]] = field(default_factory=list)  # (place, value, block) of such returns
    value: Any = None
    done: bool = False  # a return at the body's own level: nothing after it runs


class Calls(Expressions):
    """Evaluates calls; the statements of bodies come with the subclass."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.bodies: list[Body] = []
        self._closed: dict[tuple[int, str], Any] = {}
        self._annotated: dict[int, list[tuple[str, ast.expr, set[str]]]] = {}

    def _call(self, node: ast.Call) -> Any:
        callee = self.evaluate(node.func)
        for argument in node.args:
            if type(argument) is ast.Starred:
                raise Reject("calls with * or ** are not part of the kernel language")
        positional = []
        for argument in node.args:
            positional.append(self.evaluate(argument))
            if callee is static_assert and positional[0] is True:
                return None  # as Python does, the message is made where the assertion fails
        named = {}
        for keyword in node.keywords:
            if keyword.arg is None:
                raise Reject("calls with * or ** are not part of the kernel language")
            named[keyword.arg] = self.evaluate(keyword.value)
        if isinstance(callee, Word):
            lower = self.words.get(callee)
            if lower is None:
                raise Reject(f"{callee.name} is not available on the target {self.target.name}")
            return lower(self, *callee.signature.bind(positional, named))
        if isinstance(callee, Function):
            return self.inline(node, callee, positional, named)
        if isinstance(callee, Type):
            return self.converted(callee, positional, named)
        return self._python(callee, positional, named)

    def _python(self, callee: Any, positional: list[Any], named: dict[str, Any]) -> Any:
        """A call of Python's own function."""
        dynamic = next((a for a in (*positional, *named.values()) if not is_static(a)), None)
        if dynamic is None:
            return comptime.call(callee, positional, named)
        if callee in (len, tuple, list, reversed, zip, enumerate) and all(
            isinstance(p, tuple | range) for p in positional
        ):
            return comptime.call(callee, positional, named)
        if callee in (min, max):
            raise Reject("min and max are for compile-time values; at run time use minimum(a, b) and maximum(a, b)")
        if callee in (int, float):
            raise Reject(f"convert with a type of the language: {'i32' if callee is int else 'f32'}(…)")
        if callee is abs:
            raise Reject("abs is for compile-time values; at run time use absolute(x)")
        if callee is range:
            raise Reject("range with run-time bounds belongs in `for name in range(…)`")
        if callable(callee):
            name = getattr(callee, "__name__", describe(callee))
            raise Reject(f"{name} takes compile-time values, got {describe(dynamic)}")
        raise Reject(f"{describe(callee)} cannot be called in a kernel; helpers need @inline")

    def converted(self, kind: Type, positional: list[Any], named: dict[str, Any]) -> Val:
        """Emit the conversion `kind(x)`. Raises `Reject`."""
        if len(positional) != 1 or named:
            raise Reject(f"{kind}(x) takes one value, got {len(positional) + len(named)}")
        x = positional[0]
        if isinstance(kind, Vec):
            raise Reject(f"{kind}(…): write splat(x, {kind.lanes}) for copies, {kind.elem}(v) to convert every lane")
        if isinstance(x, Val):
            return convert(self.f, x, kind)
        if isinstance(kind, Float) and isinstance(x, int) and not isinstance(x, bool):
            x = float_of(x)
        return literal(x, kind)

    # -- helpers ----------------------------------------------------------------------------------------------------

    def inline(self, node: ast.AST, function: Function, positional: list[Any], named: dict[str, Any]) -> Any:
        """Inline a helper: the value of its body with these arguments. Raises `Reject`."""
        if any(f.function is function for f in self.frames):
            raise Reject(f"{function.name} calls itself; recursion is not part of the kernel language, loop instead")
        if len(self.frames) > _DEEP:
            raise Reject(f"helpers call each other more than {_DEEP} deep")
        given = function.signature.bind(positional, named)
        names = [*function.signature.positional, *function.signature.by_name]
        rest = tuple(given[len(names) :])
        frame = Frame(function)
        self.sites.append(f"{self.frame.function.file}:{getattr(node, 'lineno', 0)}")
        self.enter(frame)
        try:
            kinds = self.annotations(function, dict(zip(names, given, strict=False)))
            for name, value in zip(names, given, strict=False):
                frame.names[name] = self._argument(function, name, value, kinds.get(name))
            if function.signature.rest is not None:
                frame.names[function.signature.rest] = Constant(rest, self.region)
            return self.body(function, self.returned(function))
        finally:
            self.leave()
            self.sites.pop()

    def _argument(self, function: Function, name: str, value: Any, kind: Any) -> Binding:
        if isinstance(kind, Type):
            try:
                value = self.as_value(value, kind)
            except Reject as reason:
                raise Reject(f"{function.name}: {name}: {reason}") from None
        elif kind is not None and not (is_static(value) and is_of(value, kind)):
            text = f"must be a compile-time {kind.__name__}" if is_static(value) else "must be known at compile time"
            raise Reject(f"{function.name}: {name} {text}, got {describe(value)}")
        return self.bind(name, value)

    def bind(self, name: str, value: Any) -> Binding:
        """Bind a parameter of the current function to an argument. Raises `Reject`."""
        if not isinstance(value, Val):
            return Constant(value, self.region)
        return self.variable(value) if name in self.frame.function.sites else value

    def variable(self, value: Val, name: str = "") -> StackSlot:
        """A stack cell with a first value, for a name that is assigned in several places."""
        twin = self.frame.twins.pop(name, None)
        kind = self.f.type(value.type)
        if twin is not None and twin.type == value.type:
            slot = twin
        else:
            slot = StackSlot(value.type, self.f.alloca(kind, max(value.type.align, min(value.type.size, 64))))
        self.f.emit(f"store {kind} {value.ref}, {self.f.stack} {slot.ref}")
        return slot

    def annotations(self, function: Function, given: dict[str, Any]) -> dict[str, Any]:
        """The types of a function's parameters (of the language, or Python's for compile-time ones).

        They may rest on compile-time parameters: `v: vec[f32, W]`. The current frame is the function's own, still
        empty. Raises `KernelError`.
        """
        out = {}
        for arg, annotation, names in self._annotations_of(function):
            key = (id(function), arg)
            if key in self._closed:
                out[arg] = self._closed[key]
                continue
            used = names & given.keys()
            self.frame.names = {name: Constant(given[name], self.region) for name in used}
            kind = out[arg] = self._annotation(annotation)
            if not used:
                self._closed[key] = kind
        self.frame.names = {}
        return out

    def _annotations_of(self, function: Function) -> list[tuple[str, ast.expr, set[str]]]:
        """The annotated parameters: name, annotation, and the names that stand in it."""
        found = self._annotated.get(id(function))
        if found is None:
            arguments = function.tree.args
            found = self._annotated[id(function)] = [
                (arg.arg, arg.annotation, {n.id for n in ast.walk(arg.annotation) if isinstance(n, ast.Name)})
                for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)
                if arg.annotation is not None
            ]
        return found

    def _annotation(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name) and node.id in STATIC_KINDS and self.frame.function.lookup(node.id) is None:
            return STATIC_KINDS[node.id]
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            with self.at(node):
                node = ast.copy_location(_quoted(node.value), node)
            return self._annotation(node)
        kind = self.evaluate(node)
        if not isinstance(kind, Type) and not comptime.is_record(kind):
            raise self.error(
                node,
                f"an annotation is a type of the language, a NamedTuple, or {', '.join(STATIC_KINDS)};"
                f" got {describe(kind)}",
            )
        return kind

    def returned(self, function: Function) -> Type | None:
        """The declared type of what the current frame's function returns. Raises `KernelError`."""
        node = function.tree.returns
        if node is None or (isinstance(node, ast.Constant) and node.value is None):
            return None
        if isinstance(node, ast.Name) and node.id in STATIC_KINDS and node.id != "bool":
            if function.entry:
                raise self.error(node, "a kernel returns a type of the language or nothing; write i32, f32, …")
            return None  # a compile-time value, which needs no check here
        if isinstance(node, ast.Name) and node.id == "bool" and not function.entry:
            return None  # of run time or of compile time
        kind = self.evaluate(node)
        if kind is not None and not isinstance(kind, Type):
            raise self.error(node, f"the return type must be a type of the language or None, got {describe(kind)}")
        return kind

    def body(self, function: Function, kind: Type | None) -> Any:
        """Compile a function's statements in the current frame; gives its returned value. Raises `KernelError`."""
        raise NotImplementedError


def _quoted(text: str) -> ast.expr:
    try:
        return ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError):
        raise Reject("the annotation is not an expression") from None


def is_of(value: Any, kind: type) -> bool:
    """Whether a compile-time value is of a Python type; True is no int here, and 1 no float."""
    return isinstance(value, kind) and (kind is not int or not isinstance(value, bool))

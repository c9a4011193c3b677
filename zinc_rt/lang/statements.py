"""Statements: assignments, loops, conditions, returns, and helpers written out where they are called."""

from __future__ import annotations

import ast
import inspect
from typing import Any

from zinc_rt.lang import ops
from zinc_rt.lang.arith import as_index, element
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.expressions import Expressions, Frame
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.types import Int, Ptr, Struct, Type, i32
from zinc_rt.lang.values import Constant, Regs, Slot, Val, describe, is_static, literal

_STATIC_ANNOTATIONS = (int, float, bool, str, tuple)
_INLINE_DEPTH = 40


class _Return:
    """Where the returns of one inlined body go."""

    def __init__(self, region: int) -> None:
        self.region = region
        self.label: str | None = None  # of the block after the body, once a return has branched there
        self.cell = ""
        self.type: Type | None = None
        self.value: Any = None
        self.done = False  # a return at the body's own level: nothing after it runs


class Statements(Expressions):
    """Runs the statements of function bodies."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._returns: list[_Return] = []
        self._loops: list[tuple[str, str, int]] = []  # labels of continue and break, depth of inlining

    # -- bodies -----------------------------------------------------------------------------------------------------

    def inline(self, node: ast.AST, function: Function, positional: list[Any], named: dict[str, Any]) -> Any:
        """Write a helper out here; its value."""
        if len(self.frames) > _INLINE_DEPTH:
            raise Reject(
                f"helpers call each other more than {_INLINE_DEPTH} deep; recursion is not part of the language"
            )
        try:
            bound = inspect.signature(function.fn).bind(*positional, **named)
        except TypeError as error:
            raise Reject(f"{function.name}: {error}") from None
        bound.apply_defaults()
        site = f"{self.frame.function.file}:{getattr(node, 'lineno', 0)}"
        frame = Frame(function)
        annotations = self._annotations(function)
        for name, value in bound.arguments.items():
            frame.names[name] = self._argument(function, name, value, annotations.get(name))
        self.frames.append(frame)
        self.sites.append(site)
        try:
            return self.body(function)
        finally:
            self.frames.pop()
            self.sites.pop()

    def _argument(self, function: Function, name: str, value: Any, annotation: Any) -> Constant | Slot | Regs:
        if isinstance(annotation, Type):
            if not isinstance(value, Val):
                value = literal(value, annotation)
            if value.type != annotation:
                raise Reject(f"{function.name}: {name} must be {annotation}, got {value.type}")
        elif annotation in _STATIC_ANNOTATIONS and not is_static(value):
            raise Reject(f"{function.name}: {name} must be known at compile time, got {describe(value)}")
        return (
            self.variable(value)
            if isinstance(value, Val)
            else value
            if isinstance(value, Regs)
            else Constant(value, self.region)
        )

    def _annotations(self, function: Function) -> dict[str, Any]:
        """The annotations of a function, evaluated among its own names."""
        self.frames.append(Frame(function))
        try:
            out = {}
            for arg in (*function.tree.args.args, *function.tree.args.kwonlyargs):
                if arg.annotation is not None:
                    text = arg.annotation
                    if isinstance(text, ast.Name) and text.id in ("int", "float", "bool", "str", "tuple"):
                        out[arg.arg] = {"int": int, "float": float, "bool": bool, "str": str, "tuple": tuple}[text.id]
                    else:
                        out[arg.arg] = self.evaluate(text)
            return out
        finally:
            self.frames.pop()

    def body(self, function: Function) -> Any:
        """Run a function's statements in the current frame; what it returns."""
        back = _Return(self.region)
        self._returns.append(back)
        loops, self._loops = self._loops, []
        try:
            self.block(function.tree.body)
        finally:
            self._returns.pop()
            self._loops = loops
        if back.label is None:
            return back.value
        if back.type is not None and self.f.reachable and not back.done:
            raise self.error(
                function.tree, f"{function.name} returns a value on some paths and falls off its end on another"
            )
        self.f.start(back.label)
        if back.type is None:
            return None
        return Val(back.type, self.f.value(f"load {self.f.type(back.type)}, {self.f.stack} {back.cell}"))

    def block(self, statements: list[ast.stmt]) -> None:
        """Run statements in order, stopping where nothing after can run."""
        for statement in statements:
            if not self.f.reachable or (self._returns and self._returns[-1].done):
                return
            method = getattr(self, f"_do_{type(statement).__name__.lower()}", None)
            if method is None:
                raise self.error(
                    statement, f"`{type(statement).__name__.lower()}` statements are not part of the kernel language"
                )
            with self.at(statement):
                method(statement)

    # -- variables --------------------------------------------------------------------------------------------------

    def variable(self, value: Val, *, loop: bool = False) -> Slot:
        """A new variable with a first value."""
        cell = self.f.alloca(
            self.f.type(value.type), max(value.type.align, value.type.size if value.type.size <= 64 else 64)
        )
        self.f.emit(f"store {self.f.type(value.type)} {value.ref}, {self.f.stack} {cell}")
        return Slot(value.type, cell, loop)

    def assign(self, target: ast.expr, value: Any) -> None:
        """`target = value`."""
        if isinstance(target, ast.Name):
            self._assign_name(target, value)
        elif isinstance(target, ast.Tuple | ast.List):
            items = value if isinstance(value, tuple | list) else None
            if items is None or len(items) != len(target.elts):
                raise Reject(
                    f"{len(target.elts)} names cannot take {describe(value) if items is None else len(items)} values"
                )
            for part, item in zip(target.elts, items, strict=True):
                self.assign(part, item)
        elif isinstance(target, ast.Subscript):
            self._assign_element(target, value)
        elif isinstance(target, ast.Attribute):
            base = self.evaluate(target.value)
            if not isinstance(base, Val):
                raise Reject(f"{describe(base)} has no field to assign")
            field = self.field(base, target.attr)
            assert isinstance(field.type, Ptr)
            self.store(field, self.coerce(target, value, field.type.elem))
        else:
            raise Reject("only names, elements, fields and tuples of them can be assigned")

    def _assign_name(self, target: ast.Name, value: Any) -> None:
        bound = self.frame.names.get(target.id)
        if isinstance(bound, Slot):
            if bound.loop:
                raise Reject(f"{target.id} is the loop's variable; use another name")
            x = self.coerce(target, value, bound.type)
            self.f.emit(f"store {self.f.type(bound.type)} {x.ref}, {self.f.stack} {bound.ref}")
        elif isinstance(value, Val):
            if isinstance(bound, Constant) and bound.region != self.region:
                raise Reject(
                    f"{target.id} is a compile-time constant here; declare it as a variable: `{target.id}: {value.type} = …`"
                )
            self.frame.names[target.id] = self.variable(value)
        elif isinstance(bound, Constant) and bound.region != self.region:
            raise Reject(
                f"{target.id} is a compile-time constant and cannot change in run-time control flow;"
                f" declare it as a variable: `{target.id}: i32 = …`"
            )
        else:
            self.frame.names[target.id] = value if isinstance(value, Regs) else Constant(value, self.region)

    def _assign_element(self, target: ast.Subscript, value: Any) -> None:
        base, index = self.evaluate(target.value), self.evaluate(target.slice)
        if isinstance(base, Regs):
            x = self.coerce(target, value, base.type)
            self.f.emit(f"store {self.f.type(base.type)} {x.ref}, {self.f.stack} {self.register(base, index)}")
        elif isinstance(base, Val) and isinstance(base.type, Ptr) and not isinstance(base.type.elem, Struct):
            address = Val(base.type, element(self.f, base, as_index(self.f, index)))
            self.store(address, self.coerce(target, value, base.type.elem))
        elif isinstance(base, Val):
            hint = (
                "; insert(v, lane, x) gives a changed vector" if not isinstance(base.type, Ptr) else "; assign a field"
            )
            raise Reject(f"elements of {base.type} cannot be assigned{hint}")
        else:
            raise Reject(f"elements of {describe(base)} cannot be assigned")

    def store(self, p: Val, value: Val) -> None:
        """Write an element."""
        kind = self.f.type(value.type)
        self.f.emit(f"store {kind} {value.ref}, {self.f.type(p.type)} {p.ref}, align {value.type.align}")

    # -- statements -------------------------------------------------------------------------------------------------

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            with self.at(node):
                self.assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        kind = self.evaluate(node.annotation)
        if not isinstance(kind, Type) or not isinstance(node.target, ast.Name) or node.value is None:
            raise Reject("a declaration is `name: type = value` with a type of the language")
        value = self.evaluate(node.value)
        first = self.coerce(node.value, value, kind)
        bound = self.frame.names.get(node.target.id)
        if isinstance(bound, Slot) and bound.type == kind and not bound.loop:
            self.assign(node.target, first)  # the same declaration again, in an unrolled loop
            return
        if isinstance(bound, Slot):
            raise Reject(f"{node.target.id} is declared already, as {bound.type}")
        self.frame.names[node.target.id] = self.variable(first)

    def _do_augassign(self, node: ast.AugAssign) -> None:
        self.assign(node.target, self.operate(node.op, self.evaluate(_as_load(node.target)), self.evaluate(node.value)))

    def _do_expr(self, node: ast.Expr) -> None:
        if not isinstance(node.value, ast.Constant):
            self.evaluate(node.value)

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_assert(self, node: ast.Assert) -> None:
        raise Reject(
            "assert is not part of the kernel language; static_assert(condition, message) checks at compile time"
        )

    def _do_return(self, node: ast.Return) -> None:
        back = self._returns[-1]
        value = self.evaluate(node.value) if node.value is not None else None
        if self.region == back.region and back.label is None:
            back.value, back.done = value, True
            return
        if back.label is None:
            back.label = self.f.new_block("return")
            if value is not None:
                first = self.coerce(node, value)
                back.type, back.cell = first.type, self.f.alloca(self.f.type(first.type), 64)
                value = first
        if (value is None) != (back.type is None):
            raise Reject("some returns of this function give a value and others do not")
        if back.type is not None:
            x = self.coerce(node, value, back.type)
            self.f.emit(f"store {self.f.type(back.type)} {x.ref}, {self.f.stack} {back.cell}")
        back.done = self.region == back.region
        self.f.branch(back.label)

    def _do_if(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        if is_static(test):
            self.block(node.body if test else node.orelse)
            return
        chosen = self.condition(node.test, test)
        then, other, end = (self.f.new_block(stem) for stem in ("then", "else", "end"))
        self.f.branch_if(chosen.ref, then, other if node.orelse else end)
        for label, body in ((then, node.body), (other, node.orelse)):
            if body:
                with self.in_region():
                    self.f.start(label)
                    self.block(body)
                    if self.f.reachable:
                        self.f.branch(end)
        self.f.start(end)

    def _do_while(self, node: ast.While) -> None:
        if node.orelse:
            raise Reject("`else` of a loop is not part of the kernel language")
        head, body, end = (self.f.new_block(stem) for stem in ("head", "body", "end"))
        self.f.start(head)
        with self.in_region():
            test = self.evaluate(node.test)
            if is_static(test):
                self.f.branch(body if test else end)
            else:
                self.f.branch_if(self.condition(node.test, test).ref, body, end)
            self.f.start(body)
            self._loop_body(node.body, head, end)
            if self.f.reachable:
                self.f.branch(head)
        self.f.start(end)

    def _loop_body(self, body: list[ast.stmt], again: str, end: str) -> None:
        self._loops.append((again, end, len(self.frames)))
        self.block(body)
        self._loops.pop()

    def _do_for(self, node: ast.For) -> None:
        if node.orelse:
            raise Reject("`else` of a loop is not part of the kernel language")
        if not isinstance(node.iter, ast.Call):
            self._unrolled(node, self.static(node.iter, "what an unrolled loop goes over"))
            return
        callee = self.evaluate(node.iter.func)
        if callee is not range:
            items = (
                self._unroll_items(node.iter)
                if callee is ops.unroll
                else self.static(node.iter, "what a loop goes over")
            )
            self._unrolled(node, items)
            return
        if not isinstance(node.target, ast.Name) or node.iter.keywords or not 1 <= len(node.iter.args) <= 3:
            raise Reject(
                "a run-time loop is `for name in range(stop)`, `range(start, stop)` or `range(start, stop, step)`"
            )
        self._runtime_for(node, node.target, [self.evaluate(a) for a in node.iter.args])

    def _unroll_items(self, call: ast.Call) -> Any:
        arguments = [self.static(a, "a bound of unroll") for a in call.args]
        if len(arguments) == 1 and isinstance(arguments[0], tuple | list | range):
            return arguments[0]
        if not 1 <= len(arguments) <= 3 or not all(isinstance(a, int) for a in arguments):
            raise Reject("unroll takes 1 to 3 compile-time integers, as range does, or a compile-time tuple")
        return range(*arguments)

    def _unrolled(self, node: ast.For, items: Any) -> None:
        for item in items:
            for name in ast.walk(node.target):
                if isinstance(name, ast.Name) and isinstance(self.frame.names.get(name.id), Constant):
                    del self.frame.names[name.id]
            self.assign(node.target, item)
            before = len(self._loops)
            self._loops.append(("", "", -1))
            self.block(node.body)
            del self._loops[before:]

    def _runtime_for(self, node: ast.For, target: ast.Name, bounds: list[Any]) -> None:
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        if isinstance(step, bool) or not isinstance(step, int) or step == 0:
            raise Reject(f"the step of range must be a compile-time integer other than 0, got {describe(step)}")
        kinds = {b.type for b in (start, stop) if isinstance(b, Val)}
        if len(kinds) > 1:
            raise Reject(f"the bounds of range have types {' and '.join(sorted(map(str, kinds)))}; convert one of them")
        kind = kinds.pop() if kinds else i32
        if not isinstance(kind, Int):
            raise Reject(f"range counts integers, got {kind}")
        first, last = self.coerce(node.iter, start, kind), self.coerce(node.iter, stop, kind)
        counter = self.variable(first)
        head, body, again, end = (self.f.new_block(stem) for stem in ("head", "body", "again", "end"))
        self.f.start(head)
        text, cell = self.f.type(kind), f"{self.f.stack} {counter.ref}"
        now = self.f.value(f"load {text}, {cell}")
        order = f"{'s' if kind.signed else 'u'}{'lt' if step > 0 else 'gt'}"
        self.f.branch_if(self.f.value(f"icmp {order} {text} {now}, {last.ref}"), body, end)
        with self.in_region():
            self.f.start(body)
            shadowed = self.frame.names.pop(target.id, None)
            self.frame.names[target.id] = self.variable(Val(kind, now), loop=True)
            self._loop_body(node.body, again, end)
            self.f.start(again)
            self.f.emit(f"store {text} {self.f.value(f'add {text} {now}, {step}')}, {cell}")
            self.f.branch(head)
            del self.frame.names[target.id]
            if shadowed is not None:
                self.frame.names[target.id] = shadowed
        self.f.start(end)

    def _do_break(self, node: ast.Break) -> None:
        self.f.branch(self._loop("break")[1])

    def _do_continue(self, node: ast.Continue) -> None:
        self.f.branch(self._loop("continue")[0])

    def _loop(self, word: str) -> tuple[str, str, int]:
        if not self._loops or self._loops[-1][2] == -1:
            raise Reject(f"`{word}` belongs in a run-time loop; an unrolled loop has none to leave")
        return self._loops[-1]


def _as_load(target: ast.expr) -> ast.expr:
    """The target of `target op= x` as an expression to read."""
    copy = ast.parse(ast.unparse(target), mode="eval").body
    return ast.copy_location(copy, target)

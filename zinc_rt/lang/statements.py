"""Statements: assignments, conditions, returns, and the bodies of functions. Loops are in loops.py."""

from __future__ import annotations

import ast
from typing import Any

from zinc_rt.lang import comptime
from zinc_rt.lang.calls import Body, Calls
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.frame import Arm, merge
from zinc_rt.lang.kernel import Function
from zinc_rt.lang.types import Ptr, Space, Struct, Type, Vec
from zinc_rt.lang.values import Constant, Regs, StackSlot, Val, describe, is_static

_WORDS = {
    ast.FunctionDef: "a function inside a kernel (`def`)", ast.AsyncFunctionDef: "`async def`", ast.ClassDef: "`class`",
    ast.Delete: "`del`", ast.AsyncFor: "`async for`", ast.With: "`with`", ast.AsyncWith: "`async with`",
    ast.Match: "`match`", ast.Raise: "`raise`", ast.Try: "`try`", ast.TryStar: "`try`", ast.Import: "`import`",
    ast.ImportFrom: "`import`", ast.Global: "`global`", ast.Nonlocal: "`nonlocal`",
}  # fmt: skip


class Statements(Calls):
    """Runs the statements of function bodies."""

    # -- bodies -----------------------------------------------------------------------------------------------------

    def body(self, function: Function, kind: Type | None) -> Any:
        """Run a function's statements in the current frame; what it returns. Raises `KernelError`."""
        back = Body(self.region, kind)
        self.bodies.append(back)
        loops = self.enter_body()
        try:
            self.block(function.tree.body)
        finally:
            self.bodies.pop()
            self.leave_body(loops)
        if back.label is None:
            if back.done or not self.f.reachable:
                return back.value
            return self._fell_off(function, back)
        if self.f.block is not None:  # no return at the end
            back.ways.append((function.tree, None, self.f.block))
        self.f.start(back.label)
        values = [value for _, value, _ in back.ways]
        if all(v is None for v in values):
            return self._fell_off(function, back)
        for node, value, _ in back.ways:
            if value is None:
                text = "ends without a value" if node is function.tree else "returns nothing here"
                raise self.error(node, f"{function.name} {text}, elsewhere it returns one")
        return self.join(back.ways, back.kind)

    def _fell_off(self, function: Function, back: Body) -> None:
        if back.kind is not None:
            raise self.error(function.tree, f"{function.name} must return {back.kind} on every path")

    def enter_body(self) -> Any:
        """Set loops outside of a function body aside."""
        raise NotImplementedError  # loops.py

    def leave_body(self, loops: Any) -> None:
        """Take up again what `enter_body` set aside."""
        raise NotImplementedError

    def block(self, statements: list[ast.stmt]) -> None:
        """Run statements in order, stopping where nothing after can run."""
        for statement in statements:
            if self.f.block is None or (self.bodies and self.bodies[-1].done):
                return
            method = self._methods.get(type(statement))
            if method is None:
                name = f"_do_{type(statement).__name__.lower()}"
                method = self._methods[type(statement)] = getattr(self, name, self._unknown_statement)
            try:
                method(statement)
            except Reject as reason:
                raise self.error(statement, str(reason)) from None

    def _unknown_statement(self, node: ast.stmt) -> None:
        raise Reject(f"{_WORDS.get(type(node), type(node).__name__)} is not part of the kernel language")

    # -- assignments ------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Any) -> None:
        """`target = value`. Raises `Reject`."""
        if isinstance(target, ast.Name):
            self.assign_name(target.id, value)
        elif isinstance(target, ast.Tuple | ast.List):
            if not isinstance(value, tuple | list):
                raise Reject(f"{len(target.elts)} names cannot take {describe(value)}; only tuples are taken apart")
            if len(value) != len(target.elts) or any(isinstance(t, ast.Starred) for t in target.elts):
                raise Reject(f"{len(target.elts)} names cannot take {len(value)} values")
            for part, item in zip(target.elts, value, strict=True):
                self.assign(part, item)
        elif isinstance(target, ast.Subscript):
            self._set_item(self.evaluate(target.value), self.evaluate(target.slice), value)
        elif isinstance(target, ast.Attribute):
            self._store(self.field(self.evaluate(target.value), target.attr), value)
        else:
            raise Reject("only names, elements, fields and tuples of them can be assigned")

    def assign_name(self, name: str, value: Any) -> None:
        """Bind a name, or store into its variable. Raises `Reject`."""
        frame = self.frame
        bound = frame.names.get(name)
        if name in frame.counters:
            raise Reject(f"{name} is the loop's variable; use another name")
        if isinstance(bound, StackSlot):
            try:
                x = self.as_value(value, bound.type)
            except Reject as reason:
                raise Reject(f"{name} is a variable of {bound.type}: {reason}") from None
            self.f.emit(f"store {self.f.type(bound.type)} {x.ref}, {self.f.stack} {bound.ref}")
            return
        if isinstance(bound, Constant) and bound.region != self.region:
            raise Reject(self._fixed(name, bound, value))
        if not isinstance(value, Val):
            frame.names[name] = Constant(value, self.region)
        elif frame.function.sites.get(name, 0) > 1:
            frame.names[name] = self.variable(value, name)
        else:
            frame.names[name] = value

    def _fixed(self, name: str, bound: Constant, value: Any) -> str:
        if isinstance(bound.value, Regs):
            return f"{name} names registers and keeps them in run-time control flow; assign its elements"
        if not is_static(bound.value):
            return f"{name} names a tuple and keeps it in run-time control flow; give its parts names of their own"
        kind = describe(value) if isinstance(value, Val) else "f32" if isinstance(value, float) else "i32"
        return (
            f"{name} is a compile-time constant and cannot change in run-time control flow; declare it as a variable:"
            f" `{name}: {kind} = {bound.value!r}`"
        )

    def _set_item(self, base: Any, index: Any, value: Any) -> None:
        if isinstance(base, Regs):
            cell = self.register(base, index)
            x = self.as_value(value, base.type)
            self.f.emit(f"store {self.f.type(base.type)} {x.ref}, {self.f.stack} {cell}")
        elif isinstance(base, Val) and isinstance(base.type, Ptr):
            self._store(self.address(base, index), value)
        elif isinstance(base, Val) and isinstance(base.type, Vec):
            raise Reject(f"lanes of {base.type} cannot be assigned; insert(v, lane, x) gives a changed vector")
        else:
            raise Reject(f"elements of {describe(base)} cannot be assigned")

    def _store(self, p: Val, value: Any) -> None:
        """Write an element. Raises `Reject`."""
        assert isinstance(p.type, Ptr)
        if isinstance(p.type.elem, Struct):
            raise Reject(f"elements of {p.type} cannot be assigned; assign their fields")
        if p.type.space is Space.CONSTANT:
            raise Reject(f"{p.type}: nothing is written there while the kernel runs")
        x = self.as_value(value, p.type.elem)
        self.f.emit(f"store {self.f.type(x.type)} {x.ref}, {self.f.type(p.type)} {p.ref}, align {x.type.align}")

    def _do_assign(self, node: ast.Assign) -> None:
        value = self.evaluate(node.value)
        for target in node.targets:
            self.assign(target, value)

    def _do_annassign(self, node: ast.AnnAssign) -> None:
        if not isinstance(node.target, ast.Name):
            raise Reject("a declaration is `name: type = value`")
        name, kind = node.target.id, self.evaluate(node.annotation)
        if not isinstance(kind, Type):
            near = {float: "; write f32 or f64", int: "; write i32 or another integer type"}.get(kind, "")
            raise Reject(f"a declaration needs a type of the language, got {describe(kind)}{near}")
        if node.value is None:
            raise Reject(f"a variable needs a first value: `{name}: {kind} = …`")
        bound = self.frame.names.get(name)
        if isinstance(bound, StackSlot) and bound.type != kind:
            raise Reject(f"{name} is a variable of {bound.type} already; use another name")
        if isinstance(bound, Constant) and bound.region == self.region:
            del self.frame.names[name]
        self.assign_name(name, self.coerce(node.value, self.evaluate(node.value), kind))

    def _do_augassign(self, node: ast.AugAssign) -> None:
        target = node.target
        if isinstance(target, ast.Name):
            old = self._name(target)
            self.assign_name(target.id, self.operate(node.op, old, self.evaluate(node.value)))
        elif isinstance(target, ast.Attribute):
            field = self.field(self.evaluate(target.value), target.attr)
            self._store(field, self.operate(node.op, self.load(field), self.evaluate(node.value)))
        elif isinstance(target, ast.Subscript):
            base, index = self.evaluate(target.value), self.evaluate(target.slice)
            if isinstance(base, Val) and isinstance(base.type, Ptr) and not isinstance(base.type.elem, Struct):
                address = self.address(base, index)
                self._store(address, self.operate(node.op, self.load(address), self.evaluate(node.value)))
            else:
                old = self.item(base, index)
                self._set_item(base, index, self.operate(node.op, old, self.evaluate(node.value)))
        else:
            raise Reject("only names, elements and fields can be changed in place")

    # -- simple statements ------------------------------------------------------------------------------------------

    def _do_expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant) and isinstance(node.value.value, str | type(...)):
            return
        if not isinstance(node.value, ast.Call):
            self.evaluate(node.value)
            raise Reject("the value is not used; assign it to a name")
        self.evaluate(node.value)

    def _do_pass(self, node: ast.Pass) -> None:
        pass

    def _do_assert(self, node: ast.Assert) -> None:
        raise Reject(
            "`assert` is not part of the kernel language; static_assert(condition, message) checks at compile time"
        )

    def _do_return(self, node: ast.Return) -> None:
        back = self.bodies[-1]
        value = self.evaluate(node.value) if node.value is not None else None
        if back.kind is not None and not (value is None and node.value is None):
            value = self.coerce(node, value, back.kind)
        outermost = self.region == back.region
        if outermost and back.label is None:
            if back.kind is not None and value is None:
                raise Reject(f"expected {back.kind}, got nothing")
            back.value, back.done = value, True
            return
        if self.f.block is None:
            return
        if back.label is None:
            back.label = self.f.new_block("return")
        back.ways.append((node, value, self.f.block))
        back.done = outermost
        self.f.branch(back.label)

    def _do_if(self, node: ast.If) -> None:
        test = self.evaluate(node.test)
        if is_static(test):
            self.block(node.body if comptime.truth(test) else node.orelse)
            return
        chosen = self.condition(node.test, test)
        then, other, end = (self.f.new_block(stem) for stem in ("then", "else", "end"))
        self.f.branch_if(chosen.ref, then, other)
        twins = self.frame.twins
        first = self._arm(then, node.body, end, dict(twins))
        new = {n: b for n, b in first.names.items() if isinstance(b, StackSlot) and n not in self.frame.names}
        second = self._arm(other, node.orelse, end, twins | new)
        if first.reached or second.reached:
            self.f.start(end)
        merge(self.frame, (first, second), node.lineno, self.region)

    def _arm(self, label: str, body: list[ast.stmt], end: str, twins: dict[str, StackSlot]) -> Arm:
        self.f.start(label)
        with self.in_region():
            self.frame.twins = twins
            self.block(body)
            arm = Arm(self.frame.names, self.f.reachable)
        if arm.reached:
            self.f.branch(end)
        return arm

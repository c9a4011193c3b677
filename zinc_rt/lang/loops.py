"""Loops: `for` over `range` and `while` at run time, `for` over `unroll` or a tuple written out."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from zinc_rt.lang import comptime, ops
from zinc_rt.lang.diagnostics import Reject
from zinc_rt.lang.statements import Statements
from zinc_rt.lang.types import Int, i32
from zinc_rt.lang.values import Constant, Val, describe, is_static


@dataclass
class _Loop:
    """The targets of `continue` and `break` in a loop; an unrolled loop has none."""

    again: str = ""
    end: str = ""
    left: bool = False  # a `break` branches to the end


class Loops(Statements):
    """The complete compiler of function bodies."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._loops: list[_Loop] = []

    def enter_body(self) -> Any:
        """Save the loops around a function body and start without any."""
        outside, self._loops = self._loops, []
        return outside

    def leave_body(self, loops: Any) -> None:
        """Restore the loops that `enter_body` saved."""
        self._loops = loops

    def _do_while(self, node: ast.While) -> None:
        if node.orelse:
            raise Reject("`else` of a loop is not part of the kernel language")
        head, body, end = (self.f.new_block(stem) for stem in ("head", "body", "end"))
        self.f.start(head)
        with self.in_region(_lost(node)):
            test = self.evaluate(node.test)
            endless = is_static(test) and comptime.truth(test)
            if not is_static(test):
                self.f.branch_if(self.condition(node.test, test).ref, body, end)
                self.f.start(body)
            loop = _Loop(head, end)
            if endless or not is_static(test):
                self._body(node.body, loop)
                if self.f.reachable:
                    self.f.branch(head)
        if loop.left or not endless:
            self.f.start(end)

    def _body(self, body: list[ast.stmt], loop: _Loop) -> None:
        self._loops.append(loop)
        self.block(body)
        self._loops.pop()

    def _do_for(self, node: ast.For) -> None:
        if node.orelse:
            raise Reject("`else` of a loop is not part of the kernel language")
        if not isinstance(node.iter, ast.Call):
            self._unrolled(node, self.turns(self.evaluate(node.iter), "an unrolled loop goes over"))
            return
        callee = self.evaluate(node.iter.func)
        if callee is ops.unroll:
            self._unrolled(node, self._unroll_items(node.iter))
        elif callee is range:
            self._counted(node, node.iter)
        else:
            self._unrolled(node, self.turns(self.evaluate(node.iter), "a loop goes over"))

    def _unroll_items(self, call: ast.Call) -> Iterator[Any]:
        values = [self.evaluate(a) for a in call.args]
        if call.keywords:
            raise Reject("unroll takes no named arguments")
        if len(values) == 1 and isinstance(values[0], tuple | list | range):
            return self.turns(values[0], "unroll goes over")
        if not 1 <= len(values) <= 3 or not all(isinstance(v, int) and not isinstance(v, bool) for v in values):
            got = ", ".join(map(describe, values)) or "nothing"
            raise Reject(
                f"unroll takes 1 to 3 compile-time integers, as range does, or a compile-time tuple; got {got}"
            )
        return self.turns(comptime.guarded("unroll", range, *values), "unroll goes over")

    def _unrolled(self, node: ast.For, items: Iterator[Any]) -> None:
        names = [n.id for n in ast.walk(node.target) if isinstance(n, ast.Name)]
        frame = self.frame
        self._check_free(names)
        loop = _Loop()
        for item in items:
            for name in names:
                frame.names.pop(name, None)
            self._bind(node.target, item)
            self._loops.append(loop)
            self.block(node.body)
            self._loops.pop()
        for name in names:
            frame.names.pop(name, None)
            frame.lost[name] = "is a loop's variable and unknown after the loop"

    def _bind(self, target: ast.expr, item: Any) -> None:
        """Bind an unrolled loop's names."""
        if isinstance(target, ast.Name):
            self.frame.names[target.id] = item if isinstance(item, Val) else Constant(item, self.region)
        elif isinstance(target, ast.Tuple | ast.List) and isinstance(item, tuple | list):
            if len(item) != len(target.elts):
                raise Reject(f"{len(target.elts)} names cannot take {len(item)} values")
            for part, value in zip(target.elts, item, strict=True):
                self._bind(part, value)
        else:
            raise Reject("a loop's variable is a name, or a tuple of names over tuples")

    def _check_free(self, names: list[str]) -> None:
        for name in names:
            if name in self.frame.names:
                raise Reject(f"{name} is in use; a loop's variable needs a name of its own")

    def _counted(self, node: ast.For, call: ast.Call) -> None:
        """A run-time loop. The last value is computed before it, so that no count ever overflows."""
        if not isinstance(node.target, ast.Name) or call.keywords or not 1 <= len(call.args) <= 3:
            raise Reject(
                "a run-time loop is `for name in range(stop)`, `range(start, stop)` or `range(start, stop, step)`"
            )
        name = node.target.id
        self._check_free([name])
        bounds = [self.evaluate(a) for a in call.args]
        start, stop = (0, bounds[0]) if len(bounds) == 1 else bounds[:2]
        step = bounds[2] if len(bounds) == 3 else 1
        if isinstance(step, bool) or not isinstance(step, int) or step == 0:
            raise Reject(f"the step of range must be a compile-time integer other than 0, got {describe(step)}")
        kind = self._counter_type(start, stop)
        if not 0 < abs(step) <= kind.limits[1]:
            raise Reject(f"the step {step} does not fit {kind}")
        first, limit = self.coerce(call, start, kind), self.coerce(call, stop, kind)
        self._count(node, name, kind, (first, limit, step))

    def _counter_type(self, start: Any, stop: Any) -> Int:
        kinds = [b.type for b in (start, stop) if isinstance(b, Val)]
        if len(kinds) == 2 and kinds[0] != kinds[1]:
            raise Reject(f"the bounds of range have types {kinds[0]} and {kinds[1]}; convert one of them")
        kind = kinds[0] if kinds else i32
        if not isinstance(kind, Int):
            raise Reject(f"range counts integers, got {kind}")
        return kind

    def _count(self, node: ast.For, name: str, kind: Int, bounds: tuple[Val, Val, int]) -> None:
        first, limit, step = bounds
        f, text = self.f, self.f.type(kind)
        before, head, again, end = (f.new_block(stem) for stem in ("before", "body", "again", "end"))
        order = f"{'s' if kind.signed else 'u'}{'lt' if step > 0 else 'gt'}"
        f.branch_if(f.value(f"icmp {order} {text} {first.ref}, {limit.ref}"), before, end)
        f.start(before)
        last = self._last(text, first, limit, step)
        now, after = "%" + f.name("i"), "%" + f.name("i")
        f.start(head)
        f.emit(f"{now} = phi {text} [ {first.ref}, %{before} ], [ {after}, %{again} ]")
        counters = self.frame.counters
        with self.in_region(_lost(node)):
            self.frame.names[name] = Val(kind, now)
            self.frame.counters = counters | {name}
            self._body(node.body, _Loop(again, end))
        self.frame.counters = counters
        self.frame.lost[name] = "is a loop's variable and unknown after the loop"
        f.start(again)
        # Below the last value, so the sum cannot overflow; LLVM may use that.
        word = f"{'add nsw' if kind.signed else 'add nuw'} {text} {now}, {step}"
        if step < 0 and not kind.signed:
            word = f"sub nuw {text} {now}, {-step}"
        f.emit(f"{after} = {word}")
        f.branch_if(f.value(f"icmp eq {text} {now}, {last}"), end, head)
        f.start(end)

    def _last(self, text: str, first: Val, limit: Val, step: int) -> str:
        """The last value of a range that is not empty: unsigned distance, less what a step does not reach."""
        f, up = self.f, step > 0
        near = f.value(f"{'sub' if up else 'add'} {text} {limit.ref}, 1")
        size = abs(step)
        if size == 1:
            return near
        far, base = (near, first.ref) if up else (first.ref, near)
        distance = f.value(f"sub {text} {far}, {base}")
        if size & (size - 1):
            rest = f.value(f"urem {text} {distance}, {size}")
        else:
            rest = f.value(f"and {text} {distance}, {size - 1}")
        return f.value(f"{'sub' if up else 'add'} {text} {near}, {rest}")

    def _do_break(self, node: ast.Break) -> None:
        loop = self._innermost("break")
        loop.left = True
        self.f.branch(loop.end)

    def _do_continue(self, node: ast.Continue) -> None:
        self.f.branch(self._innermost("continue").again)

    def _innermost(self, word: str) -> _Loop:
        if not self._loops or not self._loops[-1].end:
            raise Reject(f"`{word}` belongs in a run-time loop; an unrolled loop has none to leave")
        return self._loops[-1]


def _lost(node: ast.For | ast.While) -> str:
    return f"is first assigned inside the loop of line {node.lineno}, which may not run; assign it before the loop"

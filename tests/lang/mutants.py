"""Kernels that someone mistyped: valid ones with a few random changes to their trees."""

from __future__ import annotations

import ast
import copy
import random
from collections.abc import Iterator
from typing import Any

from tests.lang import arith_kernels, code_kernels, control_kernels, gpu_kernels, value_kernels
from zinc_rt.lang import TARGETS, Function, Spec, Target

GPU = TARGETS["gfx1201"]
CPUS = [TARGETS[name] for name in ("avx2", "avx512vnni", "aarch64-dotprod")]

SPECS: list[tuple[Spec, Target]] = [
    *((Spec(f), GPU) for f in gpu_kernels.ALL),
    *(
        (spec, CPUS[i % 3])
        for i, spec in enumerate([*control_kernels.SPECS, *value_kernels.SPECS, *arith_kernels.SPECS])
    ),
    *((Spec(f), CPUS[0]) for f in (code_kernels.hints, code_kernels.orders, code_kernels.unchanging)),
]

_TREES: list[ast.FunctionDef] = [
    value.tree
    for module in (arith_kernels, code_kernels, control_kernels, gpu_kernels, value_kernels)
    for value in vars(module).values()
    if isinstance(value, Function)
]
EXPRESSIONS: list[ast.expr] = [
    n
    for t in _TREES
    for s in t.body
    for n in ast.walk(s)
    if isinstance(n, ast.expr) and isinstance(getattr(n, "ctx", ast.Load()), ast.Load)
]
STATEMENTS: list[ast.stmt] = [n for t in _TREES for s in t.body for n in ast.walk(s) if isinstance(n, ast.stmt)]
NAMES = sorted({n.id for n in EXPRESSIONS if isinstance(n, ast.Name)} | {"min", "len", "range", "i16", "vec", "bool"})
OPERATORS: list[Any] = [op() for op in ast.operator.__subclasses__()]
COMPARISONS: list[Any] = [op() for op in ast.cmpop.__subclasses__()]
UNARY: list[Any] = [op() for op in ast.unaryop.__subclasses__()]
CONSTANTS: list[Any] = [
    0, 1, -1, 2, 3, 7, 16, 255, 256, 257, 1 << 31, 1 << 63, 1 << 64, -(1 << 63), 10**30, 0.0, -0.0, 1.5, 1e39, 1e308,
    float("inf"), float("nan"), True, False, None, "", "acquire", "x", b"x", 1j, ...,
]  # fmt: skip


def mutants(seed: int, count: int) -> Iterator[tuple[Spec, Target]]:
    """`count` of them, the same for the same seed."""
    rng = random.Random(seed)
    for _ in range(count):
        spec, target = rng.choice(SPECS)
        tree = copy.deepcopy(spec.function.tree)
        for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
            _change(rng, tree)
        function = Function(spec.function.fn, entry=True, workgroup=spec.function.workgroup)
        function.tree = ast.fix_missing_locations(tree)
        constants = dict(spec.constants)
        if constants and rng.random() < 0.05:
            constants[rng.choice(list(constants))] = rng.choice(CONSTANTS)
        yield Spec(function, constants), target


def _change(rng: random.Random, tree: ast.FunctionDef) -> None:
    node = rng.choice(list(ast.walk(tree)))
    for field, value in rng.sample(list(ast.iter_fields(node)), len(list(ast.iter_fields(node)))):
        if isinstance(value, list) and value:
            _change_list(rng, value, shorten=isinstance(node, ast.Call | ast.Tuple))
            return
        if isinstance(value, ast.expr):
            if not isinstance(getattr(value, "ctx", ast.Load()), ast.Load) and rng.random() < 0.7:
                continue
            setattr(node, field, _expression(rng))
            return
        replacements = {ast.operator: OPERATORS, ast.unaryop: UNARY}
        for kind, choices in replacements.items():
            if isinstance(value, kind):
                setattr(node, field, rng.choice(choices))
                return
        if isinstance(node, ast.Constant) and field == "value":
            node.value = rng.choice(CONSTANTS)
            return
        if isinstance(node, ast.Name) and field == "id":
            node.id = rng.choice(NAMES)
            return
        if isinstance(node, ast.Attribute) and field == "attr":
            node.attr = rng.choice((*NAMES, "first", "bits"))
            return


def _change_list(rng: random.Random, items: list[Any], shorten: bool) -> None:
    at = rng.randrange(len(items))
    kind = items[at]
    action = rng.random()
    if isinstance(kind, ast.cmpop):
        items[at] = rng.choice(COMPARISONS)
    elif isinstance(kind, ast.stmt):
        if action < 0.3 and len(items) > 1:
            del items[at]
        elif action < 0.5:
            items.insert(at, copy.deepcopy(rng.choice(STATEMENTS)))
        elif action < 0.65:
            items[at] = copy.deepcopy(rng.choice(STATEMENTS))
        elif action < 0.8:
            rng.shuffle(items)
        else:
            items[at] = _wrapped(rng, kind)
    elif isinstance(kind, ast.expr):
        if action < 0.2 and shorten:
            del items[at]
        elif action < 0.4 and shorten:
            items.insert(at, _expression(rng))
        else:
            items[at] = _expression(rng)
    elif isinstance(kind, ast.keyword | ast.arg):
        if action < 0.5:
            del items[at]
        elif isinstance(kind, ast.keyword):
            kind.value = _expression(rng)
        elif isinstance(kind, ast.arg):
            kind.annotation = _expression(rng)


def _expression(rng: random.Random) -> ast.expr:
    kind = rng.random()
    if kind < 0.25:
        return ast.Constant(rng.choice(CONSTANTS))
    if kind < 0.45:
        return ast.Name(rng.choice(NAMES), ast.Load())
    found = copy.deepcopy(rng.choice(EXPRESSIONS))
    if kind < 0.55:
        return ast.BinOp(found, rng.choice(OPERATORS), _expression(rng))
    if kind < 0.6:
        return ast.UnaryOp(rng.choice(UNARY), found)
    if kind < 0.65:
        return ast.Tuple([found, _expression(rng)], ast.Load())
    if kind < 0.7:
        return ast.IfExp(_expression(rng), found, _expression(rng))
    return found


def _wrapped(rng: random.Random, statement: ast.stmt) -> ast.stmt:
    kind, test = rng.randrange(6), _expression(rng)
    if kind == 0:
        return ast.If(test, [statement], [copy.deepcopy(rng.choice(STATEMENTS))] if rng.random() < 0.5 else [])
    if kind == 1:
        return ast.While(test, [statement, ast.Break()], [])
    if kind == 2:
        return ast.For(ast.Name("w", ast.Store()), ast.Call(ast.Name("range", ast.Load()), [test], []), [statement], [])
    if kind == 3:
        turns = ast.Constant(rng.choice((0, 1, 3)))
        return ast.For(
            ast.Name("w", ast.Store()), ast.Call(ast.Name("unroll", ast.Load()), [turns], []), [statement], []
        )
    if kind == 4:
        return ast.Return(test)
    return ast.Try([statement], [], [], [ast.Pass()])

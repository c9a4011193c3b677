"""The Jinja2 environment in which a model file's chat template runs.

A template is a program from a stranger's file. Jinja2's immutable sandbox keeps it from Python's internals
and from changing the messages; `template_limits` keeps it from running or growing without end.
"""

from __future__ import annotations

import json
from datetime import datetime
from functools import cache
from typing import Any, NoReturn

from jinja2 import Environment, Template, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from zinc_rt.text import template_limits as limits


class Refusal(Exception):
    """A template called `raise_exception`."""


def compile_template(source: str) -> Template:
    """Compile a template. Raises Limit for a source that is too long and jinja2.TemplateSyntaxError."""
    if len(source) > limits.MAX_SOURCE:
        raise limits.Limit(f"the source has {len(source)} characters, the limit is {limits.MAX_SOURCE}")
    environment = _environment()
    tree = environment.parse(source)
    return environment.from_string(_Counted(environment).visit(tree))


def run(template: Template, variables: dict[str, Any]) -> str:
    """Render under the limits. Raises Limit, Refusal and whatever the template's expressions raise."""
    pieces: list[str] = []
    size = 0
    with limits.counting():
        for piece in template.generate(variables):
            size += len(piece)
            limits.check_size(size)
            pieces.append(piece)
    return "".join(pieces)


@cache
def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals.pop("lipsum")  # it makes text of any length
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters["tojson"] = _tojson
    for name, function in environment.filters.items():
        environment.filters[name] = limits.counted_filter(name, function)
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        limits.check_operands(operator, left, right)
        return limits.counted(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        limits.check_method(__obj, args, kwargs)
        return limits.counted(super().call(__context, __obj, *args, **kwargs))

    @staticmethod
    def count_round() -> bool:
        """Called once in each round of a loop; `call` counts it."""
        return True

    @staticmethod
    def join_texts(*values: Any) -> str:
        """The `~` operator."""
        texts = [str(value) for value in values]
        limits.check_size(sum(map(len, texts)))
        return "".join(texts)


class _Counted(NodeTransformer):
    """Makes loops and `~`, which Jinja2 compiles to plain Python, go through the sandbox's `call`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        count = self._call("count_round", [], node.lineno)
        if node.test is None:
            node.body.insert(0, nodes.ExprStmt(count, lineno=node.lineno))
        else:  # rounds that the test leaves out are work, too
            node.test = nodes.And(count, node.test, lineno=node.lineno)
        node.set_environment(self._environment)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        call = self._call("join_texts", node.nodes, node.lineno)
        call.set_environment(self._environment)
        return call

    @staticmethod
    def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
        function = nodes.EnvironmentAttribute(name, lineno=lineno)
        return nodes.Call(function, args, [], None, None, lineno=lineno)


class _GenerationBlocks(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training; here it is its content."""

    tags = {"generation"}  # noqa: RUF012 - Jinja2 declares it per instance

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object = "") -> NoReturn:
    raise Refusal(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """JSON as it is, with none of the escapes for HTML that Jinja2's own filter makes."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

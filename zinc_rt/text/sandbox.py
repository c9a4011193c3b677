"""The Jinja2 environment in which a model file's chat template runs.

A template is a program from a stranger's file. Jinja2's immutable sandbox keeps it from Python's internals
and from changing the messages; the limits here keep it from running or growing without end: every loop round,
call and operator is counted, together with the size of what it makes, and the counter does not depend on the
machine. What is left out of the count are the insides of Jinja2's own filters on values of bounded size.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sized
from contextvars import ContextVar
from datetime import datetime
from functools import cache, wraps
from typing import Any, NoReturn

from jinja2 import Environment, Template, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

MAX_SOURCE = 1 << 20  # characters of a template
MAX_TEXT = 1 << 24  # characters (or items) of any one value that a template makes, and of its output
MAX_STEPS = (
    5_000_000  # loop rounds, calls and operators of one rendering, a KiB of text made counting as one more
)
_MAX_POWER_BITS = 1 << 12
_WIDTH = re.compile(
    r"\d{5,}|\*"
)  # a width or precision in a format that could make text far larger than its source

_steps: ContextVar[list[int] | None] = ContextVar("zinc_rt_template_steps", default=None)


class Limit(Exception):
    """A template went over one of the limits of this module."""


class Refusal(Exception):
    """A template called `raise_exception`."""


def run(template: Template, variables: dict[str, Any]) -> str:
    """Render under the limits. Raises Limit, Refusal and whatever the template's expressions raise."""
    token = _steps.set([0])
    try:
        pieces: list[str] = []
        size = 0
        for piece in template.generate(variables):
            size += len(piece)
            _check_size(size)
            pieces.append(piece)
        return "".join(pieces)
    finally:
        _steps.reset(token)


def compile_template(source: str) -> Template:
    """Compile a template. Raises Limit for a source that is too long and jinja2.TemplateSyntaxError."""
    if len(source) > MAX_SOURCE:
        raise Limit(f"the source has {len(source)} characters, the limit is {MAX_SOURCE}")
    environment = _environment()
    tree = environment.parse(source)
    return environment.from_string(_Counted(environment).visit(tree))


@cache
def _environment() -> _Sandbox:
    environment = _Sandbox(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    environment.globals.pop("lipsum")  # it makes text of any length
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    for name, size in _FILTER_SIZES.items():
        environment.filters[name] = _sized(environment.filters[name], size)
    environment.filters["tojson"] = _tojson
    return environment


class _Sandbox(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        _check_operands(operator, left, right)
        return _counted(super().call_binop(context, operator, left, right))

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str):
            size = _METHOD_SIZES.get(getattr(__obj, "__name__", ""))
            if size is not None:
                _check_call(size, owner, *args, **kwargs)
        return _counted(super().call(__context, __obj, *args, **kwargs))

    @staticmethod
    def tick() -> None:
        """Called once in each round of a loop; `call` counts it."""

    @staticmethod
    def concat(*values: Any) -> str:
        """The `~` operator."""
        texts = [str(value) for value in values]
        _check_size(sum(map(len, texts)))
        return "".join(texts)


class _Counted(NodeTransformer):
    """Makes loops and `~`, which Jinja2 compiles to plain Python, go through the sandbox's `call`."""

    def __init__(self, environment: Environment) -> None:
        self._environment = environment

    def visit_For(self, node: nodes.For) -> nodes.Node:
        self.generic_visit(node)
        node.body.insert(0, nodes.ExprStmt(self._call("tick", [], node.lineno), lineno=node.lineno))
        node.body[0].set_environment(self._environment)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        call = self._call("concat", node.nodes, node.lineno)
        call.set_environment(self._environment)
        return call

    @staticmethod
    def _call(name: str, args: list[nodes.Expr], lineno: int) -> nodes.Call:
        return nodes.Call(
            nodes.EnvironmentAttribute(name, lineno=lineno), args, [], None, None, lineno=lineno
        )


class _GenerationBlocks(Extension):
    """`{% generation %}...{% endgeneration %}` marks the assistant's text for training; here it is its
    content.
    """

    tags = {"generation"}  # noqa: RUF012 - declared per instance by Jinja2

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _counted(value: Any) -> Any:
    """Count one step, and the size of its result. Raises Limit."""
    steps = _steps.get()
    if steps is not None:
        size = len(value) if isinstance(value, (str, list, tuple)) else 0
        _check_size(size)
        steps[0] += 1 + (size >> 10)
        if steps[0] > MAX_STEPS:
            raise Limit(f"it runs for more than {MAX_STEPS} steps")
    return value


def _check_size(size: int) -> None:
    if size > MAX_TEXT:
        raise Limit(f"it makes a text or list of {size} characters or items, the limit is {MAX_TEXT}")


def _check_operands(operator: str, left: Any, right: Any) -> None:
    if operator == "*":
        for sequence, times in ((left, right), (right, left)):
            if isinstance(sequence, (str, list, tuple)) and isinstance(times, int):
                _check_size(len(sequence) * max(times, 0))
    elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
        _check_size(len(left) + len(right))
    elif operator == "**" and isinstance(left, int) and isinstance(right, int):
        if left.bit_length() * abs(right) > _MAX_POWER_BITS:
            raise Limit(f"it computes a power of more than {_MAX_POWER_BITS} bits")
    elif operator == "%" and isinstance(left, str):
        _check_format(left)


def _check_format(text: str, *_: Any, **__: Any) -> int:
    if _WIDTH.search(text):
        raise Limit("it formats text with a width of five or more digits, or one taken from a value")
    return 0


def _width(text: str, width: int = 80, *_: Any, **__: Any) -> int:
    return max(len(text), width)


def _indented(text: str, width: int | str = 4, *_: Any, **__: Any) -> int:
    return len(text) + (text.count("\n") + 1) * (len(width) if isinstance(width, str) else max(width, 0))


def _replaced(text: str, old: str, new: str, *_: Any, **__: Any) -> int:
    return len(text) + text.count(old) * len(new)


def _joined(separator: str, parts: Any) -> int:
    return _joined_filter(parts, separator)


def _joined_filter(parts: Any, separator: str = "", *_: Any, **__: Any) -> int:
    if not isinstance(parts, (list, tuple)):
        return 0
    return sum(len(part) for part in parts if isinstance(part, str)) + len(separator) * len(parts)


# How long the result of a call can be, by the call's own arguments.
_METHOD_SIZES: dict[str, Callable[..., int]] = {
    "ljust": _width, "rjust": _width, "center": _width, "zfill": _width, "format": _check_format,
    "format_map": _check_format, "replace": _replaced, "join": _joined,
    "expandtabs": lambda text, tabsize=8: len(text) + text.count("\t") * max(tabsize, 0),
}  # fmt: skip
_FILTER_SIZES: dict[str, Callable[..., int]] = {
    "center": _width, "indent": _indented, "replace": _replaced, "join": _joined_filter,
    "format": _check_format,
    "batch": lambda items, linecount, fill_with=None: linecount,
    "slice": lambda items, slices, fill_with=None: slices,
}  # fmt: skip


def _check_call(size: Callable[..., int], *args: Any, **kwargs: Any) -> None:
    try:
        expected = size(*args, **kwargs)
    except (TypeError, AttributeError):
        return  # wrong arguments: the call itself says so
    _check_size(expected)


def _sized(function: Callable[..., Any], size: Callable[..., int]) -> Callable[..., Any]:
    """A filter with its size checked. Filters that take an environment or context first keep doing so."""
    skip = 1 if hasattr(function, "jinja_pass_arg") else 0

    @wraps(function)
    def filter_(*args: Any, **kwargs: Any) -> Any:
        _check_call(size, *args[skip:], **kwargs)
        return function(*args, **kwargs)

    return filter_


def _raise_exception(message: object = "") -> NoReturn:
    raise Refusal(str(message))


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


def _tojson(value: Any, ensure_ascii: bool = False, indent: int | None = None,
            separators: tuple[str, str] | None = None, sort_keys: bool = False) -> str:  # fmt: skip
    if indent is not None:
        _check_size(indent << 10)
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )

"""The Jinja2 environment in which a model file's chat template runs.

A template is a program from a stranger's file. Jinja2's immutable sandbox keeps it from Python's internals and
from changing the messages. It does not keep it from running or growing without end: that is the work of the
process this module is imported in, see `template_job`. The runtime's own process does not import it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from functools import cache, lru_cache
from types import TracebackType
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, TemplateSyntaxError, nodes
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

_KEPT = 8  # compiled templates
_MAX_MESSAGE = 1000  # characters of an exception's text that are looked at


class Refusal(Exception):
    """A template called `raise_exception`."""


class TooLong(Exception):
    """A template made more text than it may."""


@lru_cache(_KEPT)
def compile_template(source: str) -> Template:
    """Compile a template. Raises jinja2.TemplateSyntaxError, and whatever a constant does that cannot be folded."""
    return _environment().from_string(source)


def render(source: str, variables: Mapping[str, Any], max_characters: int) -> str:
    """Compile and run. Raises TooLong, Refusal and whatever the template's expressions raise."""
    pieces: list[str] = []
    size = 0
    for piece in compile_template(source).generate(variables):
        size += len(piece)
        if size > max_characters:
            raise TooLong(f"it makes a text of more than {max_characters} characters")
        pieces.append(piece)
    return "".join(pieces)


def describe(error: Exception) -> tuple[str, int | None]:
    """What `render` raised: in words, and the line of the template it came through last, if one is known."""
    if isinstance(error, TemplateSyntaxError):
        return f"syntax error: {(error.message or '')[:_MAX_MESSAGE]}", error.lineno
    text = str(error)[:_MAX_MESSAGE] or type(error).__name__
    if isinstance(error, Refusal):
        text = f"it refuses this conversation: {text}"
    elif not isinstance(error, (TemplateError, TooLong)):
        text = f"{type(error).__name__}: {text}"
    return text, line_of(error.__traceback__)


def line_of(traceback: TracebackType | None) -> int | None:
    """The last line of the template in a traceback: Jinja2 writes template lines into them."""
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line


@cache
def _environment() -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _GenerationBlocks]
    )
    del environment.globals["lipsum"]  # text at random
    environment.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}
    environment.filters["tojson"] = _tojson
    return environment


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

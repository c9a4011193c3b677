"""What `run` and `chat` let a caller say of the answer: its form, its reasoning, how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any, Final

import typer

from zinc_rt.checks import show
from zinc_rt.cli import options as o
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import is_terminal, shows_styles
from zinc_rt.cli.voice import Voice
from zinc_rt.errors import UsageError

_SHOWN: Final = ("show", "hide")
_FORMATS: Final = ("text", "json")


def _reasonings(incomplete: str) -> list[str]:
    """Shell completion of --reasoning."""
    return [name for name in _SHOWN if name.startswith(incomplete)]


def _formats(incomplete: str) -> list[str]:
    """Shell completion of --format."""
    return [name for name in _FORMATS if name.startswith(incomplete)]


Reasoning = Annotated[
    str | None,
    typer.Option(
        "--reasoning",
        metavar="show|hide",
        autocompletion=_reasonings,
        help="What the model marks as reasoning: dimmed on standard error, or nowhere. Default: show on a terminal.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
Think = Annotated[
    bool | None,
    typer.Option(
        "--think/--no-think",
        help="Ask the chat template for reasoning or for none, where it knows the difference (enable_thinking).",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Plain = Annotated[
    bool,
    typer.Option(
        "--plain",
        help="Show the text as the model writes it. Default: a terminal breaks lines at words, and shows an answer"
        "'s headings, lists, emphasis and code as such.",
        rich_help_panel=o.OUTPUT,
        show_default=False,
    ),
]
JsonSchema = Annotated[
    str | None,
    typer.Option(
        "-j",
        "--json-schema",
        "-jf",
        "--json-schema-file",
        metavar="FILE|TEXT",
        help="The answer is JSON that follows this schema: a file, or the schema itself, which begins with {.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Format = Annotated[
    str | None,
    typer.Option(
        "--format",
        metavar="text|json",
        autocompletion=_formats,
        help="json: the answer is one JSON object, of any schema.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
Image = Annotated[
    list[str] | None,
    typer.Option(
        "--image", "--mmproj", metavar="FILE", help="Refused: of models with images only the text runs.", hidden=True
    ),
]


def refuse_images(image: list[str] | None) -> None:
    """Raises `UsageError` for a picture."""
    if image:
        raise UsageError(
            f"{show(image[0])} is for pictures: of models with images only the text runs here; leave it out"
        )


def shows_reasoning(reasoning: str | None, voice: Voice) -> bool:
    """Whether reasoning is shown. Raises `UsageError`."""
    if reasoning is not None and reasoning not in _SHOWN:
        raise UsageError(f"--reasoning is {show(reasoning)}; it must be show or hide")
    if reasoning == "show" and voice is Voice.QUIET:
        raise UsageError("--reasoning show and --quiet are both given; give one of them")
    if reasoning is None:
        return voice is not Voice.QUIET and is_terminal(sys.stderr)
    return reasoning == "show"


def shows_markdown(plain: bool) -> bool:
    """Whether answers are shown with their Markdown rendered."""
    return not plain and shows_styles(sys.stdout)


def template_variables(think: bool | None) -> dict[str, Any]:
    """The variables that the options set in a chat template."""
    return {} if think is None else {"enable_thinking": think}


def response_format(schema: str | None, form: str | None) -> dict[str, Any] | None:
    """The form of the answer in OpenAI's words, None for any. Raises `UsageError`, `InputError`."""
    if form is not None and form not in _FORMATS:
        raise UsageError(f"--format is {show(form)}; it must be text or json")
    if schema is None:
        return {"type": "json_object"} if form == "json" else None
    if form == "text":
        raise UsageError("--json-schema makes JSON, and --format is text; give one of them")
    inline = schema.lstrip().startswith("{")
    where = "--json-schema" if inline else f"--json-schema {show(schema)}"
    try:
        tree = json.loads(schema if inline else read_text(schema))
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}") from None
    except RecursionError:
        raise UsageError(f"{where} is nested too deep") from None
    if not isinstance(tree, Mapping):
        raise UsageError(f"{where} is {show(tree)}; a schema is an object")
    return {"type": "json_schema", "json_schema": {"name": "answer", "schema": tree}}


@contextmanager
def schema_named() -> Iterator[None]:
    """Errors of a schema with the option's name in place of the field's."""
    from zinc_rt.grammar.errors import GrammarError

    try:
        yield
    except GrammarError as error:
        told = str(error).removeprefix(f"{error.where}: ")
        raise UsageError(f"--json-schema: {told}") from None

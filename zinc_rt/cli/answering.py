"""What `run` and `chat` let a caller say of the answer: its form, its reasoning, how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import is_terminal, one_line, shows_styles
from zinc_rt.cli.voice import Voice
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model

_SHOWN: Final = ("show", "hide")
_FORMATS: Final = ("text", "json")
_LONGEST: Final = 4 << 20  # bytes of a schema, grammar or template


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
GrammarText = Annotated[
    str | None,
    typer.Option(
        "--grammar",
        metavar="TEXT",
        help="The answer follows this grammar, in llama.cpp's GBNF or in Lark.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
GrammarFile = Annotated[
    str | None,
    typer.Option(
        "--grammar-file",
        metavar="FILE",
        help="The same from a file.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
TemplateText = Annotated[
    str | None,
    typer.Option(
        "--chat-template",
        metavar="TEXT",
        help="Chat template (Jinja) in the place of the file's.",
        rich_help_panel=o.PROMPT,
        show_default=False,
    ),
]
TemplateFile = Annotated[
    str | None,
    typer.Option(
        "--chat-template-file",
        metavar="FILE",
        help="The same from a file.",
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


@dataclass(frozen=True)
class Form:
    """What the options say of an answer's form, which is one of them at the most."""

    schema: str | None = None
    format: str | None = None
    grammar: str | None = None
    grammar_file: str | None = None

    @property
    def option(self) -> str:
        """The option that was given; empty for none. Raises `UsageError` for several."""
        given = {
            "--json-schema": self.schema, "--grammar": self.grammar, "--grammar-file": self.grammar_file,
            "--format json": self.format if self.format == "json" else None,
        }  # fmt: skip
        named = [name for name, value in given.items() if value is not None]
        if "--json-schema" in named and "--format json" in named:
            named.remove("--format json")  # a schema makes JSON
        if len(named) > 1:
            raise UsageError(f"{named[0]} and {named[1]} both say what the answer is; give one of them")
        if named and self.format == "text":
            raise UsageError(f"{named[0]} gives the answer a form, and --format is text; give one of them")
        return named[0] if named else ""

    def response_format(self) -> dict[str, Any] | None:
        """It in OpenAI's words, None for any form. Raises `UsageError`, `CommandError`."""
        if self.format is not None and self.format not in _FORMATS:
            raise UsageError(f"--format is {show(self.format)}; it must be text or json")
        option = self.option
        if option == "--format json":
            return {"type": "json_object"}
        if self.schema is not None:
            return {"type": "json_schema", "json_schema": {"name": "answer", "schema": _schema(self.schema)}}
        if not option:
            return None
        text = self.grammar if self.grammar_file is None else read_text(self.grammar_file, _LONGEST)
        return {"type": "lark", "lark": _lark(text or "", option)}


def _schema(schema: str) -> Mapping[str, Any]:
    inline = schema.lstrip().startswith("{")
    where = "--json-schema" if inline else f"--json-schema {show(schema)}"
    try:
        tree = json.loads(schema if inline else read_text(schema, _LONGEST))
    except ValueError as error:
        raise UsageError(f"{where} is no JSON: {error}") from None
    except RecursionError:
        raise UsageError(f"{where} is nested too deep") from None
    if not isinstance(tree, Mapping):
        raise UsageError(f"{where} is {show(tree)}; a schema is an object")
    return tree


def _lark(text: str, option: str) -> str:
    """A grammar as llguidance reads it; GBNF is what has `::=` in it. Raises `UsageError`."""
    if "::=" not in text:
        return text
    from llguidance.gbnf_to_lark import GbnfToLarkError, gbnf_to_lark

    try:
        return gbnf_to_lark(text).replace("%llguidance {}", "", 1)
    except (GbnfToLarkError, ValueError, RecursionError) as error:
        raise UsageError(f"{option} is no GBNF: {one_line(str(error))}") from None


def set_template(model: Model, text: str | None, file: str | None) -> None:
    """Have a model converse by the template of the options, if there is one. Raises `UsageError`, `CommandError`."""
    if text is None and file is None:
        return
    if text is not None and file is not None:
        raise UsageError("--chat-template and --chat-template-file are both given; give one of them")
    source = text if text is not None else read_text(file, _LONGEST)
    if "{" not in source:
        raise UsageError(
            f"the chat template is {show(source)}; give the Jinja text itself, or its file with --chat-template-file"
        )
    from zinc_rt.text import ChatTemplate

    model.chat_template = ChatTemplate.from_text(source, model.tokenizer)


@contextmanager
def schema_named(option: str) -> Iterator[None]:
    """Errors of a schema or grammar with the option's name in place of the field's."""
    from zinc_rt.grammar.errors import GrammarError

    try:
        yield
    except GrammarError as error:
        told = str(error).removeprefix(f"{error.where}: ")
        raise UsageError(f"{option}: {told}") from None

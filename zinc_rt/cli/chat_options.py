"""Options of `run` and `chat` for the answer: its form, its reasoning, how it is shown."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Final

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.cli.prompts import read_text
from zinc_rt.cli.terminal import is_terminal, one_line, shows_styles
from zinc_rt.cli.verbosity import Verbosity
from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

if TYPE_CHECKING:
    from zinc_rt.llm.model import Model

_SHOWN: Final = ("show", "hide")
_FORMATS: Final = ("text", "json")
_LONGEST: Final = 4 << 20  # bytes of a schema, grammar or template


Reasoning = Annotated[
    str | None,
    o.option(
        o.OUTPUT,
        "--reasoning",
        metavar="show|hide",
        autocompletion=o.completes(lambda: _SHOWN),
        help="Show reasoning that the model marks, dimmed on standard error, or hide it. Default: show on a terminal.",
    ),
]
Think = Annotated[
    bool | None,
    o.option(
        o.PROMPT,
        "--think/--no-think",
        help="Ask the chat template for reasoning or for none, where it knows the difference (enable_thinking).",
    ),
]
Plain = Annotated[
    bool,
    o.option(
        o.OUTPUT,
        "--plain",
        help="Show the text as the model writes it. Default: a terminal breaks lines at words, and shows an answer"
        "'s headings, lists, emphasis and code as such.",
    ),
]
JsonSchema = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "-j",
        "--json-schema",
        "-jf",
        "--json-schema-file",
        metavar="FILE|TEXT",
        help="The answer is JSON that follows this schema: a file, or the schema itself, which begins with {.",
    ),
]
GrammarText = Annotated[
    str | None,
    o.option(
        o.PROMPT, "--grammar", metavar="TEXT", help="The answer follows this grammar, in llama.cpp's GBNF or in Lark."
    ),
]
GrammarFile = Annotated[str | None, o.option(o.PROMPT, "--grammar-file", metavar="FILE", help="The same from a file.")]
TemplateText = Annotated[
    str | None,
    o.option(o.PROMPT, "--chat-template", metavar="TEXT", help="Chat template (Jinja) in the place of the file's."),
]
TemplateFile = Annotated[
    str | None, o.option(o.PROMPT, "--chat-template-file", metavar="FILE", help="The same from a file.")
]
Format = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "--format",
        metavar="text|json",
        autocompletion=o.completes(lambda: _FORMATS),
        help="json: the answer is one JSON object, of any schema.",
    ),
]


@dataclass(frozen=True, kw_only=True)
class DisplayOptions(OptionRecord):
    """How an answer is shown."""

    reasoning: Reasoning = None
    plain: Plain = False

    def shows_reasoning(self, verbosity: Verbosity) -> bool:
        """Whether reasoning is shown. Raises `UsageError`."""
        if self.reasoning is not None and self.reasoning not in _SHOWN:
            raise UsageError(f"--reasoning is {show(self.reasoning)}; it must be show or hide")
        if self.reasoning == "show" and verbosity is Verbosity.QUIET:
            raise UsageError("--reasoning show and --quiet are both given; give one of them")
        if self.reasoning is None:
            return verbosity is not Verbosity.QUIET and is_terminal(sys.stderr)
        return self.reasoning == "show"

    @property
    def shows_markdown(self) -> bool:
        """Whether answers are shown with their Markdown rendered."""
        return not self.plain and shows_styles(sys.stdout)


@dataclass(frozen=True, kw_only=True)
class ConversationOptions(OptionRecord):
    """The beginning of a conversation, and its chat template."""

    system: o.SystemPrompt = None
    system_file: o.SystemFile = None
    think: Think = None
    template: TemplateText = None
    template_file: TemplateFile = None

    @cached_property
    def system_prompt(self) -> str | None:
        """The system prompt, None for none. Raises `UsageError` for two, `CommandError`."""
        if self.system_file is None:
            return self.system
        if self.system is not None:
            raise UsageError("--system and --system-prompt-file are both given; give one of them")
        return read_text(self.system_file)

    @property
    def option(self) -> str:
        """The first option given that a plain continuation has no use for; empty for none."""
        named = {
            "--system": self.system_prompt,
            "--chat-template": self.template,
            "--chat-template-file": self.template_file,
        }
        return next((name for name, value in named.items() if value is not None), "")

    @property
    def variables(self) -> dict[str, Any]:
        """The variables that the options set in a chat template."""
        return {} if self.think is None else {"enable_thinking": self.think}

    def set_template(self, model: Model) -> None:
        """Have a model use the template of the options, if there is one. Raises `UsageError`, `CommandError`."""
        text, file = self.template, self.template_file
        if text is None and file is None:
            return
        if text is not None and file is not None:
            raise UsageError("--chat-template and --chat-template-file are both given; give one of them")
        source = text if text is not None else read_text(file, _LONGEST)
        if "{" not in source:
            raise UsageError(
                f"the chat template is {show(source)}; give the Jinja text itself, or its file with"
                " --chat-template-file"
            )
        from zinc_rt.text import ChatTemplate

        model.chat_template = ChatTemplate.from_text(source, model.tokenizer)


@dataclass(frozen=True, kw_only=True)
class FormatOptions(OptionRecord):
    """The form of an answer; at most one of these options may be given."""

    schema: JsonSchema = None
    format: Format = None
    grammar: GrammarText = None
    grammar_file: GrammarFile = None

    @property
    def option(self) -> str:
        """The option that was given; empty for none. Raises `UsageError` for several."""
        given = {
            "--json-schema": self.schema,
            "--grammar": self.grammar,
            "--grammar-file": self.grammar_file,
            "--format json": self.format if self.format == "json" else None,
        }
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


@contextmanager
def schema_named(option: str) -> Iterator[None]:
    """Errors of a schema or grammar with the option's name in place of the field's."""
    from zinc_rt.grammar.errors import GrammarError

    try:
        yield
    except GrammarError as error:
        told = str(error).removeprefix(f"{error.where}: ")
        raise UsageError(f"{option}: {told}") from None

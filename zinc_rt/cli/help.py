"""Help texts with their options in sections, and the verbs' failures kept away from typer's own handling."""

from __future__ import annotations

import inspect
from itertools import pairwise
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from zinc_rt.cli.terminal import abandon_stdout
from zinc_rt.cli.words import readable
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

_PATHS: Final = {"path", "file", "directory"}  # the parser's names of the types of options


class Command(TyperCommand):
    """A verb whose help groups the options under the headings that they name."""

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Read the words, see `words.readable`, and refuse an empty path: as a `Path` it would be the current folder.

        Raises `UsageError`.
        """
        if not ctx.resilient_parsing:  # a shell that completes half a line
            args = readable(args, self.get_params(ctx), str(ctx.info_name or ""))
        paths = {name for param in self.params if param.type.name in _PATHS for name in param.opts}
        for name, value in pairwise([*args, "given"]):
            if name in paths and not value:
                raise UsageError(f"{name} is empty, it must be a path")
        return super().parse_args(ctx, args)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """The words of the usage line."""
        return ["[OPTIONS]", *(metavar for metavar, _ in _arguments(self.params))]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write arguments and options in their sections."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            record = param.get_help_record(ctx)
            if param.param_type_name == "option" and record is not None:
                sections.setdefault(section_of(param), []).append(record)
        if arguments := [(without_brackets(metavar), text) for metavar, text in _arguments(self.params)]:
            sections = {"Arguments": arguments, **sections}
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)


_NO_BRACKETS = str.maketrans("", "", "[]")


def without_brackets(metavar: str) -> str:
    """The name of an argument as a list of arguments shows it: `[WHAT]...` is `WHAT...`."""
    return metavar.translate(_NO_BRACKETS)


def _arguments(params: Any) -> list[tuple[str, str]]:
    """Metavar and help of the positional parameters."""
    return [(p.metavar, p.help) for p in params if p.param_type_name == "argument"]


class VerbGroup(TyperGroup):
    """The command with all verbs.

    Ctrl-C and a closed pipe are handled here, since typer would print a message of its own.
    """

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the verbs in their groups, each with the first sentence of its help."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, verb in self.commands.items():
            sections.setdefault(str(getattr(verb, "rich_help_panel", None) or "Verbs"), []).append(
                (name, summary(verb))
            )
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; returns the exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            abandon_stdout()
            return 0


def summary(verb: Any) -> str:
    """The first line of a verb's help."""
    return str(inspect.cleandoc(verb.callback.__doc__).splitlines()[0])


def section_of(param: Any) -> str:
    """The heading under which help and reference list an option or argument."""
    if param.param_type_name == "argument":
        return "Arguments"
    return str(getattr(param, "rich_help_panel", None) or "Other")

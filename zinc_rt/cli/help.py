"""Help texts with their options in sections, and the verbs' failures kept away from typer's own handling."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

from typer.core import TyperCommand, TyperGroup

from zinc_rt.cli.terminal import abandon_stdout
from zinc_rt.errors import EXIT_INTERRUPTED, UsageError

OLDER_NAMES: Final = {"--tier": "--device"}
"""Options that are taken but not listed, and what they are called now."""

_PATHS: Final = {"path", "file", "directory"}  # the parser's names of the types of options


class Command(TyperCommand):
    """A verb whose help groups the options under the headings that they name."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser, which also takes the older names of options."""
        parser = super().make_parser(ctx)
        params: list[Any] = self.get_params(ctx)
        for param in params:
            if older := [old for old, new in OLDER_NAMES.items() if new in param.opts]:
                parser.add_option(obj=param, opts=older, dest=param.name, action="store", nargs=1)
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Refuse an option under both of its names, and an empty path: as a `Path` it would be the current folder.

        Raises `UsageError`.
        """
        flags = {word.partition("=")[0] for word in args}
        for old, new in OLDER_NAMES.items():
            if {old, new} <= flags:
                raise UsageError(f"{old} is an older name of {new}; give {new} only")
        paths = {name for param in self.params if param.type.name in _PATHS for name in param.opts}
        for name, value in pairwise([*args, "given"]):
            flag, equals, inline = name.partition("=")
            if flag in paths and not (inline if equals else value):
                raise UsageError(f"{flag} is empty, it must be a path")
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


class Group(TyperGroup):
    """The command with all verbs.

    Ctrl-C and a closed pipe are handled here, since typer would print a message of its own.
    """

    def invoke(self, ctx: Any) -> Any:
        """Run a verb; returns the exit code."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            return EXIT_INTERRUPTED
        except BrokenPipeError:
            abandon_stdout()
            return 0


def section_of(param: Any) -> str:
    """The heading under which help and reference list an option or argument."""
    if param.param_type_name == "argument":
        return "Arguments"
    return str(getattr(param, "rich_help_panel", None) or "Other")

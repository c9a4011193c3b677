"""The `zinc` command: its verbs, and how every failure ends (one line, an exit code).

Exit codes: 0 done, 1 failed, 2 used wrongly, 130 stopped by Ctrl-C. A reader of standard output that leaves
early (`zinc run ... | head -1`) is no failure.
"""

from __future__ import annotations

import importlib
import sys
import traceback
from collections.abc import Iterable, Sequence
from typing import Annotated, Any, Final

import typer

from zinc_rt.cli.by_environment import ServerCommand
from zinc_rt.cli.help import Command, VerbGroup
from zinc_rt.cli.options import Debug, debug_wanted
from zinc_rt.cli.terminal import OutputError, abandon_stdout, one_line, prepare, printable_line, say, write
from zinc_rt.errors import EXIT_INTERRUPTED, ZincError
from zinc_rt.utils.environment import OPTION_PREFIXES

PROGRAM: Final = "zinc"
EXIT_USAGE: Final = 2
EXIT_FAILURE: Final = 1

GROUPS: Final = {
    "Text": ("run", "chat", "embed", "rerank", "tokenize"),
    "Models": ("pull", "list", "rm", "show", "convert", "quantize", "perplexity"),
    "Servers": ("serve", "route", "keys", "replay", "certify", "ps"),
    "This machine": ("check", "bench", "cache", "env"),
    "For developers": ("graph", "kernels", "pm4", "emu"),
}
"""The verbs by what they are for. Each is a function in the module of its name."""
VERBS: Final = tuple(verb for verbs in GROUPS.values() for verb in verbs)
_FLAGS: Final = {"help": "--help", "version": "--version"}
"""Words that other programs take as verbs. `zinc help VERB` is `zinc VERB --help`."""


def _version(wanted: bool) -> None:
    if wanted:
        from zinc_rt.utils.installation import version_line

        write(f"{PROGRAM} {version_line()}\n")
        raise typer.Exit


def _root(
    ctx: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            callback=_version,
            is_eager=True,
            help="Print version, commit, LLVM and instruction set.",
            show_default=False,
        ),
    ] = False,
    debug: Debug = False,
) -> None:
    """Run language models from GGUF files, with the same bits on every backend.

    Start with: zinc run "Once upon a time". A verb's own help: zinc help VERB.
    """
    if ctx.invoked_subcommand is None and not ctx.resilient_parsing:
        say(ctx.get_help())
        raise typer.Exit(EXIT_USAGE)


def application(verbs: Iterable[str] = VERBS) -> typer.Typer:
    """The command with some of its verbs; building the options of all takes a tenth of a small model's start."""
    app = typer.Typer(
        cls=VerbGroup,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    )
    app.callback(invoke_without_command=True)(_root)
    groups = {verb: title for title, group in GROUPS.items() for verb in group}
    for verb in verbs:
        module = importlib.import_module(f"zinc_rt.cli.{verb}")
        kind = ServerCommand if verb in OPTION_PREFIXES else Command
        app.command(cls=kind, rich_help_panel=groups[verb])(getattr(module, verb))
    return app


def main(args: Sequence[str] | None = None) -> int:
    """Run the command with these arguments (None: those of the process); returns the exit code."""
    prepare()
    given = list(sys.argv[1:] if args is None else args)
    if given and given[0] in _FLAGS:
        given = [*given[1:], _FLAGS[given[0]]]
    try:
        app = application(given[:1] if given and given[0] in VERBS else VERBS)
        result: Any = app(args=given, prog_name=PROGRAM, standalone_mode=False)
        return result if isinstance(result, int) else 0
    except BrokenPipeError:
        abandon_stdout()
        return 0
    except (KeyboardInterrupt, typer.Abort):
        return EXIT_INTERRUPTED
    except Exception as error:
        if debug_wanted():
            say("\n".join(map(printable_line, traceback.format_exc().rstrip().expandtabs().split("\n"))))
        code = _report(error)
        if isinstance(error, (OutputError, OSError)):
            abandon_stdout()
        return code


def _report(error: Exception) -> int:
    """Print an error in one line, and its advice in a second one; returns the exit code."""
    if isinstance(error, ZincError):
        from zinc_rt.lang.errors import CompileError

        hint = "; --kernels reference runs without compiling, slowly" if isinstance(error, CompileError) else ""
        failed = _failed(PROGRAM, str(error), hint, error.exit_code)
        if error.advice:
            say(f"{PROGRAM}: {one_line(error.advice)}")
        return failed
    # Errors of the option parser; its classes live in different modules in different versions of typer.
    if hasattr(error, "format_message") and isinstance(code := getattr(error, "exit_code", None), int):
        context = getattr(error, "ctx", None)
        path = context.command_path if context is not None else PROGRAM
        return _failed(path, error.format_message().rstrip("."), f" ({path} --help explains the options)", code)
    if isinstance(error, OSError):
        where = f"{error.filename}: " if error.filename else ""
        return _failed(PROGRAM, f"{where}{error.strerror or error}")
    if isinstance(error, MemoryError):
        return _failed(PROGRAM, "out of memory; use a smaller context (-c) or a smaller model")
    hint = "" if debug_wanted() else "; run again with --debug for the trace, and please report it"
    return _failed(PROGRAM, f"{type(error).__name__}: {error}", hint, kind="internal error")


def _failed(who: str, message: str, hint: str = "", code: int = EXIT_FAILURE, kind: str = "error") -> int:
    say(f"{who}: {kind}: {one_line(message)}{hint}", style="red")
    return code

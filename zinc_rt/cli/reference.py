"""The generator of the command-line reference: `python -m zinc_rt.cli.reference > docs/use/cli.md`."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator
from typing import Any, Final

import typer

from zinc_rt.cli.help import section_of, summary, without_brackets
from zinc_rt.cli.llamacpp import OF_MODELS, markdown
from zinc_rt.cli.main import PROGRAM, VERBS, application

_HEAD: Final = f"""\
# The `{PROGRAM}` command

Written by `python -m zinc_rt.cli.reference > docs/use/cli.md`; a test compares this file with the command.

Results go to standard output, everything else (notices, speeds, progress, errors) to standard error. Colour and
progress bars appear on terminals only; `NO_COLOR` turns colour off. `{PROGRAM} --install-completion` sets up
completion in bash, zsh, fish and PowerShell.

Sizes are in KiB, MiB and GiB, powers of 1,024; the bandwidth of memory is in GB/s, as its makers give it.

| exit code | meaning |
|---|---|
| 0 | done; also when the reader of standard output left early, as `head` does |
| 1 | failed: a file, the memory, a device, the disk |
| 2 | used wrongly: an unknown option, a value outside its limits, no prompt |
| 130 | stopped by Ctrl-C; what had been made by then has been written |

[environment](environment.md) lists the environment variables and the folders. `--tier` is an older name of `--device`;
older names of devices are taken, too: `t_cpu` (`cpu`), `t1_pm4` (`gpu:cs`, else `gpu:kfd`) and `t2_umq` (`gpu:umq`).

A card is chosen by its render node or its PCI address, behind an `@` or alone: `gpu@renderD129`, `gpu:cs@03:00.0`,
`auto@0000:03:00.0`; `/dev/dri/renderD129` means `gpu@renderD129`. It is the same in `ZINC_RT_TIER` and in Python.
"""

_OF_MODELS: Final = ", ".join(f"`{verb}`" for verb in VERBS if verb in OF_MODELS)
_LLAMACPP: Final = f"""\
## Options of llama.cpp

The verbs that run models take llama.cpp's everyday options: {_OF_MODELS}. "same" is
an option of those of them that have a use for it; "nothing to do" is taken without effect; "another name" is read as
the option that is named; "not supported" ends with a line that says what to do. Short options are never joined: `-fa`
is one option, not `-f a`, and a number stands apart, as in `-n 5`.
"""


def reference() -> str:
    """The whole document: Markdown, the same at any terminal width and with any version of typer."""
    group: Any = typer.main.get_command(application())
    verbs = group.commands
    lines = [_HEAD]
    lines += ["## Verbs", "", *(f"- [`{name}`](#{PROGRAM}-{name}): {summary(verb)}" for name, verb in verbs.items())]
    for name, verb in verbs.items():
        lines += ["", *_verb(name, verb)]
    lines += ["", _LLAMACPP, *markdown()]
    return "\n".join(lines) + "\n"


def _verb(name: str, verb: Any) -> Iterator[str]:
    arguments = [p.metavar for p in verb.params if p.param_type_name == "argument"]
    yield f"## `{PROGRAM} {name}`"
    yield ""
    yield "    " + " ".join([PROGRAM, name, "[OPTIONS]", *arguments])
    yield ""
    yield inspect.cleandoc(verb.callback.__doc__)
    sections: dict[str, list[str]] = {}
    for param in verb.params:
        if getattr(param, "hidden", False):
            continue
        sections.setdefault(section_of(param), []).append(_entry(param))
    for title, entries in sections.items():
        yield ""
        yield f"**{title}**"
        yield ""
        yield from entries


def _entry(param: Any) -> str:
    if param.param_type_name == "argument":
        return f"- `{without_brackets(param.metavar)}`: {param.help}"
    names = ", ".join([*param.opts, *param.secondary_opts])
    value = f" {param.metavar}" if param.metavar else ""
    default = f" Default: {param.default}." if param.show_default else ""
    return f"- `{names}{value}`: {_markdown(param.help)}{default}"


def _markdown(text: str) -> str:
    """Escape backslashes for Markdown."""
    return text.replace("\\", "\\\\")


if __name__ == "__main__":
    sys.stdout.write(reference())

"""`Verbosity`: how much a verb prints on standard error beside errors."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionRecord
from zinc_rt.cli.terminal import one_line, say
from zinc_rt.errors import UsageError
from zinc_rt.utils.notices import Detail

Quiet = Annotated[bool, o.option(o.OUTPUT, "-q", "--quiet", help="Say nothing on standard error but errors.")]
Verbose = Annotated[
    bool,
    o.option(o.OUTPUT, "-v", "--verbose", help="Say which device and kernels run, why, and what memory they take."),
]


class Verbosity(IntEnum):
    """From nothing to everything."""

    QUIET = 0
    USUAL = 1
    VERBOSE = 2

    def notice(self, line: str) -> None:
        """A line of the runtime, such as the device that it opens."""
        if self is self.VERBOSE or (self is self.USUAL and not isinstance(line, Detail)):
            say(f"zinc: {one_line(line)}", style="dim")

    def tell(self, line: str, style: str = "") -> None:
        """A line of the verb, unless it is quiet."""
        if self is not self.QUIET:
            say(line, style=style)

    def warn(self, line: str) -> None:
        """A warning: the command works, but the user may want something else. Example: more threads than cores."""
        self.tell(f"zinc: {one_line(line)}", style="yellow")


@dataclass(frozen=True, kw_only=True)
class VerbosityOptions(OptionRecord):
    """The options -q and -v."""

    quiet: Quiet = False
    verbose: Verbose = False

    def chosen(self) -> Verbosity:
        """Raises `UsageError` for both."""
        if self.quiet and self.verbose:
            raise UsageError("--quiet and --verbose are both given; give one of them")
        return Verbosity.QUIET if self.quiet else Verbosity.VERBOSE if self.verbose else Verbosity.USUAL

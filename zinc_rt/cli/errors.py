"""The error of the command line's own work: its files, its input, programs that it starts."""

from __future__ import annotations

from zinc_rt.errors import ZincError


class CommandError(ZincError):
    """A command cannot read its input, write its file or show its result."""

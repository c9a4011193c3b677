"""The error of a refused grammar or schema."""

from __future__ import annotations

from zinc_rt.errors import UsageError


class GrammarError(UsageError):
    """A grammar that cannot be used: malformed, not supported, or too large.

    where: the place in the request, as `tools[0].function.parameters`; empty where the text itself came without one.
    """

    def __init__(self, message: str, where: str = "") -> None:
        super().__init__(f"{where}: {message}" if where else message)
        self.where = where

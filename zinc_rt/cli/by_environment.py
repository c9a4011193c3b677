"""Options of servers by the environment: `ZINC_SERVE_PORT` says what `--port` says, which goes before it."""

from __future__ import annotations

import difflib
import os
from typing import Any

from zinc_rt.cli.help import Command
from zinc_rt.errors import UsageError
from zinc_rt.utils.environment import OPTION_PREFIXES


class ServerCommand(Command):
    """A verb whose options may come from the environment, as service managers and containers give them."""

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.variables: dict[str, str] = {}
        """Options by the names of their variables."""
        params: list[Any] = self.params
        for param in params:
            option = next((name for name in param.opts if name.startswith("--")), None)
            if option is not None:
                param.envvar = variable(str(self.name), option)
                param.show_envvar = False  # one line of the verb's help says how all are named
                self.variables[param.envvar] = option

    def parse_args(self, ctx: Any, args: list[str]) -> Any:
        """Refuse a variable of a name that no option has, by `UsageError`; errors of values name the variable."""
        prefix = OPTION_PREFIXES[str(self.name)]
        for name in sorted(os.environ):
            if name.startswith(prefix) and name not in self.variables:
                near = difflib.get_close_matches(name, self.variables, 1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise UsageError(f"{name} is set, and zinc {self.name} has no such option{hint}")
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # the parser's own, see `main`
            option: Any = getattr(error, "param", None)
            source = None if option is None else ctx.get_parameter_source(option.name)
            if getattr(source, "name", "") == "ENVIRONMENT":
                error.param_hint = option.envvar  # type: ignore[attr-defined]
            raise


def variable(verb: str, option: str) -> str:
    """The variable of an option, by its first long name."""
    return OPTION_PREFIXES[verb] + option.removeprefix("--").replace("-", "_").upper()

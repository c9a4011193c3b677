"""`--save-state` and `--load-state`: the keys, values and states of a text in a file, for the next command."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from zinc_rt.cli import options as o
from zinc_rt.cli.option_records import OptionRecord

if TYPE_CHECKING:
    from zinc_rt.cli.verbosity import Verbosity
    from zinc_rt.llm.model import Model

SaveState = Annotated[
    Path | None,
    o.option(
        o.MODEL,
        "--save-state",
        metavar="FILE",
        help="Write the computed prompt and text to FILE: a later prompt with this beginning goes on from it.",
        dir_okay=False,
    ),
]
LoadState = Annotated[
    Path | None,
    o.option(
        o.MODEL,
        "--load-state",
        metavar="FILE",
        help="Read a file of --save-state: the tokens that it and the prompt begin with are not computed again.",
        dir_okay=False,
    ),
]


@dataclass(frozen=True, kw_only=True)
class StateOptions(OptionRecord):
    """Files with the computed state of a text."""

    from_state: LoadState = None
    to_state: SaveState = None

    def load(self, model: Model, verbosity: Verbosity) -> None:
        """Read a file if one is named. Raises `EngineError`."""
        if (path := self.from_state) is not None:
            n_tokens = len(model.load_state(path))
            verbosity.tell(f"zinc: {path}: {n_tokens} tokens that need not be computed", style="dim")

    def save(self, model: Model, ids: list[int], verbosity: Verbosity) -> None:
        """Write a file if one is named. ids: prompt and text. Raises `EngineError`."""
        if (path := self.to_state) is not None:
            verbosity.tell(f"zinc: wrote {path}: {model.save_state(path, ids)} tokens", style="dim")

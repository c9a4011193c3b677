"""What a user writes for a model of the hub: `NAME[:QUANT]` of the table, or `owner/repo[:QUANT]`."""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass
from typing import Final

from zinc_rt.checks import show
from zinc_rt.hub.errors import UnknownModel
from zinc_rt.hub.known import KNOWN

_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
REPOSITORY: Final = re.compile(rf"{_PART}/{_PART}")
_QUANT: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")


@dataclass(frozen=True)
class Wanted:
    """A model of the hub. quant: the format that was asked for, in capitals; empty: the usual one. name: as written."""

    repo: str
    quant: str = ""
    name: str = ""

    def __str__(self) -> str:
        shown = self.name or self.repo
        return f"{shown}:{self.quant}" if self.quant else shown


def parse(text: str) -> Wanted:
    """A model by the text that a user wrote. Raises `UnknownModel`."""
    head, colon, quant = text.partition(":")
    if colon and not _QUANT.fullmatch(quant):
        raise UnknownModel(f"{show(text)} is no model: behind the colon stands a format, as in {head}:Q4_K_M")
    quant = quant.upper()
    known = KNOWN.get(head.lower())
    if known is not None:
        return Wanted(known.repo, quant or known.quant, head.lower())
    if REPOSITORY.fullmatch(head) and ".." not in head and "--" not in head:
        return Wanted(head, quant)
    near = difflib.get_close_matches(head.lower(), KNOWN, n=3)
    hint = f"; did you mean {', '.join(near)}?" if near else ""
    raise UnknownModel(
        f"{show(text)} is no known model: give owner/repo of the hub, or a name that `zinc list --known` shows{hint}"
    )


def is_known(text: str) -> bool:
    """Whether a text is a name of the table, with a format or without."""
    return text.partition(":")[0].lower() in KNOWN

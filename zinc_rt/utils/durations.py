"""`seconds_of`: lengths of time as people and clients write them."""

from __future__ import annotations

import re
from typing import Final

_UNITS: Final = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "µs": 1e-6, "ns": 1e-9, "": 1.0}
_PIECE: Final = re.compile(r"(\d{1,9}(?:\.\d{0,9})?|\.\d{1,9})(h|ms|m|s|us|µs|ns|)", re.ASCII)
_MOST: Final = 64
"""Characters of a text."""


def seconds_of(text: str) -> float | None:
    """The seconds of 90s, 10m, 1h30m, 250ms or -1m, as Go writes them; of a number without a unit, that many. None for
    any other text.
    """
    sign, rest = (-1.0, text[1:]) if text.startswith("-") else (1.0, text.removeprefix("+"))
    if not rest or len(text) > _MOST:
        return None
    pieces = list(_PIECE.finditer(rest))
    whole = "".join(piece[0] for piece in pieces) == rest
    if not whole or (len(pieces) > 1 and not all(piece[2] for piece in pieces)):
        return None
    return sign * sum(float(piece[1]) * _UNITS[piece[2]] for piece in pieces)

"""Ids of requests."""

from __future__ import annotations

import secrets
from typing import Final

_ID_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def new_id(kind: str) -> str:
    """A new id that begins with a kind."""
    number, letters = secrets.randbits(160), []
    for _ in range(24):
        number, letter = divmod(number, len(_ID_LETTERS))
        letters.append(_ID_LETTERS[letter])
    return kind + "".join(letters)

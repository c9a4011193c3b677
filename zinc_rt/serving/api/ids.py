"""Ids of requests."""

from __future__ import annotations

import secrets
from typing import Final

_ID_LETTERS: Final = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"


def new_id(kind: str) -> str:
    """A new id that begins with a kind."""
    return kind + "".join(secrets.choice(_ID_LETTERS) for _ in range(24))

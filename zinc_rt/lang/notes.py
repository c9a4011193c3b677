"""Notes in the compile cache: what was found out about this machine, as bytes."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Any, Final

from zinc_rt.lang.errors import ImageError

_MAGIC: Final = b"ZINCNOTE"
_DIGEST: Final = 16


def note_to_bytes(tree: dict[str, Any], key: str = "") -> bytes:
    """Magic, checksum, JSON. key: under which it is stored, hex digits."""
    text = json.dumps(tree, sort_keys=True).encode()
    return _MAGIC + _checksum(text, key) + text


def note_from_bytes(data: bytes, key: str = "") -> dict[str, Any]:
    """What `note_to_bytes` was given with this key. Raises `ImageError` for anything else."""
    start = len(_MAGIC) + _DIGEST
    text = data[start:]
    if not data.startswith(_MAGIC) or data[len(_MAGIC) : start] != _checksum(text, key):
        raise ImageError("the note is damaged: its checksum does not hold")
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ImageError(f"the note cannot be read: {error!r}") from None
    if not isinstance(tree, dict):
        raise ImageError("the note has the wrong form")
    return tree


def _checksum(text: bytes, key: str) -> bytes:
    return blake2b(text, digest_size=_DIGEST, key=bytes.fromhex(key)).digest()

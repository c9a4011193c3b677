"""Failures in the compile cache: the error of a kernel that cannot be compiled, as bytes."""

from __future__ import annotations

import json
from hashlib import blake2b
from typing import Final

from zinc_rt.lang.errors import CompileError, ImageError

_MAGIC: Final = b"ZINCERR\0"
_DIGEST: Final = 16
_MAX_TEXT: Final = 4096  # characters of a problem


def failure_to_bytes(error: CompileError, key: str = "") -> bytes:
    """Magic, checksum, JSON. key: under which it is stored, hex digits."""
    tree = {"problem": error.problem[:_MAX_TEXT], "module": error.module}
    text = json.dumps(tree).encode()
    return _MAGIC + _checksum(text, key) + text


def is_failure(data: bytes) -> bool:
    """Whether the bytes claim to be such an error, rather than an image."""
    return data.startswith(_MAGIC)


def failure_from_bytes(data: bytes, key: str = "") -> CompileError:
    """The error that `failure_to_bytes` wrote with this key. Raises `ImageError` for anything else."""
    checksum, text = data[len(_MAGIC) :][:_DIGEST], data[len(_MAGIC) + _DIGEST :]
    if not is_failure(data) or checksum != _checksum(text, key):
        raise ImageError("the note of a failed compile is damaged: its checksum does not hold")
    try:
        tree = json.loads(text)
        problem, module = tree["problem"], tree["module"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ImageError(f"the note of a failed compile cannot be read: {error!r}") from None
    if not (isinstance(problem, str) and isinstance(module, str)):
        raise ImageError("the note of a failed compile has the wrong form")
    return CompileError(problem, module, lasting=True)


def _checksum(text: bytes, key: str) -> bytes:
    return blake2b(text, digest_size=_DIGEST, key=bytes.fromhex(key)).digest()

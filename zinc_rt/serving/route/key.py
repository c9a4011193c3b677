"""The key of a request: requests whose prompts begin alike have one key and go to one server, whose cache has the
beginning.
"""

from __future__ import annotations

import hashlib
from typing import Any, Final

import msgspec

PREFIX: Final = 512
"""Characters of the prompt that count: about eight pages of the KV cache."""
_FIELDS: Final = ("system", "instructions", "tools", "messages", "input", "prompt")
"""Where requests have their prompts, in the order in which templates write them."""


def affinity(body: bytes, tenant: bytes) -> bytes:
    """A key of 16 bytes. tenant: the request's API key; tenants share no pages."""
    digest = hashlib.blake2b(tenant, digest_size=16)
    try:
        found = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return digest.digest()
    if isinstance(found, dict):
        text = msgspec.json.encode([found[name] for name in _FIELDS if name in found])
        digest.update(text[:PREFIX])
    return digest.digest()


def streams(body: bytes) -> bool:
    """Whether a request asks for a stream."""
    try:
        found: Any = msgspec.json.decode(body)
    except msgspec.DecodeError:
        return False
    return isinstance(found, dict) and found.get("stream") is True

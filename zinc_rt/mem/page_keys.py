"""Keys of full pages of the KV cache: a chain of hashes over everything that a page's contents depend on.

A page's key is a hash of its parent's key and its own 16 token ids; a first page's parent is a root, a hash of the
model, the formats and the tenant. Equal keys mean equal texts up to the page's end, and so equal contents, unless two
texts have one hash: who finds a page by its key compares ids and parent, too.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final

from zinc_rt.numerics import PAGE_TOKENS

KEY_BYTES: Final = 16
# Tags keep the domains apart: no root is ever a page's key.
_ROOT: Final = b"zinc kv root"
_PAGE: Final = b"zinc kv page"
_IDS: Final = struct.Struct(f"<{PAGE_TOKENS}i")


def root_key(*fields: bytes) -> bytes:
    """The parent key of first pages: 16 bytes, of fields in their order; where one ends is part of it."""
    digest = blake2b(digest_size=KEY_BYTES, person=_ROOT)
    for field in fields:
        digest.update(struct.pack("<Q", len(field)))
        digest.update(field)
    return digest.digest()


def page_key(parent: bytes, ids: bytes) -> bytes:
    """The key of a page, 16 bytes, from its parent's and its ids as `packed` gives them."""
    return blake2b(parent + ids, digest_size=KEY_BYTES, person=_PAGE).digest()


def packed(ids: Sequence[int]) -> bytes:
    """The ids of a full page as 16 int32, little endian. Raises `struct.error` for other numbers of them or others."""
    return _IDS.pack(*ids)

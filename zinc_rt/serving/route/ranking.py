"""Which of several servers a request goes to: the one that knows its prefix, unless that one has far more to do."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Final

# The bounds beyond which a request leaves the server that has its prefix: those of other routers of such servers.
MORE: Final = 64
TIMES: Final = 1.5


def ranked(key: bytes, loads: Mapping[str, int], more: int = MORE) -> list[str]:
    """All servers, the one to try first in front.

    Equal keys go to one server, the highest by a hash of key and name, so that a server that comes or goes moves only
    its own keys. If the first one has far more to do than the least busy one, the least busy one comes first.

    Args:
        key: of the request, as `key.affinity` makes it.
        loads: requests that each server has, by its name.
        more: requests by which a server may exceed the least busy one, and which it may have before `TIMES` counts.
    """
    found = sorted(loads, key=lambda name: _weight(key, name), reverse=True)
    if found:
        least = min(found, key=lambda name: loads[name])
        first = loads[found[0]]
        if first > loads[least] + more or (first > loads[least] * TIMES and first > more):
            found.remove(least)
            found.insert(0, least)
    return found


def _weight(key: bytes, name: str) -> bytes:
    return hashlib.blake2b(key + name.encode(), digest_size=8).digest()

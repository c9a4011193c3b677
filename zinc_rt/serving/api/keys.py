"""Keys of tenants: `zk_TENANT_` and 32 random letters and digits. The file of keys has their digests alone."""

from __future__ import annotations

import hashlib
import os
import re
import secrets
import string
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from zinc_rt.errors import UsageError
from zinc_rt.serving.api.config import DEFAULT_TENANT, TENANT_NAME
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.limits import unauthorized

_LETTERS: Final = string.digits + string.ascii_uppercase + string.ascii_lowercase
_KEY: Final = re.compile(r"zk_([a-z0-9][a-z0-9-]{0,31})_[0-9A-Za-z]{32}")
_LINE: Final = re.compile(r"([a-z0-9][a-z0-9-]{0,31})\s+([0-9a-f]{64})")


class BadKeys(UsageError):
    """The file of keys cannot be used."""


def new_key(tenant: str) -> str:
    """A new key of a tenant, with 190 bits of chance. Raises `BadKeys` for a name that tenants cannot have."""
    if not TENANT_NAME.fullmatch(tenant):
        raise BadKeys(f"tenant {tenant[:80]!r} must be 1 to 32 of a-z, 0-9 and -, not - first")
    return f"zk_{tenant}_" + "".join(secrets.choice(_LETTERS) for _ in range(32))


def digest(key: str) -> str:
    """SHA-256 of a key in hexadecimal. A slow hash has no use: the keys are random."""
    return hashlib.sha256(key.encode()).hexdigest()


def add_key(path: Path, tenant: str) -> str:
    """Make a key and add its digest to the file, which only its owner may read. Raises `BadKeys`."""
    key = new_key(tenant)
    try:
        handle = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(handle, "r+b", buffering=0) as file:
            size = file.seek(0, os.SEEK_END)
            ended = not size or os.pread(handle, 1, size - 1) == b"\n"  # an editor may leave the last line without
            file.write(f"{'' if ended else chr(10)}{tenant} {digest(key)}\n".encode())
    except OSError as error:
        raise BadKeys(f"{path}: {error.strerror or error}") from None
    return key


@dataclass(frozen=True, slots=True)
class ApiKeys:
    """Digests of keys by tenant. plain: of keys of any form, which are the tenant `default`'s."""

    digests: dict[str, frozenset[str]] = field(default_factory=dict)
    plain: frozenset[str] = frozenset()

    def tenant(self, key: str) -> str:
        """The tenant of a key. Raises `ApiError`.

        The time it takes may tell of digests, from which nobody gets to a key; keys are never compared.
        """
        given, parts = digest(key), _KEY.fullmatch(key)
        if given in self.plain:
            return DEFAULT_TENANT
        if parts is None:
            wrong = "the key is not known" if self.plain else "the key has not the form zk_TENANT_..."
            raise unauthorized(wrong if key else "no key is given; send Authorization: Bearer KEY")
        if given not in self.digests.get(parts[1], ()):
            raise unauthorized("the key is not known")
        return parts[1]


def read_keys(path: Path) -> ApiKeys:
    """The file of keys: a tenant and a digest a line; # begins a comment. Raises `BadKeys`."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        said = error.strerror if isinstance(error, OSError) and error.strerror else "it is no text"
        raise BadKeys(f"{path}: {said}") from None
    digests: dict[str, set[str]] = {}
    for number, line in enumerate(lines, 1):
        text = line.partition("#")[0].strip()
        if not text:
            continue
        parts = _LINE.fullmatch(text)
        if parts is None:
            raise BadKeys(
                f"{path}: line {number} is no tenant and digest; `zinc keys new TENANT --file FILE` writes one"
            )
        digests.setdefault(parts[1], set()).add(parts[2])
    if not digests:
        raise BadKeys(f"{path} has no key; `zinc keys new TENANT --file FILE` makes one")
    return ApiKeys({tenant: frozenset(known) for tenant, known in digests.items()})


def key_of(authorization: str, x_api_key: str) -> str:
    """The key that a request names in its headers, empty for none. Raises `ApiError` for another scheme."""
    if authorization:
        scheme, _, key = authorization.partition(" ")
        if scheme.lower() != "bearer":
            raise ApiError(401, "Authorization must be: Bearer KEY", code="invalid_api_key")
        return key.strip()
    return x_api_key.strip()

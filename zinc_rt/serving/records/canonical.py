"""Canonical JSON and digests of the Computation Receipt format, version 0.1 (Anomly, CC-BY-4.0), sections 2 and 3."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.errors import UsageError, ZincError

ALGORITHMS: Final = {"sha256": hashlib.sha256, "sha512": hashlib.sha512}
_DEPTH: Final = 64
_NUMERIC: Final = "?bhilqBHILQefdFD"


class NotCanonical(ZincError):
    """A document has a value that the canonical form does not: a float, a key that is no text, too many levels."""


def canonical(value: object) -> bytes:
    """The one serialization of a JSON value: keys sorted by code point, no spaces, integers only, UTF-8.

    Raises `NotCanonical`.
    """
    _check(value, 0)
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise NotCanonical(f"a text of the document is no Unicode: {error.reason}") from None


def _check(value: object, depth: int) -> None:
    if depth > _DEPTH:
        raise NotCanonical(f"the document has more than {_DEPTH} levels")
    if isinstance(value, dict):
        for key, member in value.items():
            if not isinstance(key, str):
                raise NotCanonical(f"the key {key!r} is no text")
            _check(member, depth + 1)
    elif isinstance(value, list | tuple):
        for member in value:
            _check(member, depth + 1)
    elif not (value is None or isinstance(value, str | int)):
        raise NotCanonical(f"{value!r} is no text, integer, list or object; receipts have no other numbers")


def parse(text: str | bytes) -> Any:
    """Read JSON from anyone. Raises `NotCanonical` for what is no JSON, has a key twice, or floats."""
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_constant=_refuse, parse_float=_refuse)
        _check(value, 0)
    except (ValueError, RecursionError) as error:
        raise NotCanonical(f"the document is no JSON: {error}") from None
    return value


def _unique(pairs: list[tuple[str, object]]) -> dict[str, object]:
    members = dict(pairs)
    if len(members) != len(pairs):
        raise NotCanonical("an object has a key twice")
    return members


def _refuse(text: str) -> object:
    raise NotCanonical(f"{text} is no integer; receipts have no other numbers")


def digest(data: bytes, alg: str = "sha256") -> str:
    """ "alg:hex" of some bytes. Raises `UsageError` for an algorithm that is not among `ALGORITHMS`."""
    return f"{alg}:{_hash(alg, data).hexdigest()}"


def _hash(alg: str, data: bytes = b"") -> Any:
    if alg not in ALGORITHMS:
        raise UsageError(f"digest algorithm {alg!r} is unknown; it must be {' or '.join(ALGORITHMS)}")
    return ALGORITHMS[alg](data)


def is_digest(value: object, alg: str) -> bool:
    """Whether a value is written as a digest of this algorithm."""
    if not isinstance(value, str) or alg not in ALGORITHMS or not value.startswith(alg + ":"):
        return False
    digits = value[len(alg) + 1 :]
    return len(digits) == 2 * _hash(alg).digest_size and set(digits) <= set("0123456789abcdef")


def tensor_digest(tensor: npt.NDArray[Any], alg: str = "sha256") -> str:
    """Digest of an array's type, shape and little-endian bytes. Raises `UsageError` for what has no numbers."""
    if tensor.dtype.char not in _NUMERIC:
        raise UsageError(f"arrays of {tensor.dtype} have no digest; only numbers have")
    little = np.ascontiguousarray(tensor, tensor.dtype.newbyteorder("<")).reshape(tensor.shape)
    head = canonical({"dtype": little.dtype.str.lstrip("<>=|"), "shape": list(tensor.shape)})
    return digest(head + little.tobytes(), alg)


def collection_digest(tensors: Mapping[str, npt.NDArray[Any]], alg: str = "sha256") -> str:
    """Digest of named arrays, in the order of their names."""
    found = _hash(alg)
    for name in sorted(tensors):
        found.update(canonical({"name": name, "digest": tensor_digest(tensors[name], alg)}))
    return f"{alg}:{found.hexdigest()}"

"""One compiled module as bytes: in memory, in a file, and as executable pages.

The file form is a header, JSON, the code; all little-endian, no part of it trusted before the checksum holds. The
checksum is that of an image under one key: a file under another image's name is damaged.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from hashlib import blake2b
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from zinc_rt.lang.errors import ImageError
from zinc_rt.lang.pages import Pages, map_code

_MAGIC: Final = b"ZINCIMG\0"
VERSION: Final = 2
_HEADER: Final = struct.Struct("<8sIIQ16s")  # magic, version, bytes of JSON, bytes of code, checksum
_DIGEST: Final = 16
MAX_JSON: Final = 1 << 26


class Image(NamedTuple):
    """A compiled module: position-independent bytes that are placed at a page's start."""

    code: bytes
    entries: Mapping[str, int]  # exported function -> offset of its first instruction in `code`
    target: str  # name of the instruction-set level (target.TARGETS)
    meta: Mapping[str, Any] = MappingProxyType({})  # what JSON can hold; see compiler.py

    def to_bytes(self, key: str = "") -> bytes:
        """The file form. key: under which it is stored, hex digits."""
        text = json.dumps({"entries": dict(self.entries), "target": self.target, "meta": dict(self.meta)}).encode()
        return (
            _HEADER.pack(_MAGIC, VERSION, len(text), len(self.code), _checksum(text, self.code, key)) + text + self.code
        )

    @classmethod
    def from_bytes(cls, data: bytes, key: str = "") -> Image:
        """The image that `to_bytes` wrote with this key. Raises `ImageError` for anything else."""
        if len(data) < _HEADER.size or not data.startswith(_MAGIC):
            raise ImageError(f"not a compiled image: {len(data)} bytes that begin with {bytes(data[:8])!r}")
        _, version, n_json, n_code, checksum = _HEADER.unpack_from(data)
        if version != VERSION:
            raise ImageError(f"the compiled image has format {version}; this release reads {VERSION}")
        if n_json > MAX_JSON or len(data) != _HEADER.size + n_json + n_code:
            raise ImageError(f"the compiled image has {len(data)} bytes; its header says {n_json} + {n_code}")
        text, code = data[_HEADER.size : _HEADER.size + n_json], data[_HEADER.size + n_json :]
        if _checksum(text, code, key) != checksum:
            raise ImageError("the compiled image is damaged: its checksum does not hold")
        try:
            tree = json.loads(text)
            entries, target, meta = tree["entries"], tree["target"], tree["meta"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ImageError(f"the compiled image has no valid description: {error!r}") from None
        if not (isinstance(entries, dict) and isinstance(target, str) and isinstance(meta, dict)):
            raise ImageError("the compiled image has a description of the wrong form")
        if bad := [name for name, at in entries.items() if type(at) is not int or not 0 <= at < len(code)]:
            raise ImageError(f"entry {bad[0]!r} of the compiled image is outside its {len(code)} bytes")
        return cls(code, entries, target, meta)

    def load(self) -> Code:
        """The code in executable pages. Raises `ImageError` where it cannot run or the system refuses such pages."""
        return Code(map_code(self.code, self.target), self.entries)


class Code(NamedTuple):
    """Functions ready to be called; the pages go when this object goes, so keep it while they may run."""

    pages: Pages
    entries: Mapping[str, int]

    def address(self, symbol: str) -> int:
        """The address of an exported function in memory. Raises `ImageError` for an unknown name."""
        try:
            return self.pages.address + self.entries[symbol]
        except KeyError:
            known = ", ".join(self.entries) or "nothing"
            raise ImageError(f"the compiled image exports no {symbol!r}; it exports {known}") from None


def _checksum(text: bytes, code: bytes, key: str) -> bytes:
    digest = blake2b(text, digest_size=_DIGEST, key=bytes.fromhex(key))
    digest.update(code)
    return digest.digest()

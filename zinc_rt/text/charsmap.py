"""SentencePiece's table of replacements (`precompiled_charsmap`): a double array of UTF-8 prefixes, then texts.

The table begins with the array's length in bytes, 4 bytes; the array's units have 4 bytes each (Yata, Darts-clone:
https://github.com/s-yata/darts-clone); the replacements behind it end in a zero byte each.
"""

from __future__ import annotations

from zinc_rt.text.errors import TokenizerError
from zinc_rt.text.vocab import KEY

CHARSMAP = KEY + "precompiled_charsmap"


class Charsmap:
    """Replaces the longest prefixes that the table knows, from left to right."""

    def __init__(self, table: bytes) -> None:
        """Raises TokenizerError for a table whose parts do not fit its size."""
        size = int.from_bytes(table[:4], "little")
        if len(table) < 8 or size % 4 or not 4 <= size < len(table) - 4:
            raise TokenizerError(
                f"says that {size} of its {len(table)} bytes are an array; the file is damaged",
                key=CHARSMAP,
                value=size,
            )
        self._units = memoryview(table[4 : 4 + size]).cast("I")
        self._texts = table[4 + size :]
        self._known: dict[int, bytes] = {}

    def replace(self, text: str) -> str:
        """The normalised text. Raises TokenizerError where the table points outside itself."""
        data, out, at = text.encode(), bytearray(), 0
        try:
            while at < len(data):
                length, where = self._longest(data, at)
                if length:
                    out += self._text(where)
                else:
                    first = data[at]
                    length = 1 if first < 0x80 else 2 if first < 0xE0 else 3 if first < 0xF0 else 4
                    out += data[at : at + length]
                at += length
        except IndexError:
            raise TokenizerError("points outside itself; the file is damaged", key=CHARSMAP) from None
        return out.decode("utf-8", "replace")

    def _longest(self, data: bytes, at: int) -> tuple[int, int]:
        """Length of the longest prefix that the table has, and where its replacement is; 0 for none."""
        units, length, where = self._units, 0, 0
        node = _base(units[0])
        for end in range(at, len(data)):
            byte = data[end]
            node ^= byte
            unit = units[node]
            if not byte or unit & 0x800000FF != byte:
                break
            node ^= _base(unit)
            if unit & 0x100:
                length, where = end + 1 - at, units[node] & 0x7FFFFFFF
        return length, where

    def _text(self, where: int) -> bytes:
        found = self._known.get(where)
        if found is None:
            end = self._texts.find(b"\0", where)
            if end < 0:
                raise IndexError
            found = self._known[where] = self._texts[where:end]
        return found


def _base(unit: int) -> int:
    return unit >> 10 << ((unit & 0x200) >> 6)

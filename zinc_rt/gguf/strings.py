"""An array of strings as it lies in the file: one stretch of bytes, each string decoded when it is asked for."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, cast, overload

import numpy as np
from numpy.typing import NDArray

_WORD: Final = 8  # bytes of a length field
_ALL: Final = (1 << 64) - 1
# Odd constants of the golden ratio and of primes, as hash functions take them.
_HEAD, _TAIL, _LENGTH = 0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
_SAME_KEY: Final = 64
"""Strings that may share a key. A file whose texts are made to share more gets no index of this kind."""
_REMEMBERED: Final = 1 << 14  # texts whose place an index remembers
_AT_ONCE: Final = 1 << 24  # bytes of strings that are decoded in one go, which takes several copies of them


class StringTable(Sequence[str]):
    """Strings behind each other, each with its length before it (u64, little-endian), by number.

    Looking one up decodes it. Raises what `invalid` makes for bytes that are not UTF-8.
    """

    def __init__(
        self, raw: bytes, starts: NDArray[np.int64], invalid: Callable[[int, int, UnicodeDecodeError], Exception]
    ) -> None:
        """raw: the length fields and the texts. starts: where in it the length fields are. invalid: the error for a
        string, given its number, where in `raw` it begins and what Python says.
        """
        self.raw, self.starts, self._invalid = raw, starts, invalid
        self.lengths: NDArray[np.int64] = np.diff(starts, append=len(raw)) - _WORD
        """Bytes of each text."""

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        if isinstance(index, slice):
            return [self[i] for i in range(*index.indices(len(self)))]
        text = self.encoded(index)
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            number = range(len(self))[index]
            raise self._invalid(number, int(self.starts[number]) + _WORD, error) from error

    def __iter__(self) -> Iterator[str]:
        run = split(self.raw, self.starts) if len(self.raw) <= _AT_ONCE else None
        return iter(self[:] if run is None else run)

    def encoded(self, index: int) -> bytes:
        """The UTF-8 of a string."""
        start = int(self.starts[index]) + _WORD
        return self.raw[start : start + int(self.lengths[index])]

    def check_utf8(self) -> None:
        """Raise what looking up raises if any string is not UTF-8."""
        try:
            if len(self.raw) <= _AT_ONCE:
                _blanked(self.raw, self.starts).decode()
                return
        except UnicodeDecodeError:
            pass
        for number in range(len(self)):
            self[number]


def split(raw: bytes, starts: NDArray[np.int64]) -> list[str] | None:
    """The strings of `raw`, whose length fields are at `starts`, from its first byte on: decoded in one go, then split.

    The length fields are made NULs and serve as separators, which is several times as fast as decoding one by
    one. None where that does not work: a string holds a NUL itself, or is not UTF-8.
    """
    blanked = _blanked(raw, starts)
    if blanked.count(0) != _WORD * len(starts):
        return None
    try:
        return blanked.decode()[_WORD:].split("\0" * _WORD) if raw else []
    except UnicodeDecodeError:
        return None


def _blanked(raw: bytes, starts: NDArray[np.int64]) -> bytearray:
    """The raw bytes with zeros for length fields."""
    blanked = bytearray(raw)
    if len(starts):
        np.ndarray((len(raw) - _WORD + 1,), "<u8", blanked, strides=(1,))[starts] = 0
    return blanked


class StringIndex(Mapping[str, int]):
    """The number of each text of a table; of equal texts the first one counts. Made of all texts at once.

    Texts are sorted by a key of 64 bits: a function of the first eight bytes, the last eight and the length.
    """

    def __init__(self, table: StringTable) -> None:
        """Raises ValueError where too many texts share a key, which only happens on purpose."""
        self.table = table
        keys = _keys(table)
        order = np.argsort(keys)
        keys = keys[order]
        if (keys[_SAME_KEY:] == keys[:-_SAME_KEY]).any():
            raise ValueError(f"more than {_SAME_KEY} strings share a key")
        # Single numbers are read from views three times as fast as from arrays.
        self._keys, self._order = (memoryview(cast("Any", numbers)) for numbers in (keys, order))
        self._alike = np.flatnonzero(keys[1:] == keys[:-1])  # places of a key that the next place has too
        self._found: dict[str, int] = {}

    def _find(self, text: str) -> int:
        """The number of a text, -1 for none."""
        encoded = text.encode("utf-8", "surrogatepass")  # no text of a table has surrogates
        key = _key(encoded)
        at, found = bisect_left(self._keys, key), -1
        while at < len(self._keys) and self._keys[at] == key:
            number = self._order[at]
            if self.table.encoded(number) == encoded and (found < 0 or number < found):
                found = number
            at += 1
        return found

    def get(self, text: Any, default: Any = None) -> Any:
        """The number of a text, else the default."""
        number = self._found.get(text)
        if number is None:
            if not isinstance(text, str):
                return default
            if len(self._found) >= _REMEMBERED:
                self._found.clear()
            number = self._found[text] = self._find(text)
        return default if number < 0 else number

    def __getitem__(self, text: str) -> int:
        number: int | None = self.get(text)
        if number is None:
            raise KeyError(text)
        return number

    def __contains__(self, text: object) -> bool:
        return self.get(text) is not None

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(self.table))

    def __len__(self) -> int:
        return len(self.table) - len(self._repeated())

    def twice(self) -> tuple[int, int] | None:
        """The numbers of the first text that occurs twice: where first, and where again; None where none does."""
        return min(
            ((first, again) for again, first in self._repeated().items()), key=lambda pair: pair[1], default=None
        )

    def _repeated(self) -> dict[int, int]:
        """Numbers of texts that occurred before, with the number of the first of each."""
        numbers = {n for at in self._alike.tolist() for n in (self._order[at], self._order[at + 1])}
        firsts: dict[bytes, int] = {}
        found = {}
        for number in sorted(numbers):
            first = firsts.setdefault(self.table.encoded(number), number)
            if first != number:
                found[number] = first
        return found


def _keys(table: StringTable) -> NDArray[np.uint64]:
    """Of each text what `_key` gives."""
    raw = table.raw + bytes(_WORD)  # the first eight bytes of the last text may reach over the end
    words = np.ndarray((len(raw) - _WORD + 1,), "<u8", raw, strides=(1,))
    masks = np.array([(1 << 8 * n) - 1 for n in range(_WORD + 1)], np.uint64)
    lengths = table.lengths
    head = words[table.starts + _WORD] & masks[np.minimum(lengths, _WORD)]
    tail = words[table.starts + lengths]
    size = lengths.astype(np.uint64)
    keys: NDArray[np.uint64] = head * np.uint64(_HEAD) + tail * np.uint64(_TAIL) + size * np.uint64(_LENGTH)
    return keys


def _key(text: bytes) -> int:
    """The key of a text. The last eight bytes of a short one reach into its length field."""
    head = int.from_bytes(text[:_WORD], "little")
    tail = int.from_bytes((len(text).to_bytes(_WORD, "little") + text[-_WORD:])[-_WORD:], "little")
    return (head * _HEAD + tail * _TAIL + len(text) * _LENGTH) & _ALL

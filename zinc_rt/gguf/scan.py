"""A bounds-checked walk over the metadata bytes: every count is checked before it is believed."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import DAMAGED, HOSTILE, INCOMPLETE, GGUFError
from zinc_rt.gguf.source import FileBytes
from zinc_rt.gguf.types import SCALAR_BYTES, ValueType
from zinc_rt.utils.checks import show

_WINDOW = 1 << 17  # bytes read at once
_GUESS_BYTES = 1 << 12  # bytes looked at in a first guess at string starts
_PLAIN_STEPS = 64  # strings stepped over one by one where guessing their starts did not pay

_U32 = struct.Struct("<I")
_U64 = struct.Struct("<Q")

VALUE_TYPES = {int(t): t for t in ValueType}


class FileCursor:
    """A reading position in a file. All methods raise GGUFError subclasses only."""

    def __init__(self, source: FileBytes, pos: int = 0, *, window: int = _WINDOW) -> None:
        self.source = source
        self.pos = pos
        self._window_size = window
        self._base = 0  # file offset of `_window`
        self._window = b""
        self._strings_left = limits.MAX_STRINGS
        self._nested_left = limits.MAX_NESTED_ARRAYS
        self._names_left = limits.MAX_NAMES_TOTAL_BYTES

    # -- fixed-size reads

    def need(self, count: int, label: str) -> None:
        """Check that `count` more bytes exist and belong to a metadata section of sane size."""
        end = self.pos + count
        if end > self.source.size:
            raise GGUFError(
                f"ends at byte {self.source.size}, inside {label} of {count} bytes",
                path=self.source.shown_path,
                offset=self.pos,
                hint=INCOMPLETE,
            )
        if end > limits.MAX_METADATA_BYTES:
            raise GGUFError(
                f"{label} of {count} bytes leads past the limit for metadata, {limits.MAX_METADATA_BYTES}",
                path=self.source.shown_path,
                offset=self.pos,
                hint=HOSTILE,
            )

    def _fill(self, count: int, label: str) -> int:
        """Load the next `count` bytes into the window; return their index in it."""
        index = self.pos - self._base
        if index < 0 or index + count > len(self._window):
            self.need(count, label)
            size = min(max(count, self._window_size), self.source.size - self.pos)
            self._window = self.source.read(self.pos, size)
            self._base = self.pos
            index = 0
        return index

    def u32(self, label: str) -> int:
        """Read an unsigned 32-bit number; `label` names it in messages."""
        index = self._fill(4, label)
        self.pos += 4
        value: int = _U32.unpack_from(self._window, index)[0]
        return value

    def u64(self, label: str) -> int:
        """Read an unsigned 64-bit number; `label` names it in messages."""
        index = self._fill(8, label)
        self.pos += 8
        value: int = _U64.unpack_from(self._window, index)[0]
        return value

    def take(self, count: int, label: str) -> bytes:
        """The next `count` bytes."""
        index = self._fill(count, label)
        self.pos += count
        return self._window[index : index + count]

    def skip(self, count: int, label: str) -> None:
        """Pass over `count` bytes without reading them."""
        self.need(count, label)
        self.pos += count

    def text(self, label: str, limit: int = limits.MAX_METADATA_BYTES) -> str:
        """A string: u64 length, then UTF-8."""
        start = self.pos
        count = self.u64(f"the length of {label}")
        if count > limit:
            # Longer than what is left means a broken file, and is the more useful thing to say.
            self.need(count, label)
            raise GGUFError(
                f"{label} is {count} bytes long, the limit is {limit}",
                path=self.source.shown_path,
                offset=start,
                hint=HOSTILE,
            )
        raw = self.take(count, label)
        try:
            return raw.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self.not_utf8(label, start + 8 + error.start, raw[error.start]) from error

    def name(self, label: str, limit: int) -> str:
        """A key or a tensor name: a string of at most `limit` bytes that counts towards the file's names."""
        start = self.pos
        text = self.text(label, limit)
        self._names_left -= self.pos - start
        if self._names_left < 0:
            raise GGUFError(
                f"{label} brings the names to more than {limits.MAX_NAMES_TOTAL_BYTES} bytes in all",
                path=self.source.shown_path,
                offset=start,
                hint=HOSTILE,
            )
        return text

    def not_utf8(self, label: str, offset: int, byte: int) -> GGUFError:
        """The error for text that is not UTF-8."""
        return GGUFError(
            f"{label} is not UTF-8: byte 0x{byte:02x}",
            path=self.source.shown_path,
            offset=offset,
            hint="the file is damaged, or its converter wrote another encoding",
        )

    # -- values

    def value_type(self, label: str) -> ValueType:
        """A value type, as a u32."""
        start = self.pos
        number = self.u32(f"the type of {label}")
        if number not in VALUE_TYPES:
            raise GGUFError(
                f"{label} has value type {number}, the format knows 0 to {max(ValueType)}",
                path=self.source.shown_path,
                offset=start,
                hint="the file is damaged or of a newer format",
            )
        return VALUE_TYPES[number]

    def array_header(self, label: str) -> tuple[ValueType, int]:
        """Item type and count of an array, the count checked against the bytes that are left."""
        item = self.value_type(f"the items of {label}")
        count = self.u64(f"the length of {label}")
        # The least that an item takes: itself, a string's length, or an inner array's header.
        least = SCALAR_BYTES.get(item, 8 if item is ValueType.STRING else 12)
        self.need(count * least, f"{label}, an array of {count} items")
        return item, count

    def skip_value(self, kind: ValueType, label: str, depth: int = 0) -> None:
        """Pass over one value, checking that all of it is there."""
        if kind is ValueType.STRING:
            self.skip(self.u64(f"the length of {label}"), label)
        elif kind is not ValueType.ARRAY:
            self.skip(SCALAR_BYTES[kind], label)
        else:
            start = self.pos
            item, count = self.array_header(label)
            if item is ValueType.STRING:
                self._budget(start, count, label)
                for _ in self.string_starts(count, label):
                    pass
            elif item is ValueType.ARRAY:
                self.enter(start, count, depth, label)
                for _ in range(count):
                    self.skip_value(ValueType.ARRAY, label, depth + 1)
            else:
                self.skip(count * SCALAR_BYTES[item], label)

    def enter(self, start: int, count: int, depth: int, label: str) -> None:
        """Account for `count` arrays inside an array that is itself `depth` deep."""
        self._nested_left -= count
        if depth + 1 >= limits.MAX_DEPTH or self._nested_left < 0:
            raise GGUFError(
                f"{label} nests arrays {depth + 2} deep, {count} of them here; the limits are "
                f"{limits.MAX_DEPTH} levels and {limits.MAX_NESTED_ARRAYS} inner arrays in a file",
                path=self.source.shown_path,
                offset=start,
                hint=HOSTILE,
            )

    def _budget(self, start: int, count: int, label: str) -> None:
        self._strings_left -= count
        if self._strings_left < 0:
            raise GGUFError(
                f"{label} has {count} strings; a file may have {limits.MAX_STRINGS} in all its arrays",
                path=self.source.shown_path,
                offset=start,
                hint=HOSTILE,
            )

    def string_starts(self, count: int, label: str) -> Iterator[tuple[NDArray[np.int64], int]]:
        """Walk `count` strings; yield (starts, end) per run of adjacent ones.

        `starts` are file offsets of length fields, in order, and `end` is where the last string of the run
        ends. The offset of a string is known only from the string before it, which makes the plain walk a slow loop.
        So the walk guesses: every position in a range of bytes whose next eight bytes read as a number below 256
        counts as the length of a short string. Where each guessed string ends exactly at the next guess, the
        guesses from the known start on are correct, thousands in a few array operations. Anything else (long or
        empty strings, NUL characters) ends the run, and some plain steps follow.
        """
        span, steps = _GUESS_BYTES, _PLAIN_STEPS
        while count:
            self._fill(min(span, self.source.size - self.pos), label)
            run = _guess_run(self._window, self.pos - self._base, span, count)
            if len(run) > 1:
                ends = run + self.pos
                self.pos = int(ends[-1])
                count -= len(run) - 1
                yield ends[:-1], self.pos
            if len(run) > _PLAIN_STEPS:
                span, steps = min(span * 4, _WINDOW), _PLAIN_STEPS
            elif count:
                starts = self._plain_steps(min(count, steps), label)
                count -= len(starts)
                yield starts, self.pos
                span, steps = _GUESS_BYTES, min(steps * 2, 64 * _PLAIN_STEPS)

    def _plain_steps(self, count: int, label: str) -> NDArray[np.int64]:
        """Starts of the next strings, at least one and at most `count`."""
        index = self._fill(8, label)
        window, base, last = self._window, self._base, len(self._window) - 8
        starts: list[int] = []
        length_at, append = _U64.unpack_from, starts.append
        for _ in range(count):
            if index > last:
                break
            append(index)
            index += 8 + length_at(window, index)[0]
        self.pos = base + starts[-1]
        self.skip(base + index - self.pos, f"a string of {label}")
        return np.array(starts, np.int64) + base

    def bool_error(self, label: str, offset: int, byte: int) -> GGUFError:
        """The error for a bool that is neither 0 nor 1."""
        return GGUFError(
            f"{label} is a bool with the byte {byte}, which must be 0 or 1",
            path=self.source.shown_path,
            offset=offset,
            hint=DAMAGED,
        )


def key_name(key: str) -> str:
    """The name of a metadata value in messages."""
    return f"the value of {show(key)}"


def _guess_run(window: bytes, index: int, span: int, count: int) -> NDArray[np.int64]:
    """Starts of up to `count` strings proved adjacent, then the end of the last; relative to `index`."""
    raw = np.frombuffer(window, np.uint8, min(span, len(window) - index), index)
    if len(raw) < 8:
        return _NOTHING
    words = np.ndarray((len(raw) - 7,), "<u8", raw, strides=(1,))  # the eight bytes from each position
    heads = np.flatnonzero(words < 256)
    if len(heads) < 2 or heads[0] != 0:
        return _NOTHING
    ends = heads[:-1] + 8 + raw[heads[:-1]]
    wrong = np.flatnonzero(ends != heads[1:])
    proved = int(wrong[0]) if len(wrong) else len(ends)
    return heads[: min(proved, count) + 1]


_NOTHING: Final = np.zeros(1, np.int64)

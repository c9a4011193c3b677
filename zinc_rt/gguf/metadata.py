"""The metadata of a file: offsets of values are found at opening, values are decoded at first use."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf import limits
from zinc_rt.gguf.errors import DAMAGED, HOSTILE, GGUFError, MissingKey
from zinc_rt.gguf.scan import FileCursor, key_name
from zinc_rt.gguf.source import FileBytes
from zinc_rt.gguf.strings import StringTable, split
from zinc_rt.gguf.types import SCALAR_BYTES, SCALAR_CODES, SCALAR_DTYPES, ValueType
from zinc_rt.utils.checks import show

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ValueInfo:
    """Type and position of a value that is not decoded yet.

    `type` is its value type; for an array `item` is the type of its items and `count` their number, else None
    and 1. `offset` is the file offset where the value starts, after its type.
    """

    type: ValueType
    item: ValueType | None
    count: int
    offset: int

    def __str__(self) -> str:
        if self.item is None:
            return self.type.name.lower()
        return f"{self.item.name.lower()}[{self.count}]"


class Metadata(Mapping[str, Any]):
    """The metadata of an open file, in file order.

    Values are decoded on first access and kept: bool, int, float, str; arrays of numbers as read-only
    `np.ndarray` of the stored dtype, of bools as read-only bool `np.ndarray`, of strings as `list[str]`, of
    arrays as `list`. Access raises MissingKey for an unknown key, GGUFError for text that is not UTF-8
    or a bool that is neither 0 nor 1, FileChanged when the file has become shorter or was closed.
    """

    def __init__(self, source: FileBytes, infos: dict[str, ValueInfo]) -> None:
        self._source = source
        self._infos = infos
        self._values: dict[str, Any] = {}

    def info(self, key: str) -> ValueInfo:
        """Type and size of the value of `key`, without decoding it. Raises MissingKey."""
        try:
            return self._infos[key]
        except KeyError:
            raise MissingKey(
                f"has no metadata key {show(key)}",
                path=self._source.shown_path,
                hint="the file is not of the kind expected, or was converted without it",
            ) from None

    def __getitem__(self, key: str) -> Any:
        if key in self._values:
            return self._values[key]
        info = self.info(key)
        value = _decode(FileCursor(self._source, info.offset, window=1024), info.type, key_name(key), 0)
        self._values[key] = value
        return value

    def strings(self, key: str) -> StringTable:
        """The value of `key`, an array of strings, without decoding it. Raises MissingKey, GGUFError."""
        info, label = self.info(key), key_name(key)
        if info.item is not ValueType.STRING:
            raise _wrong_type(key, str(info), list, self._source.shown_path)
        cursor = FileCursor(self._source, info.offset)
        cursor.array_header(label)
        begin = cursor.pos
        starts = [run for run, _ in cursor.string_starts(info.count, label)]
        raw = self._source.read(begin, cursor.pos - begin)

        def invalid(number: int, at: int, error: UnicodeDecodeError) -> GGUFError:
            bad = at + error.start
            return cursor.not_utf8(f"string {number} of {label}", begin + bad, raw[bad])

        return StringTable(raw, np.concatenate(starts) - begin if starts else np.zeros(0, np.int64), invalid)

    def stored(self, key: str) -> bytes:
        """The bytes of `key`, its type and its value: what `GGUFWriter.add_stored` takes. Raises MissingKey."""
        info, label = self.info(key), key_name(key)
        cursor = FileCursor(self._source, info.offset)
        cursor.skip_value(info.type, label)
        return struct.pack("<I", info.type) + self._source.read(info.offset, cursor.pos - info.offset)

    def __contains__(self, key: object) -> bool:
        return key in self._infos

    def __iter__(self) -> Iterator[str]:
        return iter(self._infos)

    def __len__(self) -> int:
        return len(self._infos)

    def forget(self) -> None:
        """Drop all decoded values; the next access decodes again. Frees a vocabulary that has been used."""
        self._values.clear()

    def __repr__(self) -> str:
        return f"<Metadata of {self._source.shown_path}: {len(self)} keys>"


_REQUIRED: Final = object()


def get(metadata: Mapping[str, Any], key: str, kind: type[T], default: Any = _REQUIRED) -> T:
    """The value of a metadata key, checked to be of a kind.

    Args:
        metadata: the metadata of a file, or any mapping.
        key: the key.
        kind: int, float (accepts an int), bool, str, list (of strings) or np.ndarray (of numbers or bools).
        default: the result for a missing key; without it the key is required.

    Raises:
        MissingKey: the key is missing, and there is no default.
        GGUFError: the value has another type.
    """
    if key not in metadata:
        if default is not _REQUIRED:
            return default  # type: ignore[no-any-return]
        if isinstance(metadata, Metadata):
            metadata.info(key)  # raises with the file's path
        raise MissingKey(f"metadata key {show(key)} is missing", hint="the file was converted without it")
    value = metadata[key]
    if kind is float and type(value) is int:
        value = float(value)
    # A bool is an int to Python, and never means a number in a file.
    fits = isinstance(value, kind) and not (isinstance(value, bool) and kind is not bool)
    if fits and isinstance(value, list):
        fits = all(isinstance(item, str) for item in value)
    if not fits:
        path = metadata._source.shown_path if isinstance(metadata, Metadata) else None
        raise _wrong_type(key, _brief(metadata[key]), kind, path)
    return cast("T", value)


def _wrong_type(key: str, held: str, kind: type, path: str | None) -> GGUFError:
    wanted = _NAMES.get(kind, kind.__name__)
    return GGUFError(f"metadata key {show(key)} holds {held}, where {wanted} is needed", path=path, hint=DAMAGED)


def _brief(value: Any) -> str:
    """`value` for a message, without spelling out an array."""
    if isinstance(value, (list, np.ndarray)):
        return f"an array of {len(value)} items"
    return show(value)


_NAMES: Final[dict[type, str]] = {
    int: "an integer",
    float: "a number",
    bool: "a bool",
    str: "a string",
    list: "an array of strings",
    np.ndarray: "an array of numbers",
}


def scan_metadata(cursor: FileCursor, count: int) -> dict[str, ValueInfo]:
    """Find `count` key-value pairs from the cursor on, which is left behind the last of them."""
    path = cursor.source.shown_path
    if count > limits.MAX_KEYS:
        raise GGUFError(
            f"announces {count} metadata keys, the limit is {limits.MAX_KEYS}",
            path=path,
            offset=16,
            hint=HOSTILE,
        )
    infos: dict[str, ValueInfo] = {}
    for number in range(count):
        start = cursor.pos
        key = cursor.name(f"metadata key {number + 1} of {count}", limits.MAX_KEY_BYTES)
        if key in infos:
            raise GGUFError(
                f"has the metadata key {show(key)} twice, the first time before byte {infos[key].offset}",
                path=path,
                offset=start,
                hint=DAMAGED,
            )
        label = key_name(key)
        kind = cursor.value_type(label)
        offset, item, items = cursor.pos, None, 1
        if kind is ValueType.ARRAY:
            item, items = cursor.array_header(label)
            cursor.pos = offset
        infos[key] = ValueInfo(kind, item, items, offset)
        cursor.skip_value(kind, label)
    return infos


def _decode(cursor: FileCursor, kind: ValueType, label: str, depth: int) -> Any:
    if kind is ValueType.STRING:
        return cursor.text(label)
    if kind is ValueType.ARRAY:
        return _decode_array(cursor, label, depth)
    start = cursor.pos
    (value,) = struct.unpack(SCALAR_CODES[kind], cursor.take(SCALAR_BYTES[kind], label))
    if kind is ValueType.BOOL:
        if value > 1:
            raise cursor.bool_error(label, start, value)
        return value == 1
    return value


def _decode_array(cursor: FileCursor, label: str, depth: int) -> list[Any] | NDArray[Any]:
    start = cursor.pos
    item, count = cursor.array_header(label)
    if item is ValueType.ARRAY:
        cursor.enter(start, count, depth, label)
        return [_decode_array(cursor, label, depth + 1) for _ in range(count)]
    if item is ValueType.STRING:
        return _decode_strings(cursor, count, label)
    start = cursor.pos
    values = np.frombuffer(cursor.take(count * SCALAR_BYTES[item], label), SCALAR_DTYPES[item])
    if item is ValueType.BOOL:
        if count and int(values.max()) > 1:
            bad = int(np.argmax(values > 1))
            raise cursor.bool_error(f"item {bad} of {label}", start + bad, int(values[bad]))
        return values.view(np.bool_)
    return values


def _decode_strings(cursor: FileCursor, count: int, label: str) -> list[str]:
    strings: list[str] = []
    for starts, end in cursor.string_starts(count, label):
        first = int(starts[0])
        raw = cursor.source.read(first, end - first)
        run = split(raw, starts - first) if len(raw) <= _SPLIT_BYTES else None
        strings += _decode_each(raw, starts - first, cursor, label, len(strings)) if run is None else run
    return strings


_SPLIT_BYTES: Final = 1 << 20  # of a run worth splitting; a longer one has few strings and needs no copies


def _decode_each(raw: bytes, starts: NDArray[np.int64], cursor: FileCursor, label: str, number: int) -> list[str]:
    """The strings of `raw` one by one; `number` is that of the first, for the message."""
    strings = []
    offsets = starts.tolist()
    for a, b in zip(offsets, [*offsets[1:], len(raw)]):
        try:
            strings.append(raw[a + 8 : b].decode("utf-8"))
        except UnicodeDecodeError as error:
            bad = a + 8 + error.start
            offset = cursor.pos - len(raw) + bad
            name = f"string {number + len(strings)} of {label}"
            raise cursor.not_utf8(name, offset, raw[bad]) from error
    return strings

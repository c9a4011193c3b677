"""Typed reads of a GGUF file's metadata. Every complaint names the key and the value that was seen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.metadata import Metadata as FileMetadata
from zinc_rt.gguf.strings import StringIndex, StringTable
from zinc_rt.gguf.types import ValueType
from zinc_rt.text.errors import TokenizerError, shown

Metadata = Mapping[str, Any]


def string(metadata: Metadata, key: str, default: str | None = None) -> str | None:
    """The string under `key`; `default` when the key is absent. Raises TokenizerError for another type."""
    value = metadata.get(key)
    if value is None:
        return default
    if not isinstance(value, str):
        raise TokenizerError(f"must be a string, not {shown(value)}", key=key, value=value)
    return value


def boolean(metadata: Metadata, key: str, default: bool) -> bool:
    """The bool under `key`; `default` when the key is absent. Raises TokenizerError for another type."""
    value = metadata.get(key)
    if value is None:
        return default
    if not isinstance(value, (bool, np.bool_)):
        raise TokenizerError(f"must be a bool, not {shown(value)}", key=key, value=value)
    return bool(value)


def token_id(metadata: Metadata, key: str, n_vocab: int, default: int | None = None) -> int | None:
    """The token id under `key`; `default` when the key is absent or the default does not fit the vocabulary.

    Raises TokenizerError for another type and for an id outside 0..n_vocab-1.
    """
    value = metadata.get(key)
    if value is None:
        return default if default is not None and default < n_vocab else None
    if isinstance(value, (bool, np.bool_)) or not isinstance(value, (int, np.integer)):
        raise TokenizerError(f"must be a token id, not {shown(value)}", key=key, value=value)
    if not 0 <= value < n_vocab:
        raise TokenizerError(
            f"token id {value} is outside the vocabulary of {n_vocab} tokens", key=key, value=int(value)
        )
    return int(value)


def strings(metadata: Metadata, key: str, reason: str) -> Sequence[str]:
    """The array of strings under `key`, which must be there; of a file as a table, whose strings are looked at when
    they are used. Raises TokenizerError.
    """
    if isinstance(metadata, FileMetadata) and key in metadata and metadata.info(key).item is ValueType.STRING:
        return metadata.strings(key)
    value = metadata.get(key)
    if value is None:
        raise TokenizerError(f"missing; {reason}", key=key)
    if not isinstance(value, (list, tuple)):
        raise TokenizerError(f"must be an array of strings, not {shown(value)}", key=key, value=value)
    if not set(map(type, value)) <= {str}:
        index, odd = next((i, v) for i, v in enumerate(value) if type(v) is not str)
        raise TokenizerError(f"must be an array of strings, but entry {index} is {shown(odd)}", key=key, value=odd)
    try:
        "".join(value).encode()
    except UnicodeEncodeError:
        index, odd = next((i, v) for i, v in enumerate(value) if not _is_utf8(v))
        raise TokenizerError(f"entry {index}, {shown(odd)}, is not valid UTF-8", key=key, value=odd) from None
    return list(value)


def numbered(texts: Sequence[str]) -> Mapping[str, int]:
    """The number of each text; of equal ones the first one's."""
    if isinstance(texts, StringTable):
        with suppress(ValueError):
            return StringIndex(texts)
    found = list(texts)
    return dict(zip(reversed(found), range(len(found) - 1, -1, -1)))


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def numbers(metadata: Metadata, key: str, length: int, *, kinds: str) -> NDArray[Any] | None:
    """The array of numbers under `key` (None when absent), one per token.

    `kinds` are the accepted `numpy.dtype.kind` letters. Raises TokenizerError for another element type,
    another rank, or another length than `length`.
    """
    value = metadata.get(key)
    if value is None:
        return None
    try:
        array = np.asarray(value)
    except ValueError:  # a ragged list
        array = np.empty((), dtype=object)
    if array.ndim != 1 or (array.size and array.dtype.kind not in kinds):
        raise TokenizerError(f"must be an array of numbers, not {shown(value)}", key=key, value=value)
    if array.size != length:
        raise TokenizerError(
            f"has {array.size} entries, but tokenizer.ggml.tokens has {length}; the two must agree",
            key=key,
            value=array.size,
        )
    return array

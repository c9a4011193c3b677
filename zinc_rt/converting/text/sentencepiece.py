"""Reading tokenizer.model: a SentencePiece model as a protocol buffer, of which few fields matter.

The fields are those of `sentencepiece_model.proto` (sentencepiece repository): 1 pieces (1 text, 2 score, 3 type),
2 trainer_spec (3 model_type, 40 unk_id), 3 normalizer_spec (2 character map, 3 add_dummy_prefix,
4 remove_extra_whitespaces).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from zinc_rt.converting.errors import ConvertError

_BPE: Final = 2
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


@dataclass
class Pieces:
    """A vocabulary: texts, scores and kinds by id (kinds as GGUF numbers them), and how text is prepared."""

    texts: list[str] = field(default_factory=list)
    scores: list[float] = field(default_factory=list)
    kinds: list[int] = field(default_factory=list)
    space_prefix: bool = True
    merge_spaces: bool = False


def read_pieces(raw: bytes, shown: str) -> Pieces:
    """The vocabulary of a file's bytes. shown: its name in messages.

    Raises `ConvertError` for what is no such file, for a model of unigrams, or one that replaces
    characters.
    """
    pieces, model_type, merge_spaces = Pieces(), 1, True
    try:
        for number, value in _fields(raw):
            if number == 1:
                _add_piece(pieces, _bytes(value))
            elif number == 2:
                model_type = dict(_fields(_bytes(value))).get(3, 1)  # type: ignore[assignment]
            elif number == 3:
                spec = dict(_fields(_bytes(value)))
                if spec.get(2):
                    raise ConvertError(f"{shown} replaces characters before it cuts words, which is not converted")
                pieces.space_prefix, merge_spaces = bool(spec.get(3, 1)), bool(spec.get(4, 1))
    except (ValueError, struct.error, IndexError) as error:
        raise ConvertError(f"{shown} is no SentencePiece model ({error}); fetch it again") from error
    if not pieces.texts:
        raise ConvertError(f"{shown} is no SentencePiece model: it has no pieces; fetch it again")
    if model_type != _BPE:
        raise ConvertError(f"{shown} is a SentencePiece model of type {model_type}; converted is 2, of merges")
    pieces.merge_spaces = merge_spaces
    return pieces


def _add_piece(pieces: Pieces, raw: bytes) -> None:
    fields = dict(_fields(raw))
    (score,) = struct.unpack("<f", _bytes(fields.get(2, b"\0\0\0\0")))
    kind = fields.get(3, 1)
    if not isinstance(kind, int) or not 1 <= kind <= 6:
        raise ValueError(f"piece {len(pieces.texts)} is of type {kind!r}")
    pieces.texts.append(_bytes(fields[1]).decode("utf-8") if 1 in fields else "")
    pieces.scores.append(score)
    pieces.kinds.append(kind)


def _bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise ValueError("a number stands where bytes are needed")
    return value


def _fields(raw: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a message: number, and value as an integer or as its bytes."""
    at = 0
    while at < len(raw):
        tag, at = _varint(raw, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(raw, at)
            yield number, value
            continue
        if wire == _BYTES:
            size, at = _varint(raw, at)
        elif wire in (_FIXED32, _FIXED64):
            size = 4 if wire == _FIXED32 else 8
        else:
            raise ValueError(f"wire type {wire} at byte {at}")
        if at + size > len(raw):
            raise ValueError(f"a field ends behind byte {len(raw)}")
        yield number, raw[at : at + size]
        at += size


def _varint(raw: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = raw[at]
        value |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return value, at
        if shift > 63:
            raise ValueError(f"a number does not end before byte {at}")

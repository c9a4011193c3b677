"""A text's keys, values and recurrent state in a file, so that a long text is computed once.

A file holds whole pages of 16 tokens, as the model's graph declares them: what one device computed another goes on
from, with the same bits. Little-endian, in this order: 8 bytes `ZINCTEXT`, u32 version, u32 length of the header, the
header in JSON, the tokens as i32 (i64 where the header has pictures), of each cache its pages, of each state its
array, and BLAKE2b-256 of all that stands before it.
"""

from __future__ import annotations

import json
import math
import os
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import numpy.typing as npt

from zinc_rt.backends.base import Bytes
from zinc_rt.engine.batch import EngineError
from zinc_rt.engine.engine import Engine
from zinc_rt.engine.kv_cache import PAGES_AT_ONCE
from zinc_rt.engine.pictures import PlacedPicture
from zinc_rt.numerics import PAGE_TOKENS, VERSION
from zinc_rt.utils.atomic_write import whole_file
from zinc_rt.utils.checks import printable, show

_MAGIC: Final = b"ZINCTEXT"
_FORMAT: Final = 1
_HEAD: Final = struct.Struct("<8sII")
_DIGEST: Final = 32
_LONGEST_HEADER: Final = 1 << 24
_MOST_DIMS: Final = 8
_CHUNK: Final = 8 << 20


@dataclass(frozen=True)
class PromptCacheFile:
    """The header of a file.

    model: the SHA-256 of the model's file, hex. name: the model's name. kv: the format of its KV cache. n_tokens: of
    the text. caches: bytes of a page by cache; states: shapes by recurrent state. at: where the tokens begin.
    pictures: whose rows the text has.
    """

    path: Path
    model: str
    name: str
    kv: str
    numerics: int
    n_tokens: int
    caches: Mapping[str, int]
    states: Mapping[str, tuple[int, ...]]
    at: int
    pictures: tuple[PlacedPicture, ...] = ()

    @property
    def n_pages(self) -> int:
        """Pages of each cache."""
        return self.n_tokens // PAGE_TOKENS

    @property
    def n_bytes(self) -> int:
        """Bytes that the file must have."""
        states = 4 * sum(math.prod(shape) for shape in self.states.values())
        return self.contents + self.n_pages * sum(self.caches.values()) + states + _DIGEST

    @property
    def contents(self) -> int:
        """Where the pages begin."""
        return self.at + self.token_type.itemsize * self.n_tokens

    @property
    def token_type(self) -> np.dtype[Any]:
        """Of the tokens in the file."""
        return _token_type(self.pictures)


def save(engine: Engine, seq_id: int, path: Path, model: str, name: str) -> int:
    """Write what a sequence holds, up to its last page that is full; returns the number of tokens.

    Args:
        engine: an engine with a model; no step may be running.
        seq_id: an open sequence. With recurrent layers it is written as far as there is a copy of their state.
        path: the file, which is whole or not there.
        model: the SHA-256 of the model's file, hex.
        name: the model's name, for messages.

    Raises:
        EngineError: the sequence is not open or holds no page, or the file cannot be written.
        BackendError: the device failed.
    """
    pages = engine.cache.resumable_pages(seq_id)
    if not pages:
        raise EngineError(f"the text has no {PAGE_TOKENS} tokens yet, so there is nothing to save")
    tokens = engine.cache.tokens(seq_id)[: len(pages) * PAGE_TOKENS]
    states = engine.cache.state_behind(pages[-1])
    pictures = () if engine.cache.pictures is None else engine.cache.pictures.pictures_of(tokens)
    about_pictures = [[p.digest.hex(), p.n_rows, p.columns, p.lines] for p in pictures]
    header = json.dumps(
        {
            "model": model,
            "name": name,
            "kv": engine.options.kv.value,
            "numerics": VERSION,
            "tokens": len(tokens),
            "caches": {cache: about.page_bytes for cache, about in engine.cache.caches.items()},
            "states": {state: list(array.shape) for state, array in states.items()},
            **({"pictures": about_pictures} if pictures else {}),
        }
    ).encode()

    def parts() -> Iterator[bytes]:
        yield _HEAD.pack(_MAGIC, _FORMAT, len(header)) + header + np.array(tokens, _token_type(pictures)).tobytes()
        for cache in engine.cache.caches:
            for first in range(0, len(pages), PAGES_AT_ONCE):
                yield engine.cache.read_pages(cache, pages[first : first + PAGES_AT_ONCE]).tobytes()
        for array in states.values():
            yield array.astype("<f4").tobytes()

    _write(path, parts())
    return len(tokens)


def _token_type(pictures: Sequence[PlacedPicture]) -> np.dtype[Any]:
    return np.dtype("<i8" if pictures else "<i4")


def _check_path(path: Path) -> None:
    """Raises `EngineError` for what `open` would refuse with a `ValueError`."""
    if "\0" in str(path):
        raise EngineError(f"{str(path)!r} is no path: it has a NUL character")


def _write(path: Path, parts: Iterator[bytes]) -> None:
    digest = blake2b(digest_size=_DIGEST)
    _check_path(path)
    try:
        with whole_file(path) as out:
            for data in parts:
                digest.update(data)
                out.write(data)
            out.write(digest.digest())
    except OSError as error:
        raise EngineError(f"{path} cannot be written: {error.strerror}; nothing was left behind") from None


def read(path: Path) -> PromptCacheFile:
    """A file's header; the contents are compared with their hash.

    Raises `EngineError` for a file that cannot be read, is none of these, or is damaged.
    """
    with _opened(path) as file:
        saved = _header(path, file)
        size = os.fstat(file.fileno()).st_size
        if size != saved.n_bytes:
            raise EngineError(f"{path} has {size} bytes, its header speaks of {saved.n_bytes}; save the text again")
        file.seek(0)
        digest, left = blake2b(digest_size=_DIGEST), size - _DIGEST
        while left:
            data = file.read(min(_CHUNK, left))
            if not data:
                raise EngineError(f"{path} became shorter while it was read")
            digest.update(data)
            left -= len(data)
        if file.read(_DIGEST) != digest.digest():
            raise EngineError(f"{path} is damaged: its contents have not the hash at its end; save the text again")
    return saved


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    _check_path(path)
    try:
        with open(path, "rb") as file:
            yield file
    except OSError as error:
        raise EngineError(f"{path} cannot be read: {error.strerror}") from None


def _header(path: Path, file: BinaryIO) -> PromptCacheFile:
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(_MAGIC):
        raise EngineError(f"{path} is no saved text; `zinc run --save-state` writes such files")
    _, version, length = _HEAD.unpack(head)
    if version != _FORMAT:
        raise EngineError(f"{path} has format {version}, this version reads {_FORMAT}; save the text again")
    try:
        tree = json.loads(file.read(length)) if length <= _LONGEST_HEADER else None
        return _parsed(path, tree, _HEAD.size + length)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise EngineError(f"{path} is damaged: its header cannot be read; save the text again") from None


def _parsed(path: Path, tree: Any, at: int) -> PromptCacheFile:
    """Raises `ValueError`, `KeyError`, `TypeError` for a header that is none."""
    count = _count(tree["tokens"])
    if not count or count % PAGE_TOKENS:
        raise ValueError
    return PromptCacheFile(
        path=path,
        model=str(tree["model"]),
        name=str(tree["name"]),
        kv=str(tree["kv"]),
        numerics=_count(tree["numerics"]),
        n_tokens=count,
        caches={str(name): _count(size) for name, size in tree["caches"].items()},
        states={str(name): tuple(map(_count, shape[:_MOST_DIMS])) for name, shape in tree["states"].items()},
        at=at,
        pictures=tuple(
            PlacedPicture(bytes.fromhex(digest), _count(n_rows), _count(columns), _count(lines))
            for digest, n_rows, columns, lines in tree.get("pictures", ())
        ),
    )


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 31:
        raise ValueError
    return value


def checked_tokens(saved: PromptCacheFile, engine: Engine, model: str, n_vocab: int) -> list[int]:
    """The text's token ids, once it is one of this model, in this engine's formats, and fits it.

    Raises `EngineError`.
    """
    path, sizes = saved.path, engine.sizes
    assert sizes is not None
    if saved.model != model:
        whose = f"{show(saved.name)}, SHA-256 {printable(saved.model[:16])}..."
        raise EngineError(f"{path} is a text of another model ({whose})")
    if saved.kv != (kv := engine.options.kv.value):
        said = f"{path} holds a KV cache of {show(saved.kv)}, this one is {kv}"
        raise EngineError(f"{said}; load with that format (--kv)")
    if saved.numerics != VERSION:
        raise EngineError(f"{path} was computed by version {saved.numerics} of the numerics, this is {VERSION}")
    if dict(saved.caches) != {name: about.page_bytes for name, about in engine.cache.caches.items()}:
        raise EngineError(f"{path} holds other KV caches than the model has; save the text again")
    if dict(saved.states) != engine.state_shapes:
        raise EngineError(f"{path} holds other recurrent states than the model has; save the text again")
    if saved.n_tokens >= sizes.n_ctx:
        raise EngineError(
            f"{path} holds {saved.n_tokens} tokens, which leaves no room in the context of {sizes.n_ctx};"
            " use a larger one (-c)"
        )
    store = engine.cache.pictures
    if saved.pictures and store is None:
        raise EngineError(f"{path} holds a text with pictures; load the model with its projector (--mmproj)")
    for picture in saved.pictures:
        assert store is not None
        store.register(picture)
    with _opened(path) as file:
        file.seek(saved.at)
        data = _exactly(file, path, saved.token_type.itemsize * saved.n_tokens)
    ids = [int(token) for token in np.frombuffer(data, saved.token_type)]
    rows = {token for picture in saved.pictures for token in picture.ids(0, picture.n_rows)}
    if any(token >= n_vocab or (token < 0 and token not in rows) for token in ids):
        raise EngineError(f"{path} is damaged: it has token ids outside of the vocabulary of {n_vocab}")
    return ids


def _exactly(file: BinaryIO, path: Path, n_bytes: int) -> bytes:
    data = file.read(n_bytes)
    if len(data) != n_bytes:
        raise EngineError(f"{path} became shorter while it was read")
    return data


def load(engine: Engine, seq_id: int, saved: PromptCacheFile, ids: Sequence[int]) -> None:
    """Make a sequence hold the text of a file; ids: what `checked_tokens` gave. Other sequences find it, too.

    Raises:
        EngineError: the file cannot be read any more, or the sequence is not open.
        PagesExhausted: the text does not fit.
        BackendError: the device failed, or the states are not those of the model.
    """
    starts, at = {}, saved.contents
    for cache, size in saved.caches.items():
        starts[cache] = at
        at += saved.n_pages * size
    with _opened(saved.path) as file:
        contents = _reader(file, saved, starts)
        file.seek(at)
        states = {name: _array(file, saved.path, shape) for name, shape in saved.states.items()}
        engine.cache.restore(seq_id, ids, contents, states)


def _reader(file: BinaryIO, saved: PromptCacheFile, starts: Mapping[str, int]) -> Callable[[str, range], Bytes]:
    def contents(cache: str, pages: range) -> Bytes:
        size = saved.caches[cache]
        file.seek(starts[cache] + pages.start * size)
        return np.frombuffer(_exactly(file, saved.path, len(pages) * size), np.uint8).reshape(len(pages), size)

    return contents


def _array(file: BinaryIO, path: Path, shape: Sequence[int]) -> npt.NDArray[np.float32]:
    data = _exactly(file, path, 4 * math.prod(shape))
    return np.frombuffer(data, "<f4").astype(np.float32).reshape(shape)

"""Model files with a damaged header, whole and in parts: a typed error or a definition, never another exception."""

from __future__ import annotations

import random
import re
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.tiny import write_tiny_model
from tests.gguf.parts import split
from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.models import define
from zinc_rt.text import Tokenizer
from zinc_rt.text.kinds import read_kind

ROUNDS = 150


def use(path: Path) -> str:
    """The class and first words of the error that opening a model for use gives; empty for none."""
    try:
        with GGUFFile.open(path) as file:
            define(file)
            read_kind(file.metadata)
            tokenizer = Tokenizer.from_metadata(file.metadata)
            tokenizer.decode(tokenizer.encode("the 12 é\n"))
            for name in file.tensors:
                file.raw(name)
    except ZincError as error:
        lines = len(f"{error}{error.advice}".splitlines())
        words = " ".join(re.sub(r"[^a-z ]+", " ", str(error)).split()[-4:])  # without names and values
        return f"{type(error).__name__} {words}" if lines == 1 else f"{lines} lines"
    return ""


def damaged(content: bytes, header: int, draw: random.Random) -> bytes:
    """Some bytes of the header changed, or a few cut out or put in."""
    out = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        at = draw.randrange(4, header)
        match draw.randrange(4):
            case 0:
                out[at] ^= 1 << draw.randrange(8)
            case 1:
                out[at : at + 4] = draw.choice([b"\0\0\0\0", b"\xff\xff\xff\xff", b"\1\0\0\0", b"\0\0\0\x80"])
            case 2:
                out[at : at + draw.randint(1, 8)] = draw.randbytes(draw.randint(0, 8))
            case _:
                out[at] = draw.randrange(256)
    return bytes(out)


def values_of(path: Path) -> list[int]:
    """Where the values of short keys lie in a file."""
    with GGUFFile.open(path) as file:
        infos = [file.metadata.info(key) for key in file.metadata]
        return [info.offset for info in infos if info.item is None]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny_model(tmp_path_factory.mktemp("whole") / "tiny.gguf")


def test_headers_with_random_damage(model: Path, tmp_path: Path) -> None:
    content, draw, path = model.read_bytes(), random.Random(11), tmp_path / "bad.gguf"
    assert use(model) == ""
    with GGUFFile.open(model) as file:
        header = file.data_offset
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        path.write_bytes(damaged(content, header, draw))
        seen[use(path)] += 1
    assert len(seen) > 8, seen  # errors of many kinds were met
    assert not [kind for kind in seen if "lines" in kind]


def test_values_with_random_damage(model: Path, tmp_path: Path) -> None:
    """Numbers, names and switches, so that the file itself stays sound and what it says becomes nonsense."""
    content, draw, path = model.read_bytes(), random.Random(12), tmp_path / "bad.gguf"
    places = values_of(model)
    seen: Counter[str] = Counter()
    for _ in range(ROUNDS):
        out = bytearray(content)
        for at in draw.sample(places, 2):
            at += draw.randrange(9)
            out[at] = draw.choice([0, 1, 0x7F, 0x80, 0xFF, out[at] ^ 1 << draw.randrange(8)])
        path.write_bytes(out)
        seen[use(path)] += 1
    assert len(seen) > 5, seen


def test_parts_with_random_damage(model: Path, tmp_path: Path) -> None:
    parts, draw = split(model, tmp_path / "parts"), random.Random(13)
    assert use(parts[0]) == ""
    contents = [part.read_bytes() for part in parts]
    seen: Counter[str] = Counter()
    for turn in range(ROUNDS):
        number = turn % len(parts)
        bad = damaged(contents[number], 700 if number else 4000, draw)
        parts[number].write_bytes(bad)
        seen[use(parts[0])] += 1
        parts[number].write_bytes(contents[number])
    assert use(parts[0]) == ""
    assert {"GGUFError", "MissingKey"} <= {kind.split(" ")[0] for kind in seen}, seen

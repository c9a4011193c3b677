"""A vocabulary read from a file is decoded string by string, and means what one in lists means."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.gguf import build
from tests.text.test_encode import mixed
from tests.text.vocabularies import KEY, bpe_metadata, gemma4_metadata, recorded, spm_metadata
from zinc_rt.errors import ZincError
from zinc_rt.gguf import GGUFFile
from zinc_rt.gguf.errors import GGUFError, MissingKey
from zinc_rt.gguf.strings import StringIndex
from zinc_rt.gguf.writer import GGUFWriter
from zinc_rt.text import Tokenizer, TokenizerError

DATA: dict[str, Any] = recorded()["bpe"]


def written(path: Path, tokens: list[bytes], merges: list[bytes], pre: str = "qwen2") -> GGUFFile:
    """A file with a byte-level vocabulary, opened."""

    keys = [
        build.key("tokenizer.ggml.model", build.string("gpt2")),
        build.key("tokenizer.ggml.pre", build.string(pre)),
        build.key("tokenizer.ggml.tokens", build.strings(tokens)),
        build.key("tokenizer.ggml.merges", build.strings(merges)),
    ]
    path.write_bytes(build.file(keys, [build.tensor("output_norm.weight", [8], 0, 0)], bytes(32)))
    return GGUFFile.open(path)


def encoded(texts: list[str]) -> list[bytes]:
    return [text.encode() for text in texts]


@pytest.fixture(scope="module")
def from_file(tmp_path_factory: pytest.TempPathFactory) -> Tokenizer:
    folder = tmp_path_factory.mktemp("vocabulary")
    with written(folder / "v.gguf", encoded(DATA["tokens"]), encoded(DATA["merges"])) as file:
        return Tokenizer.from_metadata(file.metadata)


@cache
def from_lists() -> Tokenizer:
    """The same vocabulary, as lists."""
    values = bpe_metadata("qwen2").items()
    return Tokenizer.from_metadata({key: value for key, value in values if "type" not in key and "_id" not in key})


@given(text=mixed | st.text())
@settings(max_examples=150, deadline=None)
def test_a_file_encodes_as_lists_do(from_file: Tokenizer, text: str) -> None:
    ids = from_file.encode(text)
    assert ids == from_lists().encode(text)
    assert from_file.decode(ids) == from_lists().decode(ids)


def test_long_texts_of_a_file_go_to_the_library(tmp_path: Path) -> None:
    text = "Ġstones at all 1234 " * 500
    with written(tmp_path / "v.gguf", encoded(DATA["tokens"]), encoded(DATA["merges"])) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert "_engine" not in tokenizer._encoder.__dict__
    assert tokenizer.encode(text) == Tokenizer.from_metadata(bpe_metadata("qwen2")).encode(text, parse_special=False)
    assert "_engine" in tokenizer._encoder.__dict__


def test_texts_are_found_by_what_they_are(from_file: Tokenizer) -> None:
    ids = from_file._vocabulary.ids
    assert isinstance(ids, StringIndex)
    tokens = DATA["tokens"]
    assert [ids[text] for text in tokens] == list(range(len(tokens)))
    assert list(ids) == tokens
    assert len(ids) == len(tokens)
    assert dict(ids) == {text: i for i, text in enumerate(tokens)}
    assert from_file._vocabulary.tokens[-1] == tokens[-1]
    assert from_file._vocabulary.tokens[3:6] == tokens[3:6]
    for other in ("no token", "", "x" * 1000, "\ud800", "a\0"):
        assert other not in ids
        assert from_file.token_id(other) is None
        with pytest.raises(KeyError):
            ids[other]
    assert 5 not in ids


texts = st.lists(st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from("ab\0"), max_size=20), max_size=30)


@given(items=texts, missing=st.text(max_size=3))
@settings(max_examples=100, deadline=None)
def test_any_strings_are_decoded_and_found(
    tmp_path_factory: pytest.TempPathFactory, items: list[str], missing: str
) -> None:
    path = tmp_path_factory.getbasetemp() / "any.gguf"
    with written(path, encoded(items), [b"a b"]) as file:
        table, listed = file.metadata.strings(KEY + "tokens"), file.metadata[KEY + "tokens"]
    index = StringIndex(table)
    assert [table[i] for i in range(len(table))] == list(table) == listed == items
    firsts = {text: items.index(text) for text in items}
    assert dict(index) == firsts
    assert len(index) == len(firsts)
    assert index.get(missing) == firsts.get(missing)
    again = next((i for i, text in enumerate(items) if text in items[:i]), None)
    assert index.twice() == (None if again is None else (items.index(items[again]), again))


def test_texts_that_share_a_key_are_told_apart(tmp_path: Path) -> None:
    """Length, first and last eight bytes are the same; where there are many, lists take over."""
    tokens = [f"beginning{i:04}the ending" for i in range(1000)]
    for n in (64, 1000):
        with written(tmp_path / f"{n}.gguf", encoded(tokens[:n]), []) as file:
            tokenizer = Tokenizer.from_metadata(file.metadata)
        assert isinstance(tokenizer._vocabulary.ids, StringIndex) == (n == 64)
        assert [tokenizer.token_id(text) for text in tokens[:n]] == list(range(n))
        assert tokenizer.token_id("beginning9999the ending") is None
        twice = [*encoded(tokens[:n]), tokens[5].encode()]
        with (
            written(tmp_path / "twice.gguf", twice, []) as file,
            pytest.raises(TokenizerError, match=f"tokens 5 and {n} have the same text 'beginning0005the ending'"),
        ):
            Tokenizer.from_metadata(file.metadata)


def test_empty_tokens_of_a_file_get_names(tmp_path: Path) -> None:
    with written(tmp_path / "v.gguf", [b"a", b"", b"b", b""], []) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert [tokenizer.token_text(i) for i in range(4)] == ["a", "[EMPTY_1]", "b", "[EMPTY_3]"]


def test_a_token_that_is_not_utf8_is_reported_at_load(tmp_path: Path) -> None:
    with (
        written(tmp_path / "v.gguf", [b"a", b"\xc3", b"\xa9", b"b"], []) as file,
        pytest.raises(GGUFError, match=r"string 1 of .*tokens.* is not UTF-8: byte 0xc3") as caught,
    ):
        Tokenizer.from_metadata(file.metadata)
    raw = (tmp_path / "v.gguf").read_bytes()
    assert caught.value.offset == raw.index(b"\xc3")


@pytest.mark.parametrize(
    ("merge", "says"),
    [
        (b"q z", "entry 1 is 'q z', but 'qz' is not in tokenizer.ggml.tokens"),
        (b"ab", "entry 1 is 'ab'; a merge is two texts with one space between them"),
        (b"a b c", "entry 1 is 'a b c'; a merge is two texts"),
        (b"zz a", "entry 1 is 'zz a', but 'zz' is not in tokenizer.ggml.tokens"),
        (b"\xff a", "is not UTF-8"),
    ],
)
def test_a_faulty_merge_of_a_file_is_reported_by_the_text_that_needs_it(
    tmp_path: Path, merge: bytes, says: str
) -> None:
    tokens = encoded([text for text in DATA["tokens"] if text not in ("qz", "zz")])
    with written(tmp_path / "v.gguf", tokens, [DATA["merges"][0].encode(), merge]) as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    assert tokenizer.encode("a") == [tokens.index(b"a")]
    text = "qz" if merge == b"q z" else "x" * 9000  # no short text meets a merge of texts that are no tokens
    with pytest.raises(ZincError, match=says):
        tokenizer.encode(text)
    with pytest.raises(ZincError, match=says):
        tokenizer.encode(text)


def test_only_arrays_of_strings_are_tables(tmp_path: Path) -> None:
    with written(tmp_path / "v.gguf", [b"a"], []) as file:
        with pytest.raises(GGUFError, match=r"tokenizer.ggml.pre.* holds string, where an array of strings"):
            file.metadata.strings(KEY + "pre")
        with pytest.raises(MissingKey):
            file.metadata.strings("no.such.key")


@pytest.mark.parametrize("make", [gemma4_metadata, spm_metadata])
def test_other_kinds_take_what_a_file_has(tmp_path: Path, make: Any) -> None:
    values = make()
    writer = GGUFWriter(tmp_path / "v.gguf")
    for key, value in values.items():
        writer.add(key, value)
    writer.write()
    with GGUFFile.open(tmp_path / "v.gguf") as file:
        tokenizer = Tokenizer.from_metadata(file.metadata)
    lists = Tokenizer.from_metadata(values)
    for text in ("the River runs\n\n é 12", "water"):
        assert tokenizer.encode(text) == lists.encode(text)

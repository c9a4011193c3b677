"""Tokenizers of folders: the same ids as by the library and as of the vocabularies that they were written from."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.converting import folders
from tests.text import test_embedders, test_pretokenizers
from tests.text.random_texts import random_texts
from tests.text.test_pretokenizers import UPSTREAM
from tests.text.vocabularies import KEY, recorded, spm_metadata
from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.model import ConvertedModel
from zinc_rt.converting.text.check import TEXTS, check_texts
from zinc_rt.converting.text.pretokenizers import pretokenizer_name
from zinc_rt.converting.text.sentencepiece import read_pieces
from zinc_rt.converting.text.special import special_keys
from zinc_rt.converting.text.vocabulary import vocabulary_keys
from zinc_rt.text import Tokenizer
from zinc_rt.text.pretokenizers import PRE_TOKENIZERS


def upstream(name: str) -> Any:
    """A tokenizer of its own, which a test may change."""
    from tokenizers import Tokenizer as Library

    return Library.from_str(test_pretokenizers.upstream(name).to_str())


def of(folder: Path, n_rows: int, *, encodes: bool = False) -> tuple[dict[str, Any], list[str]]:
    """The keys of a folder's tokenizer, compared with its tokenizer.json if it has one."""
    for name in ("config.json", "tokenizer_config.json"):
        if not (folder / name).exists():
            (folder / name).write_text("{}")
    if not (folder / "model.safetensors").exists():
        folders.write_safetensors(folder / "model.safetensors", {})
    with ModelFolder(folder) as opened:
        keys = vocabulary_keys(opened, n_rows)
        special, notes = special_keys(opened, keys, encodes=encodes)
        text = opened.text("tokenizer.json")
        if text is not None:
            check_texts(keys | special, text)
    return keys | special, notes


# ---------------------------------------------------------------- words


@pytest.mark.parametrize(
    "name", ["llama-bpe", "qwen2", "tekken", "gpt-4o", "deepseek-v3", "seed-coder", "bailingmoe", "tiny_aya"]
)
def test_words_are_known_by_their_expressions(name: str) -> None:
    written = json.loads(upstream(name).to_str())
    whole = PRE_TOKENIZERS[name].ignore_merges
    assert pretokenizer_name(written["pre_tokenizer"], ignore_merges=whole) == name
    other = json.loads(json.dumps(written["pre_tokenizer"]).replace(r"\\s+(?!", r"\\s(?!"))
    with pytest.raises(ConvertError, match="none of the ways"):
        pretokenizer_name(other, ignore_merges=whole)


def test_other_ways_to_write_the_same_words() -> None:
    split = {"type": "Split", "pattern": {"Regex": UPSTREAM["llama-bpe"][0]}, "behavior": "Removed", "invert": True}
    level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
    both = {"type": "Sequence", "pretokenizers": [split, level]}
    assert pretokenizer_name(both, ignore_merges=False) == "dbrx"
    assert PRE_TOKENIZERS["dbrx"].patterns == PRE_TOKENIZERS["llama-bpe"].patterns
    words = level | {"use_regex": True}
    assert pretokenizer_name(words, ignore_merges=False) == "gpt-2"
    digits = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, words]}
    assert pretokenizer_name(digits, ignore_merges=False) == "smollm"
    for other in (None, level | {"add_prefix_space": True}, [split | {"behavior": "MergedWithNext"}, level]):
        with pytest.raises(ConvertError, match="none of the ways"):
            pretokenizer_name(other, ignore_merges=False)


@pytest.mark.parametrize("name", ["qwen2", "tekken"])
def test_byte_level_ids(name: str, tmp_path: Path) -> None:
    """Tokens of three kinds, ids without a token, and one behind the embedding's rows."""
    made = upstream(name)
    made.add_special_tokens(["<|mark|>"])
    made.add_tokens(["<plain>"])
    n = made.get_vocab_size()
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"eos_token": {"content": "<|mark|>"}}))
    keys, _ = of(tmp_path, n + 2)
    assert keys[f"{KEY}tokens"][-4:] == ["<|mark|>", "<plain>", f"[PAD{n}]", f"[PAD{n + 1}]"]
    assert keys[f"{KEY}token_type"][-4:].tolist() == [3, 4, 5, 5]
    assert keys[f"{KEY}eos_token_id"] == n - 2
    new = Tokenizer.from_metadata(keys)
    for text in random_texts(5, 100):
        assert new.encode(text) == made.encode(text).ids
    assert new.encode("a<|mark|>b<plain>c") == made.encode("a<|mark|>b<plain>c").ids
    assert len(of(tmp_path, n - 1)[0][f"{KEY}tokens"]) == n - 1


def test_another_tokenizer_is_seen(tmp_path: Path) -> None:
    made = upstream("qwen2")
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    keys, _ = of(tmp_path, made.get_vocab_size())
    keys[f"{KEY}pre"] = "gpt-2"
    with pytest.raises(ConvertError, match="'1 12 123 1234"):
        check_texts(keys, made.to_str())


# ---------------------------------------------------------------- SentencePiece


def varint(value: int) -> bytes:
    out = b""
    while value > 127:
        out, value = out + bytes([value & 127 | 128]), value >> 7
    return out + bytes([value])


def message(*fields: tuple[int, int | bytes | float]) -> bytes:
    """A protocol buffer: integers, texts and floats of 32 bits."""
    out = b""
    for number, value in fields:
        if isinstance(value, float):
            out += varint(number << 3 | 5) + struct.pack("<f", value)
        elif isinstance(value, int):
            out += varint(number << 3) + varint(value)
        else:
            out += varint(number << 3 | 2) + varint(len(value)) + value
    return out


def spm_model(*, prefix: int = 1, kind: int = 2, charsmap: bytes = b"") -> bytes:
    spm = recorded()["spm"]
    pieces = [
        (1, message((1, text.encode()), (2, float(score)), (3, type)))
        for text, score, type in zip(spm["tokens"], spm["scores"], spm["types"], strict=True)
    ]
    spaces = message((1, b"identity"), (2, charsmap), (3, prefix), (4, 0))
    return message(*pieces, (2, message((3, kind), (40, 0), (4, len(pieces)))), (3, spaces))


def test_what_a_piece_leaves_out() -> None:
    """Writers leave out the usual: a piece without a type is an ordinary one, one without a score has 0."""
    trained = (2, message((3, 2)))
    pieces = read_pieces(message((1, message((1, b"a"))), (1, message((2, -1.5), (3, 6))), trained), "m")
    assert (pieces.texts, pieces.scores, pieces.kinds) == (["a", ""], [0.0, -1.5], [1, 6])
    for kind in (0, 7):
        with pytest.raises(ConvertError, match=f"piece 1 is of type {kind}"):
            read_pieces(message((1, message((1, b"a"))), (1, message((3, kind))), trained), "m")


@pytest.mark.parametrize("prefix", [True, False])
def test_sentencepiece_ids(prefix: bool, tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(spm_model(prefix=int(prefix)))
    named = {"bos_token": "<s>", "eos_token": "</s>", "add_bos_token": True, "add_eos_token": False}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    n = len(recorded()["spm"]["tokens"])
    keys, _ = of(tmp_path, n)
    old = Tokenizer.from_metadata(spm_metadata("prefix", add_space_prefix=prefix))
    new = Tokenizer.from_metadata(keys)
    np.testing.assert_array_equal(keys[f"{KEY}scores"], spm_metadata()[f"{KEY}scores"])
    np.testing.assert_array_equal(keys[f"{KEY}token_type"], spm_metadata()[f"{KEY}token_type"])
    for text in (*TEXTS, *random_texts(8, 50)):
        assert new.encode(text) == old.encode(text)


def test_tokens_added_to_sentencepiece(tmp_path: Path) -> None:
    (tmp_path / "tokenizer.model").write_bytes(spm_model())
    n = len(recorded()["spm"]["tokens"])
    decoder = {str(n): {"content": "<|user|>", "special": True}, "0": {"content": "<unk>", "special": True}}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": decoder}))
    (tmp_path / "added_tokens.json").write_text(json.dumps({"<|user|>": n, "<more>": n + 1}))
    keys, _ = of(tmp_path, n + 3)
    assert keys[f"{KEY}tokens"][-3:] == ["<|user|>", "<more>", f"[PAD{n + 2}]"]
    assert keys[f"{KEY}token_type"].tolist()[-3:] == [3, 4, 5]
    assert keys[f"{KEY}token_type"][0] == recorded()["spm"]["types"][0]


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        (spm_model(kind=1), "of type 1; converted is 2"),
        (spm_model(charsmap=b"\1\2"), "replaces characters"),
        (b"", "has no pieces"),
        (b"GGUF" * 9, "is no SentencePiece model"),
        (spm_model()[:-3], "is no SentencePiece model"),
        (message((1, message((1, b"\xff"), (2, 0.5)))), "is no SentencePiece model"),
        (message((1, message((1, b"a"), (3, 9)))), "piece 0 is of type 9"),
        (message((1, 7)), "a number stands"),
    ],
)
def test_other_files(raw: bytes, words: str) -> None:
    with pytest.raises(ConvertError, match=words):
        read_pieces(raw, "tokenizer.model")


def byte_fallback(*, scheme: str = "") -> Any:
    """A tokenizer of the kind that tokenizer.json has of SentencePiece models."""
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    merges = [("h", "e"), ("l", "l"), ("he", "ll"), ("hell", "o"), ("▁", "w"), ("o", "r"), ("▁w", "or"), ("▁", "t")]
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    texts = [*names, *(a + b for a, b in merges), *"▁helowrtd"]
    made = Library(
        models.BPE({t: i for i, t in enumerate(texts)}, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.add_special_tokens(["<s>", "</s>"])
    if scheme:
        made.pre_tokenizer = pre_tokenizers.Metaspace("▁", scheme, False)
    else:
        made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    return made


@pytest.mark.parametrize("scheme", ["", "first", "never"])
def test_sentencepiece_from_json(scheme: str, tmp_path: Path) -> None:
    made = byte_fallback(scheme=scheme)
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    keys, _ = of(tmp_path, made.get_vocab_size())
    assert keys[f"{KEY}add_space_prefix"] is (scheme != "never")
    new = Tokenizer.from_metadata(keys | {f"{KEY}add_bos_token": False})
    for text in ("hello world", "the world  hello\n", "ähm 水 hell"):
        assert new.encode(text) == made.encode(text, add_special_tokens=False).ids


def test_preparations_that_are_not_known(tmp_path: Path) -> None:
    from tokenizers import normalizers

    made = byte_fallback()
    made.normalizer = normalizers.Lowercase()
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    with pytest.raises(ConvertError, match="none of SentencePiece's"):
        of(tmp_path, made.get_vocab_size())


# ---------------------------------------------------------------- roles


@pytest.mark.parametrize(("ends", "wanted"), [("", (False, False)), ("b", (True, False)), ("be", (True, True))])
def test_ends_as_tokenizer_json_has_them(ends: str, wanted: tuple[bool, bool], tmp_path: Path) -> None:
    from tokenizers import processors

    made = upstream("qwen2")
    made.add_special_tokens(["<b>", "<e>"])
    n = made.get_vocab_size()
    single = " ".join([*(["<b>"] if "b" in ends else []), "$A", *(["<e>"] if "e" in ends else [])])
    made.post_processor = processors.TemplateProcessing(single=single, special_tokens=[("<b>", n - 2), ("<e>", n - 1)])
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<b>", "eos_token": "<e>"}))
    keys, _ = of(tmp_path, n)
    assert (keys[f"{KEY}add_bos_token"], keys[f"{KEY}add_eos_token"]) == wanted


def test_further_ends_of_generation(tmp_path: Path) -> None:
    made = upstream("qwen2")
    n = made.get_vocab_size()
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": [5, 6, 7, 8, n + 9]}))
    keys, notes = of(tmp_path, n)
    assert keys[f"{KEY}eos_token_id"] == 5
    assert Tokenizer.from_metadata(keys).stop_ids >= {5, 6}
    assert notes == ["tokens [7, 8] do not end an answer, which generation_config.json says they do"]


@pytest.mark.parametrize(("name", "ending"), [("Qwen3-0.6B-Base", "Base"), ("gemma-3-4b-pt", "pt"), ("Base-7B", None)])
def test_base_models_are_known_by_their_names(name: str, ending: str | None, tmp_path: Path) -> None:
    folders.write_folder(tmp_path / name, "qwen3")
    with ConvertedModel(tmp_path / name) as model:
        assert model.metadata["general.name"] == name
        assert model.metadata.get("general.finetune") == ending


def test_names_in_the_cache_of_the_hub(tmp_path: Path) -> None:
    snapshots = tmp_path / "models--microsoft--Phi-4-mini" / "snapshots"
    snapshots.mkdir(parents=True)
    folders.write_folder(snapshots / "0123abc", "phi3")
    with ConvertedModel(snapshots / "0123abc") as model:
        assert model.metadata["general.name"] == "Phi-4-mini"


def test_chat_templates(tmp_path: Path) -> None:
    made = upstream("qwen2")
    (tmp_path / "tokenizer.json").write_text(made.to_str())
    listed = [{"name": "default", "template": "A"}, {"name": "tool_use", "template": "B"}]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"chat_template": listed}))
    keys, _ = of(tmp_path, made.get_vocab_size())
    assert keys["tokenizer.chat_template"] == "A"
    assert keys["tokenizer.chat_template.tool_use"] == "B"
    assert keys["tokenizer.chat_templates"] == ["tool_use"]
    (tmp_path / "chat_template.jinja").write_text("C")
    assert of(tmp_path, made.get_vocab_size())[0]["tokenizer.chat_template"] == "C"


# ---------------------------------------------------------------- encoders


@pytest.mark.parametrize("lowercase", [True, False])
def test_wordpiece(lowercase: bool, tmp_path: Path) -> None:
    made = test_embedders.upstream_bert(lowercase)
    made.add_special_tokens(["[PAD]", "[CLS]", "[SEP]", "[UNK]"])
    made.save(str(tmp_path / "tokenizer.json"))
    named = {f"{role}_token": f"[{role.upper()}]" for role in ("pad", "cls", "sep", "unk")}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | {"add_bos_token": True, "add_eos_token": True}))
    keys, notes = of(tmp_path, made.get_vocab_size(), encodes=True)
    assert notes == []
    tokenizer = Tokenizer.from_metadata(keys)
    assert (tokenizer.kind, keys[f"{KEY}normalizer.lowercase"]) == ("bert", lowercase)
    assert tokenizer.encode("River stones") == [1, *made.encode("River stones", add_special_tokens=False).ids, 2]
    for text in random_texts(5, 200):
        text = text.replace("\x85", " ").replace("\u2581", " ")
        assert tokenizer.encode(text, add_special=False) == made.encode(text, add_special_tokens=False).ids


def test_unigrams(tmp_path: Path) -> None:
    from tokenizers import Tokenizer as Library
    from tokenizers import models, normalizers, pre_tokenizers

    spaces = test_embedders.charsmap(dict.fromkeys(["\t", "\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u3000"], " "))
    words = ["\u2581", "\u2581river", "\u2581stone", "s", "er", "riv", "e", "r", "i", "v", "t", "o", "n", "water"]
    own = [("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)]
    made = Library(models.Unigram([*own, *((word, -1.0 - i / 7) for i, word in enumerate(words))], 3, False))
    made.normalizer = normalizers.Precompiled(spaces)
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()])
    made.add_special_tokens([text for text, _ in own])
    made.save(str(tmp_path / "tokenizer.json"))
    named = {
        "cls_token": "<s>",
        "sep_token": "</s>",
        "unk_token": "<unk>",
        "add_bos_token": True,
        "add_eos_token": True,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    keys, _ = of(tmp_path, made.get_vocab_size(), encodes=True)
    tokenizer = Tokenizer.from_metadata(keys)
    assert tokenizer.encode("rivers  stones") == [0, *made.encode("rivers stones", add_special_tokens=False).ids, 2]
    assert keys[f"{KEY}seperator_token_id"] == 2

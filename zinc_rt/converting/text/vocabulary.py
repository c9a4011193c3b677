"""The tokenizer of a folder as `tokenizer.ggml.*` keys: from tokenizer.json, or from tokenizer.model."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import numpy as np

from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.text.pretokenizers import is_byte_level, pretokenizer_name
from zinc_rt.converting.text.sentencepiece import Pieces, read_pieces
from zinc_rt.text.charsmap import CHARSMAP
from zinc_rt.text.spm import SPACE
from zinc_rt.text.vocab import KEY, TokenKind
from zinc_rt.utils.checks import show

Keys = dict[str, Any]
_ADDED_SCORE: Final = -1000.0
_BYTE_NAMES: Final = {f"<0x{byte:02X}>" for byte in range(256)}


def vocabulary_keys(folder: ModelFolder, n_rows: int) -> Keys:
    """Kind, tokens, their types, merges or scores.

    n_rows: of the embedding. There are as many tokens: rows that stand for none get a name and count as unused, tokens
    behind them are left out, as no model can say them. Raises `ConvertError`.
    """
    parsed, pieces = folder.json("tokenizer.json"), folder.raw("tokenizer.model")
    model = parsed.get("model") if parsed else None
    if parsed is not None and isinstance(model, dict) and model.get("type") == "BPE":
        if is_byte_level(parsed.get("pre_tokenizer")):
            return _byte_level(folder, parsed, model, n_rows)
        if pieces is None and model.get("byte_fallback"):
            return _spm(folder, _pieces_of(parsed, model), parsed, n_rows)
    kind = model.get("type") if isinstance(model, dict) else None
    if parsed is not None and isinstance(model, dict) and kind in ("WordPiece", "Unigram"):
        return (_wordpiece if kind == "WordPiece" else _unigram)(folder, parsed, model, n_rows)
    if pieces is not None:
        read = read_pieces(pieces, f"{folder.shown}/tokenizer.model")
        if parsed is not None:  # what the model is used with today
            read.space_prefix = space_prefix(parsed)
        return _spm(folder, read, parsed, n_rows)
    if parsed is None:
        raise ConvertError(
            f"{folder.shown} has no tokenizer.json and no tokenizer.model; fetch them, or let"
            " AutoTokenizer.from_pretrained(..).save_pretrained(..) write the first"
        )
    raise ConvertError(
        f"{folder.shown}/tokenizer.json has a model of type {show(str(kind))}, which is not converted; byte-level BPE,"
        " BPE with byte fallback, WordPiece and Unigram are"
    )


def added_tokens(folder: ModelFolder, parsed: Mapping[str, Any] | None) -> Iterator[tuple[int, str, bool]]:
    """Id, text and whether it is markup, of tokens besides the model's own. Raises `ConvertError`."""
    listed = parsed.get("added_tokens") if parsed else None
    if listed is None:
        decoder = (folder.json("tokenizer_config.json") or {}).get("added_tokens_decoder")
        entries = decoder.items() if isinstance(decoder, dict) else ()
        listed = [{"id": _id(id_), **entry} for id_, entry in entries if isinstance(entry, dict)]
        named = [entry.get("content") for entry in listed]
        other = folder.json("added_tokens.json") or {}
        listed += [{"id": id_, "content": text} for text, id_ in other.items() if text not in named]
    if not isinstance(listed, list):
        raise ConvertError(f"{folder.shown}/tokenizer.json has added_tokens that are no list")
    for entry in listed:
        id_, text = (entry.get("id"), entry.get("content")) if isinstance(entry, dict) else (None, None)
        if type(id_) is not int or id_ < 0 or not isinstance(text, str):
            raise ConvertError(f"{folder.shown} has the added token {show(str(entry))}, without id or text")
        yield id_, text, bool(entry.get("special"))


def _id(text: str) -> int | None:
    """An id that is written as text; None for other texts."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 12 else None


class _Table:
    """Tokens by id as they are found."""

    def __init__(self, n_rows: int) -> None:
        self.texts = [f"[PAD{i}]" for i in range(n_rows)]
        self.kinds = np.full(n_rows, int(TokenKind.UNUSED), np.int32)
        self.scores = np.full(n_rows, -10000.0, np.float32)

    def put(self, id_: int, text: str, kind: int, score: float = 0.0) -> None:
        if id_ < len(self.texts):
            self.texts[id_], self.kinds[id_], self.scores[id_] = text, kind, score

    def add(self, added: Iterator[tuple[int, str, bool]]) -> None:
        """Tokens besides the model's own; what is the unknown token or a byte stays that."""
        for id_, text, markup in added:
            stays = id_ < len(self.texts) and self.kinds[id_] in (TokenKind.UNKNOWN, TokenKind.BYTE)
            if not stays or self.texts[id_] != text:
                self.put(id_, text, TokenKind.CONTROL if markup else TokenKind.USER_DEFINED, _ADDED_SCORE)

    def keys(self) -> Keys:
        return {f"{KEY}tokens": self.texts, f"{KEY}token_type": self.kinds}


def _vocab(model: Mapping[str, Any]) -> Mapping[str, int]:
    vocab = model.get("vocab")
    if not isinstance(vocab, dict) or not all(type(id_) is int and id_ >= 0 for id_ in vocab.values()):
        raise ConvertError("tokenizer.json has a model without a vocab of texts and ids")
    return vocab


def _merges(model: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Pairs, in both writings that there are. Raises `ConvertError`."""
    pairs, merges = [], model.get("merges") or []
    if not isinstance(merges, list):
        raise ConvertError("tokenizer.json has merges that are no list")
    for merge in merges:
        pair = merge.split(" ") if isinstance(merge, str) else merge
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(x, str) and x for x in pair):
            raise ConvertError(f"tokenizer.json has the merge {show(str(merge))}, which is no pair of texts")
        pairs.append((pair[0], pair[1]))
    return pairs


def _byte_level(folder: ModelFolder, parsed: Mapping[str, Any], model: Mapping[str, Any], n_rows: int) -> Keys:
    normalizer = parsed.get("normalizer")
    if normalizer not in (None, {"type": "NFC"}, {"type": "Sequence", "normalizers": []}):
        raise ConvertError(
            f"tokenizer.json changes text before it cuts it by {show(str(normalizer))}, which is not converted; nothing"
            " and NFC are"
        )
    for name in ("continuing_subword_prefix", "end_of_word_suffix", "dropout"):
        if model.get(name):
            raise ConvertError(f"tokenizer.json has {name} = {show(str(model[name]))}, which is not converted")
    pre = pretokenizer_name(parsed.get("pre_tokenizer"), ignore_merges=bool(model.get("ignore_merges")))
    table, merges = _Table(n_rows), _merges(model)
    for text, id_ in _vocab(model).items():
        table.put(id_, text, TokenKind.NORMAL)
    table.add(added_tokens(folder, parsed))
    spaced = next((pair for pair in merges if " " in pair[0] + pair[1]), None)
    if spaced is not None:
        raise ConvertError(f"tokenizer.json has the merge {show(str(spaced))} with a space, which bytes never have")
    return {f"{KEY}model": "gpt2", f"{KEY}pre": pre, **table.keys(), f"{KEY}merges": [" ".join(p) for p in merges]}


def _spm(folder: ModelFolder, pieces: Pieces, parsed: Mapping[str, Any] | None, n_rows: int) -> Keys:
    table = _Table(n_rows)
    for id_, (text, kind, score) in enumerate(zip(pieces.texts, pieces.kinds, pieces.scores, strict=True)):
        table.put(id_, text, kind, score)
    table.add(added_tokens(folder, parsed))
    keys = {f"{KEY}model": "llama", f"{KEY}pre": "default", **table.keys(), f"{KEY}scores": table.scores}
    keys[f"{KEY}add_space_prefix"] = pieces.space_prefix
    return keys | ({f"{KEY}remove_extra_whitespaces": True} if pieces.merge_spaces else {})


def _wordpiece(folder: ModelFolder, parsed: Mapping[str, Any], model: Mapping[str, Any], n_rows: int) -> Keys:
    """BERT's words. Files mark the beginnings of words, a tokenizer.json the other pieces."""
    normalizer, inside = parsed.get("normalizer"), model.get("continuing_subword_prefix", "##")
    if not isinstance(normalizer, dict) or normalizer.get("type") != "BertNormalizer" or not isinstance(inside, str):
        raise ConvertError(f"tokenizer.json prepares text by {show(str(normalizer))}, which is not converted")
    table = _Table(n_rows)
    for text, id_ in _vocab(model).items():
        table.put(id_, text.removeprefix(inside) if text.startswith(inside) else SPACE + text, TokenKind.NORMAL)
    table.add(added_tokens(folder, parsed))
    lower = bool(normalizer.get("lowercase"))
    strip = normalizer.get("strip_accents")
    made = {"lowercase": lower, "strip_accents": lower if strip is None else bool(strip)}
    return {f"{KEY}model": "bert", f"{KEY}pre": "default", **table.keys()} | {
        f"{KEY}normalizer.{name}": value for name, value in made.items()
    }


def _unigram(folder: ModelFolder, parsed: Mapping[str, Any], model: Mapping[str, Any], n_rows: int) -> Keys:
    """SentencePiece's unigrams, as XLM-RoBERTa has them."""
    listed, unknown = model.get("vocab"), model.get("unk_id")
    if not isinstance(listed, list) or not all(
        isinstance(one, list) and len(one) == 2 and isinstance(one[0], str) and isinstance(one[1], int | float)
        for one in listed
    ):
        raise ConvertError("tokenizer.json has a model without a vocab of texts and scores")
    table = _Table(n_rows)
    for id_, (text, score) in enumerate(listed):
        table.put(id_, text, TokenKind.UNKNOWN if id_ == unknown else TokenKind.NORMAL, score)
    table.add(added_tokens(folder, parsed))
    steps = [*_steps(parsed.get("normalizer"), "normalizers"), *_steps(parsed.get("pre_tokenizer"), "pretokenizers")]
    kinds = {step.get("type") for step in steps}
    keys = {f"{KEY}model": "t5", f"{KEY}pre": "default", **table.keys(), f"{KEY}scores": table.scores}
    keys |= {f"{KEY}add_space_prefix": "Metaspace" in kinds}
    keys |= {f"{KEY}remove_extra_whitespaces": bool(kinds & {"WhitespaceSplit", "Replace"})}
    table_of_text = next(
        (step.get("precompiled_charsmap") for step in steps if step.get("type") == "Precompiled"), None
    )
    if isinstance(table_of_text, str):
        keys[CHARSMAP] = np.frombuffer(base64.b64decode(table_of_text), np.uint8)
    return keys


def _steps(value: Any, name: str) -> list[Mapping[str, Any]]:
    """The steps of a sequence, or the only one. name: of their list."""
    listed = value.get(name) if isinstance(value, dict) and value.get("type") == "Sequence" else [value]
    return [step for step in listed or () if isinstance(step, dict)]


def _pieces_of(parsed: Mapping[str, Any], model: Mapping[str, Any]) -> Pieces:
    """The pieces of a tokenizer.json. Scores fall with the rank of the first merge that makes a piece."""
    vocab = _vocab(model)
    size = 1 + max(vocab.values(), default=-1)
    if size > 1 << 24:
        raise ConvertError(f"tokenizer.json has a token of id {size - 1}")
    ranks: dict[str, int] = {}
    for left, right in _merges(model):
        ranks.setdefault(left + right, len(ranks))
    pieces = Pieces([""] * size, [0.0] * size, [int(TokenKind.UNUSED)] * size, space_prefix(parsed))
    unknown = model.get("unk_token")
    for text, id_ in vocab.items():
        kind = TokenKind.BYTE if text in _BYTE_NAMES else TokenKind.UNKNOWN if text == unknown else TokenKind.NORMAL
        score = -float(ranks.get(text, len(ranks))) if kind is TokenKind.NORMAL else 0.0
        pieces.texts[id_], pieces.kinds[id_], pieces.scores[id_] = text, int(kind), score
    return pieces


_REPLACE: Final = {"type": "Replace", "pattern": {"String": " "}, "content": SPACE}
_METASPACE: Final = {"type": "Metaspace", "replacement": SPACE, "split": False}
_PREPEND: Final = {"type": "Prepend", "prepend": SPACE}


def space_prefix(parsed: Mapping[str, Any]) -> bool:
    """Whether a space goes before text.

    SentencePiece puts one before any text, Metaspace leaves texts alone that begin with one. Raises `ConvertError`
    for other preparations than these.
    """
    normalizer, pre = parsed.get("normalizer"), parsed.get("pre_tokenizer")
    steps: Sequence[Any] = (
        normalizer.get("normalizers", ())
        if isinstance(normalizer, dict) and normalizer.get("type") == "Sequence"
        else [normalizer]
        if normalizer
        else ()
    )
    if list(steps) == [_PREPEND, _REPLACE] and pre is None:
        return True
    cut = {"type": "Split", "pattern": {"String": " "}, "behavior": "MergedWithPrevious", "invert": False}
    if list(steps) == [_REPLACE] and pre in (None, cut):  # no space is left to cut at
        return False
    if not steps and isinstance(pre, dict) and [pre.get(key) for key in _METASPACE] == list(_METASPACE.values()):
        scheme = pre.get("prepend_scheme")
        if scheme in ("first", "always", "never"):
            return bool(scheme != "never")
    raise ConvertError(
        "tokenizer.json prepares text in a way that is none of SentencePiece's: normalizer"
        f" {show(str(normalizer))}, pre_tokenizer {show(str(pre))}"
    )

"""Text to token ids and back, as the metadata of a GGUF file says.

Encoding cuts the text at special tokens, runs the model of the file's kind over the pieces between them, and
adds the beginning and end tokens. Decoding joins the bytes of the tokens.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from zinc_rt.text import bpe
from zinc_rt.text import metadata as md
from zinc_rt.text.charsmap import CHARSMAP
from zinc_rt.text.errors import TokenizerError, shown
from zinc_rt.text.kinds import read_kind
from zinc_rt.text.raw_bpe import RawBPE
from zinc_rt.text.special import SpecialTokens, read_special_tokens
from zinc_rt.text.spm import SPACE, SentencePiece
from zinc_rt.text.unigram import Unigram
from zinc_rt.text.vocab import KEY, TokenKind, Vocabulary, read_vocabulary
from zinc_rt.text.wordpiece import WordPiece
from zinc_rt.utils.checks import show, whole

_REPLACEMENT = "\ufffd"


class _Encoder(Protocol):
    def encode(self, text: str) -> list[int]:
        """Ids of text at the start or after a special token that holds no special tokens itself."""


class Tokenizer:
    """The tokenizer of one file. Immutable to its users; the encoder is built when it is first needed."""

    kind: str  # "gpt2", "llama", "gemma4", "t5" or "bert": the module of each is in docs/how/tokenizers.md
    pre: str  # the file's name for the pre-tokenizer, "default" when it has none
    n_vocab: int
    add_bos: bool  # encode(add_special=True) begins with bos_id
    add_eos: bool  # encode(add_special=True) ends with eos_id, for "bert" with its separator
    sep_id: int | None  # stands between the two texts of a pair
    add_sep: bool  # encode_pair(...) puts sep_id before the second text, behind what ends the first
    space_prefix: bool  # text is encoded with a space before it, which decoding takes away again

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        kind, self.pre, row = read_kind(metadata)
        self.kind, self._byte_level = kind, row is not None and not row.raw
        self.space_prefix, self._end_id = False, None
        self._build_encoder: Callable[[], _Encoder]
        add_bos = add_eos = False
        if row is not None:
            self._vocabulary = read_vocabulary(metadata, default_bos=None, default_eos=None, default_unk=None)
            merges = md.strings(metadata, KEY + "merges", f'a tokenizer of kind "{kind}" needs its merges')
            build = RawBPE if row.raw else bpe.BPE
            self._build_encoder, add_bos = partial(build, self._vocabulary.ids, merges, row), row.add_bos
        elif kind == "bert":
            self._vocabulary, self._end_id, self._build_encoder = _read_bert(metadata)
            self.space_prefix = add_bos = add_eos = True
        elif kind == "t5":
            self._vocabulary = read_vocabulary(metadata, default_bos=None, default_eos=1, default_unk=2)
            self.space_prefix, self._build_encoder = _read_unigram(metadata, self._vocabulary)
            add_eos = True
        else:
            self._vocabulary = read_vocabulary(metadata, default_bos=1, default_eos=2, default_unk=0)
            merge_spaces = md.boolean(metadata, KEY + "remove_extra_whitespaces", False)
            self.space_prefix, add_bos = md.boolean(metadata, KEY + "add_space_prefix", True), True
            self._build_encoder = partial(_build_spm, self._vocabulary, merge_spaces, self.space_prefix)
        if kind != "bert":
            self._end_id = self._vocabulary.eos_id
        self.add_bos = _read_add(metadata, "bos", self._vocabulary.bos_id, add_bos)
        if kind == "gemma4":
            self.add_bos = self.bos_id is not None
        self.add_eos = _read_add(metadata, "eos", self._end_id, add_eos)
        self.n_vocab = len(self._vocabulary.tokens)
        self.sep_id = md.token_id(metadata, KEY + "seperator_token_id", self.n_vocab)  # the format's spelling
        twice = kind == "t5" or (row is not None and row.add_sep)
        self.add_sep = md.boolean(metadata, KEY + "add_sep_token", twice) and self.sep_id is not None
        self._for_special = {key: metadata.get(key) for key in ("general.name", KEY + "pre")}
        self._pieces: dict[int, bytes] = {}

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, Any]) -> Tokenizer:
        """Read the `tokenizer.ggml.*` keys of a file.

        Raises TokenizerError, with the key and the value, when they do not describe a tokenizer, and
        TokenizerError when they describe one that is not implemented. Faults in the merges show at the
        first `encode`.
        """
        return cls(metadata)

    @property
    def bos_id(self) -> int | None:
        """The beginning-of-text token."""
        return self._vocabulary.bos_id

    @property
    def eos_id(self) -> int | None:
        """The end-of-text token."""
        return self._vocabulary.eos_id

    @property
    def eot_id(self) -> int | None:
        """The end-of-turn token: named by the file, or found by its usual names."""
        return self._vocabulary.eot_id

    @property
    def unk_id(self) -> int | None:
        """The unknown token."""
        return self._vocabulary.unk_id

    @property
    def fim(self) -> Mapping[str, int]:
        """Tokens around the parts of a text to fill in, those of them that there are: pre (before what precedes), suf
        (before what follows), mid (before what is generated), pad, rep (a repository's name), sep (a file's name).
        """
        return self._vocabulary.fim

    @property
    def stop_ids(self) -> frozenset[int]:
        """Tokens after which generation ends: those of the file for text, turn and message, and their usual names."""
        return self._vocabulary.stop_ids

    @cached_property
    def _special(self) -> SpecialTokens:
        return read_special_tokens(self._for_special, self._vocabulary)

    @cached_property
    def _encoder(self) -> _Encoder:
        encoder = self._build_encoder()
        self._build_encoder = lambda: encoder  # lets go of the merges
        return encoder

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = True) -> list[int]:
        """Token ids of `text`.

        `add_special` adds what the file asks for at the ends (`add_bos`, `add_eos`). `parse_special` turns
        the texts of control tokens into these tokens; without it they are ordinary text, while user-defined
        tokens are recognised in any case. Lone surrogates become U+FFFD. Raises TokenizerError for text that
        the vocabulary cannot express and for faulty merges.
        """
        if not isinstance(text, str):
            raise TokenizerError(f"text must be a str, not {shown(text)}", value=text)
        text = _without_surrogates(text)
        vocabulary = self._vocabulary
        ids = [vocabulary.bos_id] if add_special and self.add_bos and vocabulary.bos_id is not None else []
        for piece in self._special.split(text, parse_special):
            if isinstance(piece, int):
                ids.append(piece)
            else:
                ids += self._encoder.encode(piece)
        if add_special and self.add_eos and self._end_id is not None:
            ids.append(self._end_id)
        return ids

    def encode_pair(self, first: str, second: str) -> list[int]:
        """Token ids of two texts of which a model is asked what the one has to do with the other, with what the file
        asks for at the ends and between them. Names of control tokens in the texts are plain text. Raises
        TokenizerError.
        """
        ids: list[Sequence[int | None]] = [[self.bos_id]] if self.add_bos else []
        end = [self._end_id] if self.add_eos else []
        between = [*end, self.sep_id] if self.add_sep else end
        for text, behind in ((first, between), (second, end)):
            ids += [self.encode(text, add_special=False, parse_special=False), behind]
        return [id_ for part in ids for id_ in part if id_ is not None]

    def split(self, text: str) -> list[str | int]:
        """`text` as plain pieces, none of them empty, and the ids of the special tokens that it names."""
        return self._special.split(_without_surrogates(text), True)

    def decode(self, ids: Iterable[int], *, skip_special: bool = False) -> str:
        """The text of `ids`; bytes that are not UTF-8 become U+FFFD.

        `skip_special` leaves out control and unknown tokens. With `space_prefix`, one space is dropped from
        the start of the result: the one that encoding added. Raises TokenizerError for an id outside the
        vocabulary.
        """
        pieces = (self.token_bytes(id_) for id_ in ids if not (skip_special and self.is_special(id_)))
        data = b"".join(pieces)
        if self.space_prefix:
            data = data.removeprefix(b" ")
        return data.decode("utf-8", "replace")

    def token_bytes(self, token_id: int) -> bytes:
        """The bytes that a token adds to the text: empty for unused tokens, the name for special ones.

        Raises TokenizerError for an id outside the vocabulary.
        """
        piece = self._pieces.get(token_id)
        if piece is None:
            piece = self._pieces[token_id] = self._token_bytes(self._check(token_id))
        return piece

    def _token_bytes(self, token_id: int) -> bytes:
        text = self._vocabulary.tokens[token_id]
        match TokenKind(self._vocabulary.kinds[token_id]):
            case TokenKind.NORMAL:
                return bpe.token_bytes(text) if self._byte_level else text.replace(SPACE, " ").encode()
            case TokenKind.BYTE:
                return bytes([self._vocabulary.byte_value(token_id)])
            case TokenKind.UNUSED | TokenKind.UNDEFINED:
                return b""
            case _:
                return text.encode()

    def token_text(self, token_id: int) -> str:
        """A token as the vocabulary writes it ("Ġthe", "▁the", "<0x0A>"). Raises TokenizerError."""
        return self._vocabulary.tokens[self._check(token_id)]

    def difference(self, other: Tokenizer) -> int | None:
        """The first token id that both have and that has another text in the other one; None where there is none."""
        mine, theirs = self._vocabulary.tokens, other._vocabulary.tokens
        n = min(len(mine), len(theirs))
        if mine[:n] == theirs[:n]:
            return None
        return next(i for i in range(n) if mine[i] != theirs[i])

    def token_id(self, text: str) -> int | None:
        """The id whose `token_text` is `text`, or None."""
        return self._vocabulary.ids.get(text)

    @cached_property
    def special_ids(self) -> frozenset[int]:
        """Tokens that are markup and not text: control and unknown tokens."""
        return frozenset(self._vocabulary.of_kind(TokenKind.CONTROL, TokenKind.UNKNOWN))

    def is_special(self, token_id: int) -> bool:
        """Whether a token is markup and not text: a control or an unknown token. Raises TokenizerError."""
        return self._check(token_id) in self.special_ids

    def _check(self, token_id: int) -> int:
        index = whole(token_id)
        if index is None:
            raise TokenizerError(f"a token id must be an int, not {shown(token_id)}", value=token_id)
        if not 0 <= index < self.n_vocab:
            seen = f"token id {show(index)}"
            raise TokenizerError(f"{seen} is outside the vocabulary of {self.n_vocab} tokens", value=index)
        return index


def _read_add(metadata: md.Metadata, which: str, token_id: int | None, default: bool) -> bool:
    """Whether to add a token at an end. Raises TokenizerError when the file asks for one that it does not
    name; where only the default asks for it, nothing is added.
    """
    key = f"{KEY}add_{which}_token"
    wanted = md.boolean(metadata, key, default and token_id is not None)
    if wanted and token_id is None:
        raise TokenizerError(f"is true, but there is no {KEY}{which}_token_id", key=key, value=True)
    return wanted


def _read_bert(metadata: md.Metadata) -> tuple[Vocabulary, int | None, Callable[[], _Encoder]]:
    """The vocabulary, the token that ends a text and what makes the encoder. The ids' defaults are BERT's own."""
    vocabulary = read_vocabulary(metadata, default_bos=None, default_eos=None, default_unk=None)
    n = len(vocabulary.tokens)

    def special(name: str, default: int) -> int | None:
        return md.token_id(metadata, f"{KEY}{name}_token_id", n, default)

    bos = vocabulary.bos_id if vocabulary.bos_id is not None else special("cls", 101)
    vocabulary = replace(vocabulary, bos_id=bos, unk_id=special("unknown", 100))
    lowercase = md.boolean(metadata, KEY + "normalizer.lowercase", True)
    strip = md.boolean(metadata, KEY + "normalizer.strip_accents", lowercase)
    build = partial(_build_wordpiece, vocabulary, lowercase=lowercase, strip_accents=strip)
    return vocabulary, special("seperator", 102), build  # the format's spelling


def _read_unigram(metadata: md.Metadata, vocabulary: Vocabulary) -> tuple[bool, Callable[[], _Encoder]]:
    """Whether a space is put before text, and what makes the encoder."""
    charsmap = metadata.get(CHARSMAP)
    if charsmap is not None and not (isinstance(charsmap, np.ndarray) and charsmap.dtype in (np.uint8, np.int8)):
        raise TokenizerError(f"must be an array of bytes, not {shown(charsmap)}", key=CHARSMAP, value=charsmap)
    merge_spaces = md.boolean(metadata, KEY + "remove_extra_whitespaces", False)
    prefix = md.boolean(metadata, KEY + "add_space_prefix", False)
    build = partial(Unigram, vocabulary, charsmap, merge_spaces=merge_spaces, prefix_space=prefix)
    return prefix or merge_spaces, build


def _build_wordpiece(vocabulary: Vocabulary, *, lowercase: bool, strip_accents: bool) -> WordPiece:
    return WordPiece(dict(vocabulary.ids), vocabulary.unk_id, lowercase=lowercase, strip_accents=strip_accents)


def _build_spm(vocabulary: Vocabulary, merge_spaces: bool, prefix_space: bool) -> SentencePiece:
    scores = np.zeros(len(vocabulary.tokens)) if vocabulary.scores is None else vocabulary.scores
    return SentencePiece(
        dict(vocabulary.ids), scores.tolist(), vocabulary.unk_id, merge_spaces=merge_spaces, prefix_space=prefix_space
    )


def _without_surrogates(text: str) -> str:
    """`text` with what UTF-8 cannot express (bytes of a broken command line, halves of pairs) replaced."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return re.sub("[\ud800-\udfff]", _REPLACEMENT, text)
    return text

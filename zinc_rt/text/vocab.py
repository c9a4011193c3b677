"""The vocabulary of a GGUF file: token texts, their kinds, and the ids with a role.

The rules for tokens that a file types wrongly (an end-of-turn marker marked as ordinary text and the like)
are those of llama.cpp's `llama-vocab.cpp`, so that a file means the same here as there. Where they depend on
the iteration order of a C++ hash table, the order of the lists below decides instead.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zinc_rt.gguf.strings import StringIndex, StringTable
from zinc_rt.text import metadata as md
from zinc_rt.text.errors import TokenizerError, shown

KEY = "tokenizer.ggml."

# Names that end a turn or the text; the first one present is the end-of-turn token of a file that names none.
_END_OF_TURN = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<end_of_turn>", "<|endoftext|>", "<|end_of_text|>", "<EOT>",
    "_<EOT>", "[EOT]", "<\uff5cend▁of▁sentence\uff5c>", "<end_of_utterance>",
)  # fmt: skip
_END_OF_GENERATION = (
    *_END_OF_TURN, "<|eom_id|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "</s>", "[EOS]", "<eos>",
    "<turn|>", "<|tool_response>", "[e~[",
)  # fmt: skip
# Fill-in-the-middle roles by metadata key. The last three also end generation: a model that writes one has
# gone on to the next file.
_FILL_IN_MIDDLE = {
    "fim_pre_token_id": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<\uff5cfim▁begin\uff5c>", "<PRE>", "▁<PRE>",
        "<|code_prefix|>", "<|prefix|>",
    ),
    "fim_suf_token_id": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<\uff5cfim▁hole\uff5c>", "<SUF>", "▁<SUF>",
        "<|code_suffix|>", "<|suffix|>",
    ),
    "fim_mid_token_id": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<\uff5cfim▁end\uff5c>", "<MID>", "▁<MID>",
        "<|code_middle|>", "<|middle|>",
    ),
    "fim_pad_token_id": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep_token_id": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep_token_id": ("<|file_sep|>",),
}  # fmt: skip
_FILL_IN_MIDDLE_ENDS = ("fim_pad_token_id", "fim_rep_token_id", "fim_sep_token_id")
# Parts of a structured answer that a reader wants to see although the file calls them control tokens.
_ALWAYS_SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")
# Names that close a part of the answer and not the answer, where all names of one of the groups are present.
_PARTS_END = {
    "<|end|>": (
        {"<|return|>", "<|call|>"},
        {"<|flush|>", "<|call|>"},
        {"<|flush|>", "<|calls|>"},
        {"<|return|>", "<|calls|>"},
    ),
    "<|eom|>": ({"<|start|>", "<|message|>", "<|eot|>"},),
}

_BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")


class TokenKind(enum.IntEnum):
    """The values of `tokenizer.ggml.token_type`."""

    UNDEFINED = 0
    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


@dataclass(frozen=True)
class Vocabulary:
    """Tokens by id, ids by text, and the ids that a file or a name gives a role."""

    tokens: Sequence[str]  # text of each id; an empty one is replaced by "[EMPTY_<id>]"
    ids: Mapping[str, int]  # the inverse
    kinds: NDArray[np.int8]  # TokenKind of each id, [n_vocab]
    scores: NDArray[np.float32] | None  # [n_vocab]
    bos_id: int | None
    eos_id: int | None
    eot_id: int | None
    unk_id: int | None
    stop_ids: frozenset[int]
    fim: Mapping[str, int]  # tokens around the parts of a text to fill in: pre, suf, mid, pad, rep, sep

    def of_kind(self, *kinds: TokenKind) -> list[int]:
        """Ids whose kind is one of `kinds`, ascending."""
        ids: list[int] = np.flatnonzero(np.isin(self.kinds, kinds)).tolist()
        return ids

    def byte_value(self, token_id: int) -> int:
        """The byte that a token of kind BYTE stands for."""
        text = self.tokens[token_id]
        match = _BYTE_TOKEN.fullmatch(text)
        if match is None:
            raise TokenizerError(
                f"token {token_id} is typed as a byte, but its text {shown(text)} is not <0x00>..<0xFF>",
                key=KEY + "token_type",
                value=text,
            )
        return int(match[1], 16)


def read_vocabulary(
    metadata: md.Metadata, *, default_bos: int | None, default_eos: int | None, default_unk: int | None
) -> Vocabulary:
    """Read and check tokens, types, scores and special ids. The defaults hold where the file names no id.

    Raises TokenizerError with the key and the value at fault.
    """
    tokens = md.strings(metadata, KEY + "tokens", "a file without a vocabulary can take token ids only")
    if not tokens:
        raise TokenizerError("is empty; a vocabulary needs at least one token", key=KEY + "tokens", value=0)
    tokens, ids = _read_texts(tokens)
    scores = md.numbers(metadata, KEY + "scores", len(tokens), kinds="fiu")
    if scores is not None:
        scores = scores.astype(np.float32)
        if np.isnan(scores).any():
            at = int(np.flatnonzero(np.isnan(scores))[0])
            raise TokenizerError(f"entry {at} is not a number", key=KEY + "scores", value=float("nan"))
    kinds = _read_kinds(metadata, len(tokens))

    def special(name: str, default: int | None = None) -> int | None:
        return md.token_id(metadata, f"{KEY}{name}", len(tokens), default)

    bos, eos = special("bos_token_id", default_bos), special("eos_token_id", default_eos)
    unk = special("unknown_token_id")
    if unk is None and default_unk is not None and kinds[default_unk] == TokenKind.UNKNOWN:
        unk = default_unk
    eot, eom = special("eot_token_id"), special("eom_token_id")
    eot = _first_present(ids, _END_OF_TURN) if eot is None else eot
    eom = _first_present(ids, ("<|eom_id|>",)) if eom is None else eom
    stops = {id_ for id_ in (eos, eot, eom) if id_ is not None}
    fim: dict[str, int] = {}
    for name, texts in _FILL_IN_MIDDLE.items():
        id_ = special(name)
        if id_ is None and (id_ := _first_present(ids, texts)) is not None:
            kinds[id_] = TokenKind.CONTROL
        if id_ is not None:
            fim[name[4:7]] = id_
        if id_ is not None and name in _FILL_IN_MIDDLE_ENDS:
            stops.add(id_)
    for text in _END_OF_GENERATION:
        if text in ids and not _is_markup(text, ids, kinds, eos):
            stops.add(ids[text])
            kinds[ids[text]] = TokenKind.CONTROL
    for text in _ALWAYS_SHOWN:
        if text in ids:
            kinds[ids[text]] = TokenKind.USER_DEFINED
    for text, groups in _PARTS_END.items():
        if text in ids and any(group <= ids.keys() for group in groups):
            stops.discard(ids[text])
            kinds[ids[text]] = TokenKind.USER_DEFINED
    kinds.setflags(write=False)
    vocabulary = Vocabulary(tokens, ids, kinds, scores, bos, eos, eot, unk, frozenset(stops), fim)
    for id_ in vocabulary.of_kind(TokenKind.BYTE):
        vocabulary.byte_value(id_)
    return vocabulary


def _is_markup(text: str, ids: Mapping[str, int], kinds: NDArray[np.int8], eos: int | None) -> bool:
    """Whether "</s>" is the end of crossed-out HTML text, as in all of Gemma's vocabularies, and no end of text.

    Gemma 4, which has "<|tool_response>", is known by that in llama.cpp too; Gemma 1 to 3 by the type in the file.
    """
    if text != "</s>" or ids[text] == eos:
        return False
    return kinds[ids[text]] != TokenKind.CONTROL or "<|tool_response>" in ids


def _read_kinds(metadata: md.Metadata, n_vocab: int) -> NDArray[np.int8]:
    key = KEY + "token_type"
    values = md.numbers(metadata, key, n_vocab, kinds="iu")
    if values is None:
        return np.full(n_vocab, TokenKind.NORMAL, dtype=np.int8)
    wrong = np.flatnonzero((values < 0) | (values > max(TokenKind)))
    if wrong.size:
        at = int(wrong[0])
        raise TokenizerError(
            f"entry {at} is {values[at]}; token types are 0..{max(TokenKind)}", key=key, value=values[at]
        )
    return values.astype(np.int8)


def _first_present(ids: Mapping[str, int], texts: tuple[str, ...]) -> int | None:
    return next((ids[text] for text in texts if text in ids), None)


def _read_texts(tokens: Sequence[str]) -> tuple[Sequence[str], Mapping[str, int]]:
    """The tokens, with names for empty ones, and the id of each text."""
    if isinstance(tokens, StringTable) and tokens.lengths.all():
        tokens.check_utf8()
    elif "" in (tokens := list(tokens)):
        tokens = [text or f"[EMPTY_{i}]" for i, text in enumerate(tokens)]
    ids = md.numbered(tokens)
    if isinstance(ids, StringIndex):
        if pair := ids.twice():
            _report_duplicate(tokens, *pair)
    elif len(ids) != len(tokens):
        again = next(i for i, text in enumerate(tokens) if ids[text] != i)
        _report_duplicate(tokens, ids[tokens[again]], again)
    return tokens, ids


def _report_duplicate(tokens: Sequence[str], first: int, again: int) -> None:
    text = tokens[again]
    raise TokenizerError(
        f"tokens {first} and {again} have the same text {shown(text)}; each text may occur once",
        key=KEY + "tokens",
        value=text,
    )

"""Tokens with a role, and the chat template, as keys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from zinc_rt.converting.errors import ConvertError
from zinc_rt.converting.folder import ModelFolder
from zinc_rt.converting.text.check import library_of
from zinc_rt.converting.text.vocabulary import Keys
from zinc_rt.text import Tokenizer
from zinc_rt.text.vocab import KEY, TokenKind
from zinc_rt.utils.checks import show

_ROLES: Final = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
_OF_ENCODERS: Final = {"cls": "cls", "sep": "seperator", "mask": "mask"}  # the format's spelling
_INSTEAD: Final = {"bos": "cls", "eos": "sep"}
"""The tokens at the ends of an encoder's text."""


def special_keys(folder: ModelFolder, vocabulary: Keys, *, encodes: bool = False) -> tuple[Keys, list[str]]:
    """Ids of tokens with a role, what is added at the ends of a text, the chat template; and what to tell the user.

    vocabulary: as `vocabulary_keys` gives it. encodes: of an encoder. Raises `ConvertError` for contradictions.
    """
    named = folder.json("tokenizer_config.json") or {}
    texts: list[str] = vocabulary[f"{KEY}tokens"]
    ids = {text: id_ for id_, text in enumerate(texts) if vocabulary[f"{KEY}token_type"][id_] != TokenKind.UNUSED}
    keys: Keys = {}
    for role, name in (_ROLES | (_OF_ENCODERS if encodes else {})).items():
        own = _INSTEAD.get(role, role) if encodes else role
        id_ = _id_of(folder, named, own, ids, len(texts))
        id_ = _id_of(folder, named, role, ids, len(texts)) if id_ is None else id_
        if id_ is not None:
            keys[f"{KEY}{name}_token_id"] = id_
    for role in ("bos", "eos"):
        keys[f"{KEY}add_{role}_token"] = _added(folder, named, role, keys.get(f"{KEY}{role}_token_id"))
    more, notes = _further_ends(folder, vocabulary | keys)
    return keys | more | _templates(folder, named), notes


def _text_of(value: Any) -> str | None:
    """The text of a token, which is written as it is or in an object."""
    value = value.get("content") if isinstance(value, dict) else value
    return value if isinstance(value, str) else None


def _id_of(folder: ModelFolder, named: Mapping[str, Any], role: str, ids: Mapping[str, int], n: int) -> int | None:
    text = _text_of(named.get(f"{role}_token"))
    if text is not None and text in ids:
        return ids[text]
    for name in ("generation_config.json", "config.json"):
        found = _numbers((folder.json(name) or {}).get(f"{role}_token_id"))
        if found and 0 <= found[0] < n:
            return found[0]
    return None


def _numbers(value: Any) -> list[int]:
    values = value if isinstance(value, list) else [value]
    return [one for one in values if type(one) is int]


def _added(folder: ModelFolder, named: Mapping[str, Any], role: str, id_: int | None) -> bool:
    """Whether a text gets the token at its end: as tokenizer_config.json says, or as tokenizer.json does.

    Raises `ConvertError` where it gets another token.
    """
    said = named.get(f"add_{role}_token")
    if isinstance(said, bool):
        if said and id_ is None:
            raise ConvertError(f"tokenizer_config.json has add_{role}_token, but no {role} token is known")
        return said
    text = folder.text("tokenizer.json")
    if text is None:
        return role == "bos" and id_ is not None
    library = library_of(text)
    bare, full = (library.encode("a", add_special_tokens=special).ids for special in (False, True))
    ends = {"bos": full[: len(full) - len(bare)], "eos": full[len(bare) :]}
    if full == bare:
        return False
    for which, ids in ends.items():
        rest = full[len(ids) :] if which == "bos" else full[: len(bare)]
        if rest == bare:
            if which != role:
                return False
            if ids != [id_]:
                raise ConvertError(f"tokenizer.json adds the tokens {ids}, and the {role} token is {id_}")
            return True
    if len(full) == len(bare) + 2 and full[1:-1] == bare:
        return True
    raise ConvertError(f"tokenizer.json makes {show(str(full))} of a text that is {show(str(bare))} without its ends")


def _further_ends(folder: ModelFolder, keys: Keys) -> tuple[Keys, list[str]]:
    """Tokens that end generation besides the one that is named, where their texts do not say so already."""
    given = _numbers((folder.json("generation_config.json") or {}).get("eos_token_id"))
    tokenizer = Tokenizer.from_metadata(keys)
    missing = [id_ for id_ in given if id_ not in tokenizer.stop_ids and id_ < tokenizer.n_vocab]
    free = ["eom"] if "<|eom_id|>" not in keys[f"{KEY}tokens"] else []
    free += ["eot"] if tokenizer.eot_id is None else []
    more = {f"{KEY}{name}_token_id": id_ for name, id_ in zip(free, missing, strict=False)}
    left = missing[len(free) :]
    return more, [f"tokens {left} do not end an answer, which generation_config.json says they do"] if left else []


def _templates(folder: ModelFolder, named: Mapping[str, Any]) -> Keys:
    """The chat template, and those with names."""
    own: Any = folder.text("chat_template.jinja")
    if own is None:
        own = (folder.json("chat_template.json") or {}).get("chat_template", named.get("chat_template"))
    found: dict[str, Any] = {}
    if isinstance(own, str):
        found["default"] = own
    elif isinstance(own, Sequence):
        found |= {str(one.get("name")): one.get("template") for one in own if isinstance(one, dict)}
    for path in sorted((folder.path / "additional_chat_templates").glob("*.jinja")):
        found[path.stem] = folder.text(f"additional_chat_templates/{path.name}")
    if not all(isinstance(text, str) for text in found.values()):
        raise ConvertError(f"{folder.shown}/tokenizer_config.json has a chat template that is no text")
    keys = {f"tokenizer.chat_template.{name}": text for name, text in found.items() if name != "default"}
    if keys:
        keys["tokenizer.chat_templates"] = [name for name in found if name != "default"]
    return keys | ({"tokenizer.chat_template": found["default"]} if "default" in found else {})

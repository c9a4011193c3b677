"""The ways in which a user may name a model of the hub.

`NAME[:FORMAT]` of the table, `owner/repo[:FORMAT]`, `owner/repo/file.gguf`, an address of the hub, or another program's
`qwen3:0.6b`.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote

from zinc_rt.hub.errors import UnknownModel
from zinc_rt.hub.known import KNOWN, KnownModel
from zinc_rt.utils.checks import show

_PART: Final = r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9_])?"
REPOSITORY: Final = re.compile(rf"{_PART}/{_PART}")
_QUANT: Final = re.compile(r"[A-Za-z0-9_.-]{1,40}")
_NAME: Final = re.compile(
    r"(?P<name>[a-z0-9.:-]+?)(?:[-:](?P<format>(?:ud-)?(?:i?q\d|tq\d|mxfp4|bf16|f16|f32)[a-z0-9_]{,10}))?"
)
_ADDRESS: Final = re.compile(r"(?P<scheme>https?:/+)?(?P<host>[^/?#]+)/*(?P<path>[^?#]*)", re.IGNORECASE)
_HOSTS: Final = ("huggingface.co", "www.huggingface.co", "hf.co")
_FILE: Final = ".gguf"
_NEAR: Final = 4
"""Names that an error proposes at the most."""


@dataclass(frozen=True)
class HubModel:
    """A model of the hub.

    quant: the format that was asked for, in capitals, empty for none; usual: the one of the table, which is taken
    then; name: the table's; file: the path of one file, where that was asked for.
    """

    repo: str
    quant: str = ""
    usual: str = ""
    name: str = ""
    file: str = ""

    def __str__(self) -> str:
        shown = self.name or self.repo
        return f"{shown}/{self.file}" if self.file else f"{shown}:{self.quant}" if self.quant else shown


def parse(text: str, also: Sequence[str] = ()) -> HubModel:
    """A model by the text that a user wrote. also: further names that an error may propose. Raises `UnknownModel`."""
    address = _ADDRESS.match(text)
    if address is not None and (address["scheme"] or address["host"].lower() in _HOSTS):
        return _at_address(text, address["host"].lower(), unquote(address["path"]))
    head, colon, quant = text.partition(":")
    known = KNOWN.get(head.lower())
    if known is None and (tagged := _tagged(text.lower())):
        return tagged
    if colon and not _QUANT.fullmatch(quant):
        raise UnknownModel(f"{show(text)} is no model: behind the colon stands a format, as in {head}:Q4_K_M")
    if known is not None:
        return _of_table(head.lower(), known, quant)
    if _is_repository(head):
        return HubModel(head, quant.upper())
    owner, _, rest = text.partition("/")
    repo, _, file = rest.partition("/")
    if file.lower().endswith(_FILE) and _is_repository(f"{owner}/{repo}"):
        return HubModel(f"{owner}/{repo}", file=file)
    raise UnknownModel(f"{show(text)} is no known model: {_instead(head.lower(), [*KNOWN, *also])}")


def is_known(text: str) -> bool:
    """Whether a text is a name of the table, with a format or without."""
    return text.partition(":")[0].lower() in KNOWN or _tagged(text.lower()) is not None


def _of_table(name: str, model: KnownModel, quant: str) -> HubModel:
    return HubModel(model.repo, quant.upper(), model.quant, name)


def _is_repository(text: str) -> bool:
    return REPOSITORY.fullmatch(text) is not None and ".." not in text and "--" not in text


def _tagged(text: str) -> HubModel | None:
    """A model of the table by family, size and perhaps format, as Ollama names it: `gemma4:e2b`, `qwen3:0.6b-q8_0`."""
    found = _NAME.fullmatch(text)
    for known, model in KNOWN.items():
        if found is not None and _squeezed(found["name"]) == _squeezed(known):
            return _of_table(known, model, found["format"] or "")
    return None


def _squeezed(name: str) -> str:
    return name.replace("-", "").replace(":", "")


def _at_address(text: str, host: str, path: str) -> HubModel:
    """`O/R`, `O/R:FORMAT`, or a file or folder of the main branch, as a browser shows them."""
    if host not in _HOSTS:
        from huggingface_hub import constants

        if host != constants.ENDPOINT.partition("://")[2].partition("/")[0].lower():
            raise UnknownModel(
                f"{show(text)} is an address of another host than the Hugging Face hub: download the file, and give its"
                " path"
            )
    owner, _, rest = path.strip("/").partition("/")
    repo, _, below = rest.partition("/")
    head, colon, quant = repo.partition(":")
    kind, _, rest = below.partition("/")
    branch, _, file = rest.partition("/")
    fits = _is_repository(f"{owner}/{head}") and owner not in ("datasets", "spaces", "collections", "papers", "docs")
    if fits and not below and (not colon or _QUANT.fullmatch(quant)):
        return HubModel(f"{owner}/{head}", quant.upper())
    if fits and not colon and kind in ("tree", "blob", "resolve", "raw") and branch == "main":
        return HubModel(f"{owner}/{repo}", file=file if file.lower().endswith(_FILE) else "")
    raise UnknownModel(
        f"{show(text)} is no address of a model: give https://huggingface.co/owner/repo, or a file of its branch main"
    )


def _instead(text: str, names: Iterable[str]) -> str:
    """What to write in place of a text that is no name."""
    every = list(dict.fromkeys(names))
    alike = (
        [name for name in every if name.lower().startswith(f"{text}-")],
        [name for name in every if name.lower().startswith(text)] if text else [],
        [name for name in every if len(text) > 3 and text in name.lower()],
    )
    near = (next(filter(None, alike), []) or difflib.get_close_matches(text, every, n=_NEAR))[:_NEAR]
    if not near:
        return "give owner/repo of the hub, or a name that `zinc list --known` shows"
    return f"did you mean {', '.join(near)}? `zinc pull {near[0]}` downloads it; `zinc list --known` shows more"

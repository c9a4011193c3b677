"""`zinc pm4 decode`: prints packets of AMD's command processors."""

from __future__ import annotations

import json
import re
import sys
from array import array
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.prompts import read_bytes
from zinc_rt.cli.terminal import say, write
from zinc_rt.errors import UsageError

_WORD = re.compile(r"0[xX][0-9a-fA-F]{1,8}|[0-9a-fA-F]{1,8}")


class Pm4Action(StrEnum):
    """The actions of `zinc pm4`."""

    decode = "decode"


class StreamFormat(StrEnum):
    """The storage formats of a stream."""

    auto = "auto"
    binary = "binary"
    hex = "hex"


def pm4(
    action: Annotated[
        Pm4Action,
        typer.Argument(metavar="decode", help="What to do: print the packets.", show_default=False),
    ],
    source: Annotated[
        list[str],
        typer.Argument(
            metavar="FILE|-|HEX...",
            help="A file, - for standard input, or the dwords themselves in hexadecimal.",
            show_default=False,
        ),
    ],
    form: Annotated[
        StreamFormat,
        typer.Option(
            "--format",
            metavar="auto|binary|hex",
            help="What a file holds: little-endian dwords, or text of hexadecimal dwords, # starts a comment."
            " auto: text, if it is nothing else.",
            rich_help_panel=o.OTHER,
        ),
    ] = StreamFormat.auto,
    gfx: Annotated[
        int,
        typer.Option(
            "--gfx",
            metavar="11|12",
            min=11,
            max=12,
            help="Major version of the graphics core, for the names of registers' fields.",
            rich_help_panel=o.OUTPUT,
        ),
    ] = 12,
    as_json: o.Json = False,
    debug: o.Debug = False,
) -> None:
    """Decode PM4, the packets of AMD GPUs, with fields and registers by name.

    Each line has the offset in dwords, the header and the packet. Malformed packets are shown with the reason, after
    !!, and counted at the end on standard error.
    """
    from zinc_rt.amdgpu.pm4 import decode, render

    packets = decode(_words(source, form))
    if as_json:
        tree = [
            {
                "offset": packet.offset,
                "name": packet.name,
                "opcode": packet.opcode,
                "words": list(packet.words),
                "fields": packet.fields,
                "text": packet.text(gfx),
                "problems": list(packet.problems),
            }
            for packet in packets
        ]
        write(json.dumps(tree, indent=1) + "\n")
    else:
        write("".join(line + "\n" for line in render(packets, gfx)))
    bad = sum(bool(packet.problems) for packet in packets)
    if bad:
        say(f"malformed: {bad} of {len(packets)} packets", style="yellow")


def _words(source: list[str], form: StreamFormat) -> list[int]:
    """Read the stream as dwords. Raises `UsageError`."""
    first = source[0]
    if len(source) == 1 and first == "-":
        return _parse(read_bytes(None), "standard input", form)
    if len(source) == 1 and (_exists(first) or not _hex(first.replace(",", " "))):
        try:
            return _parse(read_bytes(first), first, form)
        except OSError as error:
            more = "" if _exists(first) else ", and it is no hexadecimal dword"
            raise UsageError(f"cannot read {first}: {error.strerror}{more}") from None
    return _text(" ".join(source), "the command line")


def _exists(path: str) -> bool:
    try:
        return Path(path).exists()
    except OSError:  # too long for a name
        return False


def _parse(data: bytes, where: str, form: StreamFormat) -> list[int]:
    if not data:
        raise UsageError(f"{where} is empty")
    if form is StreamFormat.hex or (form is StreamFormat.auto and data.isascii() and _hex(_bare(data.decode("ascii")))):
        return _text(data.decode("ascii", "replace"), where)
    if len(data) % 4:
        raise UsageError(f"{where} has {len(data)} bytes; a stream of dwords has a multiple of 4")
    words = array("I", data)
    if sys.byteorder == "big":
        words.byteswap()
    return words.tolist()


def _bare(text: str) -> str:
    return re.sub(r"#.*", "", text).replace(",", " ")


def _hex(text: str) -> bool:
    return bool(text.split()) and all(_WORD.fullmatch(word) for word in text.split())


def _text(text: str, where: str) -> list[int]:
    words = _bare(text).split()
    if not words:
        raise UsageError(f"{where} holds no dwords")
    for word in words:
        if not _WORD.fullmatch(word):
            raise UsageError(f"{where} holds {word!r}; a dword is one to eight hexadecimal digits")
    return [int(word, 16) for word in words]

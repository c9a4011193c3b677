"""`zinc tokenize`: the tokens of a text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated

import typer

from zinc_rt.cli import options as o
from zinc_rt.cli.files import path_or_built_in
from zinc_rt.cli.prompts import read_text, unescape
from zinc_rt.cli.run import Escape
from zinc_rt.cli.terminal import say, write, write_table
from zinc_rt.errors import UsageError

if TYPE_CHECKING:
    from zinc_rt.text import Tokenizer

Words = Annotated[
    list[str] | None,
    typer.Argument(metavar="[TEXT]", help="The text, in quotes.", show_default=False),
]
TextOption = Annotated[str | None, o.option(o.PROMPT, "-p", "--prompt", metavar="TEXT", help="The text, as an option.")]
TextFile = Annotated[
    str | None,
    o.option(
        o.PROMPT,
        "-f",
        "--file",
        metavar="FILE",
        help="Read the text from FILE; - is standard input, which is also read when no text is given.",
    ),
]
Ids = Annotated[bool, o.option(o.OUTPUT, "--ids", help="Print the ids only, on one line.")]
NoSpecial = Annotated[
    bool,
    o.option(
        o.PROMPT,
        "--no-special",
        help="Add no begin- and end-of-text tokens, and read special tokens in the text as plain text.",
    ),
]
JsonTokens = Annotated[
    bool,
    o.option(
        o.OUTPUT, "--json", help="Print a JSON list of ids and pieces; a piece that is not UTF-8 is a list of bytes."
    ),
]


def tokenize(
    *,
    words: Words = None,
    text: TextOption = None,
    file: TextFile = None,
    escape: Escape = False,
    no_special: NoSpecial = False,
    model: o.ModelFile = None,
    ids_only: Ids = False,
    as_json: JsonTokens = False,
    debug: o.Debug = False,
) -> int:
    """Show the tokens of a text.

    One per line, id and piece.
    """
    from zinc_rt.gguf import GGUFFile
    from zinc_rt.text import Tokenizer

    words = words or []
    if len(words) > 1:
        raise UsageError(f"the text came in {len(words)} pieces; put it in quotes")
    given = [*words, *([text] if text is not None else [])]
    if len(given) + (file is not None) > 1:
        raise UsageError("the text is given more than once; use one of: an argument, -p, -f")
    content = given[0] if given else read_text(file)
    with GGUFFile.open(path_or_built_in(model)) as opened:
        tokenizer = Tokenizer.from_metadata(opened.metadata)
    ids = tokenizer.encode(
        unescape(content) if escape else content, add_special=not no_special, parse_special=not no_special
    )
    pieces = [_piece(tokenizer, i) for i in ids]
    if as_json:
        items = [{"id": i, "piece": _jsonable(p)} for i, p in zip(ids, pieces, strict=True)]
        write(json.dumps(items, ensure_ascii=False) + "\n")
    elif ids_only:
        write(" ".join(map(str, ids)) + "\n")
    else:
        write_table([[str(i), repr(p)] for i, p in zip(ids, pieces, strict=True)], right=(0,))
    say(f"{len(ids)} tokens", style="dim")
    return 0


def _piece(tokenizer: Tokenizer, token_id: int) -> str | bytes:
    """A token's text, or its bytes where they are only a part of a character."""
    data = tokenizer.token_bytes(token_id)
    try:
        return data.decode("utf-8") or tokenizer.token_text(token_id)
    except UnicodeDecodeError:
        return data


def _jsonable(piece: str | bytes) -> str | list[int]:
    return piece if isinstance(piece, str) else list(piece)

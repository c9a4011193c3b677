"""Checks of JSON schemas before a grammar is made of them, each in one pass over the schema."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.checks import show
from zinc_rt.grammar.errors import GrammarError

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_SCHEMA_DEPTH: Final = 64
"""Lists and objects inside each other."""

Schema = Mapping[str, Any] | bool


def check_schema(schema: object, where: str = "") -> Schema:
    """`schema`, which is a JSON schema of a bearable size, as far as one sees without reading its keywords.

    Raises `GrammarError`: neither an object nor a boolean, not of JSON's values, deeper than 64 levels, larger than 64
    KiB as JSON text, or with a `$ref` to another document.
    """
    if not isinstance(schema, Mapping | bool):
        raise GrammarError(f"the schema is {show(schema)}; it must be a JSON schema, an object", where)
    _check_values(schema, where)
    try:
        size = len(json.dumps(schema, ensure_ascii=False).encode())
    except (TypeError, ValueError, UnicodeError) as error:
        raise GrammarError(f"the schema cannot be written as JSON ({error})", where) from None
    if size > MAX_SCHEMA_BYTES:
        raise GrammarError(
            f"the schema has {size} bytes, the limit is {MAX_SCHEMA_BYTES}; leave out descriptions or split it", where
        )
    return schema


def _check_values(schema: object, where: str) -> None:
    level, depth = [schema], 0
    while level:
        if depth > MAX_SCHEMA_DEPTH:
            raise GrammarError(f"the schema is nested more than {MAX_SCHEMA_DEPTH} levels deep; use $ref", where)
        below: list[object] = []
        for item in level:
            if isinstance(item, Mapping):
                ref = item.get("$ref")
                if isinstance(ref, str) and not ref.startswith("#"):
                    raise GrammarError(f"$ref {show(ref)} points to another document; write it into $defs", where)
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
        level, depth = below, depth + 1

"""Reads a schema for notations other than JSON: its local references, and the types that it admits."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.schema import pointed
from zinc_rt.utils.checks import show

_NAMES: Final = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_MAX_REFS: Final = 64


def resolve(schema: Any, root: Mapping[str, Any], where: str = "") -> Mapping[str, Any]:
    """The schema behind `$ref`s of its own document; true is {}. Raises `GrammarError`."""
    for _ in range(_MAX_REFS):
        if schema is True:
            return {}
        if not isinstance(schema, Mapping):
            raise GrammarError(f"a schema is {show(schema)}; it must be an object", where)
        if "$ref" not in schema:
            return schema
        ref = str(schema["$ref"])
        schema = pointed(ref, root)
        if schema is None:
            raise GrammarError(f"$ref {show(ref)} points to nothing", where)
    raise GrammarError("its $refs go round in a circle", where)


def types_of(schema: Any, root: Mapping[str, Any], where: str = "", depth: int = 0) -> frozenset[str] | None:
    """The types that values of a schema have; None for any, or where it cannot be told."""
    schema = resolve(schema, root, where)
    if "type" in schema:
        named = schema["type"]
        return frozenset([named] if isinstance(named, str) else map(str, named))
    if "const" in schema or "enum" in schema:
        values = [schema["const"]] if "const" in schema else schema["enum"]
        return frozenset(type_name(value) for value in values)
    for key in ("anyOf", "oneOf"):
        if key in schema and depth < _MAX_REFS:
            found = [types_of(option, root, where, depth + 1) for option in schema[key]]
            return None if None in found else frozenset().union(*(names for names in found if names is not None))
    return None


def type_name(value: Any) -> str:
    """A JSON value's type, as schemas name it."""
    return _NAMES.get(type(value), "null")

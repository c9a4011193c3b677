"""Checks of JSON schemas before a grammar is made of them, each in one pass over the schema."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from typing import Any, Final

from zinc_rt.grammar.errors import GrammarError
from zinc_rt.utils.checks import show

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_SCHEMA_DEPTH: Final = 64
"""Lists and objects inside each other."""
MAX_NAMED: Final[Mapping[str, int]] = {"properties": 1000, "enum": 1000, "patternProperties": 32}
"""Names or values that a keyword may have in a whole schema. Compiling takes more than half a second beyond that."""

Schema = Mapping[str, Any] | bool

_WHOLE: Final = frozenset(("allOf", "oneOf", "not", "if", "dependentSchemas", "unevaluatedProperties", "$dynamicRef"))
"""Keywords under which a schema that admits less may make the whole admit more, or nothing."""
_BESIDE: Final = frozenset(("anyOf", "$ref", "patternProperties", "minProperties"))
"""Keywords beside `properties` that may ask for properties which are not named there."""
_NAMED: Final = frozenset(("properties", "patternProperties", "dependentSchemas", "$defs", "definitions"))
"""Keywords whose values are schemas by name."""
_LITERAL: Final = frozenset(("enum", "const", "default", "examples", "required"))
"""Keywords whose values are no schemas."""
_SHAPES: Final[Mapping[str, tuple[str, Callable[[object], bool]]]] = {
    "type": ("a type's name, or a list of them", lambda value: isinstance(value, str) or _is_list_of(value, str)),
    "required": ("a list of names", lambda value: _is_list_of(value, str)),
    "enum": ("a list of values", lambda value: _is_list_of(value, object)),
    "$ref": ("a text", lambda value: isinstance(value, str)),
    **dict.fromkeys(
        ("anyOf", "oneOf", "allOf"), ("a list of schemas", lambda value: _is_list_of(value, Mapping | bool))
    ),
    **dict.fromkeys(_NAMED, ("an object of schemas", lambda value: isinstance(value, Mapping))),
}
"""What the values of keywords must be that are read here and in `dialects`."""


def check_schema(schema: object, where: str = "") -> Schema:
    """`schema`, which is a JSON schema of a bearable size, as far as one sees without knowing all keywords.

    Raises `GrammarError`: neither an object nor a boolean, not of JSON's values, deeper than 64 levels, larger than 64
    KiB as JSON text, with a `$ref` to another document or back to itself, with a keyword whose value is of the wrong
    kind, or with more than `MAX_NAMED` of one.
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
    parts, counts = list(_parts(schema)), Counter[str]()
    for part in parts:
        for key in _SHAPES.keys() & part.keys():
            wanted, fits = _SHAPES[key]
            if not fits(part[key]):
                raise GrammarError(f"{key} is {show(part[key])}; it must be {wanted}", where)
            if key in MAX_NAMED:
                counts[key] += len(part[key])
    for key, n in counts.items():
        if n > MAX_NAMED[key]:
            raise GrammarError(f"{key} has {n} entries in all, the limit is {MAX_NAMED[key]}; split the schema", where)
    if isinstance(schema, Mapping):
        _check_circles(schema, parts, where)
    return schema


def _check_circles(root: Mapping[str, Any], parts: Sequence[Mapping[str, Any]], where: str) -> None:
    """Refuse a schema that is described by itself, with no object or list between."""
    graph: dict[int, list[int]] = {}
    for part in parts:
        same = [one for one in part.get("allOf", ()) if isinstance(one, Mapping)]
        if "$ref" in part and (target := pointed(part["$ref"], root)) is not None:
            same.append(target)
        graph[id(part)] = [id(one) for one in same]
    try:
        TopologicalSorter(graph).prepare()
    except CycleError:
        raise GrammarError("a $ref leads back to itself with no object or list between; remove it", where) from None


def pointed(ref: str, root: Mapping[str, Any]) -> Any:
    """What a `$ref` as `#/$defs/name` points to in its document; None for nothing."""
    found: Any = root
    if ref != "#" and not ref.startswith("#/"):
        return None
    for part in ref.split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if not isinstance(found, Mapping) or key not in found:
            return None
        found = found[key]
    return found


def _is_list_of(value: object, kind: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, kind) for item in value)


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


def closed(schema: Schema) -> Schema:
    """The schema with `additionalProperties` false in each object that names properties and says nothing of others.

    Every text that it admits is one that `schema` admits; a model that may add properties at will does so without end.
    A schema stays as it is where an object's properties are named in several places (`allOf`, or `properties` beside
    `anyOf`, and the like).
    """
    if isinstance(schema, bool) or not all(map(_is_plain, _parts(schema))):
        return schema
    made: Schema = _closed(schema)
    return made


def _is_plain(part: Mapping[str, Any]) -> bool:
    """Whether an object's properties are those that `properties` names, if that is there."""
    if not _WHOLE.isdisjoint(part):
        return False
    named, required = part.get("properties"), part.get("required", ())
    if not isinstance(named, Mapping):
        return True
    return _BESIDE.isdisjoint(part) and isinstance(required, list | tuple) and all(name in named for name in required)


def _parts(schema: Any) -> Iterator[Mapping[str, Any]]:
    """All schemas in a schema, itself first."""
    if isinstance(schema, Mapping):
        yield schema
        for key, value in schema.items():
            if key not in _LITERAL:
                inner = value.values() if key in _NAMED and isinstance(value, Mapping) else (value,)
                for one in inner:
                    yield from _parts(one)
    elif isinstance(schema, list | tuple):
        for one in schema:
            yield from _parts(one)


def _closed(schema: Any) -> Any:
    if isinstance(schema, list | tuple):
        return [_closed(one) for one in schema]
    if not isinstance(schema, Mapping):
        return schema
    made: dict[str, Any] = {}
    for key, value in schema.items():
        if key in _NAMED and isinstance(value, Mapping):
            made[key] = {name: _closed(one) for name, one in value.items()}
        else:
            made[key] = value if key in _LITERAL else _closed(value)
    if "properties" in made:
        made.setdefault("additionalProperties", False)
    return made

"""Types and functions in the place of JSON: a class as `response_format`, functions and classes as `tools`.

pydantic's models are known by their methods; dataclasses, TypedDicts, msgspec's structs and the types of fields and
parameters go through msgspec.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final, get_type_hints

import msgspec

from zinc_rt.dialects.tools import RequestError
from zinc_rt.errors import ZincError
from zinc_rt.utils.checks import show

_SECTION: Final = re.compile(r"^(Args|Arguments|Returns|Yields|Raises|Examples?|Notes?):\s*$", re.MULTILINE)
_ARGUMENT: Final = re.compile(r"^\s*\*{0,2}(\w+)\s*(?:\([^)]*\))?:\s+(.*)$")


class AnswerNotParsed(ZincError):
    """An answer is no value of the type that was asked for: it was cut off, or a check of the type refuses it."""


def is_type(form: object) -> bool:
    """Whether a `response_format` is a type, and no form in OpenAI's words."""
    return form is not None and not isinstance(form, Mapping | str | bytes | int | float | list | tuple)


def response_form(form: object) -> object:
    """A `response_format` in OpenAI's words; what is none of the types is returned as it is. Raises `RequestError`."""
    if not is_type(form):
        return form
    name = getattr(form, "__name__", "answer")
    return {"type": "json_schema", "json_schema": {"name": name, "schema": _schema("response_format", form)}}


def parse(form: Any, text: str) -> Any:
    """The value of a type that a JSON text describes. Raises `AnswerNotParsed`."""
    try:
        if hasattr(form, "model_validate_json"):
            return form.model_validate_json(text)
        return msgspec.json.decode(text, type=form, dec_hook=_foreign_value)
    except ValueError as error:  # of pydantic and msgspec alike
        why = " ".join(str(error).split())
        raise AnswerNotParsed(f"the answer {show(text)} is no {getattr(form, '__name__', form)}: {why}") from error


def _foreign_value(kind: Any, value: object) -> object:
    """A model of pydantic inside another type."""
    return kind.model_validate(value)


def tool_list(tools: object) -> object:
    """`tools` with each function and class in OpenAI's words; the rest is returned as it is. Raises `RequestError`."""
    if not isinstance(tools, list | tuple):
        return tools
    return [_tool(item, f"tools[{at}]") if callable(item) else item for at, item in enumerate(tools)]


def _tool(item: Any, where: str) -> dict[str, Any]:
    name = getattr(item, "__name__", None)
    if name is None:
        raise RequestError(where, f"is {show(item)}, which has no name; give a function")
    described, arguments = _described(item)
    parameters = _schema(where, item) if isinstance(item, type) else _parameters(item, arguments, where)
    return {"type": "function", "function": {"name": name, "description": described, "parameters": parameters}}


def _parameters(function: Callable[..., Any], described: Mapping[str, str], where: str) -> dict[str, Any]:
    """The JSON schema of a function's arguments."""
    try:
        hints, signature = get_type_hints(function, include_extras=True), inspect.signature(function)
    except (NameError, TypeError, ValueError) as error:
        raise RequestError(where, f"is {show(function)}, whose parameters cannot be read: {error}") from error
    fields: list[Any] = []
    for name, parameter in signature.parameters.items():
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise RequestError(where, f"has the parameter {parameter}; a call names each argument")
        kind = hints.get(name, Any)
        if name in described:
            kind = Annotated[kind, msgspec.Meta(description=described[name])]
        default = parameter.default
        if default is parameter.empty:
            fields.append((name, kind))
        elif isinstance(default, str | int | float | bool | None):
            fields.append((name, kind, default))
        else:  # msgspec would copy it, and may have no JSON for it
            fields.append((name, kind, msgspec.field(default_factory=lambda: None)))
    made = _schema(where, msgspec.defstruct(function.__name__, fields, kw_only=True))
    return {key: value for key, value in made.items() if key != "title"}


def _schema(where: str, kind: Any) -> dict[str, Any]:
    """The JSON schema of a type. Objects have no more members than the type says, unless it allows others."""
    more: dict[str, Any] = {}

    def foreign(kind: Any) -> dict[str, Any]:
        """The schema of a model of pydantic inside another type."""
        if not hasattr(kind, "model_json_schema"):
            raise NotImplementedError
        made: dict[str, Any] = kind.model_json_schema()
        more.update(made.pop("$defs", {}))
        return made

    try:
        made = foreign(kind) if hasattr(kind, "model_json_schema") else msgspec.json.schema(kind, schema_hook=foreign)
    except Exception as error:  # pydantic's have several roots
        why = " ".join(str(error).split())
        raise RequestError(where, f"is {show(kind)}, which has no JSON schema: {why}") from error
    definitions = {**made.pop("$defs", {}), **more}
    if isinstance(at := made.get("$ref"), str):  # a tool's schema is an object's itself
        made = definitions.pop(at.rpartition("/")[2])
        if f'"{at}"'.encode() in msgspec.json.encode([made, definitions]):  # it has values of its own type
            definitions[at.rpartition("/")[2]] = made
    whole: dict[str, Any] = _closed({**made, "$defs": definitions} if definitions else made)
    return whole


def _closed(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    found = {key: value if key in ("enum", "const", "default") else _closed(value) for key, value in schema.items()}
    if schema.get("type") == "object" and isinstance(schema.get("properties"), dict):
        found.setdefault("additionalProperties", False)
    return found


def _described(item: object) -> tuple[str, dict[str, str]]:
    """What a docstring says of a function, and of its arguments in a section "Args:"."""
    own = vars(item).get("__doc__") if isinstance(item, type) else getattr(item, "__doc__", None)
    text = inspect.cleandoc(own or "")
    parts = _SECTION.split(text)  # text, name, text, name, text, ...
    arguments: dict[str, str] = {}
    for section, body in zip(parts[1::2], parts[2::2], strict=True):
        last = ""
        for line in body.splitlines() if section.startswith("Arg") else ():
            if match := _ARGUMENT.match(line):
                last, arguments[match[1]] = match[1], match[2]
            elif last and line.strip():
                arguments[last] += f" {line.strip()}"
    return parts[0].strip(), arguments

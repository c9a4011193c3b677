"""Tools, the choice among them, and the form of an answer, as a request in OpenAI's form names them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from zinc_rt.errors import UsageError
from zinc_rt.utils.checks import show

MAX_TOOLS: Final = 128
_NAME: Final = re.compile(r"[A-Za-z0-9_.:/-]{1,64}")


class RequestError(UsageError):
    """A field of a chat request that cannot be used. param: its path, as `messages[2].content[0]`.

    unsupported: whether the value is well-formed and means something that is not done here, as an image does.
    """

    def __init__(self, param: str, message: str, *, unsupported: bool = False) -> None:
        super().__init__(f"{param} {message}")
        self.param = param
        self.unsupported = unsupported


@dataclass(frozen=True)
class Tool:
    """A function that the model may call. parameters: a JSON schema, of an object. where: its place in the request.

    strict: keywords of the schema that cannot be obeyed are refused; else they are ignored.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    where: str = ""
    strict: bool = False


class ChoiceMode(StrEnum):
    """Whether tools are called."""

    none = "none"
    auto = "auto"
    required = "required"


@dataclass(frozen=True)
class ToolChoice:
    """Whether tools are called, and which ones may be. names: empty for all; one name and `required`: that one."""

    mode: ChoiceMode = ChoiceMode.auto
    names: tuple[str, ...] = ()


class FormatKind(StrEnum):
    """Forms that an answer's content can have to have."""

    text = "text"
    json_object = "json_object"
    json_schema = "json_schema"
    regex = "regex"
    choice = "choice"
    lark = "lark"


@dataclass(frozen=True)
class ResponseFormat:
    """The form of an answer's content. value: the schema, the pattern, the texts to choose from or the Lark grammar."""

    kind: FormatKind = FormatKind.text
    value: Any = None
    where: str = "response_format"


def parse_tools(tools: object) -> tuple[Tool, ...]:
    """Tools of a request: `[{"type": "function", "function": {name, description, parameters, strict}}]`, or None.

    Raises `RequestError` for another form, another type, names that occur twice, and more than 128.
    """
    if tools is None:
        return ()
    if not isinstance(tools, Sequence) or isinstance(tools, str | bytes):
        raise RequestError("tools", f"is {show(tools)}; give a list of functions")
    if len(tools) > MAX_TOOLS:
        raise RequestError("tools", f"has {len(tools)} items, the limit is {MAX_TOOLS}")
    found: dict[str, Tool] = {}
    for at, item in enumerate(tools):
        tool = _tool(item, f"tools[{at}]")
        if tool.name in found:
            raise RequestError(f"tools[{at}].function.name", f"is {show(tool.name)} a second time; give each its own")
        found[tool.name] = tool
    return tuple(found.values())


def _tool(item: object, where: str) -> Tool:
    if not isinstance(item, Mapping):
        raise RequestError(where, f"is {show(item)}; it must be an object with type and function")
    if item.get("type") != "function":
        raise RequestError(
            f"{where}.type", f"is {show(item.get('type'))}; only function is supported", unsupported=True
        )
    function = item.get("function")
    where += ".function"
    if not isinstance(function, Mapping):
        raise RequestError(where, f"is {show(function)}; it must be an object with a name")
    name, described = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise RequestError(f"{where}.name", f"is {show(name)}; 1 to 64 letters, digits and . _ - / : are allowed")
    if not isinstance(described, str | None):
        raise RequestError(f"{where}.description", f"is {show(described)}; it must be a text")
    strict = function.get("strict")
    if not isinstance(strict, bool | None):
        raise RequestError(f"{where}.strict", f"is {show(strict)}; it must be true or false")
    schema = _parameters(function, f"{where}.parameters")
    return Tool(name, described or "", schema, f"{where}.parameters", bool(strict))


def _parameters(function: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    schema = function.get("parameters")
    if schema is None:
        return {"type": "object", "properties": {}, "additionalProperties": False}
    if not isinstance(schema, Mapping):
        raise RequestError(where, f"is {show(schema)}; it must be a JSON schema, an object")
    if schema.get("type", "object") != "object":
        raise RequestError(f"{where}.type", f"is {show(schema['type'])}; arguments are always an object")
    properties, required = schema.get("properties", {}), schema.get("required", ())
    if not isinstance(properties, Mapping):
        raise RequestError(f"{where}.properties", f"is {show(properties)}; it must be an object")
    if not isinstance(required, list | tuple) or not all(isinstance(key, str) for key in required):
        raise RequestError(f"{where}.required", f"is {show(required)}; it must be a list of names")
    return {"type": "object", **schema}


def parse_tool_choice(choice: object, tools: Sequence[Tool]) -> ToolChoice:
    """ "none", "auto", "required", `{"type": "function", "function": {"name": ...}}` or
    `{"type": "allowed_tools", "allowed_tools": {"mode": ..., "tools": [...]}}`.

    None is "auto". Raises `RequestError` for others, for a tool that there is not, and for a call that must be made
    without tools.
    """
    names = {tool.name for tool in tools}
    if choice is None:
        return ToolChoice()
    if isinstance(choice, str):
        if choice not in ChoiceMode.__members__:
            raise RequestError("tool_choice", f"is {show(choice)}; it must be none, auto, required or name a function")
        if choice == ChoiceMode.required and not names:
            raise RequestError("tool_choice", "is required, but there are no tools")
        return ToolChoice(ChoiceMode(choice))
    kind = choice.get("type") if isinstance(choice, Mapping) else None
    if kind == "function" and isinstance(choice, Mapping):
        return ToolChoice(ChoiceMode.required, (_named(choice, "tool_choice", names),))
    allowed = choice.get("allowed_tools") if kind == "allowed_tools" and isinstance(choice, Mapping) else None
    if not isinstance(allowed, Mapping) or not isinstance(allowed.get("tools"), list):
        raise RequestError("tool_choice", f"is {show(choice)}; it must be none, auto, required or name a function")
    where = "tool_choice.allowed_tools"
    if allowed.get("mode") not in ("auto", "required"):
        raise RequestError(f"{where}.mode", f"is {show(allowed.get('mode'))}; it must be auto or required")
    chosen = tuple(_named(item, f"{where}.tools[{at}]", names) for at, item in enumerate(allowed["tools"]))
    return ToolChoice(ChoiceMode(allowed["mode"]), chosen) if chosen else ToolChoice(ChoiceMode.none)


def _named(item: object, where: str, names: set[str]) -> str:
    function = item.get("function") if isinstance(item, Mapping) else None
    name = function.get("name") if isinstance(function, Mapping) else None
    if not isinstance(name, str) or name not in names:
        there = f"there are {', '.join(sorted(names))}" if names else "there are no tools"
        raise RequestError(f"{where}.function.name", f"is {show(name)}; {there}")
    return name


def parse_response_format(value: object) -> ResponseFormat:
    """`{"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}`; and beyond OpenAI's forms
    `{"type": "regex", "regex": ...}`, `{"type": "choice", "choice": [...]}`, `{"type": "lark", "lark": ...}`.

    Raises `RequestError`.
    """
    if value is None:
        return ResponseFormat()
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(value, Mapping) or not isinstance(kind, str) or kind not in FormatKind.__members__:
        known = ", ".join(FormatKind)
        raise RequestError("response_format", f"is {show(value)}; it must be an object whose type is one of {known}")
    if kind in ("text", "json_object"):
        return ResponseFormat(FormatKind(kind))
    where, inner = f"response_format.{kind}", value.get(kind)
    if kind == "json_schema":
        if not isinstance(inner, Mapping) or "schema" not in inner:
            raise RequestError(where, f"is {show(inner)}; it must be an object with name and schema")
        where, inner = f"{where}.schema", inner["schema"]
    if inner is None:
        raise RequestError(where, "is missing")
    return ResponseFormat(FormatKind(kind), inner, where)

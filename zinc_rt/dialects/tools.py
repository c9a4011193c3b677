"""Tools, the choice among them, and the form of an answer, as a request in OpenAI's form names them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from zinc_rt.errors import UsageError

MAX_TOOLS: Final = 128


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
    """A function that the model may call. parameters: a JSON schema, of an object. where: its place in the request."""

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    where: str = ""


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


def parse_tools(tools: Sequence[Mapping[str, Any]] | None) -> tuple[Tool, ...]:
    """Tools of a request: `[{"type": "function", "function": {"name", "description", "parameters"}}]`.

    Raises `RequestError` for another form, another type, names that occur twice, and more than 128.
    """
    raise NotImplementedError


def parse_tool_choice(choice: str | Mapping[str, Any] | None, tools: Sequence[Tool]) -> ToolChoice:
    """"none", "auto", "required", `{"type": "function", "function": {"name": ...}}` or `{"type": "allowed_tools", ...}`.

    None is "auto" where there are tools. Raises `RequestError` for others and for a tool that there is not.
    """
    raise NotImplementedError


def parse_response_format(value: Mapping[str, Any] | None) -> ResponseFormat:
    """`{"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}`; and beyond OpenAI's forms
    `{"type": "regex", "regex": ...}`, `{"type": "choice", "choice": [...]}`, `{"type": "lark", "lark": ...}`.

    Raises `RequestError`.
    """
    raise NotImplementedError

"""Conversations in OpenAI's form, rendered by a model's chat template."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import RequestError, Tool
from zinc_rt.text.errors import ChatTemplateError
from zinc_rt.utils.checks import show

if TYPE_CHECKING:
    from zinc_rt.text import ChatTemplate

ROLES: Final = ("system", "developer", "user", "assistant", "tool")
MarkPart = Callable[[Mapping[str, Any], str], str]
"""Gives the text that stands for a content part in a template's text; it gets the part and its place."""
_PICTURE: Final = "a picture"
_MEDIA: Final = {
    "image_url": _PICTURE,
    "image": _PICTURE,
    "input_image": _PICTURE,
    "input_audio": "audio",
    "audio": "audio",
    "video_url": "a video",
    "file": "a file",
    "input_file": "a file",
}
_TEXTS: Final = {"text": "text", "input_text": "text", "output_text": "text", "refusal": "refusal"}
_MARK: Final = "zinc-probe"
_END: Final = "zinc-end-of-text"
_OWN: Final = frozenset({"messages", "tools", "add_generation_prompt"})
"""Variables of a template that are no one else's."""


@dataclass(frozen=True)
class Ending:
    """How a prompt ends.

    continued: in the middle of the last message, which is the assistant's; None: where it is a text of the assistant
    and no generation prompt was asked for. generation_prompt: with what begins the assistant's next message, or behind
    the last message; None: as `continued` leaves it.
    """

    continued: bool | None = None
    generation_prompt: bool | None = None

    def continues(self, last: Mapping[str, Any]) -> bool:
        """Whether this message, a checked one, is continued. Raises `RequestError`."""
        can = last["role"] == "assistant" and bool(last["content"]) and "tool_calls" not in last
        if self.continued is None:
            return can and self.generation_prompt is None
        if self.continued and not can:
            raise RequestError("continue_final_message", "is true; the last message must be a text of the assistant")
        if self.continued and self.generation_prompt:
            raise RequestError("add_generation_prompt", "is true, and so is continue_final_message; set one of them")
        return self.continued


class ChatRenderer:
    """A model's template, and the kinds of messages that it takes. One a model; not for several threads at once."""

    def __init__(self, template: ChatTemplate, dialect: Dialect) -> None:
        self.template = template
        self.dialect = dialect
        self._source = "\n".join(template.source(name) for name in template.names)
        self._as_text: bool | None = None  # whether the template wants arguments as a JSON text; None: not tried yet

    def render_messages(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Tool] = (),
        ending: Ending | None = None,
        mark: MarkPart | None = None,
        /,
        **variables: Any,
    ) -> tuple[str, ThinkingState]:
        """The prompt of a conversation, to be encoded with `add_special=False`, and where it leaves the model.

        messages: roles system, developer, user, assistant and tool; content a string, None or text parts; of the
        assistant `tool_calls` with arguments as JSON strings, and `reasoning_content`; of a tool `tool_call_id`.
        mark: gives the text that stands for a picture's part; None where pictures are refused. variables: of the
        template, as `enable_thinking=False`.

        Raises `RequestError`, which names the message's index and the field, for another form, for audio and files, and
        for pictures without `mark`; `ChatTemplateError` for what the template refuses.
        """
        if taken := _OWN & variables.keys():
            raise RequestError("variables", f"have {min(taken)!r}, which the request sets; leave it out")
        checked = check_messages(messages, developer="developer" in self._source, mark=mark)
        if any("tool_calls" in message for message in checked) and self._wants_text():
            checked = [_with_texts(message) for message in checked]
        if "end_turn" in self._source:  # Muse Glimmer's, which leaves out the text of a message with calls
            checked = [part for message in checked for part in _text_first(message)]
        given = [_as_openai(tool) for tool in tools] if tools else None
        if given is not None and "xml_tools" in self._source:  # SmolLM3's name
            variables.setdefault("xml_tools", given)
        ending = ending or Ending()
        if ending.continues(checked[-1]):
            checked[-1] = {**checked[-1], "content": checked[-1]["content"] + _END}
            text = self._rendered(checked, tools=given, add_generation_prompt=False, **variables)
            if (end := text.rfind(_END)) < 0:
                raise ChatTemplateError("the chat template does not write the last message, so nothing continues it")
            return text[:end], ThinkingState.continued
        add = ending.generation_prompt is not False
        text = self._rendered(checked, tools=given, add_generation_prompt=add, **variables)
        return text, self.dialect.thinking(text)

    def _rendered(self, messages: list[dict[str, Any]], **variables: Any) -> str:
        """The text; of a conversation in `plainer` form where the template refuses it as it is."""
        try:
            return self.template.render(messages, **variables)
        except ChatTemplateError:
            if (plain := plainer(messages)) == messages:
                raise
            try:
                return self.template.render(plain, **variables)
            except ChatTemplateError:
                pass
            raise

    def _wants_text(self) -> bool:
        """Whether the template writes calls only where arguments are a text. Tried once, with a conversation."""
        if self._as_text is None:
            self._as_text = not self._shows({_MARK: _MARK}) and self._shows(json.dumps({_MARK: _MARK}))
        return self._as_text

    def _shows(self, arguments: object) -> bool:
        call = {"id": "call00000", "type": "function", "function": {"name": "probe", "arguments": arguments}}
        messages: list[dict[str, Any]] = [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "", "tool_calls": [call]},
            {"role": "tool", "content": "b", "tool_call_id": "call00000", "name": "probe"},
        ]
        function = {"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}}
        tools = [{"type": "function", "function": function}]
        try:
            text = self.template.render(messages, tools=tools)
        except ChatTemplateError:
            return False
        # A mapping that is written as Python writes it, or a text in quotes, is not what the model was trained on.
        return _MARK in text and f"'{_MARK}'" not in text and '\\"' not in text


def plainer(messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """A conversation as most templates take it: one message of the system, which is the first; later ones are the
    user's; messages of the user that follow each other are one.
    """
    instructing = ("system", "developer")
    made: list[dict[str, Any]] = []
    for message in messages:
        role = message["role"]
        if role in instructing and made and (len(made) > 1 or made[0]["role"] not in instructing):
            role = "user"
        if made and made[-1]["role"] == role and role in (*instructing, "user"):
            made[-1]["content"] = f"{made[-1]['content']}\n\n{message['content']}"
        else:
            made.append({**message, "role": role})
    return made


def check_messages(messages: object, developer: bool = False, mark: MarkPart | None = None) -> list[dict[str, Any]]:
    """Messages as chat templates take them: content is text, arguments are mappings, a tool's answer has its name.

    developer: whether the template knows this role; else such a message becomes one of the system. mark: gives the text
    that stands for a picture's part, by the part and its place; None where pictures are refused.
    Raises `RequestError`.
    """
    if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
        raise RequestError("messages", f"is {show(messages)}; give a list of messages")
    if not messages:
        raise RequestError("messages", "is empty; give at least one message")
    names: dict[str, str] = {}  # of functions, by the ids of their calls
    return [_message(message, f"messages[{at}]", names, developer, mark) for at, message in enumerate(messages)]


def _message(
    message: object, where: str, names: dict[str, str], developer: bool, mark: MarkPart | None
) -> dict[str, Any]:
    if not isinstance(message, Mapping):
        raise RequestError(where, f"is {show(message)}; it must be an object with role and content")
    role = message.get("role")
    if role not in ROLES:
        raise RequestError(f"{where}.role", f"is {show(role)}; it must be one of {', '.join(ROLES)}")
    if message.get("audio") is not None:
        raise RequestError(f"{where}.audio", "is audio, which no model here takes; give text", unsupported=True)
    calls = message.get("tool_calls") if role == "assistant" else None
    out: dict[str, Any] = {"role": "system" if role == "developer" and not developer else role}
    out["content"] = _content(message.get("content"), f"{where}.content", optional=role == "assistant", mark=mark)
    if isinstance(name := message.get("name"), str):
        out["name"] = name
    if role == "assistant":
        _add_reasoning(message, out, where)
        if calls:
            out["tool_calls"] = _calls(calls, f"{where}.tool_calls", names)
    elif role == "tool":
        call = message.get("tool_call_id")
        if not isinstance(call, str):
            raise RequestError(f"{where}.tool_call_id", f"is {show(call)}; it must be the id of a call")
        out["tool_call_id"] = call
        out.setdefault("name", names.get(call, ""))
    return out


def _add_reasoning(message: Mapping[str, Any], out: dict[str, Any], where: str) -> None:
    """Reasoning under the names that templates use."""
    for key in ("reasoning_content", "reasoning"):
        text = message.get(key)
        if text is None:
            continue
        if not isinstance(text, str):
            raise RequestError(f"{where}.{key}", f"is {show(text)}; it must be a text")
        if text:
            out["reasoning_content"] = out["thinking"] = text
            return


def _content(content: object, where: str, optional: bool, mark: MarkPart | None) -> str:
    if isinstance(content, str):
        return content
    if content is None and optional:
        return ""
    if not isinstance(content, Sequence) or isinstance(content, bytes):
        raise RequestError(where, f"is {show(content)}; it must be a text or a list of text parts")
    parts = []
    for at, part in enumerate(content):
        place = f"{where}[{at}]"
        kind = part.get("type") if isinstance(part, Mapping) else None
        if not isinstance(kind, str):
            raise RequestError(f"{place}.type", f"is {show(kind)}; it must be text")
        if mark is not None and _MEDIA.get(kind) == _PICTURE:
            parts.append(mark(part, place))
            continue
        if kind in _MEDIA:
            takes = "this model does not take; load one that reads pictures with its projector (--mmproj FILE)"
            takes = takes if _MEDIA[kind] == _PICTURE else "no model here takes; give text"
            raise RequestError(place, f"is {_MEDIA[kind]} ({kind}), which {takes}", unsupported=True)
        if not isinstance(part, Mapping) or kind not in _TEXTS:
            raise RequestError(f"{place}.type", f"is {show(kind)}; it must be text")
        text = part.get(_TEXTS[kind])
        if not isinstance(text, str):
            raise RequestError(f"{place}.{_TEXTS[kind]}", f"is {show(text)}; it must be a text")
        parts.append(text)
    return "".join(parts)


def _calls(calls: object, where: str, names: dict[str, str]) -> list[dict[str, Any]]:
    if not isinstance(calls, Sequence) or isinstance(calls, str | bytes):
        raise RequestError(where, f"is {show(calls)}; it must be a list of calls")
    found = []
    for at, call in enumerate(calls):
        place = f"{where}[{at}]"
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(call, Mapping) or not isinstance(function, Mapping):
            raise RequestError(
                f"{place}.function", f"is {show(function)}; it must be an object with name and arguments"
            )
        id_, name = call.get("id"), function.get("name")
        if not isinstance(id_, str):
            raise RequestError(f"{place}.id", f"is {show(id_)}; it must be a text")
        if not isinstance(name, str) or not name:
            raise RequestError(f"{place}.function.name", f"is {show(name)}; it must be a function's name")
        arguments = _arguments(function.get("arguments", "{}"), f"{place}.function.arguments")
        names[id_] = name
        found.append({"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}})
    return found


def _arguments(arguments: object, where: str) -> Mapping[str, Any]:
    value = arguments
    if isinstance(arguments, str):
        try:
            value = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            raise RequestError(where, f"is {show(arguments)}; it must be a JSON object as a text") from None
    if not isinstance(value, Mapping):
        raise RequestError(where, f"is {show(arguments)}; it must be a JSON object as a text")
    return value


def _with_texts(message: dict[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as JSON texts."""
    if "tool_calls" not in message:
        return message
    calls = [
        {**call, "function": {**call["function"], "arguments": json.dumps(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}


def _text_first(message: dict[str, Any]) -> list[dict[str, Any]]:
    """A message as one of its text and one of its calls."""
    if not message["content"] or "tool_calls" not in message:
        return [message]
    text = {key: value for key, value in message.items() if key != "tool_calls"}
    return [{**text, "end_turn": False}, {"role": message["role"], "content": "", "tool_calls": message["tool_calls"]}]


def _as_openai(tool: Tool) -> dict[str, Any]:
    function = {"name": tool.name, "description": tool.description, "parameters": dict(tool.parameters)}
    return {"type": "function", "function": function}

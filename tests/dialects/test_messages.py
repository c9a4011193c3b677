"""Conversations in OpenAI's form, rendered by templates of several families."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest

from tests.dialects.models import BY_NAME, TOOLS
from tests.text.templates import CHATML, LLAMA3, MUSE, QWEN3
from zinc_rt.dialects.deltas import ParsedAnswer
from zinc_rt.dialects.messages import ChatRenderer, check_messages
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import RequestError
from zinc_rt.text import ChatTemplate, ChatTemplateError

# A template that joins arguments to text, which fails for mappings, as some in files do.
TEXTUAL = """\
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}
{{- '<tool_call>' + call.function.name + call.function.arguments }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
# One that writes the role of developers and thoughts, and knows results by the function's name.
NAMED = """\
{%- for message in messages %}[{{ message.role }}{{ ' ' ~ message.name if message.name is defined }}]
{%- if message.thinking is defined %}({{ message.thinking }}){% endif %}{{ message.content }}{% endfor %}
{#- developer #}"""
# One that wants one message of the system at most, first, and then user and assistant in turns.
STRICT = """\
{%- set n = 1 if messages[0].role == 'system' else 0 %}
{%- if n %}[{{ messages[0].content }}]{% endif %}
{%- for message in messages[n:] %}
{%- if message.role != ('user', 'assistant')[loop.index0 % 2] %}{{ raise_exception('roles must take turns') }}
{%- endif %}
{{- message.role ~ ':' ~ message.content ~ ';' }}{% endfor %}"""

CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "weather", "arguments": '{"city": "Zürich", "days": [1, 2]}'},
}
TALK: list[dict[str, Any]] = [
    {"role": "system", "content": [{"type": "text", "text": "Be "}, {"type": "text", "text": "brief."}]},
    {"role": "user", "content": "Weather?"},
    {"role": "assistant", "content": None, "tool_calls": [CALL], "reasoning_content": "I ask."},
    {"role": "tool", "tool_call_id": "c1", "content": "rain"},
    {"role": "assistant", "content": "Rain."},
    {"role": "user", "content": "Thanks."},
]


@pytest.fixture(scope="module")
def templates() -> Iterator[dict[str, ChatTemplate]]:
    sources = {"qwen3": QWEN3, "textual": TEXTUAL, "named": NAMED, "llama3": LLAMA3, "chatml": CHATML, "strict": STRICT}
    sources["muse"] = MUSE
    made = {
        name: ChatTemplate({"default": text}, {"bos_token": "<s>", "eos_token": "</s>"}, None)
        for name, text in sources.items()
    }
    yield made
    for template in made.values():
        template.close()


def render(template: ChatTemplate, messages: Any, dialect: Dialect = BY_NAME["hermes"], **variables: Any) -> str:
    return ChatRenderer(template, dialect).render_messages(messages, TOOLS, **variables)[0]


def test_a_whole_conversation(templates: dict[str, ChatTemplate]) -> None:
    text = render(templates["qwen3"], TALK)
    assert text.startswith(
        '<|im_start|>system\nBe brief.\n\n# Tools\n\n<tools>\n{"type": "function", "function": {"name": "weather"'
    )
    assert (
        '<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich", "days": [1, 2]}}\n</tool_call><|im_end|>'
        in text
    )
    assert "<|im_start|>user\n<tool_response>\nrain\n</tool_response><|im_end|>" in text
    assert text.endswith("<|im_start|>user\nThanks.<|im_end|>\n<|im_start|>assistant\n")


def test_arguments_are_a_text_where_the_template_wants_one(templates: dict[str, ChatTemplate]) -> None:
    renderer = ChatRenderer(templates["textual"], BY_NAME["hermes"])
    for _ in range(2):
        text, _ = renderer.render_messages(TALK)
        found = text.partition("<tool_call>weather")[2].partition("<|im_end|>")[0]
        assert json.loads(found) == {"city": "Zürich", "days": [1, 2]}


def test_names_roles_and_thoughts(templates: dict[str, ChatTemplate]) -> None:
    messages = [{"role": "developer", "content": "Be brief."}, *TALK[1:4]]
    assert render(templates["named"], messages) == (
        "[developer]Be brief.[user]Weather?[assistant](I ask.)[tool weather]rain"
    )
    assert render(templates["chatml"], messages[:2]).startswith("<|im_start|>system\nBe brief.")


def test_variables_and_where_the_prompt_leaves_the_model(templates: dict[str, ChatTemplate]) -> None:
    thinker = Dialect("hermes", BY_NAME["hermes"].calls, think=("<think>", "</think>"))
    renderer = ChatRenderer(templates["qwen3"], thinker)
    assert renderer.render_messages(TALK)[1] is ThinkingState.possible
    text, thinking = renderer.render_messages(TALK, enable_thinking=False)
    assert thinking is ThinkingState.off
    assert text.endswith("<think>\n\n</think>\n\n")


def test_a_template_that_refuses_says_so(templates: dict[str, ChatTemplate]) -> None:
    two = [{**TALK[2], "tool_calls": [CALL, {**CALL, "id": "c2"}]}]
    with pytest.raises(ChatTemplateError, match="only one tool call"):
        render(templates["llama3"], [TALK[1], *two], BY_NAME["llama3"])


def test_a_template_that_refuses_roles_gets_them_in_another_order(templates: dict[str, ChatTemplate]) -> None:
    def said(*roles: str) -> list[dict[str, str]]:
        return [{"role": role, "content": f"{n}"} for n, role in enumerate(roles)]

    template = templates["strict"]
    assert render(template, said("system", "user", "assistant", "user")) == "[0]user:1;assistant:2;user:3;"
    assert render(template, said("system", "developer", "user", "user")) == "[0\n\n1]user:2\n\n3;"
    late = said("user", "system", "assistant", "developer", "user")
    assert render(template, late) == "user:0\n\n1;assistant:2;user:3\n\n4;"
    assert "system\n1" in render(templates["chatml"], late)  # one that takes them has them as they are
    for wrong in (said("assistant", "user"), said("system", "user", "assistant", "assistant", "user", "user")):
        with pytest.raises(ChatTemplateError, match="roles must take turns"):
            render(template, wrong)


def test_a_last_message_that_is_continued(templates: dict[str, ChatTemplate]) -> None:
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "There "}]
    for name, dialect in (
        ("qwen3", "hermes"),
        ("llama3", "llama3"),
        ("chatml", "plain"),
        ("strict", "plain"),
        ("muse", "muse-glimmer"),
    ):
        text, thinking = ChatRenderer(templates[name], BY_NAME[dialect]).render_messages(said)
        assert text.endswith("There "), name
        assert thinking is ThinkingState.continued
    called = [*TALK[:2], {**TALK[2], "content": "I ask."}]
    _, thinking = ChatRenderer(templates["qwen3"], BY_NAME["hermes"]).render_messages(called)
    assert thinking is not ThinkingState.continued
    mute = ChatTemplate({"default": "{{ messages[0].content }}"}, {}, None)
    with pytest.raises(ChatTemplateError, match="nothing continues it"):
        ChatRenderer(mute, BY_NAME["plain"]).render_messages(said)
    mute.close()


WRITTEN_BY_MUSE = """\
 to=self<|message|>I ask.<|eom|><|start|>assistant to=user<|message|>I look.<|eom|><|start|>assistant to=note.add\
<|message|><atem:function_calls>
<atem:invoke name="note.add">
<atem:parameter name="code">aa-1</atem:parameter>
<atem:parameter name="title">12</atem:parameter>
<atem:parameter name="tags">["é", "</x>"]</atem:parameter>
<atem:parameter name="at">{"x": 1.5, "y": null}</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|><|start|>assistant to=weather<|message|><atem:function_calls>
<atem:invoke name="weather">
<atem:parameter name="city"> a
"b" </atem:parameter>
<atem:parameter name="days">3</atem:parameter>
<atem:parameter name="exact">true</atem:parameter>
</atem:invoke>
</atem:function_calls><|eom|><|start|>assistant to=now<|message|><atem:function_calls>
<atem:invoke name="now">
</atem:invoke>
</atem:function_calls>"""
"""As the model's own template writes it: texts as they are, all else as JSON."""


def test_an_answer_in_messages_is_the_same_in_the_history(templates: dict[str, ChatTemplate]) -> None:
    """Reasoning, text and calls, read from a stream in any pieces and rendered again with results behind them."""
    renderer = ChatRenderer(templates["muse"], BY_NAME["muse-glimmer"])
    for bound, n in product((False, True), (1, 2, 7, 10_000)):
        parser = StreamParser(BY_NAME["muse-glimmer"], TOOLS, bound=bound)
        pieces = [WRITTEN_BY_MUSE[at : at + n] for at in range(0, len(WRITTEN_BY_MUSE), n)]
        found = ParsedAnswer.join([delta for piece in pieces for delta in parser.add(piece)] + parser.finish())
        assert (found.content, found.reasoning) == ("I look.", "I ask.")
        assert [(call.name, json.loads(call.arguments)) for call in found.tool_calls] == [
            ("note.add", {"code": "aa-1", "title": "12", "tags": ["é", "</x>"], "at": {"x": 1.5, "y": None}}),
            ("weather", {"city": ' a\n"b" ', "days": 3, "exact": True}),
            ("now", {}),
        ]
    said = {"role": "assistant", "content": found.content, **found.marks()}
    results = [{"role": "tool", "tool_call_id": made.id, "content": made.name} for made in found.tool_calls]
    text, thinking = renderer.render_messages([TALK[1], said, *results], TOOLS)
    output = '<|start|>tool {0}<|message|><tool_output name="{0}">\n{0}\n</tool_output><|eot|>'
    outputs = "".join(output.format(made.name) for made in found.tool_calls)
    begin = "<s><|start|>user<|message|>Weather?<|eot|><|start|>assistant"
    assert text == f"{begin}{WRITTEN_BY_MUSE}<|eot|>{outputs}<|start|>assistant"
    assert thinking is ThinkingState.possible


def text_part(**changes: Any) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": "a"} | changes]}


def call(**changes: Any) -> dict[str, Any]:
    return {"role": "assistant", "tool_calls": [CALL | changes]}


@pytest.mark.parametrize(
    ("message", "param", "unsupported"),
    [
        ("hello", "messages[1]", False),
        ({"content": "a"}, "messages[1].role", False),
        ({"role": "function", "content": "a"}, "messages[1].role", False),
        ({"role": "user"}, "messages[1].content", False),
        ({"role": "user", "content": None}, "messages[1].content", False),
        ({"role": "user", "content": 5}, "messages[1].content", False),
        ({"role": "user", "content": ["a"]}, "messages[1].content[0].type", False),
        (text_part(text=None), "messages[1].content[0].text", False),
        (text_part(type="image_url"), "messages[1].content[0]", True),
        (text_part(type="input_audio"), "messages[1].content[0]", True),
        (text_part(type="file"), "messages[1].content[0]", True),
        (text_part(type="thought"), "messages[1].content[0].type", False),
        ({"role": "assistant", "audio": {"id": "a"}}, "messages[1].audio", True),
        ({"role": "assistant", "reasoning_content": 1}, "messages[1].reasoning_content", False),
        ({"role": "assistant", "tool_calls": "x"}, "messages[1].tool_calls", False),
        ({"role": "assistant", "tool_calls": [1]}, "messages[1].tool_calls[0].function", False),
        (call(id=None), "messages[1].tool_calls[0].id", False),
        (call(function={"arguments": "{}"}), "messages[1].tool_calls[0].function.name", False),
        (call(function={"name": "f", "arguments": "{"}), "messages[1].tool_calls[0].function.arguments", False),
        (call(function={"name": "f", "arguments": "[1]"}), "messages[1].tool_calls[0].function.arguments", False),
        ({"role": "tool", "content": "a"}, "messages[1].tool_call_id", False),
    ],
)
def test_messages_that_are_refused(message: Any, param: str, unsupported: bool) -> None:
    with pytest.raises(RequestError) as error:
        check_messages([TALK[1], message])
    assert (error.value.param, error.value.unsupported) == (param, unsupported)
    assert str(error.value).startswith(f"{param} ")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("messages", [None, "hi", {}, [], 3])
def test_no_messages(messages: Any) -> None:
    with pytest.raises(RequestError, match="messages is"):
        check_messages(messages)


def test_refusals_and_empty_contents_are_text() -> None:
    given = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, {"role": "assistant"}]
    assert check_messages(given) == [{"role": "assistant", "content": "No."}, {"role": "assistant", "content": ""}]

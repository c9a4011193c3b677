"""Chat templates: what they render, and what is said when they do not."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import pytest

from tests.text import templates
from tests.text.vocabularies import bpe, bpe_metadata, spm
from zinc_rt.text import ChatTemplate, ChatTemplateError, ChatTemplateMissing, Tokenizer, TokenizerError

pytestmark = pytest.mark.usefixtures("one_renderer")
USER = {"role": "user", "content": "Once upon a time?"}
SYSTEM = {"role": "system", "content": " Be brief. "}
ANSWER = {"role": "assistant", "content": "<think>\nhm\n</think>\n\nYes."}
TOOL = {"type": "function", "function": {"name": "find", "description": "Größe <x> & 'y'", "parameters": {}}}
CALL = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "find", "arguments": {"é": 1}}}]}


def template(source: str, tokenizer: Tokenizer | None = None, **named: str) -> ChatTemplate:
    keys = {"tokenizer.chat_template": source} | {
        f"tokenizer.chat_template.{name}": text for name, text in named.items()
    }
    return ChatTemplate.from_metadata(keys, tokenizer or bpe())


def test_chatml() -> None:
    chat = template(templates.CHATML)
    assert chat.render([USER]) == (
        "<|im_start|>system\nYou tell stories.<|im_end|>\n"
        "<|im_start|>user\nOnce upon a time?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.render([SYSTEM, USER], add_generation_prompt=False) == (
        "<|im_start|>system\n Be brief. <|im_end|>\n<|im_start|>user\nOnce upon a time?<|im_end|>\n"
    )


def test_rendered_special_tokens_are_single_tokens() -> None:
    text = template(templates.CHATML).render([USER])
    ids = bpe("qwen2").encode(text, add_special=False)
    assert ids.count(bpe().token_id("<|im_start|>")) == 3
    assert bpe("qwen2").decode(ids) == text


def test_llama3() -> None:
    chat = template(templates.LLAMA3, spm())
    assert chat.render([SYSTEM, USER, CALL], date_string="1 May 2025") == (
        "<s><|start_header_id|>system<|end_header_id|>\n\nToday Date: 1 May 2025\n\nBe brief.<|eot_id|>"
        "<|start_header_id|>user<|end_header_id|>\n\nOnce upon a time?<|eot_id|>"
        '<|start_header_id|>assistant<|end_header_id|>\n\n{"name": "find", "parameters": {"é": 1}}<|eot_id|>'
        "<|start_header_id|>assistant<|end_header_id|>\n\n"
    )
    before, text, after = datetime.now(), chat.render([USER]), datetime.now()
    assert any(f"Today Date: {when:%d %b %Y}\n\n<|eot_id|>" in text for when in (before, after))


def test_qwen3_thinking() -> None:
    chat = template(templates.QWEN3)
    history = [USER, ANSWER, {"role": "user", "content": "And then?"}]
    assert chat.render(history) == (
        "<|im_start|>user\nOnce upon a time?<|im_end|>\n<|im_start|>assistant\nYes.<|im_end|>\n"
        "<|im_start|>user\nAnd then?<|im_end|>\n<|im_start|>assistant\n"
    )
    assert chat.render(history, enable_thinking=True).endswith("<|im_start|>assistant\n")
    assert chat.render(history, enable_thinking=False).endswith("<|im_start|>assistant\n<think>\n\n</think>\n\n")
    assert chat.render([USER, ANSWER], add_generation_prompt=False).endswith(
        "<|im_start|>assistant\n<think>\nhm\n</think>\n\nYes.<|im_end|>\n"
    )


def test_qwen3_tools() -> None:
    chat = template(templates.QWEN3)
    answer = {"role": "tool", "content": "7"}
    assert chat.render([SYSTEM, USER, CALL, answer], tools=[TOOL]) == (
        "<|im_start|>system\n Be brief. \n\n# Tools\n\n<tools>\n"
        '{"type": "function", "function": {"name": "find", "description": "Größe <x> & \'y\'", "parameters": {}}}'
        "\n</tools><|im_end|>\n<|im_start|>user\nOnce upon a time?<|im_end|>\n<|im_start|>assistant\n\n<tool_call>\n"
        '{"name": "find", "arguments": {"é": 1}}\n</tool_call><|im_end|>\n'
        "<|im_start|>user\n<tool_response>\n7\n</tool_response><|im_end|>\n<|im_start|>assistant\n"
    )


def test_mistral() -> None:
    chat = template(templates.MISTRAL, spm())
    assert chat.render([USER, {"role": "assistant", "content": "Yes"}, USER]) == (
        "<s>[INST] Once upon a time? [/INST]Yes</s>[INST] Once upon a time? [/INST]"
    )
    with pytest.raises(
        ChatTemplateError, match="refuses this conversation: Conversation roles must alternate"
    ) as caught:
        chat.render([USER, USER])
    assert caught.value.line == 1


def test_special_tokens_are_variables_and_may_be_replaced() -> None:
    source = "{{ bos_token }}|{{ eos_token }}|{{ unk_token }}|{{ nothing }}|{{ tools is none }}"
    assert template(source).render([]) == "<|endoftext|>|<|im_end|>|||True"
    assert template(source, spm()).render([], bos_token="") == "|</s>|<unk>||True"


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("{{ {'b': 1, 'a': 'é<'} | tojson }}", '{"b": 1, "a": "é<"}'),
        ("{{ {'b': [1], 'a': 2} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 2,\n "b": [\n  1\n ]\n}'),
        ("{% for i in range(9) %}{% if i == 3 %}{% break %}{% endif %}{{ i }}{% endfor %}", "012"),
        ("{% for i in [3, 4] %}{{ loop.index }}{{ loop.last }}{{ loop.length }};{% endfor %}", "1False2;2True2;"),
        ("{% for i in [] %}x{% else %}none{% endfor %}", "none"),
        ("{% for i in [1, [2, [3]]] recursive %}{{ loop(i) if i is iterable else i }}{% endfor %}", "123"),
        (
            "{% set ns = namespace(n=0) %}{% for i in range(5) if i % 2 %}{% set ns.n = ns.n + i %}{% endfor %}"
            "{{ ns.n }}",
            "4",
        ),
        ("{{ 1 ~ 'a' ~ none ~ 2.5 }}", "1aNone2.5"),
        ("{% macro m(a, b='x') %}<{{ a ~ b }}>{% endmacro %}{{ m(1) + m(2, 'y') }}", "<1x><2y>"),
        ("{% generation %}{% set x = 1 %}{{ x }}{% endgeneration %}", "1"),
        ("{{ messages | map(attribute='role') | join(', ') }}", "user"),
        ("{{ messages[0].content[:4].upper().replace('N', '-') }}", "O-CE"),
        ("{{ {'a': 1}.items() | list }}{{ 'x%sy' | format(3) }}{{ '%d-%s' % (3, 'z') }}", "[('a', 1)]x3y3-z"),
        ("{{ 'a\\nb' | indent(2) }}{{ 'x' | center(5) }}", "a\n  b  x  "),
        ("{{ 2 ** 10 }}{{ [1] * 3 + [2] }}{{ '-' * 5 }}", "1024[1, 1, 1, 2]-----"),
        ("    {% if true %}\n    text\n    {% endif %}\nend", "    text\nend"),
        ("<b>{{ '<' }}&", "<b><&"),
    ],
)
def test_the_language_of_templates(source: str, text: str) -> None:
    assert template(source).render([USER]) == text


def test_a_file_without_a_template_says_so() -> None:
    with pytest.raises(ChatTemplateMissing, match=r"no chat template \(tokenizer.chat_template\).*give it plain text"):
        ChatTemplate.from_metadata(bpe_metadata(), bpe())
    with pytest.raises(ChatTemplateMissing):
        template("")


def test_named_templates() -> None:
    chat = template("plain", tool_use="tools", rag="rag")
    assert set(chat.names) == {"default", "tool_use", "rag"}
    assert chat.source("rag") == "rag"
    assert (chat.render([]), chat.render([], tools=[TOOL]), chat.render([], tools=[])) == ("plain", "tools", "plain")
    keys = {"tokenizer.chat_template.rag": "rag", "tokenizer.chat_template.tool_use": "tools"}
    assert ChatTemplate.from_metadata(keys, bpe()).render([]) == "tools"
    assert ChatTemplate.from_metadata(keys, bpe(), name="rag").render([], tools=[TOOL]) == "rag"
    with pytest.raises(ChatTemplateMissing, match="no 'other' chat template, only: rag, tool_use"):
        ChatTemplate.from_metadata(keys, bpe(), name="other")
    with pytest.raises(ChatTemplateMissing, match="no 'default' chat template, only: rag"):
        ChatTemplate.from_metadata({"tokenizer.chat_template.rag": "rag"}, bpe())
    with pytest.raises(ChatTemplateMissing, match="no 'other'"):
        chat.source("other")


def test_a_template_that_is_no_text() -> None:
    with pytest.raises(TokenizerError, match=r"tokenizer\.chat_template: must be a string, not 5"):
        ChatTemplate.from_metadata({"tokenizer.chat_template": 5}, bpe())


@pytest.mark.parametrize(
    ("source", "line", "says"),
    [
        ("a\n{% if %}", 2, "syntax error: "),
        ("{% for x in messages %}\n", 1, "syntax error: Unexpected end of template"),
        ("\n\n{{ raise_exception('not like this') }}", 3, "it refuses this conversation: not like this"),
        ("\n{{ messages[0].missing.deeper }}", 2, "has no attribute 'missing'"),
        ("x\n\n{{ messages[7]['role'] }}", 3, "has no element 7"),
        ("{{ 'a' + 1 }}", 1, "TypeError: can only concatenate str"),
        ("{{ unknown() }}", 1, "'unknown' is undefined"),
        ("{% set m = messages.append(1) %}", 1, "access to attribute 'append' of 'list' object is unsafe"),
        ("{{ ''.__class__.__mro__ }}", 1, "access to attribute '__class__' of 'str' object is unsafe"),
        ("{{ raise_exception.__globals__['json'] }}", 1, "is unsafe"),
        ("{{ cycler.__init__.__globals__ }}", 1, "is unsafe"),
        ("{{ '{0.__class__.mro}'.format(1) }}", 1, "is unsafe"),
        ("{% include 'x' %}", 1, "no loader for this environment"),
        ("{% macro m() %}{{ m() }}{% endmacro %}\n{{ m() }}", 1, "RecursionError"),
        ("{{ messages | tojson(separators=1) }}", 1, "TypeError"),
        ("{{ strftime_now(5) }}", 1, "TypeError"),
        ("{% unknown %}", 1, "syntax error: Encountered unknown tag 'unknown'"),
        ("{{ x | nofilter }}", 1, "syntax error: No filter named 'nofilter'"),
        ("{{ lipsum(10) }}", 1, "'lipsum' is undefined"),
    ],
)
def test_errors_name_the_line(source: str, line: int, says: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        template(source).render([USER])
    assert says in str(caught.value)
    assert caught.value.line == line
    assert str(caught.value).startswith(f"chat template, line {line}: ")
    assert "\n" not in str(caught.value)


def test_a_faulty_template_is_found_at_rendering_only() -> None:
    assert template("{% if %}").names == ("default",)


def test_the_conversation_stays_as_it_is() -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "a", "extra": {"k": [1]}}]
    for source in (
        "{{ messages[0].extra.k.append(2) }}",
        "{{ messages[0].update({'role': 'x'}) }}",
        "{{ messages.pop() }}",
    ):
        with pytest.raises(ChatTemplateError, match="is unsafe"):
            template(source).render(messages)
    assert messages == [{"role": "user", "content": "a", "extra": {"k": [1]}}]


@pytest.mark.parametrize("messages", ["hello", [USER, "x"], None, 5, b"x", {"role": "user"}])
def test_messages_of_the_wrong_shape(messages: Any) -> None:
    with pytest.raises(ChatTemplateError, match="messages must be a list of mappings"):
        template("x").render(messages)
    with pytest.raises(ChatTemplateError, match="tools must be a list of mappings"):
        template("x").render([], tools=messages or [1])

"""Which family a model belongs to, from the words of its template and its vocabulary."""

from __future__ import annotations

import pytest

from tests.dialects.models import BY_NAME, CALLERS, HARMONY, marks_of, tokenizer
from tests.text.templates import CHATML, LLAMA3, MISTRAL, QWEN3
from zinc_rt.dialects.families import FAMILIES, GPT_OSS, dialect_of
from zinc_rt.dialects.record import ThinkingState
from zinc_rt.grammar.vocabulary import MARK

THINK = ("<think>", "</think>")
WORDS = {
    "hermes": "{% if tools %}<tools>{% endif %}<tool_call>\n</tool_call>",
    "qwen3-coder": "{% if tools %}{% endif %}<tool_call>\n<function=example>\n<parameter=a>",
    "seed": "{% if tools %}{% endif %}<seed:tool_call>\n<function=example>\n<parameter=a>",
    "minimax-m2": '{% if tools %}{% endif %}<minimax:tool_call>\n<invoke name="a">',
    "nemotron-2": "{% if tools %}{% endif %}<TOOLCALL>[",
    "kimi-k2": "{{ tools }}<|tool_calls_section_begin|><|tool_call_begin|>functions.",
    "command-r7b": '{{ tools }}<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": ',
    "apertus": "{{ tools }}<|tools_prefix|>",
    "lfm2": "{% if tools %}List of tools: [{% endif %}",
    "hunyuan": '{{ tools }}<tool_calls>[{"name": ',
    "llama3": '{% if tools %}{"name": function name, "parameters": dictionary}{% endif %}'.replace("function", '"f"'),
    "mistral": "[AVAILABLE_TOOLS]{{ tools }}[TOOL_CALLS][{",
    "mistral-named": "{{ tools }}[TOOL_CALLS]{{ name }}[ARGS]",
    "mistral-ids": "{{ tools }}[TOOL_CALLS]{{ name }}[CALL_ID]{{ id }}[ARGS]",
    "gemma-4": "{{ tools }}<|tool_call>call:",
    "functiongemma": "{{ tools }}<start_function_call>call:",
    "harmony": "{{ tools }}<|start|>",
    "muse-glimmer": "{{ tools }}<atem:function_calls>",
    "phi4": "{{ tools }}<|tool_call|>[]<|/tool_call|>",
    "granite-3": "{{ tools }}<|tool_call|>",
    "deepseek": "{{ tools }}<\uff5ctool▁calls▁begin\uff5c>",
    "deepseek-r1": "{{ tools }}<\uff5ctool▁calls▁begin\uff5c>\n```json\n",
    "deepseek-v3.2": "{% set dsml_token = '\uff5cDSML\uff5c' %}{{ tools }}<' + dsml_token + 'function_calls>",
    "deepseek-v4": "{% set dsml_token = '\uff5cDSML\uff5c' %}{{ tools }}<' + dsml_token + 'tool_calls>",
    "glm": "{{ tools }}<tool_call>{function-name}\n<arg_key>{arg-key-1}</arg_key>\n<arg_value>",
    "glm-4.7": "{{ tools }}<tool_call>{function-name}<arg_key>{arg-key-1}</arg_key><arg_value>",
}


@pytest.mark.parametrize("name", WORDS)
def test_families(name: str) -> None:
    found = dialect_of(tokenizer(marks_of(BY_NAME[name])), WORDS[name])
    assert found == BY_NAME[name]


def test_each_family_is_here() -> None:
    assert WORDS.keys() == {dialect.name for dialect in CALLERS}
    assert len({dialect.name for dialect in FAMILIES}) == len(FAMILIES)


@pytest.mark.parametrize("name", [*WORDS, "plain"])
def test_every_mark_is_one_for_grammars(name: str) -> None:
    """Also where the vocabulary calls it user-defined: a grammar must not take it for text."""
    for mark in marks_of(BY_NAME[name]):
        assert MARK.fullmatch(mark), mark


def test_reasoning_is_found_by_template_or_tokens() -> None:
    assert dialect_of(tokenizer(()), CHATML).think is None
    assert dialect_of(tokenizer(()), QWEN3).think == THINK
    assert dialect_of(tokenizer(THINK), CHATML).think == THINK
    assert dialect_of(tokenizer(("[THINK]", "[/THINK]")), MISTRAL).think == ("[THINK]", "[/THINK]")
    seed = "<seed:think>", "</seed:think>"
    assert dialect_of(tokenizer(()), f"{{{{ tools }}}}<seed:tool_call>{''.join(seed)}").think == seed
    assert dialect_of(tokenizer(()), "<|START_THINKING|><|END_THINKING|>").think is not None
    assert dialect_of(tokenizer(("<|tool_call>", "<|channel>")), CHATML).think == ("<|channel>thought", "<channel|>")


def test_templates_of_the_tests() -> None:
    assert dialect_of(tokenizer(()), QWEN3).name == "hermes"
    assert dialect_of(tokenizer(("<|python_tag|>",)), LLAMA3 + "{{ tools }}").name == "llama3"
    for template in (CHATML, MISTRAL, LLAMA3, "", None):
        assert dialect_of(tokenizer(()), template).calls is None
    assert dialect_of(tokenizer(HARMONY), None) is GPT_OSS


def test_smollm3() -> None:
    """Its own template has tools under the name `xml_tools`; an edited one that shows none makes no calls."""
    own = "{%- if xml_tools or python_tools -%}<tools></tools><tool_call></tool_call>{%- endif -%}<think></think>"
    assert dialect_of(tokenizer(()), own).name == "hermes"
    edited = "{%- if message.role == 'tool' -%}user{%- endif -%}<think></think>"
    assert dialect_of(tokenizer(()), edited).name == "plain"
    assert dialect_of(tokenizer(()), edited).think == THINK


@pytest.mark.parametrize(
    ("end", "expected"),
    [
        ("<|im_start|>assistant\n", ThinkingState.possible),
        ("<|im_start|>assistant\n<think>\n", ThinkingState.opened),
        ("<think>a</think>b<|im_start|>assistant\n", ThinkingState.possible),
        ("<|im_start|>assistant\n<think>\n\n</think>\n\n", ThinkingState.off),
        ("the tag <think> in a question", ThinkingState.possible),
        ("<think>\nthen <think>", ThinkingState.opened),
    ],
)
def test_where_a_prompt_leaves_the_model(end: str, expected: ThinkingState) -> None:
    assert dialect_of(tokenizer(()), QWEN3).thinking(end) is expected
    assert BY_NAME["plain"].thinking(end) is ThinkingState.off
    for name in ("harmony", "muse-glimmer"):
        assert BY_NAME[name].thinking(end) is ThinkingState.possible

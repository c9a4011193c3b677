"""What a grammar admits parses into calls whose arguments validate, and nothing else is admitted."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import jsonschema
import numpy as np
import pytest

from tests.dialects.models import BY_NAME, CALLERS, NOTE, SCHEMAS, TOOLS, marks_of, tokenizer, tool, vocabulary
from tests.dialects.test_parser import WRITTEN
from tests.dialects.walks import TooLong, allowed, walk
from zinc_rt.dialects.deltas import ParsedAnswer
from zinc_rt.dialects.families import PLAIN
from zinc_rt.dialects.forms.tagged import TaggedCalls
from zinc_rt.dialects.grammars import build_grammar
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.dialects.tools import (
    ChoiceMode,
    FormatKind,
    RequestError,
    ResponseFormat,
    Tool,
    ToolChoice,
    parse_tools,
)
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.matcher import LlguidanceMatcher, compile_grammar
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.llm.output_processor import OutputProcessor
from zinc_rt.sampling.params import SamplingParams
from zinc_rt.scheduler.messages import Grammar, Submit

PHRASES = (
    "\n</parameter>\n", "</parameter>", "</tool_call>", "</function>", "\n</function>", '<|"|>', "<escape>", '"}',
    '<|"', "<tool_call|>", "\\", "]]",
)  # fmt: skip
"""What texts in a call might have in them to confuse a parser."""
REQUIRED = ToolChoice(ChoiceMode.required)


def read(dialect: Dialect, ids: list[int], tools: tuple[Tool, ...], tokens: GrammarVocabulary) -> ParsedAnswer:
    """The answer of these tokens, one by one; the same where calls are told while they are written."""
    found = []
    for bound in (False, True):
        parser = StreamParser(dialect, tools, ThinkingState.off, bound=bound)
        submit = Submit("r", (1,), SamplingParams(), 0)
        marks = dialect.mark_ids(tokens.tokenizer)
        output = OutputProcessor[object](submit, tokens.tokenizer, parser=parser, marks=marks)
        found.append(ParsedAnswer.join([delta for token in ids for delta in output.read(token)] + output.read_end()))
    assert found[0] == found[1]
    return found[0]


def ways() -> Iterator[Any]:
    """Each family where a call is required, by tokens; two of them in every way; the others where slow tests run."""
    for dialect, mode, as_tokens in product(CALLERS, (ChoiceMode.auto, ChoiceMode.required), (True, False)):
        now = dialect.name in ("hermes", "gemma-4") or (as_tokens and mode is ChoiceMode.required)
        name = f"{dialect.name}-{mode}-{'tokens' if as_tokens else 'letters'}"
        yield pytest.param(dialect.name, mode, as_tokens, id=name, marks=() if now else pytest.mark.slow)


@pytest.mark.parametrize(("name", "mode", "as_tokens"), list(ways()))
def test_whatever_is_admitted_parses_and_validates(name: str, mode: ChoiceMode, as_tokens: bool) -> None:
    dialect = BY_NAME[name]
    tokens = vocabulary(dialect, as_tokens)
    several = build_grammar(dialect, tokens, TOOLS, ToolChoice(mode))
    one = build_grammar(dialect, tokens, TOOLS, ToolChoice(mode), parallel=False)
    assert several is not None
    assert one is not None
    n_calls = 0
    close = dialect.calls.parameter[2] if isinstance(dialect.calls, TaggedCalls) else PHRASES[0]
    phrases = PHRASES if close in PHRASES else (*PHRASES, *[close] * 6)
    for seed in range(4):
        for grammar in (several, one):
            try:
                ids = walk(grammar, tokens, tokens.tokenizer, seed, phrases, most=250 if as_tokens else 500)
            except TooLong:
                continue
            found = read(dialect, ids, TOOLS, tokens)
            if mode is ChoiceMode.required or grammar.after:
                assert found.tool_calls, tokens.tokenizer.decode(ids)
                assert dialect.messages or found.content is None
            assert grammar is several or len(found.tool_calls) < 2
            n_calls += len(found.tool_calls)
            for call in found.tool_calls:
                jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
    assert n_calls > 2 or mode is ChoiceMode.auto


def follow(grammar: Grammar | None, tokens: GrammarVocabulary, text: str) -> LlguidanceMatcher | None:
    """The matcher behind a text that is admitted, None for one that is not."""
    assert grammar is not None
    matcher = compile_grammar(grammar, tokens)
    mask = np.zeros(tokens.words, np.uint32)
    for token in tokens.tokenizer.encode(text, add_special=False):
        matcher.fill_mask(mask)
        admitted = bool(mask[token // 32] >> np.uint32(token % 32) & 1)
        assert matcher.consume(token) == admitted
        if not admitted:
            return None
    return matcher


def admits(grammar: Grammar | None, tokens: GrammarVocabulary, text: str) -> bool:
    """Whether the whole text may be an answer."""
    matcher = follow(grammar, tokens, text)
    if matcher is None:
        return False
    mask = np.zeros(tokens.words, np.uint32)
    matcher.fill_mask(mask)
    return tokens.tokenizer.stop_ids <= set(allowed(mask, tokens.n_vocab))


@pytest.mark.parametrize("mode", [ChoiceMode.auto, ChoiceMode.required])
@pytest.mark.parametrize(
    ("name", "inner"), [("deepseek-v4", ("\uff5cDSML\uff5c",)), ("glm", ("<arg_key>", "</arg_key>", "</arg_value>"))]
)
def test_tokens_within_marks(name: str, inner: tuple[str, ...], mode: ChoiceMode) -> None:
    """Where a mark is no token and a part of it is one: calls have the token, and never its letters."""
    dialect = BY_NAME[name]
    tokens = GrammarVocabulary(tokenizer(inner))
    grammar = build_grammar(dialect, tokens, TOOLS, ToolChoice(mode))
    n_calls = 0
    for seed in range(4):
        with contextlib.suppress(TooLong):
            ids = walk(grammar, tokens, tokens.tokenizer, seed, PHRASES, most=250)
            for call in read(dialect, ids, TOOLS, tokens).tool_calls:
                jsonschema.validate(json.loads(call.arguments), SCHEMAS[call.name])
                n_calls += 1
    assert n_calls or mode is ChoiceMode.auto
    for text in ("", "a < b") if mode is ChoiceMode.auto else ("",):
        assert admits(grammar, tokens, text + WRITTEN[name])
        assert not admits(grammar, tokens, text + WRITTEN[name][:-1])


THINKER = Dialect("hermes", BY_NAME["hermes"].calls, think=("<think>", "</think>"))
THINKING = GrammarVocabulary(tokenizer((*marks_of(BY_NAME["hermes"]), "<think>", "</think>")))
CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'
OTHER = '<tool_call>\n{"name": "weather", "arguments": {"city": "a", "unit": "C"}}\n</tool_call>'
SCHEMA = ResponseFormat(
    FormatKind.json_schema,
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
)


def grammar_of(**fields: Any) -> Grammar | None:
    """A grammar of the family with reasoning."""
    return build_grammar(THINKER, THINKING, **fields)


@pytest.mark.parametrize("thinking", ThinkingState)
def test_auto_is_free_up_to_a_call(thinking: ThinkingState) -> None:
    grammar = grammar_of(tools=TOOLS, thinking=thinking)
    assert grammar is not None
    assert grammar.after == (THINKING.tokenizer.token_id("<tool_call>"),)
    for before in ("", "text ", "a</think>b", "{"):
        assert admits(grammar, THINKING, before)
        assert admits(grammar, THINKING, before + CALL)
        assert admits(grammar, THINKING, before + CALL + "\n" + OTHER)
        assert not admits(grammar, THINKING, before + CALL.replace("now", "how"))
        assert not admits(grammar, THINKING, before + CALL + " text")
    single = grammar_of(tools=TOOLS, parallel=False)
    assert admits(single, THINKING, "a" + CALL)
    assert not admits(single, THINKING, "a" + CALL + OTHER)


def test_required_calls_stand_behind_reasoning() -> None:
    for thinking, texts in {
        ThinkingState.off: (CALL,),
        ThinkingState.possible: (CALL, f"<think>a\n{{</think>\n\n{CALL}", f"<think></think>{CALL}"),
        ThinkingState.opened: (f"a</think>{CALL}", f"a\n</think>\n\n{CALL}\n{OTHER}", f"<tool_call></think>{CALL}"),
    }.items():
        grammar = grammar_of(tools=TOOLS, tool_choice=REQUIRED, thinking=thinking)
        for text in texts:
            assert admits(grammar, THINKING, text)
        assert not admits(grammar, THINKING, "") or thinking is ThinkingState.opened
        assert not admits(grammar, THINKING, f"a</think>a{CALL}")


def test_a_named_tool_is_called_once() -> None:
    grammar = grammar_of(tools=TOOLS, tool_choice=ToolChoice(ChoiceMode.required, ("weather",)))
    assert admits(grammar, THINKING, OTHER)
    assert not admits(grammar, THINKING, CALL)
    assert not admits(grammar, THINKING, OTHER + OTHER)
    allowed = grammar_of(tools=TOOLS, tool_choice=ToolChoice(ChoiceMode.auto, ("weather",)))
    assert admits(allowed, THINKING, "a" + OTHER + OTHER)
    assert not admits(allowed, THINKING, "a" + CALL)


def test_no_grammar_where_all_is_free() -> None:
    assert grammar_of() is None
    assert grammar_of(tools=TOOLS, tool_choice=ToolChoice(ChoiceMode.none)) is None
    assert grammar_of(response_format=ResponseFormat()) is None


def test_content_in_a_form_and_calls_beside_it() -> None:
    alone = grammar_of(response_format=SCHEMA)
    assert admits(alone, THINKING, '{"a": 1}')
    assert admits(alone, THINKING, '{"a":1}')
    assert not admits(alone, THINKING, '{"a": "b"}')
    assert not admits(alone, THINKING, '<think></think>{"a": 1}')
    assert admits(grammar_of(response_format=SCHEMA, thinking=ThinkingState.opened), THINKING, 'x</think>\n\n{"a": 1}')
    both = grammar_of(response_format=SCHEMA, tools=TOOLS)
    assert admits(both, THINKING, '{"a": 1}')
    assert admits(both, THINKING, CALL)
    assert not admits(both, THINKING, "text")
    only = grammar_of(response_format=SCHEMA, tools=TOOLS, tool_choice=REQUIRED)
    assert not admits(only, THINKING, '{"a": 1}')


@pytest.mark.parametrize(
    ("form", "good", "bad"),
    [
        (ResponseFormat(FormatKind.json_object), '{"x": [1, "y", null]}', "[1]"),
        (ResponseFormat(FormatKind.regex, r"[a-c]+/\d"), "abc/7", "abc/"),
        (ResponseFormat(FormatKind.choice, ["yes", 'no "x"']), 'no "x"', "no"),
        (ResponseFormat(FormatKind.lark, 'start: "a" r0\nr0: "b"+'), "abb", "a"),
    ],
    ids=["object", "regex", "choice", "lark"],
)
@pytest.mark.parametrize("name", ["plain", "harmony", "muse-glimmer"])
def test_forms_of_content(name: str, form: ResponseFormat, good: str, bad: str) -> None:
    dialect = BY_NAME[name]
    tokens = vocabulary(dialect)
    grammar = build_grammar(dialect, tokens, response_format=form, thinking=dialect.thinking(""))
    heads = {
        "harmony": [
            "<|channel|>final<|message|>",
            "<|channel|>analysis<|message|>a {<|end|><|start|>assistant<|channel|>final <|constrain|>json<|message|>",
        ],
        "muse-glimmer": [
            " to=user<|message|>",
            " to=self<|message|>a {<|eom|><|start|>assistant to=user<|message|>",
        ],
    }
    for head in heads.get(name, [""]):
        assert admits(grammar, tokens, head + good)
        assert not admits(grammar, tokens, head + bad)


def test_channels_of_gpt_oss() -> None:
    dialect, tokens = BY_NAME["harmony"], vocabulary(BY_NAME["harmony"])
    think = "<|channel|>analysis<|message|>a<|end|><|start|>assistant"
    call = "<|channel|>commentary to=functions.now <|constrain|>json<|message|>{}"
    late = " to=functions.now<|channel|>commentary<|message|>{}"
    final = "<|channel|>final<|message|>text"
    auto = build_grammar(dialect, tokens, TOOLS)
    must = build_grammar(dialect, tokens, TOOLS, REQUIRED)
    for head in ("", think, think + think):
        for each, in_auto, in_must in (
            (call, True, True),
            (late, True, True),
            (final, True, False),
            ("text", False, False),
        ):
            assert admits(auto, tokens, head + each) is in_auto
            assert admits(must, tokens, head + each) is in_must
    assert not admits(auto, tokens, call.replace("now", "other"))
    assert not admits(auto, tokens, call.replace("{}", "[]"))


def test_recipients_of_muse_glimmer() -> None:
    dialect, tokens = BY_NAME["muse-glimmer"], vocabulary(BY_NAME["muse-glimmer"])
    next_ = "<|eom|><|start|>assistant"
    think, told, final = f" to=self<|message|>a{next_}", f" to=user<|message|>a{next_}", " to=user<|message|>text"
    call = ' to=now<|message|><atem:function_calls>\n<atem:invoke name="now">\n</atem:invoke>\n</atem:function_calls>'
    auto = build_grammar(dialect, tokens, TOOLS)
    must = build_grammar(dialect, tokens, TOOLS, REQUIRED)
    single = build_grammar(dialect, tokens, TOOLS, parallel=False)
    formed = build_grammar(dialect, tokens, TOOLS, response_format=SCHEMA)
    for head in ("", think, think + think):
        assert admits(auto, tokens, head + final)
        assert not admits(must, tokens, head + final)
        for before in (head, head + told):
            assert not admits(auto, tokens, before + "text")
            for grammar in (auto, must, single):
                assert admits(grammar, tokens, before + call)
                assert admits(grammar, tokens, before + call + next_ + call) is (grammar is not single)
        assert admits(formed, tokens, head + call)
        assert admits(formed, tokens, head + ' to=user<|message|>{"a": 1}')
        assert not admits(formed, tokens, head + told + call)
    assert not admits(auto, tokens, call.replace("now", "other"))
    assert not admits(auto, tokens, call.replace(' name="now"', ' name="weather"'))
    with pytest.raises(GrammarError, match="'self' is no tool's"):
        build_grammar(dialect, tokens, parse_tools([tool("self")]))


@pytest.mark.parametrize("name", [dialect.name for dialect in CALLERS])
def test_a_schema_that_cannot_be_used_is_named(name: str) -> None:
    dialect = BY_NAME[name]
    bad = {"type": "object", "properties": {"a": {"type": "string", "pattern": "("}}}
    tools = parse_tools([tool("good", NOTE), tool("bad", bad)])
    with pytest.raises(GrammarError, match=r"tools\[1\]\.function\.parameters.*(unclosed|\()"):
        build_grammar(dialect, vocabulary(dialect), tools)
    form = ResponseFormat(FormatKind.json_schema, {"type": "nope"}, "response_format.json_schema.schema")
    with pytest.raises(GrammarError, match=r"^response_format\.json_schema\.schema: .*nope"):
        build_grammar(dialect, vocabulary(dialect), response_format=form)


@pytest.mark.parametrize("name", [dialect.name for dialect in CALLERS])
def test_keywords_that_cannot_be_obeyed_are_refused_where_a_tool_is_strict(name: str) -> None:
    dialect = BY_NAME[name]
    tokens = vocabulary(dialect)
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"n": {"type": "array", "items": {"type": "integer", "enum": [1, 2]}, "uniqueItems": True}},
        "required": ["n"],
        "additionalProperties": False,
    }
    tools = parse_tools([tool("f", schema)])
    grammar = build_grammar(dialect, tokens, tools, REQUIRED, parallel=False)
    assert grammar is not None
    found = read(dialect, walk(grammar, tokens, tokens.tokenizer, 2), tools, tokens)
    assert set(json.loads(found.tool_calls[0].arguments)["n"]) <= {1, 2}
    with pytest.raises(GrammarError, match=r"tools\[0\].*uniqueItems"):
        build_grammar(dialect, tokens, parse_tools([tool("f", schema, strict=True)]), REQUIRED)


def test_what_a_family_cannot_write_is_refused() -> None:
    tagged, gemma = BY_NAME["qwen3-coder"], BY_NAME["gemma-4"]
    for dialect, schema, said in (
        (tagged, {"anyOf": [{"properties": {}}]}, "anyOf at the top"),
        (tagged, {"properties": {"a>b": {}}}, "cannot be written"),
        (gemma, {"properties": {"a": {"patternProperties": {}}}}, "patternProperties is not supported"),
        (gemma, {"properties": {"a b": {}}}, "cannot be written"),
        (gemma, {"properties": {"a": {"enum": [[1]]}}}, "lists or objects"),
        (gemma, {"properties": {"a": {"$ref": "#/$defs/b"}}}, "points to nothing"),
    ):
        with pytest.raises(GrammarError, match=said):
            build_grammar(dialect, vocabulary(dialect), parse_tools([tool("f", schema, strict=True)]))
    with pytest.raises(RequestError, match="template takes none") as error:
        build_grammar(PLAIN, vocabulary(PLAIN), TOOLS)
    assert (error.value.param, error.value.unsupported) == ("tools", True)


@pytest.mark.parametrize("name", ["qwen3-coder", "gemma-4"])
def test_schemas_that_refer_to_themselves(name: str) -> None:
    dialect = BY_NAME[name]
    schema = {
        "type": "object",
        "properties": {"tree": {"$ref": "#/$defs/node"}},
        "required": ["tree"],
        "additionalProperties": False,
        "$defs": {
            "node": {
                "type": "object",
                "properties": {
                    "name": {"enum": ["a", "b"]},
                    "next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]},
                },
                "required": ["name", "next"],
                "additionalProperties": False,
            }
        },
    }
    tools = parse_tools([tool("grow", schema)])
    tokens = vocabulary(dialect)
    grammar = build_grammar(dialect, tokens, tools, REQUIRED)
    assert grammar is not None
    n_calls = 0
    for seed in range(8):
        with contextlib.suppress(TooLong):
            for call in read(dialect, walk(grammar, tokens, tokens.tokenizer, seed), tools, tokens).tool_calls:
                jsonschema.validate(json.loads(call.arguments), schema)
                n_calls += 1
    assert n_calls

"""Answers divided into reasoning, content and calls, at any cut of the stream and for any stream."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dialects.models import BY_NAME, CALLERS, TOOLS, pretty
from zinc_rt.dialects.deltas import CallDelta, ContentDelta, Delta, ParsedAnswer, ReasoningDelta
from zinc_rt.dialects.families import FAMILIES
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect, ThinkingState
from zinc_rt.text.harmony import ATEM, HARMONY, MessageFormat

ARGUMENTS = {"city": "Zürich", "unit": "C"}
WEATHER = pretty(ARGUMENTS)


def thoughtful(dialect: Dialect) -> Dialect:
    """The family with marks of reasoning, if it has none."""
    return Dialect(**{**vars_of(dialect), "think": dialect.think or ("<think>", "</think>")})


def vars_of(dialect: Dialect) -> dict[str, object]:
    """The fields of a record."""
    return {name: getattr(dialect, name) for name in dialect.__dataclass_fields__}


def parsed(
    dialect: Dialect,
    *pieces: str,
    thinking: ThinkingState = ThinkingState.possible,
    tools: bool = True,
    bound: bool = False,
) -> list[Delta]:
    """The deltas of an answer that comes in pieces."""
    parser = StreamParser(dialect, TOOLS if tools else (), thinking, "salt", bound)
    return [delta for piece in pieces for delta in parser.add(piece)] + parser.finish()


def answer(
    dialect: Dialect,
    *pieces: str,
    thinking: ThinkingState = ThinkingState.possible,
    tools: bool = True,
    bound: bool = False,
) -> ParsedAnswer:
    """The whole of it."""
    return ParsedAnswer.join(parsed(dialect, *pieces, thinking=thinking, tools=tools, bound=bound))


def calls(found: ParsedAnswer) -> list[tuple[str, str]]:
    """Names and arguments."""
    return [(call.name, call.arguments) for call in found.tool_calls]


def said(format: MessageFormat) -> str:
    """What begins a message to the user."""
    return "".join(format.head(format.answers)) + "<|message|>"


def next_of(dialect: Dialect) -> str:
    """What stands between two messages, "" where an answer is one text."""
    return "" if dialect.messages is None else f"{dialect.messages.ends[0]}<|start|>assistant"


D = "\uff5c"
WRITTEN = {
    "hermes": f'<tool_call>\n{{"name": "weather", "arguments": {WEATHER}}}\n</tool_call>',
    "qwen3-coder": "<tool_call>\n<function=weather>\n<parameter=city>\nZürich\n</parameter>\n<parameter=unit>\nC\n"
    "</parameter>\n</function>\n</tool_call>",
    "seed": "<seed:tool_call>\n<function=weather>\n<parameter=city>Zürich</parameter>\n<parameter=unit>C</parameter>\n"
    "</function>\n</seed:tool_call>",
    "minimax-m2": '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">Zürich</parameter>\n'
    '<parameter name="unit">C</parameter>\n</invoke>\n</minimax:tool_call>',
    "nemotron-2": f'<TOOLCALL>[{{"name": "weather", "arguments": {WEATHER}}}]</TOOLCALL>',
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    f"{WEATHER}<|tool_call_end|><|tool_calls_section_end|>",
    "command-r7b": f'<|START_ACTION|>[\n    {{"tool_call_id": "0", "tool_name": "weather", "parameters": {WEATHER}}}\n]'
    "<|END_ACTION|>",
    "apertus": f'<|tools_prefix|>[{{"weather": {WEATHER}}}]<|tools_suffix|>',
    "lfm2": """<|tool_call_start|>[weather(city='Zürich', unit="C")]<|tool_call_end|>""",
    "hunyuan": f'<tool_calls>[{{"name": "weather", "arguments": {WEATHER}}}]</tool_calls>',
    "llama3": f'{{"name": "weather", "parameters": {WEATHER}}}',
    "mistral": f'[TOOL_CALLS] [{{"name": "weather", "arguments": {WEATHER}}}]',
    "mistral-named": f"[TOOL_CALLS]weather[ARGS]{WEATHER}",
    "mistral-ids": f"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{WEATHER}",
    "gemma-4": '<|tool_call>call:weather{city:<|"|>Zürich<|"|>,unit:<|"|>C<|"|>}<tool_call|>',
    "functiongemma": "<start_function_call>call:weather{city:<escape>Zürich<escape>,unit:<escape>C<escape>}"
    "<end_function_call>",
    "harmony": f"<|channel|>commentary to=functions.weather <|constrain|>json<|message|>{WEATHER}",
    "muse-glimmer": ' to=weather<|message|><atem:function_calls>\n<atem:invoke name="weather">\n'
    '<atem:parameter name="city">Zürich</atem:parameter>\n<atem:parameter name="unit">C</atem:parameter>\n'
    "</atem:invoke>\n</atem:function_calls>",
    "phi4": f'<|tool_call|>[{{"name": "weather", "arguments": {WEATHER}}}]<|/tool_call|>',
    "granite-3": f'<|tool_call|>[{{"name": "weather", "arguments": {WEATHER}}}]',
    "deepseek": f"<{D}tool▁calls▁begin{D}><{D}tool▁call▁begin{D}>weather<{D}tool▁sep{D}>{WEATHER}"
    f"<{D}tool▁call▁end{D}><{D}tool▁calls▁end{D}>",
    "deepseek-r1": f"<{D}tool▁calls▁begin{D}><{D}tool▁call▁begin{D}>function<{D}tool▁sep{D}>weather\n```json\n{WEATHER}"
    f"\n```<{D}tool▁call▁end{D}><{D}tool▁calls▁end{D}>",
    **{
        name: f'<{D}DSML{D}{section}>\n<{D}DSML{D}invoke name="weather">\n<{D}DSML{D}parameter name="city"'
        f' string="true">Zürich</{D}DSML{D}parameter>\n<{D}DSML{D}parameter name="unit" string="true">C'
        f"</{D}DSML{D}parameter>\n"
        f"</{D}DSML{D}invoke>\n</{D}DSML{D}{section}>"
        for name, section in (("deepseek-v3.2", "function_calls"), ("deepseek-v4", "tool_calls"))
    },
    "glm": "<tool_call>weather\n<arg_key>city</arg_key>\n<arg_value>Zürich</arg_value>\n<arg_key>unit</arg_key>\n"
    "<arg_value>C</arg_value>\n</tool_call>",
    "glm-4.7": "<tool_call>weather<arg_key>city</arg_key><arg_value>Zürich</arg_value><arg_key>unit</arg_key>"
    "<arg_value>C</arg_value></tool_call>",
}
"""A call as each family writes it."""


def test_each_family_is_here() -> None:
    assert WRITTEN.keys() == {dialect.name for dialect in CALLERS}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_however_the_stream_is_cut(name: str, bound: bool) -> None:
    dialect, text = BY_NAME[name], WRITTEN[name]
    whole = answer(dialect, text)
    assert (whole.content, calls(whole)) == (None, [("weather", WEATHER)])
    assert answer(dialect, *text, bound=bound) == whole
    for at in range(len(text)):
        assert answer(dialect, text[:at], text[at:], bound=bound) == whole


SECTIONS = {
    "command-r7b": '<|START_ACTION|>[\n    {"tool_call_id": "0", "tool_name": "weather", "parameters": {"city": "A"}}'
    ',\n    {"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
    "apertus": '<|tools_prefix|>[{"weather": {"city": "A"}}, {"now": {}}]<|tools_suffix|>',
    "lfm2": """<|tool_call_start|>[weather(city="A"), now()]<|tool_call_end|>""",
    "minimax-m2": '<minimax:tool_call>\n<invoke name="weather">\n<parameter name="city">A</parameter>\n</invoke>\n'
    '<invoke name="now">\n</invoke>\n</minimax:tool_call>',
    "kimi-k2": "<|tool_calls_section_begin|><|tool_call_begin|>functions.weather:0<|tool_call_argument_begin|>"
    '{"city": "A"}<|tool_call_end|><|tool_call_begin|>functions.now:1<|tool_call_argument_begin|>{}<|tool_call_end|>'
    "<|tool_calls_section_end|>",
}


@pytest.mark.parametrize("bound", [False, True])
@pytest.mark.parametrize("name", SECTIONS)
def test_two_calls_between_the_same_marks(name: str, bound: bool) -> None:
    found = answer(BY_NAME[name], *SECTIONS[name], bound=bound)
    assert calls(found) == [("weather", '{"city": "A"}'), ("now", "{}")]


def test_values_of_python() -> None:
    """Those of both notations, nested, with quotes and escapes of both."""
    text = r"""<|tool_call_start|>[f(a=True, b=None, c=[1, -2.50, 'x\'y'], d={"k": {'l': false}}, e="\u00e9\/\n")]"""
    ((name, arguments),) = calls(answer(BY_NAME["lfm2"], text))
    assert (name, arguments) == (
        "f",
        """{"a": true, "b": null, "c": [1, -2.50, "x'y"], "d": {"k": {"l": false}}, "e": "é/\\n"}""",
    )
    for wrong in ("[f(a=b)]", "[f(1)]", "[]", "f()", "[f(a='b]"):
        assert answer(BY_NAME["lfm2"], f"<|tool_call_start|>{wrong}<|tool_call_end|>").tool_calls == (), wrong


def fragments(deltas: list[Delta]) -> list[str]:
    """The pieces of arguments."""
    return [delta.arguments for delta in deltas if isinstance(delta, CallDelta) and delta.arguments]


PIECEWISE = {
    "lfm2": [WEATHER],
    "qwen3-coder": ['{"city": "Zürich"', ', "unit": "C"', "}"],
    "seed": ['{"city": "Zürich"', ', "unit": "C"', "}"],
    **{
        name: ['{"city": "Zürich"', ', "unit": "C"', "}"]
        for name in ("minimax-m2", "muse-glimmer", "glm", "glm-4.7", "deepseek-v3.2", "deepseek-v4")
    },
    "gemma-4": ['{"city": "Zürich"', ', "unit": "C"}'],
    "functiongemma": ['{"city": "Zürich"', ', "unit": "C"}'],
}
"""How arguments come that are not written as JSON; others come letter by letter."""


@pytest.mark.parametrize("name", WRITTEN)
def test_arguments_are_told_while_they_are_written(name: str) -> None:
    """Where the call follows the grammar; each piece comes with the letter that makes it sure."""
    dialect, text = BY_NAME[name], WRITTEN[name]
    parser = StreamParser(dialect, TOOLS, bound=True)
    told: list[tuple[str, str]] = []  # a piece and the text before it
    begun = ""
    for at, letter in enumerate(text, 1):
        for delta in parser.add(letter):
            assert isinstance(delta, CallDelta)
            if delta.name is not None:
                begun = text[:at]
            else:
                told.append((delta.arguments, text[:at]))
    pieces = PIECEWISE.get(name, list(WEATHER))
    assert [piece for piece, _ in told] == pieces
    assert begun == told[0][1]
    if name not in PIECEWISE:
        assert begun.endswith("{")
        assert all(before.endswith(piece) for piece, before in told)
    assert parser.finish() == []


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_that_is_cut_off_while_it_is_told(name: str) -> None:
    """What was told stays, as it would be from the whole text; before that it is content."""
    dialect, text = BY_NAME[name], WRITTEN[name]
    before = ""
    for end in range(len(text) + 1):
        found = answer(dialect, text[:end], bound=True)
        if not found.tool_calls:
            assert not before
            assert found.content == answer(dialect, text[:end]).content
            continue
        ((called, arguments),) = calls(found)
        assert (found.content, called) == (None, "weather")
        assert arguments
        assert arguments.startswith(before)
        assert WEATHER.startswith(arguments)
        before = arguments
    assert before == WEATHER


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("hermes", '<tool_call>{"arguments": {"a": 1}, "name": "f"}</tool_call>', ["f", '{"a": 1}']),
        ("hermes", '<tool_call>{"name": "f"}</tool_call>', ["f", "{}"]),
        ("hermes", '<tool_call>{"name": "f", "arguments": "{\\"a\\": 1}"}</tool_call>', ["f", '{"a": 1}']),
        ("hermes", '<tool_call>{"name": "f", "arguments": {"a": "\n{"}, "i": [{}]}', ["f", '{"a": "\\u000a{"}']),
        ("mistral", '[TOOL_CALLS][{"name": "f", "arguments": {}}, {"name": "g", "argu', ["f", "{}"]),
        (
            "mistral",
            '[TOOL_CALLS][{"name": "f"}, {"name": "g", "arguments": {"b": [{}]}}]x',
            ["f", "{}", "g", '{"b": [{}]}'],
        ),
        ("mistral", "[TOOL_CALLS][]", []),
        ("mistral", '[TOOL_CALLS][1, {"name": "f", "arguments": {}}]', []),
        ("mistral", '[TOOL_CALLS][[{"name": "f", "arguments": {}}]]', []),
        ("llama3", '{"name": "other", "parameters": {"a": 1}}', []),
        ("llama3", '{"name": "weather", "parameters": {"a": 1', ["weather", '{"a": 1']),
        ("gemma-4", "<|tool_call>call:f{}<tool_call|>", ["f", "{}"]),
        ("gemma-4", "<|tool_call>call:f{a:1,}<tool_call|>", ["f", '{"a": 1']),
        ("gemma-4", "<|tool_call>call:f{a:{b:[1,2],c:3},d:4", ["f", '{"a": {"b": [1, 2], "c": 3}']),
        ("qwen3-coder", "<tool_call><function=f></function></tool_call>", ["f", "{}"]),
        ("qwen3-coder", "<tool_call><function=f>", []),
        ("harmony", "<|channel|>commentary to=functions.f<|message|>[1]", []),
        ("harmony", "<|channel|>commentary to=functions.f<|message|> {}<|call|>", ["f", " {}"]),
    ],
)
def test_forms_of_calls_that_are_told(name: str, text: str, expected: list[str]) -> None:
    for pieces in ([text], list(text)):
        found = answer(BY_NAME[name], *pieces, bound=True)
        assert [part for call in calls(found) for part in call] == expected
        if not expected and name != "harmony":
            assert found.content == text


@pytest.mark.parametrize("name", WRITTEN)
def test_a_call_that_is_cut_off_is_text_or_whole(name: str) -> None:
    """Every beginning of a call is content, but for those that lack end marks alone."""
    dialect, text = BY_NAME[name], WRITTEN[name]
    for end in range(len(text)):
        found = answer(dialect, text[:end])
        if found.tool_calls:
            assert calls(found) == [("weather", WEATHER)]
            assert found.content is None
        elif dialect.messages is not None:  # headers are no text, unless they are cut in the middle of a mark
            left = iter(text[:end])
            assert all(character in left for character in found.content or "")
        else:
            assert found.content == text[:end]


@pytest.mark.parametrize("name", [name for name in WRITTEN if name != "llama3"])
def test_text_before_a_call_is_told_at_once(name: str) -> None:
    dialect = BY_NAME[name]
    text = "I look.\n\n" if dialect.messages is None else f"{said(dialect.messages)}I look.{next_of(dialect)}"
    parser = StreamParser(dialect, TOOLS)
    deltas = parser.add(text)
    assert deltas == [ContentDelta("I look.")]
    deltas = parser.add(WRITTEN[name]) + parser.finish()
    assert [type(delta) for delta in deltas] == [CallDelta, CallDelta]
    first, second = deltas
    assert isinstance(first, CallDelta)
    assert (first.index, first.name, first.arguments) == (0, "weather", "")
    assert first.id is not None
    assert second == CallDelta(0, WEATHER)


@pytest.mark.parametrize("name", [name for name in WRITTEN if BY_NAME[name].parallel])
@pytest.mark.parametrize("between", ["", "\n"])
def test_several_calls(name: str, between: str) -> None:
    dialect, text = BY_NAME[name], WRITTEN[name]
    between += next_of(dialect)
    found = answer(dialect, *(text + between + text + "\n"))
    assert (found.content, calls(found)) == (None, [("weather", WEATHER)] * 2)
    first, second = found.tool_calls
    assert first.id != second.id
    again = answer(dialect, text + between + text)
    assert [call.id for call in again.tool_calls] == [first.id, second.id]


def test_ids_depend_on_the_request() -> None:
    assert BY_NAME["hermes"].call_id("a", 0) != BY_NAME["hermes"].call_id("b", 0)
    short = BY_NAME["mistral"].call_id("a", 0)
    assert len(short) == 9
    assert short.isalnum()


@pytest.mark.parametrize("name", WRITTEN)
def test_without_tools_marks_are_text(name: str) -> None:
    dialect, text = BY_NAME[name], WRITTEN[name]
    found = answer(dialect, text, tools=False)
    assert found.tool_calls == ()
    assert found.content == (text if dialect.messages is None else text.partition("<|message|>")[2])


QUOTED = {"code": "aa-1", "title": "</x>", "tags": ['</tool_call>"', "\\{["], "at": {"x": -1.5e9, "y": None}}


def test_marks_in_texts_of_json_are_no_marks() -> None:
    text = f'<tool_call>\n{{"name": "note.add", "arguments": {pretty(QUOTED)}}}\n</tool_call>'
    assert calls(answer(BY_NAME["hermes"], *text)) == [("note.add", pretty(QUOTED))]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", '"plain"'),
        ("", '""'),
        ("12", '"12"'),
        ("two\nlines", '"two\\nlines"'),
        ("</parameter> inside", '"</parameter> inside"'),
        ("a</function>", '"a</function>"'),
    ],
)
def test_a_text_with_tags_around_it_is_taken_as_it_is(value: str, expected: str) -> None:
    text = f"<tool_call>\n<function=weather>\n<parameter=city>\n{value}\n</parameter>\n</function>\n</tool_call>"
    if value.startswith("</parameter>"):  # it ends here: the line feeds of an empty text may be one
        assert answer(BY_NAME["qwen3-coder"], *text).content == text
    else:
        assert calls(answer(BY_NAME["qwen3-coder"], *text)) == [("weather", f'{{"city": {expected}}}')]


def test_tagged_values_by_their_schema() -> None:
    def told(key: str, value: str) -> str:
        text = f"<tool_call><function=weather><parameter={key}>{value}</parameter></function></tool_call>"
        return answer(BY_NAME["qwen3-coder"], text).tool_calls[0].arguments

    assert told("days", "3") == '{"days": 3}'
    assert told("days", "many") == '{"days": "many"}'
    assert told("exact", "True") == '{"exact": true}'
    assert told("other", '[1, "a"]') == '{"other": [1, "a"]}'


def test_gemmas_notation() -> None:
    text = (
        '<|tool_call>call:note.add{at:{x:-2.5e3,y:null},code:<|"|>a "{<tool_call|>},:<|"|>,tags:[<|"|><|"|>,true]}'
        "<tool_call|> done"
    )
    found = answer(BY_NAME["gemma-4"], *text)
    arguments = '{"at": {"x": -2.5e3, "y": null}, "code": "a \\"{<tool_call|>},:", "tags": ["", true]}'
    assert calls(found) == [("note.add", arguments)]
    assert found.content == "done"


def test_a_json_text_that_is_no_call_is_content() -> None:
    for text in ('{"name": "Ann", "parameters": {}}', '{"a": 1}', '{"name": "weather", "parameters": 3} x', "{", " { "):
        found = answer(BY_NAME["llama3"], *text)
        assert (found.content, found.tool_calls) == (text, ())
    marked = answer(BY_NAME["llama3"], '<|python_tag|>{"name": "other", "parameters": {}}')
    assert calls(marked) == [("other", "{}")]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('{"arguments": {"a": "b}"}, "name": "f"}', '{"a": "b}"}'),
        ('{"name": "f"}', "{}"),
        ('{"name": "f", "arguments": "{\\"a\\": 1}"}', '{"a": 1}'),
        ('{"name": "f", "arguments": {"a": "1\n2"}}', '{"a": "1\\u000a2"}'),
        ('{"name": "f", "arguments": {"a": 1e999, "b": ' + "9" * 5000 + "}}", '{"a": 1e999, "b": ' + "9" * 5000 + "}"),
        ('{"name": "f", "arguments": [1]}', None),
        ('{"name": "f", "arguments": {"a": NaN}}', None),
        ('{"name": 5, "arguments": {}}', None),
        ('{"name": "", "arguments": {}}', None),
        ('{"name": "f", "arguments": {"a": 1,}}', None),
        ('{"name": "f", "arguments": ' + '{"a": ' * 100_000 + "1" + "}" * 100_001, None),
    ],
)
def test_calls_as_json(text: str, arguments: str | None) -> None:
    written = f"<tool_call>\n{text}\n</tool_call>"
    found = answer(BY_NAME["hermes"], written)
    if arguments is None:
        assert (found.content, found.tool_calls) == (written, ())
    else:
        assert (found.content, calls(found)) == (None, [("f", arguments)])


THINK = ("<think>", "</think>")


@pytest.mark.parametrize(
    ("thinking", "text", "expected"),
    [
        (ThinkingState.possible, "<think>\nHm.\n</think>\n\nYes. ", ParsedAnswer("Yes. ", "Hm.")),
        (ThinkingState.possible, "\n<think>Hm", ParsedAnswer("", "Hm")),
        (ThinkingState.possible, "Yes <think> no", ParsedAnswer("Yes <think> no")),
        (ThinkingState.possible, "  Yes", ParsedAnswer("  Yes")),
        (ThinkingState.opened, "Hm.\n\n</think>\n\nYes.", ParsedAnswer("Yes.", "Hm.")),
        (ThinkingState.opened, "<think>Hm", ParsedAnswer("", "<think>Hm")),
        (ThinkingState.opened, "Hm </thin", ParsedAnswer("", "Hm </thin")),
        (ThinkingState.opened, "</think>", ParsedAnswer("")),
        (ThinkingState.off, "<think>a</think>b", ParsedAnswer("<think>a</think>b")),
    ],
)
@pytest.mark.parametrize("name", ["plain", "hermes", "mistral"])
def test_reasoning(name: str, thinking: ThinkingState, text: str, expected: ParsedAnswer) -> None:
    dialect = thoughtful(BY_NAME[name])
    assert answer(dialect, text, thinking=thinking) == expected
    assert answer(dialect, *text, thinking=thinking) == expected


def test_a_call_ends_reasoning_and_what_looks_like_one_does_not() -> None:
    dialect, call = thoughtful(BY_NAME["hermes"]), WRITTEN["hermes"]
    found = answer(dialect, f"I should write <tool_call> now.\n{call}", thinking=ThinkingState.opened)
    assert (found.reasoning, found.content) == ("I should write <tool_call> now.", None)
    assert calls(found) == [("weather", WEATHER)]


def test_gemmas_reasoning() -> None:
    found = answer(BY_NAME["gemma-4"], "<|channel>thought\nHm.\n<channel|>Yes.")
    assert found == ParsedAnswer("Yes.", "Hm.")


def test_text_is_told_as_it_comes() -> None:
    parser = StreamParser(thoughtful(BY_NAME["hermes"]), TOOLS)
    assert parser.add("<th") == []
    assert parser.add("ink>\nA ") == [ReasoningDelta("A")]
    assert parser.add("b</") == [ReasoningDelta(" b")]
    assert parser.add("think>\n") == []
    assert parser.add("One ") == [ContentDelta("One")]
    assert parser.add("two<tool") == [ContentDelta(" two")]
    assert parser.add("s") == [ContentDelta("<tools")]
    assert parser.finish() == []


PIECES = sorted(
    {
        *(mark for dialect in FAMILIES for mark in dialect.marks),
        *HARMONY.marks, *ATEM.marks, " to=weather", " to=self", " to=user",
        *WRITTEN.values(),
        "<think>", "<function=weather>", "</function>", "<parameter=city>", "</parameter>", "\n", " ", "{",
        "}", "[", "]", '"', "\\", ",", ":", '{"name": "f", "arguments": {}}', "call:f{", "<", "|>", "x", "```json\n",
        "é", "->", "</think>",
        "assistant", "analysis", "final", " to=functions.f",
    }
)  # fmt: skip


STREAMS = given(
    name=st.sampled_from([dialect.name for dialect in FAMILIES]),
    pieces=st.lists(st.sampled_from(PIECES) | st.text(max_size=3), max_size=10),
    cuts=st.lists(st.integers(0, 400), max_size=5),
    thinking=st.sampled_from(ThinkingState),
    tools=st.booleans(),
    bound=st.booleans(),
)


@settings(max_examples=15, deadline=None)
@STREAMS
def test_the_cuts_of_any_stream_do_not_matter(**stream: Any) -> None:
    check_cuts(**stream)


@pytest.mark.slow
@settings(max_examples=400, deadline=None)
@STREAMS
def test_the_cuts_of_many_streams_do_not_matter(**stream: Any) -> None:
    check_cuts(**stream)


def check_cuts(
    name: str, pieces: list[str], cuts: list[int], thinking: ThinkingState, tools: bool, bound: bool
) -> None:
    dialect = BY_NAME[name] if BY_NAME[name].messages else thoughtful(BY_NAME[name])
    text = "".join(pieces)
    borders = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    whole = answer(dialect, text, thinking=thinking, tools=tools, bound=bound)
    cut = [text[a:b] for a, b in pairwise(borders)]
    for parts in (cut, list(text)):
        deltas = parsed(dialect, *parts, thinking=thinking, tools=tools, bound=bound)
        assert ParsedAnswer.join(deltas) == whole
        assert "".join(fragments(deltas)) == "".join(arguments for _, arguments in calls(whole))
        told = [delta.index for delta in deltas if isinstance(delta, CallDelta)]
        assert told == sorted(told)
    told = (whole.reasoning or "") + (whole.content or "")
    if not whole.tool_calls and dialect.messages is None:
        assert kept(told) in (kept(text), kept(without_think(dialect, text, thinking)))


def kept(text: str) -> str:
    """A text without white space."""
    return "".join(text.split())


def without_think(dialect: Dialect, text: str, thinking: ThinkingState) -> str:
    """A text without the marks of its reasoning."""
    assert dialect.think is not None
    begin, end = dialect.think
    if thinking is ThinkingState.possible:
        if not text.lstrip().startswith(begin):
            return text
        text = text.lstrip().removeprefix(begin)
    return text if thinking is ThinkingState.off else text.replace(end, "", 1)


@pytest.mark.parametrize("dialect", [*BY_NAME.values(), thoughtful(BY_NAME["hermes"])], ids=lambda d: d.name)
def test_a_continued_answer_begins_with_content(dialect: Dialect) -> None:
    parser = StreamParser(dialect, thinking=ThinkingState.continued)
    end = "" if dialect.messages is None else dialect.messages.ends[0]
    whole = ParsedAnswer.join([*parser.add(" a fox. "), *parser.add("The end." + end), *parser.finish()])
    assert (whole.content, whole.reasoning) == (" a fox. The end.", None)

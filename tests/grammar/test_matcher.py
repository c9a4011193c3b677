"""Matchers: masks, tokens, ends, going back, free beginnings, several at once; and what is too large or malformed."""

from __future__ import annotations

import json
import random
from typing import Any

import numpy as np
import pytest

from tests.dialects.models import tokenizer
from tests.dialects.walks import allowed, walk
from zinc_rt.errors import UsageError
from zinc_rt.grammar import matcher as limits
from zinc_rt.grammar import texts
from zinc_rt.grammar.errors import GrammarError
from zinc_rt.grammar.matcher import LlguidanceMatcher, compile_grammar
from zinc_rt.grammar.texts import Whitespace
from zinc_rt.grammar.vocabulary import GrammarVocabulary
from zinc_rt.scheduler.messages import Grammar

TOKENS = tokenizer(("<think>", "</think>", "<tool_call>"), control=False)
VOCABULARY = GrammarVocabulary(TOKENS)
STOPS = sorted(TOKENS.stop_ids)


def made(text: str, after: tuple[int, ...] = ()) -> LlguidanceMatcher:
    return compile_grammar(Grammar(text, after), VOCABULARY, "here")


def mask(matcher: LlguidanceMatcher) -> list[int]:
    """The tokens that may come next."""
    out = np.zeros(matcher.words, np.uint32)
    matcher.fill_mask(out)
    return allowed(out, VOCABULARY.n_vocab)


def follow(matcher: LlguidanceMatcher, tokens: list[int], told: list[int]) -> None:
    """Consume tokens, each behind its mask; `told` gets those that were consumed."""
    for token in tokens:
        mask(matcher)
        assert matcher.consume(token)
        told.append(token)


def ids(text: str) -> list[int]:
    return TOKENS.encode(text, add_special=False, parse_special=False)


def may_end(matcher: LlguidanceMatcher) -> bool:
    return set(STOPS) <= set(mask(matcher))


def texts_of(tokens: list[int]) -> set[str]:
    return {TOKENS.decode([token]) for token in tokens}


def test_a_mask_is_what_may_come() -> None:
    matcher = made(texts.json_schema({"type": "integer", "minimum": 3, "maximum": 12}))
    assert texts_of(mask(matcher)) == set("3456789") | {"1"}
    assert not may_end(matcher)
    assert matcher.consume(ids("1")[0])
    assert texts_of(mask(matcher)) == set("012")
    assert not matcher.consume(ids("7")[0])
    assert texts_of(mask(matcher)) == set("012")  # a token that does not fit changes nothing
    assert matcher.consume(ids("0")[0])
    assert may_end(matcher)
    assert matcher.is_done
    assert mask(matcher) == STOPS


def test_stop_tokens_end_where_the_grammar_may_end() -> None:
    matcher = made(texts.regex("ab*"))
    assert not set(STOPS) & set(mask(matcher))
    matcher.consume(ids("a")[0])
    assert set(STOPS) < set(mask(matcher))
    assert not matcher.is_done
    assert matcher.consume(STOPS[-1])
    assert matcher.is_done
    assert mask(matcher) == STOPS


def test_every_token_that_is_allowed_is_consumed_and_no_other() -> None:
    text = texts.json_schema({"type": "object", "properties": {"a": {"enum": ["x", "yy"]}, "b": {"type": "boolean"}}})
    rng = random.Random(1)
    for _ in range(5):
        matcher = made(text)
        while not matcher.is_done:
            options = mask(matcher)
            for token in rng.sample(range(VOCABULARY.n_vocab), 30):
                fits = matcher.consume(token)
                assert fits == (token in options)
                if fits:
                    matcher.rollback(1)
            assert mask(matcher) == options
            assert matcher.consume(rng.choice(options))


def test_marks_match_by_name_and_never_as_text() -> None:
    text = made(texts.regex("(?s:.*)"))
    marks = {TOKENS.token_id(mark) for mark in ("<think>", "</think>", "<tool_call>")}
    assert not marks & set(mask(text))
    named = made(texts.lark("start: <think> /a+/ </think>"))
    assert texts_of(mask(named)) == {"<think>"}
    assert not named.consume(ids("<")[0])


def test_a_grammar_that_begins_later() -> None:
    begin = TOKENS.token_id("<tool_call>")
    assert begin is not None
    matcher = made(texts.choice(["yes", "no"]), (begin,))
    assert matcher.is_free
    assert may_end(matcher)
    assert not matcher.is_done
    for token in [*ids("anything"), STOPS[0]]:
        assert len(mask(matcher)) == VOCABULARY.n_vocab
        assert matcher.consume(token)
    assert matcher.consume(begin)
    assert not matcher.is_free
    assert texts_of(mask(matcher)) & set("yn") == set("yn")
    assert not matcher.consume(begin)
    for token in ids("yes"):
        assert matcher.consume(token)
    assert matcher.is_done


def test_going_back() -> None:
    begin = TOKENS.token_id("<tool_call>")
    assert begin is not None
    matcher = made(texts.json_schema({"type": "array", "items": {"type": "integer"}}), (begin,))
    told = [*ids("free "), begin, *ids("[12,3]")]
    seen = []
    for token in told:
        seen.append((matcher.is_free, mask(matcher)))
        assert matcher.consume(token)
    for n in (1, 3, 5, len(told)):
        matcher.rollback(n)
        assert (matcher.is_free, mask(matcher)) == seen[len(told) - n]
        for token in told[len(told) - n :]:
            assert matcher.consume(token)
    with pytest.raises(ValueError, match=f"{len(told) + 1} tokens"):
        matcher.rollback(len(told) + 1)


def test_a_padded_vocabulary_allows_no_padding() -> None:
    padded = GrammarVocabulary(TOKENS, TOKENS.n_vocab + 100)
    assert padded.words == (TOKENS.n_vocab + 100 + 31) // 32
    out = np.full(padded.words, 0xFFFFFFFF, np.uint32)
    compile_grammar(Grammar(texts.regex("(?s:.*)")), padded).fill_mask(out)
    assert max(allowed(out, padded.n_vocab)) < TOKENS.n_vocab
    with pytest.raises(UsageError, match="at least those"):
        GrammarVocabulary(TOKENS, TOKENS.n_vocab - 1)


def test_white_space() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "array"}}, "additionalProperties": False}

    def takes(text: str, whitespace: Whitespace) -> bool:
        matcher = made(texts.json_schema(schema, whitespace=whitespace))
        return all(matcher.consume(token) for token in ids(text)) and may_end(matcher)

    for text, compact, flexible in (
        ('{"a":[1,2]}', True, True),
        ('{"a": [1, 2]}', True, True),
        ('{ "a": [1]}', False, True),
        ('{\n  "a": [\n    1\n  ]\n}', False, True),
        ('{"a":' + " " * 20 + "[1]}", False, True),
        ('{"a":' + " " * 21 + "[1]}", False, False),
    ):
        assert takes(text, Whitespace.compact) is compact, text
        assert takes(text, Whitespace.flexible) is flexible, text


def test_options_inside_a_schema_are_not_obeyed() -> None:
    schema = {"type": "array", "uniqueItems": True, "x-guidance": {"lenient": True}}
    with pytest.raises(GrammarError, match="uniqueItems"):
        made(texts.json_schema(schema))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("start: nobody", "nobody"),
        ("start: <|nope|>", "nope"),
        ("start: <[999999]>", "999999"),
        ("start: /(/", "unclosed"),
        ("begin: /a/", "start"),
        ('{"grammars": []}', "cannot be used"),
        ("\ud800", "cannot be used"),
    ],
)
def test_what_cannot_be_used(text: str, said: str) -> None:
    with pytest.raises(GrammarError, match=said) as error:
        compile_grammar(Grammar(text), VOCABULARY, "tools[3]")
    line = str(error.value)
    assert "\n" not in line
    assert len(line) < 500
    assert error.value.where == "tools[3]"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string", "format": "nope"}, "Unknown format: nope"),
        ({"type": "array", "uniqueItems": True}, "uniqueItems"),
        ({"$ref": "#/$defs/a"}, "a"),
        ({"$ref": "https://example.com/schema.json"}, "another document"),
        ({"enum": []}, "Unsatisfiable"),
        ({"description": "a" * 70_000}, "the limit is 65536"),
        ({"a": {1, 2}}, "cannot be written as JSON"),
        (False, "admits nothing"),
        ([], "must be a JSON schema"),
        (None, "must be a JSON schema"),
    ],
)
def test_schemas_that_are_refused(schema: Any, said: str) -> None:
    with pytest.raises(GrammarError, match=said) as error:
        compile_grammar(Grammar(texts.json_schema(schema, "tools[1].parameters")), VOCABULARY, "tools[1].parameters")
    assert str(error.value).startswith("tools[1].parameters: ")
    assert "\n" not in str(error.value)
    assert "%json" not in str(error.value)


@pytest.mark.parametrize("depth", [64, 65, 100_000])
def test_deep_schemas(depth: int) -> None:
    schema: dict[str, Any] = {}
    for _ in range(depth):
        schema = {"items": schema}
    if depth <= 64:
        made(texts.json_schema(schema))
    else:
        with pytest.raises(GrammarError, match="64 levels"):
            texts.json_schema(schema)


def test_sizes_are_bounded() -> None:
    with pytest.raises(GrammarError, match=str(limits.MAX_GRAMMAR_BYTES)):
        compile_grammar(Grammar("start: /a/\n" + "#" * limits.MAX_GRAMMAR_BYTES), VOCABULARY)
    for make, value in ((texts.regex, "a" * 70_000), (texts.lark, "#" * 70_000), (texts.choice, ["a" * 70_000])):
        with pytest.raises(GrammarError, match="65536"):
            make(value)
    for make, value in (
        (texts.regex, ""),
        (texts.lark, None),
        (texts.choice, []),
        (texts.choice, ["", "a"]),
        (texts.choice, "a"),
    ):
        with pytest.raises(GrammarError):
            make(value)


def test_work_of_a_mask_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """A grammar that costs more than a step may take is an error of its request, and another one's mask is there."""
    text = texts.regex("(?:[ab]*a[ab]{40})|(?:[ab]*b[ab]{41})")
    monkeypatch.setattr(limits, "STEP_LEXER_FUEL", 300)
    bad = made(text)
    monkeypatch.undo()
    good = made(text)
    told: list[int] = []
    with pytest.raises(GrammarError, match="too much work"):
        follow(bad, ids("abba" * 9), told)
    assert 0 < len(told) < 36
    assert all(good.consume(token) for token in told)
    with pytest.raises(GrammarError, match="too much work"):
        bad.fill_mask(np.zeros(VOCABULARY.words, np.uint32))
    with pytest.raises(GrammarError):
        bad.check()
    good.check()
    assert mask(good)


def test_patterns_and_literals_are_written_as_lark_wants_them() -> None:
    for pattern, text in (("a/b", "a/b"), (r"a\/b", "a/b"), ("a\nb", "a\nb"), (r"\\/", "\\/"), ('"', '"'), ("#", "#")):
        matcher = made(texts.regex(pattern))
        assert all(matcher.consume(token) for token in ids(text)), pattern
        assert may_end(matcher)
    odd = '"\\/\n#é</x>%|'
    matcher = made(texts.choice([odd]))
    assert all(matcher.consume(token) for token in ids(odd))
    assert may_end(matcher)
    quoted = made(f"start: A\nA: {texts.pattern_literal(texts.quoted(odd))}")
    assert all(quoted.consume(token) for token in ids(odd))
    assert may_end(quoted)


def test_json_that_is_admitted_is_json() -> None:
    text = texts.json_object()
    for seed in range(5):
        written = TOKENS.decode(walk(Grammar(text), VOCABULARY, TOKENS, seed, ('"}', "\\", "\n", '{"')))
        assert isinstance(json.loads(written), dict)

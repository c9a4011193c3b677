"""Harmony answers divided into channels, at any cut of the stream and for any stream."""

from __future__ import annotations

import time
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.helpers import soon
from tests.text.vocabularies import bpe, bpe_metadata
from zinc_rt.text import Tokenizer
from zinc_rt.text.harmony import ATEM, HARMONY, Channel, Delta, Harmony, MessageFormat

R, C, T = Channel.REASONING, Channel.CONTENT, Channel.TOOL_CALL
Message = tuple[Channel, str | None, str]


def joined(deltas: list[Delta]) -> list[Message]:
    messages: dict[int, Message] = {}
    for delta in deltas:
        channel, to, text = messages.get(delta.message, (delta.channel, delta.to, ""))
        assert (channel, to) == (delta.channel, delta.to)
        messages[delta.message] = (channel, to, text + delta.text)
    assert list(messages) == sorted(messages)
    return list(messages.values())


def divided(*pieces: str, format: MessageFormat = HARMONY) -> list[Message]:
    parser = Harmony(format)
    return joined([delta for piece in pieces for delta in parser.add(piece)] + parser.finish())


CALL = "<|channel|>commentary to=functions.weather <|constrain|>json<|message|>"
ANSWERS: list[tuple[str, list[Message]]] = [
    (
        "<|channel|>analysis<|message|>Hm.\nYes.<|end|><|start|>assistant<|channel|>final<|message|>42<|return|>",
        [(R, None, "Hm.\nYes."), (C, None, "42")],
    ),
    ("<|channel|>final<|message|>a < b <| c<|end|>", [(C, None, "a < b <| c")]),
    (CALL + '{"a": 1}<|call|>', [(T, "functions.weather", '{"a": 1}')]),
    (CALL, [(T, "functions.weather", "")]),
    (
        "<|channel|>analysis<|message|>x<|end|><|start|>assistant to=functions.f<|channel|>commentary<|message|>{}",
        [(R, None, "x"), (T, "functions.f", "{}")],
    ),
    (" to=functions.f<|channel|>commentary json<|message|>{}", [(T, "functions.f", "{}")]),
    ("<|channel|>analysis to=python code<|message|>1+1<|call|>", [(T, "python", "1+1")]),
    ("<|channel|>commentary<|message|>I look it up.<|end|>", [(C, None, "I look it up.")]),
    (
        "<|channel|>commentary<|message|>one<|end|>\n<|start|>assistant<|channel|>final<|message|>two",
        [(C, None, "one"), (C, None, "two")],
    ),
    ("<|message|>no channel", [(C, None, "no channel")]),
    # what breaks the format
    ("", []),
    ("Hello", [(C, None, "Hello")]),
    ("  Hello <|end|> there", [(C, None, "  Hello "), (C, None, "there")]),
    ("<|channel|>anal", []),
    ("<|channel|>", []),
    ("<|chan", [(C, None, "<|chan")]),
    ("to", [(C, None, "to")]),
    ("<|channel|>analysis<|message|>cut <|en", [(R, None, "cut <|en")]),
    ("<|channel|>analysis<|message|>a<|channel|>final<|message|>b", [(R, None, "a"), (C, None, "b")]),
    ("<|channel|>analysis<|message|>a<|start|>assistant<|channel|>final<|message|>b", [(R, None, "a"), (C, None, "b")]),
    ("<|channel|>final<|message|>a<|message|>b", [(C, None, "a<|message|>b")]),
    ("<|channel|>final what is this, then?<|message|>b", [(C, None, "final what is this, then?<|message|>b")]),
    ("<|channel|>final<|end|>b", [(C, None, "b")]),
    ("<|start|>assistant<|channel|>final<|message|>b", [(C, None, "b")]),
    ("<|channel|>final<|message|>b<|end|><|end|><|return|>", [(C, None, "b")]),
    ("<|channel|>" + "x" * 300 + "<|message|>b", [(C, None, "x" * 300 + "<|message|>b")]),
]


BY_RECIPIENT: list[tuple[str, list[Message]]] = [
    (
        " to=self<|message|>Hm.\nYes.<|eom|><|start|>assistant to=user<|message|>42<|eot|>",
        [(R, None, "Hm.\nYes."), (C, None, "42")],
    ),
    (
        " to=user<|message|>I look.<|eom|><|start|>assistant to=a.b<|message|><x>\n<|eom|>"
        "<|start|>assistant to=c<|message|>",
        [(C, None, "I look."), (T, "a.b", "<x>\n"), (T, "c", "")],
    ),
    (" to=self<|message|>Cut <|eo", [(R, None, "Cut <|eo")]),
    (" to=self<|message|>a<|eom|><|start|>assistant", [(R, None, "a")]),
    ("<|message|>no recipient<|eot|>", [(C, None, "no recipient")]),
    ("Hello to=self", [(C, None, "Hello to=self")]),
    (" to=self and others<|message|>a", [(C, None, " to=self and others<|message|>a")]),
    ("<|channel|>final", [(C, None, "<|channel|>final")]),
]


@pytest.mark.parametrize(
    ("format", "answer", "messages"),
    [(HARMONY, *each) for each in ANSWERS] + [(ATEM, *each) for each in BY_RECIPIENT],
)
def test_messages_however_the_stream_is_cut(format: MessageFormat, answer: str, messages: list[Message]) -> None:
    assert divided(answer, format=format) == messages
    assert divided(*answer, format=format) == messages
    for at in range(len(answer)):
        assert divided(answer[:at], answer[at:], format=format) == messages


_PIECES = st.sampled_from(
    [*HARMONY.marks, *ATEM.ends, "<|", "<", "|>",
     "assistant", "analysis", "final", "commentary", " to=functions.f", " to=self", " to=user",
     " ", "\n", "json", "text, and more", "{}", "é"]
) | st.text(max_size=3)  # fmt: skip


@given(
    format=st.sampled_from([HARMONY, ATEM]),
    pieces=st.lists(_PIECES, max_size=14),
    cuts=st.lists(st.integers(0, 200), max_size=6),
)
@example(format=HARMONY, pieces=["<|channel|>final", " " * 240, "<|message|>", "a"], cuts=[])
@example(format=HARMONY, pieces=["<|channel|>final", " " * 241, "<|message|>", "a"], cuts=[])
@settings(max_examples=120, deadline=None)
def test_any_stream_is_divided_and_the_cuts_do_not_matter(
    format: MessageFormat, pieces: list[str], cuts: list[int]
) -> None:
    answer = "".join(pieces)
    borders = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    expected = divided(answer, format=format)
    assert divided(*(answer[a:b] for a, b in pairwise(borders)), format=format) == expected
    assert divided(*answer, format=format) == expected
    left = iter(answer)
    assert all(character in left for _, _, text in expected for character in text)  # in order, nothing made up


def test_text_is_told_as_it_comes() -> None:
    parser = Harmony()
    assert parser.add("<|channel|>final<|message|>") == []
    assert parser.add("one ") == [Delta(C, "one ", 0)]
    assert parser.add("two<") == [Delta(C, "two", 0)]
    assert parser.add("b") == [Delta(C, "<b", 0)]
    assert parser.add("<|end|>") == []
    assert parser.add("<|start|>assistant" + CALL) == [Delta(T, "", 1, "functions.weather")]
    assert parser.add("{}") == [Delta(T, "{}", 1, "functions.weather")]
    assert parser.finish() == []


UNITS = ("<", "x", "<|", "<|end|>", "<|start|>", "<|channel|>", " ", "<|constrain|>")


@pytest.mark.parametrize("unit", soon(("x", "<|channel|>"), UNITS))
def test_time_grows_with_the_text(unit: str) -> None:
    started = time.process_time()
    divided(*(unit * 5_000))
    divided(unit * 5_000)
    divided("<|channel|>final<|message|>" + unit * 5_000)
    assert time.process_time() - started < 1.5


@pytest.mark.parametrize("format", [HARMONY, ATEM])
def test_models_that_speak_it(format: MessageFormat) -> None:
    """The mark between messages ends no answer, also where the file says so, and is shown."""
    assert not format.spoken(bpe())
    n_tokens = len(bpe_metadata()["tokenizer.ggml.tokens"])
    tokens = [*bpe_metadata()["tokenizer.ggml.tokens"], *format.marks]
    types = [*bpe_metadata()["tokenizer.ggml.token_type"], *[3] * len(format.marks)]
    ends = [n_tokens + format.marks.index(end) for end in format.ends]
    named = {"eom_token_id": ends[0], "eot_token_id": ends[1]}
    tokenizer = Tokenizer.from_metadata(bpe_metadata(tokens=tokens, token_type=types, **named))
    assert format.spoken(tokenizer)
    assert set(range(n_tokens, len(tokens))) & tokenizer.stop_ids == set(ends[1:])
    text = f"{''.join(format.head(format.answers))}<|message|>a{format.ends[0]}"
    ids = tokenizer.encode(text, add_special=False)
    assert tokenizer.decode(ids, skip_special=True) == text

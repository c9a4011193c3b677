"""What `zinc run` and `zinc chat` show of an answer whose parts are marked, and of any other."""

from __future__ import annotations

import pytest

from zinc_rt.cli.answer_view import AnswerScreen
from zinc_rt.dialects.families import GPT_OSS, HERMES, PLAIN
from zinc_rt.dialects.parser import StreamParser
from zinc_rt.dialects.record import Dialect
from zinc_rt.llm.chat import ChatChunk
from zinc_rt.sampling.generation import Chunk

MARKS = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"]
ANSWER = (
    "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>It is 42."
    "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"
)
THINKING = Dialect("thinking", think=("<think>", "</think>"))


def shown(
    text: str, dialect: Dialect, capsys: pytest.CaptureFixture[str], **how: object
) -> tuple[str, str, AnswerScreen]:
    """What the screen gets of a text that comes letter by letter."""
    screen, parser = AnswerScreen(dialect, **how), StreamParser(dialect)  # type: ignore[arg-type]
    for character in text:
        screen.put(ChatChunk(tuple(parser.add(character)), Chunk(character)))
    screen.put(ChatChunk(tuple(parser.finish()), Chunk("", finish_reason="stop")))
    screen.finish()
    return *capsys.readouterr(), screen


@pytest.mark.parametrize("reasoning", [True, False])
def test_the_answer_proper_goes_to_standard_output(reasoning: bool, capsys: pytest.CaptureFixture[str]) -> None:
    out, err, screen = shown(ANSWER, GPT_OSS, capsys, reasoning=reasoning)
    assert out == "It is 42.\n"
    assert screen.text == "It is 42."
    call = "zinc: the model calls functions.f({}); there are no tools here\n"
    assert err == ("Let me see.\n" if reasoning else "") + call
    out, err, screen = shown("<think>\nWell.\n</think>\n\nIt is 42.", THINKING, capsys, reasoning=reasoning)
    assert (out, err) == ("It is 42.\n", "Well.\n" if reasoning else "")
    assert (screen.text, screen.reasoning, screen.marked) == ("It is 42.", "Well.", True)


def test_an_answer_that_is_cut_while_it_reasons(capsys: pytest.CaptureFixture[str]) -> None:
    cut = "<|channel|>analysis<|message|>Let me <"
    out, err, screen = shown(cut, GPT_OSS, capsys, reasoning=True)
    assert (out, screen.text, err) == ("\n", "", "Let me <\n")


def test_a_stop_string_ends_an_answer_in_channels(capsys: pytest.CaptureFixture[str]) -> None:
    out, _, screen = shown(ANSWER, GPT_OSS, capsys, reasoning=False, stop=["is 4", "x"])
    assert (out, screen.text) == ("It \n", "It ")


@pytest.mark.parametrize("dialect", [PLAIN, HERMES], ids=lambda d: d.name)
def test_other_models_answers_are_shown_as_they_come(dialect: Dialect, capsys: pytest.CaptureFixture[str]) -> None:
    out, _, screen = shown(ANSWER, dialect, capsys, reasoning=True)
    assert (out, screen.text, screen.marked) == (ANSWER + "\n", ANSWER, False)


def test_markdown_is_rendered_and_the_text_kept(capsys: pytest.CaptureFixture[str]) -> None:
    out, _, screen = shown("**so** \x1b[2J", PLAIN, capsys, reasoning=True, markdown=True)
    assert (out, screen.text) == ("\x1b[1mso\x1b[0m \ufffd[2J\n", "**so** \x1b[2J")


def test_nothing_is_shown_to_callers_that_want_the_parts(capsys: pytest.CaptureFixture[str]) -> None:
    out, err, screen = shown(ANSWER, GPT_OSS, capsys, reasoning=True, markdown=True, shows=False)
    assert (out, err) == ("", "")
    assert (screen.text, screen.reasoning, screen.calls) == ("It is 42.", "Let me see.", [("functions.f", "{}")])

"""What `zinc run` and `zinc chat` show of an answer whose parts are marked, and of any other."""

from __future__ import annotations

import os
import pty
import re
import sys
import termios

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


def test_lines_are_broken_at_words_of_a_window_that_changes_in_mid_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """A real terminal, whose size is set anew while reasoning, a list and a paragraph come."""
    parent, child = pty.openpty()
    monkeypatch.delenv("COLUMNS", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    words = " ".join(["seven letters and more"] * 8)
    parts = [(40, f"<think>{words}"), (20, f" {words}</think>* **{words}"), (30, f"** {words}\n\n"), (60, words)]
    seen = ""
    with open(child, "w", encoding="utf-8") as terminal:
        for name in ("stdout", "stderr", "__stdout__", "__stderr__"):
            monkeypatch.setattr(sys, name, terminal)
        screen, parser = AnswerScreen(THINKING, reasoning=True, markdown=True), StreamParser(THINKING)
        for width, text in parts:
            termios.tcsetwinsize(child, (24, width))
            for piece in re.findall(r"\S+|\s", text):
                screen.put(ChatChunk(tuple(parser.add(piece)), Chunk(piece)))
            terminal.write("\x05")
        screen.put(ChatChunk(tuple(parser.finish()), Chunk("", finish_reason="stop")))
        screen.finish()
        while seen.count("\x05") < len(parts) or not seen.endswith("\n"):
            seen += os.read(parent, 4096).decode()
    os.close(parent)
    seen = re.sub(r"\x1b\[[\d;]*m", "", seen)
    shown = [part.split("\r\n") for part in seen.split("\x05")]
    whole = [[len(line) for line in lines[1:-1]] for lines in shown]  # lines that no change of the size broke in two
    for (width, _), lengths in zip(parts, whole, strict=False):
        assert lengths
        assert all(width - len(" seven letters") <= length <= width for length in lengths if length), (width, lengths)
    assert seen.replace("•", "").replace("\x05", "").split() == " ".join([words] * 5).split()

"""What `zinc chat` shows of an answer whose channels are marked, and of any other."""

from __future__ import annotations

import pytest

from tests.text.vocabularies import bpe, bpe_metadata
from zinc_rt.cli.answer import AnswerScreen
from zinc_rt.text import Tokenizer

MARKS = ["<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|return|>", "<|call|>"]
ANSWER = (
    "<|channel|>analysis<|message|>Let me see.<|end|><|start|>assistant<|channel|>final<|message|>It is 42."
    "<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{}"
)


@pytest.fixture(scope="module")
def harmonic() -> Tokenizer:
    tokens = [*bpe_metadata()["tokenizer.ggml.tokens"], *MARKS]
    types = [*bpe_metadata()["tokenizer.ggml.token_type"], *[3] * len(MARKS)]
    return Tokenizer.from_metadata(bpe_metadata(tokens=tokens, token_type=types))


@pytest.mark.parametrize("reasoning", [True, False])
def test_the_answer_proper_goes_to_standard_output(
    harmonic: Tokenizer, reasoning: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    screen = AnswerScreen(harmonic, reasoning=reasoning)
    for character in ANSWER:
        screen.put(character)
    screen.finish()
    shown = capsys.readouterr()
    assert shown.out == screen.text == "It is 42."
    call = "zinc: the model calls functions.f({}); there are no tools here\n"
    assert shown.err == ("Let me see.\n" if reasoning else "") + call


def test_an_answer_that_is_cut_while_it_reasons(harmonic: Tokenizer, capsys: pytest.CaptureFixture[str]) -> None:
    screen = AnswerScreen(harmonic, reasoning=True)
    screen.put("<|channel|>analysis<|message|>Let me <")
    screen.finish()
    shown = capsys.readouterr()
    assert (shown.out, screen.text, shown.err) == ("", "", "Let me <\n")


def test_other_models_answers_are_shown_as_they_come(capsys: pytest.CaptureFixture[str]) -> None:
    screen = AnswerScreen(bpe(), reasoning=True)
    screen.put(ANSWER)
    screen.finish()
    assert capsys.readouterr().out == screen.text == ANSWER

"""How Markdown of an answer is shown on a terminal."""

from __future__ import annotations

import io
import os
import random
import re
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zinc_rt.cli.markdown import Markdown
from zinc_rt.cli.terminal import say
from zinc_rt.cli.wrap import Wrapper, width_of, wrapped

TEXT = """\
# A *title* `here`

Some **bold text**, *italic*, ***both***, ~~gone~~ and a `code * span`, x**2 and 2 * 3 * 4, a_b_name, _it_ \\*kept\\*.
- one item that is long enough to be wrapped, since it has many words
  + nested **b**
10. tenth
```python
def f(x):

    return x ** 2  # `a` and **b**, in a line that is much longer than the terminal is wide
```
> quoted text that is long enough to be wrapped, too, at this width
---
| a | b |
-5 and #5 and 1.5 and > 3
日本語のテキストは単語の間に空白がないので、どこでも改行できる。
unclosed **bold"""


def shown(text: str, width: int = 40, cuts: list[int] | None = None) -> str:
    """What a terminal gets of a text that comes in pieces, with styles as <1;4> and <> for their end."""
    markdown, out, last = Markdown(width), "", 0
    for at in [*(cuts or []), len(text)]:
        out += markdown.add(text[last:at])
        last = at
    out += markdown.finish()
    assert out.count("\x1b") == len(re.findall(r"\x1b\[[\d;]*m", out))
    return re.sub(r"\x1b\[([\d;]*)m", lambda m: f"<{'' if m[1] == '0' else m[1]}>", out)


def test_a_whole_answer() -> None:
    assert shown(TEXT).splitlines() == [
        "<1;4>A <><1;4;3>title<><1;4> <><1;4;36>here<>",
        "",
        "Some <1>bold text<>, <3>italic<>, <1;3>both<>, <9>gone<> and a",
        "<36>code * span<>, x**2 and 2 * 3 * 4,",
        "a_b_name, <3>it<> *kept*.",
        "• one item that is long enough to be",
        "  wrapped, since it has many words",
        "  • nested <1>b<>",
        "10. tenth",
        "<2>```python<>",
        "<36>def f(x):<>",
        "",
        "<36>    return x ** 2  # `a` and **b**, in a line that is much longer than the terminal is wide<>",
        "<2>```<>",
        "<2>│ <>quoted text that is long enough to be",
        "<2>│ <>wrapped, too, at this width",
        "<2>───<>",
        "| a | b |",
        "-5 and #5 and 1.5 and > 3",
        "日本語のテキストは単語の間に空白がないの",
        "で、どこでも改行できる。",
        "unclosed **bold",
    ]


@pytest.mark.parametrize("width", [2, 9, 40, 200])
def test_what_is_shown_does_not_depend_on_the_pieces(width: int) -> None:
    whole = shown(TEXT, width)
    assert shown(TEXT, width, list(range(1, len(TEXT)))) == whole
    for seed in range(20):
        rng = random.Random(seed)
        assert shown(TEXT, width, sorted(rng.sample(range(1, len(TEXT)), rng.choice([1, 5, 60])))) == whole


def test_plain_text_stays_as_it_is() -> None:
    text = "a \\ b, <b>c</b> [d](e) $f_1$ &amp; g*\n\n\n  h ~ i\n"
    assert shown(text, 80) == text


def test_marks_wait_no_longer_than_they_must() -> None:
    markdown = Markdown(80)
    assert [markdown.add(piece) for piece in ("a", " ", "b", " *c", " d", "* ", "e\n", "- ", "f ", "g")] == [
        "", "a", "", " b", "", " \x1b[3mc d", "\x1b[0m e\n", "", "• f", "",
    ]  # fmt: skip
    far = Markdown(10_000).add("*" + "x" * 500 + " y*")
    assert far == "*" + "x" * 500  # a partner that is too far away is none


@pytest.mark.parametrize(("text", "width"), [("abc", 3), ("日本", 4), ("e\u0301", 1), ("", 0)])
def test_width(text: str, width: int) -> None:
    assert width_of(text) == width


def test_a_window_that_changes_is_asked_for_each_word(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = [20]
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((columns[0], 24)))
    lines = Wrapper(None)
    lines.add_lines("one two three four five\nsix ")
    columns[0] = 9
    lines.add_lines("seven eight nine")
    lines.finish()
    assert lines.take() == "one two three four\nfive\nsix seven\neight\nnine"


@given(st.text("ab \n-", max_size=60), st.integers(3, 20))
def test_a_whole_text_is_broken_between_words(text: str, width: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((width, 24)))
        shown = wrapped(text)
    assert shown.split() == text.split()
    assert all(len(line) <= width or " " not in line.strip() for line in shown.rstrip().split("\n"))


def test_notices_are_broken_at_words_on_a_terminal_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shutil.get_terminal_size", lambda *_, **__: os.terminal_size((40, 24)))
    line = "prompt 4 tokens, 95.3 tokens/s | text 16 tokens, 80.1 tokens/s"
    told = []
    for terminal in (False, True):
        stream = io.StringIO()
        monkeypatch.setattr(stream, "isatty", lambda terminal=terminal: terminal)
        monkeypatch.setattr(sys, "stderr", stream)
        say(line)
        say("/set NAME VALUE  change how tokens are chosen")
        told.append(stream.getvalue())
    assert told[0].splitlines()[0] == line
    assert told[1].splitlines() == [
        "prompt 4 tokens, 95.3 tokens/s | text 16",
        "tokens, 80.1 tokens/s",
        "/set NAME VALUE  change how tokens are",
        "                 chosen",
    ]

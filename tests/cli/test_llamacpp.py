"""llama.cpp's options: each row of the table does what it says, and short options are never joined."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import typer
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.conftest import Outcome
from zinc_rt.cli.llamacpp import BY_NAME, OF_MODELS, TABLE, Does, Theirs
from zinc_rt.cli.main import application
from zinc_rt.cli.words import readable
from zinc_rt.errors import UsageError

Zinc = Callable[..., Outcome]
COMMANDS = typer.main.get_command(application()).commands  # type: ignore[attr-defined]
PARAMS = {verb: COMMANDS[verb].params for verb in OF_MODELS}
OWN = {verb: {n for p in params for n in (*p.opts, *p.secondary_opts)} for verb, params in PARAMS.items()}
EVERYDAY = [name for name in BY_NAME if BY_NAME[name].does is not Does.same]


def words(row: Theirs, name: str) -> list[str]:
    """An option with a value that it takes."""
    if not row.value:
        return [name]
    return [name, row.choices[0] if row.choices else "4" if row.value == "N" else "x"]


def test_a_name_stands_in_one_row() -> None:
    assert len(BY_NAME) == sum(len(row.names) for row in TABLE)


def test_the_same_options_are_there() -> None:
    everywhere = set().union(*OWN.values()) | {"-h", "--help", "--version"}
    assert [name for row in TABLE if row.does is Does.same for name in row.names if name not in everywhere] == []


def test_other_rows_are_no_options_of_ours() -> None:
    assert [name for name in EVERYDAY if name in OWN["run"] | OWN["chat"]] == []
    assert [row for row in TABLE if row.does is Does.refused and not row.note] == []


@pytest.mark.parametrize("name", EVERYDAY)
def test_each_does_what_its_row_says(name: str) -> None:
    row = BY_NAME[name]
    args = ["-c", "300", *words(row, name), "text"]
    if name in ("-ctk", "--cache-type-k", "-ctv", "--cache-type-v"):
        assert readable(args, PARAMS["run"], "run") == ["--kv", "f16", "-c", "300", "text"]
    elif row.does is Does.nothing:
        assert readable(args, PARAMS["run"], "run") == ["-c", "300", "text"]
    elif row.does is Does.refused:
        with pytest.raises(UsageError, match=f"^{name} of llama.cpp is not supported here: "):
            readable(args, PARAMS["run"], "run")
    else:
        verb = "run" if row.to[0] in OWN["run"] else "serve"
        value = [] if len(row.to) == 1 else words(row, name)[1:]
        expected = ["-c", "300", row.to[0], *value, "text"] if verb == "run" else [row.to[0], *value]
        given_words = args if verb == "run" else words(row, name)
        assert readable(given_words, PARAMS[verb], verb) == expected


@given(st.lists(st.sampled_from(sorted(OWN["run"] | set(BY_NAME))), max_size=3).map("".join))
def test_joined_names_are_never_read(text: str) -> None:
    """Whatever short options are joined to, it is one option that is there, or none."""
    known = OWN["run"] | set(BY_NAME)
    name = "-" + text.replace("-", "")
    if name in known or len(name) == 1:
        return
    with pytest.raises(UsageError, match="No such option"):
        readable([name], PARAMS["run"], "run")


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("-fa", "perhaps", "-p", "x"), "more than once"),  # -fa alone, and a text
        (("-n5", "x"), "No such option: '-n5'; did you mean -n 5?"),
        (("-xyz",), "No such option: '-xyz'"),
        (("--tmp", "1"), "did you mean --temp"),
        (("--mirostat", "2", "x"), "docs/how/sampling.md"),
        (("-tb", "many", "x"), "-tb is 'many'; it must be a whole number"),
        (("-ub",), "-ub needs a value: -ub N"),
        (("--color=loud", "x"), "--color is 'loud'; it must be one of on, off, auto"),
        (("--mlock=1", "x"), "--mlock takes no value"),
        (("-ctk", "q8_0", "x"), "-ctk is q8_0 and -ctv is f16"),
        (("-ctk", "q8_0", "-ctv", "q8_0", "--kv", "f16", "x"), "-ctk is q8_0, and --kv something else"),
        (("-ctk", "q4_0", "-ctv", "q4_0", "x"), "-ctk is 'q4_0'; it must be one of f16, q8_0"),
        (("-i", "--json", "x"), "--json is for one answer"),
        (("--chat-template", "chatml", "x"), "the chat template is 'chatml'"),
        (("--grammar", 'root ::= ("a"', "x"), "--grammar is no GBNF: Expected ')'"),
        (("--grammar", "nope", "x"), "--grammar: "),
        (("--grammar", "start: /a/", "-j", "{}", "x"), "--json-schema and --grammar both"),
        (("--grammar", "start: /a/", "--raw", "x"), "--grammar is for answers"),
    ],
)
def test_what_cannot_be_obeyed_is_said(zinc: Zinc, tiny: Path, args: tuple[str, ...], says: str) -> None:
    outcome = zinc("run", "-m", tiny, *args)
    assert outcome.code == 2
    assert says in outcome.error


def test_other_verbs_name_the_option_too(zinc: Zinc) -> None:
    assert "zinc bench has no --grammar: GBNF or Lark, in `zinc run`" in zinc("bench", "--grammar", "x").error
    assert "No such option: '-fa'" in zinc("show", "-fa").error


def test_options_that_change_nothing(zinc: Zinc, tiny: Path) -> None:
    plain = zinc("run", "-m", tiny, "-s", 7, "-n", 9, "hi")
    more = ("-fa", "on", "--no-mmap", "--jinja", "-ub", 64, "-tb", 1, "--color", "--no-warmup", "-ctk", "f16")
    assert zinc("run", "-m", tiny, "-s=7", *more, "-n", 9, "hi").out == plain.out


def test_a_grammar_in_either_language(zinc: Zinc, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "g.gbnf").write_text('root ::= "ja" | word\nword ::= [x-z]{3}\n')
    text = zinc("run", "-m", tiny, "-s", 7, "hi", "--grammar-file", tmp_path / "g.gbnf").out
    assert text == "ja\n" or (len(text) == 4 and set(text[:3]) <= set("xyz"))
    assert zinc("run", "-m", tiny, "-s", 7, "hi", "--grammar", 'start: "nein"').out == "nein\n"


def test_a_template_in_the_place_of_the_files(zinc: Zinc, tiny: Path, templateless: Path, tmp_path: Path) -> None:
    source = "{% for m in messages %}[{{ m.content }}]{% endfor %}"
    (tmp_path / "t.jinja").write_text(source)
    words = ("-s", 7, "-n", 5, "--json", "hi")
    by_text = json.loads(zinc("run", "-m", tiny, "--chat-template", source, *words).out)
    raw = json.loads(zinc("run", "-m", tiny, "--raw", *words[:-1], "[hi]").out)
    assert by_text["token_ids"] == raw["token_ids"]
    by_file = json.loads(zinc("run", "-m", templateless, "--chat-template-file", tmp_path / "t.jinja", *words).out)
    assert by_file["token_ids"] == raw["token_ids"]
    assert zinc("chat", "-m", templateless, "--chat-template", source, "-n", 5, stdin="hi\n").code == 0


def test_a_conversation_of_run(zinc: Zinc, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "s.txt").write_text("be odd\n")
    same = ("-m", tiny, "-s", 7, "-n", 5, "-sysf", tmp_path / "s.txt")
    talk = zinc("chat", *same, stdin="hi\nmore\n")
    assert zinc("run", *same, "-cnv", "hi", stdin="more\n").out == talk.out
    assert zinc("run", *same, "-st", "hi").out == talk.out.splitlines()[0] + "\n"

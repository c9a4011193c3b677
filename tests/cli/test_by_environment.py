"""Options of servers by the environment: each has a variable, which the command line overrides; wrong ones are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import typer

from zinc_rt.cli.by_environment import variable
from zinc_rt.cli.env import variables
from zinc_rt.cli.main import application, main
from zinc_rt.utils.environment import OPTION_PREFIXES


def verb(name: str) -> Any:
    group: Any = typer.main.get_command(application([name]))
    return group.commands[name]


@pytest.mark.parametrize("name", OPTION_PREFIXES)
def test_every_option_has_a_variable(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    command = verb(name)
    for param in command.params:
        option = next(o for o in param.opts if o.startswith("--"))
        kind = "7" if param.type.name.startswith(("int", "float")) else "1" if param.is_flag else "word"
        value = next(iter(getattr(param.type, "choices", ())), kind)
        if param.name in ("debug", "device", "resident", "gpu_layers") or param.callback is not None:
            continue  # their words are checked, and are tested where they are defined
        with monkeypatch.context() as patch:
            patch.setenv(variable(name, option), str(value))
            arguments = [] if name == "serve" or option == "--backend" else ["-b", "x"]
            found = command.make_context(name, arguments).params[param.name]
            said = [*map(str, found)] if isinstance(found, (list, tuple)) else str(found)
            assert said in (str(value), [str(value)], "True", "7.0"), option


def test_the_command_line_goes_first_and_lists_have_spaces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_SERVE_PORT", "9000")
    monkeypatch.setenv("ZINC_SERVE_CORS", "https://a.example https://b.example")
    monkeypatch.setenv("ZINC_SERVE_STRICT", "0")
    found = verb("serve").make_context("serve", ["--port", "9001"]).params
    assert (found["port"], found["strict"]) == (9001, False)
    assert list(found["cors"]) == ["https://a.example", "https://b.example"]


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("ZINC_SERVE_API_KEY_FIEL", "x", "did you mean ZINC_SERVE_API_KEY_FILE?"),
        ("ZINC_SERVE_QQQQ", "1", "has no such option"),
        ("ZINC_SERVE_PORT", "many", "for ZINC_SERVE_PORT: 'many' is not a valid int"),
    ],
)
def test_what_cannot_be_used_is_told(
    name: str, value: str, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(name, value)
    assert main(["serve"]) == 2
    told = capsys.readouterr().err
    assert said in told
    assert "Traceback" not in told


def test_env_shows_them_and_no_key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZINC_SERVE_API_KEY", "secret")
    monkeypatch.setenv("ZINC_ROUTE_BACKEND", "http://a:1")
    assert variables()["ZINC_SERVE_API_KEY"] == "(set)"
    assert variables()["ZINC_ROUTE_BACKEND"] == "http://a:1"


def test_the_page_says_how_they_are_named() -> None:
    page = (Path(__file__).parents[2] / "docs/use/environment.md").read_text(encoding="utf-8")
    section = page.partition("## Options of servers")[2].partition("\n## ")[0]
    named = {word.strip("`=") for word in section.replace("=", " ").split() if word.strip("`").startswith("ZINC_")}
    known = {variable(name, o) for name in OPTION_PREFIXES for p in verb(name).params for o in p.opts[-1:] + p.opts}
    assert {name for name in named if not name.strip("`").endswith("...")} <= known

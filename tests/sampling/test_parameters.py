"""The table of parameters and its doors: what each of them takes is what the table says."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer

from zinc_rt.cli.main import application
from zinc_rt.cli.option_records import takes_records
from zinc_rt.cli.sampling_options import SamplingOptions, ServerSampling, settings
from zinc_rt.sampling.params import (
    PARAMETERS,
    Api,
    Integer,
    Json,
    Number,
    Option,
    Parameter,
    SamplingParams,
    parameters_of,
)
from zinc_rt.serving.api import fields, ollama
from zinc_rt.serving.api.anthropic import MessagesRequest
from zinc_rt.serving.api.chat import ChatRequest
from zinc_rt.serving.api.completions import CompletionRequest
from zinc_rt.serving.api.errors import ApiError
from zinc_rt.serving.api.fields import ApiField
from zinc_rt.serving.api.llamacpp import COMPLETION, INFILL, InfillRequest, LlamaCompletion
from zinc_rt.serving.api.requests import converted, given_sampling, takes_sampling
from zinc_rt.serving.api.responses import ResponsesRequest

DOCS = Path(__file__).parents[2] / "docs"
REQUESTS: list[tuple[Api, type[msgspec.Struct], tuple[ApiField, ...]]] = [
    (Api.openai, ChatRequest, fields.CHAT),
    (Api.openai, CompletionRequest, fields.COMPLETIONS),
    (Api.llamacpp, InfillRequest, INFILL),
    (Api.llamacpp, LlamaCompletion, COMPLETION),
    (Api.responses, ResponsesRequest, fields.RESPONSES),
    (Api.anthropic, MessagesRequest, fields.ANTHROPIC),
    (Api.ollama, ollama.OllamaOptions, ollama.OPTIONS),
]
MADE_UP = Parameter(
    "typical_p",
    1.0,
    Number(0, 1),
    Option("--typical", "Keep typical tokens.", "X"),
    Json("{limits}; {default} is off", frozenset(Api), names={Api.ollama: "typical"}),
)


def table() -> str:
    """The parameters as docs/how/sampling.md shows them."""
    lines = ["| parameter | default | it must be | option | in requests |", "|---|---|---|---|---|"]
    for row in PARAMETERS.values():
        options = ", ".join(f"`{name}`" for name in row.option.names.split()) if row.option else ""
        names = sorted({row.json_name(api) for api in Api if row in parameters_of(api)}, key=lambda n: n != row.name)
        shown = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| `{row.name}` | {row.default!r} | {row.kind.limits} | {options} | {shown} |")
    return "\n".join(lines) + "\n"


def options_of(verb: str) -> set[str]:
    group: Any = typer.main.get_command(application([verb]))
    return {name for param in group.commands[verb].params for name in param.opts}


def test_the_table_in_the_docs_is_current() -> None:
    expected = table()
    assert expected in (DOCS / "how" / "sampling.md").read_text(encoding="utf-8"), expected
    page = (DOCS / "use" / "python.md").read_text(encoding="utf-8")
    assert not [name for name in PARAMETERS if f"`{name}`" not in page]


def test_the_rows_are_the_fields_with_their_defaults() -> None:
    assert list(PARAMETERS) == [f.name for f in dataclasses.fields(SamplingParams)]
    assert {name: row.default for name, row in PARAMETERS.items()} == dataclasses.asdict(SamplingParams())


@pytest.mark.parametrize("verb", ["run", "chat", "serve"])
def test_verbs_have_the_options_of_the_table(verb: str) -> None:
    known = options_of(verb)
    for row in PARAMETERS.values():
        if row.option is None:
            continue
        has = row.option.server and row.option.listed if verb == "serve" else row.option.listed or verb == "run"
        assert known.issuperset(row.option.names.split()) == has, row.name


def test_a_chat_changes_every_number_that_has_an_option() -> None:
    names = re.findall(r"([a-z-]+) ", settings(SamplingParams(seed=1)))
    numbers = [row.option for row in PARAMETERS.values() if isinstance(row.kind, (Number, Integer))]
    assert names == [option.name.removeprefix("--") for option in numbers if option is not None and option.listed]


@pytest.mark.parametrize(("api", "request_type", "records"), REQUESTS, ids=lambda value: getattr(value, "__name__", ""))
def test_requests_have_the_fields_of_the_table(
    api: Api, request_type: type[msgspec.Struct], records: tuple[ApiField, ...]
) -> None:
    names = {row.json_name(api) for row in parameters_of(api)}
    assert names <= set(request_type.__struct_fields__)
    assert names <= {field.name for field in records}
    others = {row.name for row in PARAMETERS.values()} - names - {"max_tokens", "stop", "logprobs"}
    assert not others & set(request_type.__struct_fields__)  # those three have a form of their own in each interface


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """A parameter more in the table."""
    monkeypatch.setitem(PARAMETERS, MADE_UP.name, MADE_UP)  # type: ignore[misc]


@pytest.mark.usefixtures("made_up")
def test_a_row_more_is_an_option_and_a_field() -> None:
    for kind in (SamplingOptions, ServerSampling):
        assert MADE_UP.name in [name for name, _, _ in kind.options()]

    @takes_records
    def verb(*, sampling: SamplingOptions) -> int:
        assert sampling.values["typical_p"] == 0.5
        return 0

    app = typer.Typer()
    app.command()(verb)
    command: Any = typer.main.get_command(app)
    assert command(["--typical", "0.5"], standalone_mode=False) == 0

    for api in Api:

        @takes_sampling(api)
        class Request(msgspec.Struct, kw_only=True):
            model: str | None = None

        name = "typical" if api is Api.ollama else "typical_p"
        assert given_sampling(converted({name: 0.5, "seed": 3}, Request), api) == {"seed": 3, "typical_p": 0.5}
        with pytest.raises(ApiError, match=f"{name}: Expected `float` <= 1.0"):
            converted({name: 2}, Request)
        (record,) = (field for field in fields.sampling(api) if field.name == name)
        assert record.note == "0 to 1; 1.0 is off"

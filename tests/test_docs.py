"""The pages: their commands are real and run, their links lead somewhere, and their tables say what the sources say."""

from __future__ import annotations

import io
import json
import re
import shlex
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import typer
from huggingface_hub import constants

from zinc_rt.cli import options
from zinc_rt.cli.main import application, main
from zinc_rt.hub.known import KNOWN
from zinc_rt.llm.load import built_in_model

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
GENERATED = ("use/cli.md", "how/lang_reference.md")
PAGES = [ROOT / "README.md", *sorted(p for p in DOCS.rglob("*.md") if str(p.relative_to(DOCS)) not in GENERATED)]
FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
OPTION = re.compile(r"(?<!\S)-{1,2}[a-z][\w-]*")

NOT_RUN = {
    "-hf": "needs the network: tests/hub",
    "pull": "needs the network: tests/hub",
    "serve": "listens until it is told to end: tests/serving",
    "route": "listens until it is told to end: tests/serving",
    "replay": "needs a record of a server: tests/serving",
    "certify": "asks a server: tests/certify",
    "bench": "takes long: tests/cli/test_measuring.py",
    "check": "submits to the machine's cards: tests/cli",
    "emu": "takes long: tests/amdgpu_emu/test_docs.py",
    "--device emu": "takes long: tests/backends/amdgpu",
    "rerank": "needs a model that ranks: tests/cli/test_rerank.py",
    "convert": "needs a folder of a model: tests/cli/test_convert.py",
    "kernels": "compiles GPU kernels: tests/cli",
    "--lora": "needs an adapter: tests/cli/test_adapters.py",
    "--spec mtp": "needs a model that guesses: tests/speculation",
}
"""A verb, an option, or an option with its value, and why commands with it are parsed and not run."""

OTHERS = {
    "python3": "installs from the network: .ci/install",
    ".venv/bin/pip": "installs from the network: .ci/install",
    "pip": "installs from the network: .ci/install",
    "pipx": "installs from the network: .ci/install",
    "uv": "installs from the network: .ci/install",
    ".venv/bin/python": "the whole suite: .ci/run",
    "python": "tests/test_python_docs.py",
    "curl": "asks a server: tests/serving/clients/test_serving_page.py",
}
"""Other programs that pages call, and what tries them."""


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return FENCE.sub("", text)


def whole_commands(lines: Iterator[str]) -> Iterator[list[str]]:
    """The words of each command, without comments; a quoted text may go on in the next line."""
    text = ""
    for line in lines:
        text += line.removesuffix("\\") if line.endswith("\\") else line + "\n"
        if line.endswith("\\"):
            continue
        lexer = shlex.shlex(text, posix=True, punctuation_chars="|&;<>")
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # a quotation is open
            continue
        text = ""
        yield from split_at(words)
    assert not text.strip(), text


def split_at(words: list[str]) -> Iterator[list[str]]:
    """The commands of a line, without what a shell does with their output."""
    command: list[str] = []
    skip = False
    for word in [*words, ";"]:
        if word and set(word) <= set("|&;"):
            if command:
                yield command
            command, skip = [], False
        elif word and set(word) <= set("<>"):
            skip = True
        elif not skip:
            command.append(word)


def commands(text: str) -> Iterator[list[str]]:
    """The commands of a page: of `sh` blocks, behind `$` in other blocks, and indented lines of `zinc`."""
    for block in FENCE.finditer(text):
        lines = block[3].splitlines()
        if block[2] != "sh":
            lines = [line[2:] for line in lines if line.startswith("$ ")]
        yield from whole_commands(iter(lines))
    lines = prose(text).splitlines()
    yield from whole_commands(line.strip() for line in lines if line.startswith("    zinc "))


def of_zinc(page: Path) -> list[list[str]]:
    """The arguments of the page's commands of `zinc`. Other programs stand in `OTHERS`."""
    found = []
    for command in commands(page.read_text(encoding="utf-8")):
        while re.fullmatch(r"[A-Z_]+=.*", command[0]):
            command = command[1:]
        if command[0].removeprefix(".venv/bin/") == "zinc":
            found.append(command[1:])
        else:
            assert command[0] in OTHERS, (page.name, command)
    return found


@cache
def group() -> Any:
    return typer.main.get_command(application())


def reasons(arguments: list[str]) -> set[str]:
    """What keeps a command from being run."""
    flags = {word for word in arguments if word.startswith("-")}
    return {arguments[0], *flags, *map(" ".join, pairwise(arguments))} & set(NOT_RUN)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_real(page: Path) -> None:
    """The command's own parser takes them: no verb, option or value that is not there, none that is missing."""
    for verb, *arguments in of_zinc(page):
        if verb.startswith("-"):
            assert verb in [name for param in group().params for name in param.opts], verb
            continue
        assert verb in group().commands, (page.name, verb)
        command = group().commands[verb]
        command.make_context(verb, [*arguments], parent=group().make_context("zinc", [verb]))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_in_sentences_are_real(page: Path) -> None:
    """`zinc VERB --option` in a sentence: the verb and its options are there."""
    for span in re.findall(r"`(?:\.venv/bin/)?zinc ([^`]+)`", re.sub(r"\s+", " ", prose(page.read_text("utf-8")))):
        verb, _, rest = span.partition(" ")
        names = [name for param in group().params for name in param.opts]
        if not verb.startswith("-"):
            assert verb in group().commands or not verb.islower(), (page.name, span)
            names = [name for p in group().commands[verb].params for name in (*p.opts, *p.secondary_opts)]
        outside = re.sub(r"'[^']*'|\"[^\"]*\"", "", f"{verb} {rest}" if verb.startswith("-") else rest)
        assert set(OPTION.findall(outside)) <= set(names), (page.name, span)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What pages have: files of models, and models that were downloaded. The model in the package is all of them."""
    made = tmp_path_factory.mktemp("page")
    story = made / "story.gguf"
    shutil.copy(built_in_model(), story)
    for name in ("model.gguf", "model-f16.gguf"):
        (made / name).hardlink_to(story)
    report = "The fox ran home. " * 9
    texts = {"question": "Why?", "report": report, "questions": f"{report}Where did it go?", "notes": report}
    for name, text in texts.items():
        (made / f"{name}.txt").write_text(text)
    for model in KNOWN.values():
        snapshot = made / "hub" / f"models--{model.repo.replace('/', '--')}" / "snapshots" / "1"
        snapshot.mkdir(parents=True)
        (snapshot / f"{model.repo.split('/')[1].removesuffix('-GGUF')}-{model.quant}.gguf").hardlink_to(story)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_CACHE", str(made / "hub"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("ZINC_RT_TIER", "cpu")
        patch.chdir(made)
        yield made


SHORT = {"run": ["-n", "4"], "chat": ["-n", "4"]}
DONE: set[tuple[str, ...]] = set()
"""Commands that ran already: several pages have some of them."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_run(
    page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for arguments in of_zinc(page):
        if reasons(arguments) or tuple(arguments) in DONE:
            continue
        DONE.add(tuple(arguments))
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b""), encoding="utf-8"))
        monkeypatch.setattr(options, "_debug", False)
        code = main([*arguments, *SHORT.get(arguments[0], [])])
        assert code == 0, (page.name, arguments, capsys.readouterr().err)


def test_the_tables_of_reasons_have_no_more_than_is_needed() -> None:
    pages = [page.read_text(encoding="utf-8") for page in PAGES]
    every = [command for text in pages for command in commands(text)]
    assert set().union(*(reasons(arguments) for page in PAGES for arguments in of_zinc(page))) == set(NOT_RUN)
    assert {command[0] for command in every} >= set(OTHERS)


def anchors(page: Path) -> set[str]:
    """The names of a page's headings, as GitHub makes them."""
    titles = re.findall(r"^#+ (.*)$", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize(
    "page", [*PAGES, *(DOCS / name for name in GENERATED), ROOT / "CONTRIBUTING.md"], ids=lambda page: page.name
)
def test_links_lead_somewhere(page: Path) -> None:
    text = prose(page.read_text(encoding="utf-8"))
    for link in LINK.findall(re.sub(r"`[^`]*`", "", text)):
        if link.startswith(("http://", "https://")):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file) if file else page
        assert target.exists(), (page.name, link)
        if anchor:
            assert anchor in anchors(target), (page.name, link)
    for name in re.findall(r"`(docs/[\w/]+\.md)`", text):
        assert (ROOT / name).is_file(), (page.name, name)


def test_the_index_has_every_page_once() -> None:
    links = LINK.findall((DOCS / "README.md").read_text(encoding="utf-8"))
    assert sorted(links) == sorted({str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")} - {"README.md"})


def test_no_page_repeats_another() -> None:
    """No fourteen words in a row stand in two pages. The formats are listed in two: tests/formats/test_table.py.
    Fields of requests come from one table of records.
    """
    first: dict[str, str] = {}
    for page in PAGES:
        text = re.sub(
            r"^\| `.* \| (obeyed|accepted|ignored|refused) \| .*$", "", page.read_text("utf-8"), flags=re.MULTILINE
        )
        words = re.findall(r"[\w'-]+", prose(text).lower())
        for place in range(len(words) - 13):
            passage = " ".join(words[place : place + 14])
            if not re.search("mxfp4 iq4_xs|tq2_0 tq1_0", passage):
                assert first.setdefault(passage, page.name) == page.name, passage


def rows(page: str, columns: int) -> list[list[str]]:
    """The rows of the page's tables of so many columns."""
    lines = [line for line in (ROOT / page).read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines]
    return [row for row in cells if len(row) == columns]


def test_speeds_are_those_of_the_results() -> None:
    """Each row of the tables beside llama.cpp stands in a table of benchmarks/results, to the digit."""
    results = "\n".join(p.read_text(encoding="utf-8") for p in (ROOT / "benchmarks/results").glob("*.md"))
    shown = [row for row in rows("docs/use/speed.md", 5) if row[0].startswith("`")]
    assert len(shown) > 10
    for name, ours, peer, ratio, share in shown:
        wanted = (
            rf"^\| {re.escape(name.strip('`'))} \| tokens/s \| {re.escape(ours)}[ (][^|]*\| {re.escape(peer)}[ (][^|]*"
            rf"\| {re.escape(ratio)} x \|[^|]*\| *{re.escape(share)}"
        )
        assert re.search(wanted, results, re.MULTILINE), name


def test_the_table_of_models_is_computed() -> None:
    """Speeds follow from bytes, files fit the memory with a cache of 4,096 tokens, sizes are those of `zinc list`."""
    shown = [row for row in rows("docs/use/start.md", 6) if row[1].startswith("`")]
    assert len(shown) > 5
    for memory, model, file, cache_size, step, speed in shown:
        name, quant = re.fullmatch(r"`(.+)` (\w+)", model).groups()  # type: ignore[union-attr]
        size, read, room = (float(text.removesuffix(" GB")) for text in (file, step, memory))
        assert round(50 / read) == int(speed)
        assert read <= size
        assert size + 4.096 * float(cache_size.removesuffix(" MB")) / 1000 + 0.1 < room
        if KNOWN[name].quant == quant:
            assert abs(KNOWN[name].gigabytes - size) < 0.05 * size


def test_figures_of_the_readme_stand_in_the_pages() -> None:
    """The README shows some rows of the tables of speeds and of models."""
    speeds = [row[1:4] for row in rows("docs/use/speed.md", 5)]
    models = [[row[0], row[2], row[5]] for row in rows("docs/use/start.md", 6)]
    for row in rows("README.md", 4):
        if row[3].replace(".", "").isdigit():
            assert row[1:] in speeds or [row[0], *row[2:]] in models, row


def test_json_blocks_are_json() -> None:
    for page in PAGES:
        for block in FENCE.finditer(page.read_text(encoding="utf-8")):
            if block[2] == "json":
                json.loads(block[3])


def test_what_the_workflows_run_is_here() -> None:
    """Folders of tests and programs that a workflow names; and every night the slow tests run."""
    texts = {path.name: path.read_text(encoding="utf-8") for path in (ROOT / ".github" / "workflows").glob("*.yml")}
    named = [word for text in texts.values() for word in re.findall(r"(?:tests|benchmarks|\.ci)/[\w/.]+", text)]
    assert len(named) > 5
    assert [word for word in named if not (ROOT / word).exists()] == []
    assert re.search(r"schedule:\n +- cron:", texts["nightly.yml"])
    assert "pytest --jobs auto -m slow" in texts["nightly.yml"]

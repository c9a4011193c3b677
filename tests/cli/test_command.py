"""The command as a whole: help, version, completion, reference, and how failures end."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import typer

from zinc_rt.backends.probe import AmdCard
from zinc_rt.cli import options, sampling_options
from zinc_rt.cli.errors import CommandError
from zinc_rt.cli.files import write_file
from zinc_rt.cli.main import GROUPS, VERBS, application
from zinc_rt.cli.reference import reference
from zinc_rt.engine.options import DEFAULT_N_CTX, LARGE_BATCH, Options
from zinc_rt.utils.installation import version_line


def test_the_reference_in_docs_is_current():
    stored = (Path(__file__).parents[2] / "docs" / "use" / "cli.md").read_text(encoding="utf-8")
    assert stored == reference(), "run: python -m zinc_rt.cli.reference > docs/use/cli.md"


def test_the_reference_is_plain():
    text = reference()
    assert "\x1b" not in text
    assert all(f"## `zinc {verb}`" in text for verb in VERBS)


def test_arguments_in_the_reference_have_whole_names():
    names = re.findall(r"^- `([^`]*)`: ", reference(), re.MULTILINE)
    assert {"NAME...", "ARGS..."} <= set(names)
    assert [n for n in names if n.count("[") != n.count("]")] == []


def test_every_option_is_explained():
    for name, verb in typer.main.get_command(application()).commands.items():
        for param in verb.params:
            assert param.help, (name, param.name)
            assert param.help.rstrip().endswith("."), (name, param.name)


def test_defaults_in_help_are_those_of_the_engine():
    flags = {p.name: p for p in typer.main.get_command(application()).commands["run"].params}
    assert (
        f"Default: {LARGE_BATCH} with native kernels and on a GPU, else {Options().n_batch}."
        in flags["batch_size"].help
    )
    assert f"at most {DEFAULT_N_CTX}." in flags["ctx_size"].help
    assert Options().threads is None
    assert "Default: the physical cores" in flags["threads"].help
    assert f"Default: {Options().kernels}, or" in flags["kernels"].help
    assert Options().isa is None
    assert "Default: the best of this machine." in flags["isa"].help
    assert Options().cache_dir is None
    assert "Default: $ZINC_RT_CACHE_DIR" in flags["cache_dir"].help


def test_help_and_version(zinc):
    outcome = zinc("--help")
    assert outcome.code == 0
    assert all(re.search(rf"^  {verb} ", outcome.out, re.MULTILINE) for verb in VERBS)
    assert zinc("-h").out == outcome.out
    assert zinc("--version").out == f"zinc {version_line()}\n"
    for verb in VERBS:
        help_text = zinc(verb, "--help")
        assert help_text.code == 0
        assert help_text.out.startswith(f"Usage: zinc {verb}")


def test_help_and_version_as_words(zinc):
    assert zinc("help").out == zinc("--help").out
    assert zinc("help", "rm").out == zinc("rm", "--help").out
    assert zinc("version").out == zinc("--version").out
    assert "No such command 'nope'" in zinc("help", "nope").error


def test_verbs_are_listed_in_groups_with_whole_sentences(zinc):
    out = zinc("--help").out
    assert [title for title in GROUPS if f"\n{title}:\n" not in out] == []
    assert "..." not in out.partition("Text:")[2]


def test_help_groups_the_options(zinc):
    out = zinc("run", "--help").out
    assert [t for t in ("Arguments:", "Prompt:", "Model:", "Choosing tokens:", "Output:") if t not in out] == []


def test_no_verb_shows_help_as_an_error(zinc):
    outcome = zinc()
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("Usage: zinc")


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("run", "--tmp", "1"), "--temp"),
        (("run", "--temp", "warm", "x"), "--temp"),
        (("run", "--temp"), "--temp"),
        (("rum",), "rum"),
        (("--nope",), "--nope"),
        (("graph", "a", "b"), "b"),
    ],
)
def test_what_the_parser_refuses_is_one_line_and_code_2(zinc, args, expected):
    outcome = zinc(*args)
    assert outcome.code == 2
    assert expected in outcome.error
    assert "--help explains" in outcome.error
    assert len(outcome.err.splitlines()) == 1
    assert outcome.out == ""


def test_an_unexpected_exception_is_one_line_unless_debug(zinc, tiny, monkeypatch):
    def broken(*args, **kwargs):
        raise RuntimeError("two\nlines")

    monkeypatch.setattr("zinc_rt.llm.load.load", broken)
    outcome = zinc("run", "-m", tiny, "x")
    assert outcome.code == 1
    assert outcome.err == (
        "zinc: internal error: RuntimeError: two lines; run again with --debug for the trace, and please report it\n"
    )
    for args in (("run", "-m", tiny, "x", "--debug"), ("--debug", "run", "-m", tiny, "x")):
        outcome = zinc(*args)
        assert outcome.code == 1
        assert "Traceback" in outcome.err
        assert "in broken" in outcome.err


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (MemoryError(), 1, "out of memory"),
        (PermissionError(13, "Permission denied", "x.gguf"), 1, "x.gguf: Permission denied"),
        (KeyboardInterrupt(), 130, ""),
        (BrokenPipeError(32, "Broken pipe"), 0, ""),
    ],
)
def test_errors_of_the_system(zinc, tiny, monkeypatch, error, code, words):
    def broken(*args, **kwargs):
        raise error

    monkeypatch.setattr("zinc_rt.llm.load.load", broken)
    outcome = zinc("run", "-m", tiny, "x")
    assert outcome.code == code
    assert words in outcome.err
    assert bool(outcome.err) == bool(words)


def test_completion(monkeypatch, zinc, capsys):
    monkeypatch.setenv("_ZINC_COMPLETE", "complete_bash")

    def complete(*words):
        monkeypatch.setenv("COMP_WORDS", " ".join(words))
        monkeypatch.setenv("COMP_CWORD", str(len(words) - 1))
        with pytest.raises(SystemExit):
            zinc()
        return capsys.readouterr().out.split()

    assert complete("zinc", "perp") == ["perplexity"]
    assert "--top-k" in complete("zinc", "run", "--top")
    assert "cpu" in complete("zinc", "run", "--device", "")
    script = "from zinc_rt.__main__ import entry; entry()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert "cpu" in done.stdout.split()


@pytest.mark.parametrize(
    ("gpus", "devices"),
    [
        ([], ["auto", "cpu", "emu"]),
        (
            [AmdCard("/dev/dri/renderD129", 0x7550, pci="0000:03:00.0")],
            ["auto", "cpu", "gpu", "gpu:umq", "gpu:kfd", "gpu:cs", "emu"],
        ),
    ],
    ids=["no card", "a card"],
)
def test_completion_offers_the_devices_that_there_are(gpus, devices, monkeypatch):
    monkeypatch.setattr("zinc_rt.backends.probe.find_gpus", lambda _: gpus)
    assert options._devices("") == devices
    assert options._devices("c") == ["cpu"]
    assert options._devices("gpu@") == [f"gpu@{card}" for gpu in gpus for card in (gpu.short, gpu.pci)]


def test_completion_of_models(monkeypatch):
    models = [SimpleNamespace(name=name) for name in ("qwen3-0.6b:Q8_0", "a/b:Q4_0")]
    monkeypatch.setattr("zinc_rt.hub.cached.cached_models", lambda: models)
    assert options.completes(options.downloaded)("q") == ["qwen3-0.6b:Q8_0"]
    assert options.completes(options.downloaded)("./") == []


def test_write_file(tmp_path, capsys):
    write_file(str(tmp_path / "f"), "x")
    assert (tmp_path / "f").read_text() == "x"
    write_file("-", "y")
    assert capsys.readouterr().out == "y"
    with pytest.raises(CommandError, match="cannot be written"):
        write_file(str(tmp_path), "x")


def test_logit_bias_forms():
    assert sampling_options._bias("15+2.5") == (15, 2.5)
    assert sampling_options._bias("15-1e-3") == (15, -1e-3)
    assert sampling_options._bias("0-inf") == (0, float("-inf"))


def test_seed_minus_one_is_drawn():
    def draw():
        return sampling_options.SamplingOptions(seed=-1).params().seed

    assert draw() != draw()
    assert 0 <= draw() < 2**32
